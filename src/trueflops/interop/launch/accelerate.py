"""accelerate: its config as YAML, and a script that starts a Trainer with it; and back.

DDP without ZeRO, FSDP 2 or 1 for ZeRO 2 and 3, or DeepSpeed, by --framework. As of accelerate
1.15.0: commands/config/config_args.py, commands/launch.py, utils/dataclasses.py
(FullyShardedDataParallelPlugin), parallelism_config.py.
"""

from __future__ import annotations

from typing import Any, Final

from trueflops.errors import BadInput
from trueflops.interop.launch import deepspeed, trainer
from trueflops.interop.launch.settings import (
    Asked,
    Found,
    Said,
    Settings,
    Written,
    check_implied,
    implied_by,
    refused,
)
from trueflops.interop.launch.shell import about, script
from trueflops.interop.launch.texts import to_json, to_yaml
from trueflops.language import say
from trueflops.model import Model
from trueflops.profile.frameworks import habits

NAME: Final = "accelerate"
FRAMEWORKS: Final = ("fsdp2", "fsdp", "trainer", "deepspeed")
RELEASE: Final = "accelerate 1.15.0"
FILE: Final = "accelerate.yaml"
USUAL: Final[dict[str, Any]] = {"parameter_dtype": "fp32", "sp": False}
STATES: Final = trainer.STATES | frozenset(
    [
        "tp",
        "cp",
        "dp_replicate",
        "dp_shard",
        "zero",
        "compute",
        "parameter_dtype",
        "offload_optimizer",
        "offload_parameters",
    ]
)
_F: Final = "fsdp_config.fsdp_"
_P: Final = "parallelism_config.parallelism_config_"
_DEGREES: Final = {"dp_replicate": "dp_replicate", "dp_shard": "dp_shard", "tp": "tp", "cp": "cp"}
_V1: Final = {"FULL_SHARD": 3, "SHARD_GRAD_OP": 2, "NO_SHARD": 0, "HYBRID_SHARD": 3}
_INLINE: Final = {
    "zero_stage": "zero_optimization.stage",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "offload_optimizer_device": "zero_optimization.offload_optimizer.device",
    "offload_param_device": "zero_optimization.offload_param.device",
}
_LOADED: Final = {"bfloat16": "bf16", "float16": "fp16"}
_MIXED: Final = {"no": "", "False": "", "bf16": "bf16", "fp16": "fp16"}


def write(asked: Asked) -> Written:
    """The config and the script; with DeepSpeed its own config beside them."""
    plan, release = asked.plan, f"{RELEASE} and {trainer.RELEASE}"
    if asked.framework == "deepspeed":
        files, settings = _by_deepspeed(asked), _places(asked, "DEEPSPEED")
        settings["deepspeed_config.deepspeed_config_file"] = deepspeed.FILE
        settings["deepspeed_config.zero3_init_flag"] = plan.zero == 3
        settings["deepspeed_config.deepspeed_multinode_launcher"] = "standard"
        del settings["mixed_precision"]  # the config of DeepSpeed says it
        checkpoints = True
    else:
        packed = plan.adapters == "qlora"
        check_implied(NAME, plan, implied(asked.framework, plan.compute, packed=packed), STATES)
        files, settings = {}, _by_torch(asked)
        checkpoints = settings["distributed_type"] != "FSDP"
    words = [
        f'--config_file "$HERE/{FILE}" --machine_rank "$NODE_RANK"',
        '--main_process_ip "$MASTER_ADDR" --main_process_port "$MASTER_PORT"',
        *(
            [f'--deepspeed_config_file "$HERE/{deepspeed.FILE}"']
            if asked.framework == "deepspeed"
            else []
        ),
        trainer.PROGRAM,
        *trainer.program_words(NAME, asked, checkpoints=checkpoints),
    ]
    text = script(asked, release, "accelerate launch", words, before=trainer.BEFORE)
    yaml = to_yaml(settings, about(asked, release))
    return Written({FILE: yaml, **files, "run.sh": text}, release)


def implied(framework: str, compute: str, *, packed: bool) -> dict[str, Any]:
    """What no file says: as the framework does it, gradients summed as products compute."""
    usual = habits(framework)
    return {
        "gradient_dtype": compute,
        "mixed": usual.mixed,
        "fused": usual.fused,
        "loss": usual.loss,
        "overlap": usual.overlap,
        **(trainer.PACKED if packed else {}),
    }


def _by_deepspeed(asked: Asked) -> dict[str, str]:
    check_implied(NAME, asked.plan, deepspeed.IMPLIES, deepspeed.STATES)
    return {deepspeed.FILE: to_json(deepspeed.config(NAME, asked))}


def _places(asked: Asked, kind: str) -> Settings:
    """Where processes run."""
    return {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": kind,
        "mixed_precision": "no",
        "num_machines": asked.cluster.nodes,
        "num_processes": asked.cluster.count,
        "rdzv_backend": "static",
        "same_network": True,
        "main_training_function": "main",
        "use_cpu": False,
    }


def _by_torch(asked: Asked) -> Settings:
    plan = asked.plan
    pure = plan.parameter_dtype == "bf16"
    if plan.compute not in ("bf16", "fp16", "fp32"):
        raise refused(NAME, "compute", plan.compute, "--compute bf16, fp16 or fp32 is")
    alone = plan.optimizer.endswith("-bf16")
    if plan.parameter_dtype != ("bf16" if alone else "fp32") or (pure and plan.compute != "bf16"):
        own = "fp32 weights, or bf16 ones with --optimizer adamw-bf16, are"
        raise refused(NAME, "parameter_dtype", plan.parameter_dtype, own)
    if plan.adapters == "qlora" and not pure:
        own = "--parameter-dtype bf16 --optimizer adamw-bf16 beside packed weights is"
        raise refused(NAME, "parameter_dtype", plan.parameter_dtype, own)
    if plan.zero == 1:
        raise refused(NAME, "zero", 1, "--zero 2 or 3 (FSDP), or --framework deepspeed, is")
    if asked.framework == "trainer":
        if plan.zero or plan.tp * plan.cp > 1 or plan.offload_optimizer:
            raise BadInput(
                say(
                    "--emit {name}: DDP shares, splits and offloads nothing; write --zero "
                    "0, or --framework fsdp2 --zero 3",
                    name=NAME,
                )
            )
        said = _places(asked, "MULTI_GPU" if asked.cluster.count > 1 else "NO")
    elif not plan.zero and plan.dp_replicate > 1:
        raise refused(NAME, "zero", 0, "--zero 2 or 3 (FSDP), or --framework trainer (DDP), is")
    else:
        sharded = _fsdp1(asked) if asked.framework == "fsdp" else _fsdp2(asked)
        said = _places(asked, "FSDP") | sharded
    if not pure and plan.compute != "fp32":
        said["mixed_precision"] = plan.compute
    return said


def _fsdp(asked: Asked, version: int, reshards: Any) -> Settings:
    plan = asked.plan
    if plan.offload_optimizer != plan.offload_parameters or plan.offload_optimizer not in (0, 1):
        own = "all of --offload-optimizer and --offload-parameters, or neither"
        raise refused(NAME, "offload_optimizer", plan.offload_optimizer, own)
    return {
        f"{_F}version": version,
        f"{_F}reshard_after_forward": reshards,
        f"{_F}offload_params": bool(plan.offload_parameters),
        f"{_F}activation_checkpointing": plan.recompute == "full",
        f"{_F}auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        f"{_F}state_dict_type": "SHARDED_STATE_DICT",
        f"{_F}cpu_ram_efficient_loading": True,
    }


def _fsdp2(asked: Asked) -> Settings:
    sizes = {f"{_P}{key}_size": int(getattr(asked.plan, name)) for name, key in _DEGREES.items()}
    return _fsdp(asked, 2, asked.plan.zero != 2) | sizes


def _fsdp1(asked: Asked) -> Settings:
    plan = asked.plan
    if plan.tp * plan.cp > 1:
        raise refused(NAME, "tp", plan.tp, "tp and cp go with --framework fsdp2")
    hybrid = plan.dp_replicate > 1
    if hybrid and (plan.zero != 3 or plan.dp_shard != asked.cluster.per_node):
        own = f"HYBRID_SHARD is --zero 3 --dp-shard {asked.cluster.per_node}, a node's"
        raise refused(NAME, "dp_shard", plan.dp_shard, own)
    whole = "SHARD_GRAD_OP" if plan.zero == 2 else "FULL_SHARD"
    return _fsdp(asked, 1, "HYBRID_SHARD" if hybrid else whole)


# ── and back ─────────────────────────────────────────────────────────────────────────────────────


def read(said: Said, model: Model, accelerators: int, program: Said | None = None) -> Found:
    """What a config says, and the flags of the script that starts a program with it."""
    kinds = {"NO": "", "MULTI_GPU": "ddp", "FSDP": "fsdp"}
    kind = said.choice("distributed_type", kinds | {"DEEPSPEED": "deepspeed"}, "NO")
    if kind == "deepspeed":
        return deepspeed.read(_inline(said, program), model, accelerators, program)
    plan, framework = _read_torch(said, kind, accelerators)
    compute = said.choice("mixed_precision", _MIXED, "no")
    if not compute and program is not None:  # TrainingArguments sets what accelerate then reads
        compute = trainer.half_of(program)
    dtype = str(program.get("dtype")) if program is not None else "float32"
    plan["parameter_dtype"] = _LOADED.get(dtype, "fp32")
    plan["compute"] = compute or plan["parameter_dtype"]
    plan["optimizer"] = "adamw-bf16" if plan["parameter_dtype"] == "bf16" else "adamw"
    work: dict[str, Any] = {}
    defaults: tuple[str, ...] = ()
    if program is not None:
        plan["micro_batch"], steps = trainer.batch_of(program)
        batch = plan["micro_batch"] * steps * plan["dp_replicate"] * plan["dp_shard"]
        work, defaults = trainer.read_program(program, framework, plan, batch, trainer.BATCH)
        work["global_batch"] = batch
    harmless = frozenset(key for key in said.values if key.startswith(("main_", "dynamo", _F)))
    started = said.whole("num_processes", accelerators)
    stated = STATES if program is not None else STATES | {"adapters"}
    packed = plan.get("adapters") == "qlora"
    fields = implied_by(implied(framework, plan["compute"], packed=packed), stated) | plan
    found = {name: value for name, value in work.items() if value}
    notes = (*said.unread(harmless), *defaults, *trainer.missing(program))
    return Found(NAME, framework, fields, found, started, notes)


def _inline(said: Said, program: Said | None) -> Said:
    """The settings of DeepSpeed that stand in accelerate's own config, by DeepSpeed's names."""
    if file := said.get("deepspeed_config.deepspeed_config_file"):
        raise BadInput(
            say(
                "{where}: the config of DeepSpeed says the plan; give --from {file}",
                where=said.where,
                file=file,
            )
        )
    half = said.choice("mixed_precision", _MIXED, "no")
    values: Settings = {f"{half}.enabled": True} if half else {}
    if not half and program is not None:  # TrainingArguments sets what accelerate then reads
        values = {"bf16.enabled": "auto", "fp16.enabled": "auto"}
    named = {theirs: f"deepspeed_config.{ours}" for ours, theirs in _INLINE.items()}
    values |= {key: said.values[ours] for key, ours in named.items() if ours in said.values}
    lines = {key: said.lines[ours] for key, ours in named.items() if ours in said.lines}
    return Said(said.where, values, lines, named)


def _read_torch(said: Said, kind: str, accelerators: int) -> tuple[dict[str, Any], str]:
    """Degrees, ZeRO and offloading, and the framework that this is."""
    alone = {"tp": 1, "cp": 1, "zero": 0, "dp_replicate": accelerators, "dp_shard": 1}
    if kind != "fsdp":
        return alone | {"offload_optimizer": 0.0, "offload_parameters": 0.0}, "trainer"
    plan: dict[str, Any] = {}
    offloads = float(said.switch(f"{_F}offload_params"))
    plan |= {"offload_optimizer": offloads, "offload_parameters": offloads}
    plan["recompute"] = "full" if said.switch(f"{_F}activation_checkpointing") else "none"
    how = f"{_F}reshard_after_forward"
    if said.whole(f"{_F}version", 1) == 2:
        plan |= {name: said.whole(f"{_P}{key}_size", 1) for name, key in _DEGREES.items()}
        if not any(key.startswith(_P) for key in said.values):
            plan["dp_shard"] = accelerators
        return plan | {"zero": 3 if said.switch(how, usual=True) else 2}, "fsdp2"
    old = f"{_F}sharding_strategy"
    key = old if said.get(old) is not None else how
    zero = said.choice(key, _V1 | {"1": 3, "2": 2, "3": 0, "4": 3}, "FULL_SHARD")
    hybrid = str(said.get(key)) in ("HYBRID_SHARD", "4")
    copies = said.whole("num_machines", 1) if hybrid else 1
    degrees = {"dp_replicate": copies, "dp_shard": max(accelerators // copies, 1)}
    return plan | {"tp": 1, "cp": 1, **(degrees if zero else alone), "zero": zero}, "fsdp"
