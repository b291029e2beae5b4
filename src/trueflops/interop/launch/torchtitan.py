"""torchtitan: flags of release 0.3, or the job config (TOML) of 0.2, whichever can say a plan.

Keys are the same dotted names in both: parallelism.tensor_parallel_degree. Facts:
0.3.0  torchtitan/config/configs.py, config/manager.py, distributed/activation_checkpoint.py,
       models/*/config_registry.py (losses are chunked there, and no flag changes that)
0.2.2  torchtitan/config/job_config.py, distributed/pipeline_parallel.py
"""

from __future__ import annotations

from math import ceil, inf
from typing import Any, Final, Literal

from trueflops.errors import BadInput, join_or
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
from trueflops.interop.launch.shell import TORCHRUN, about, processes, script
from trueflops.interop.launch.texts import to_toml
from trueflops.interop.launch.torchtitan_stages import read_stages, stage_settings
from trueflops.language import say
from trueflops.model import Model
from trueflops.plan import Plan
from trueflops.profile.frameworks import habits

NAME: Final = "torchtitan"
FRAMEWORKS: Final = ("torchtitan", "torchtitan-eager")
FLAGS: Final = "torchtitan 0.3.0"
JOB: Final = "torchtitan 0.2.2"
FILE: Final = "torchtitan.toml"
USUAL: Final[dict[str, Any]] = {"parameter_dtype": "fp32", "loss": "chunked"}
"""What its configs are unless told otherwise: fp32 weights, narrowed by FSDP; losses in chunks."""
STATES: Final = frozenset(
    [
        "tp",
        "sp",
        "cp",
        "pp",
        "vpp",
        "schedule",
        "first_stage_layers",
        "last_stage_layers",
        "dp_replicate",
        "dp_shard",
        "zero",
        "ep",
        "dispatch",
        "micro_batch",
        "recompute",
        "recompute_layers",
        "offload_optimizer",
        "offload_parameters",
        "optimizer",
        "compute",
        "parameter_dtype",
        "loss",
    ]
)
_IMPLIES: Final = {"gradient_dtype": "fp32", "mixed": "engine"}
"""training.mixed_precision_reduce has one choice, float32; fully_shard narrows what it gathers."""

_P, _T = "parallelism.", "training."
_DEGREES: Final = {
    "tp": f"{_P}tensor_parallel_degree",
    "cp": f"{_P}context_parallel_degree",
    "pp": f"{_P}pipeline_parallel_degree",
    "ep": f"{_P}expert_parallel_degree",
    "dp_replicate": f"{_P}data_parallel_replicate_degree",
}
_SHARD: Final = f"{_P}data_parallel_shard_degree"
_RESHARD: Final = f"{_P}fsdp_reshard_after_forward"
_ZERO: Final = {"always": 3, "never": 2}
_WIDE: Final = {"bfloat16": "bf16", "float32": "fp32"}
_RECOMPUTE: Final = {"none": "none", "selective": "products", "full": "full"}
_DISPATCH: Final = {"standard": "all-to-all", "deepep": "deduplicated"}
_FP8: Final = "quantize.linear.float8"
_COMPONENTS: Final = {"fused": "model", "loss": "loss"}
_MODELS: Final[dict[str, tuple[str, str, str]]] = {
    "Llama-3-8B": ("llama3", "8B", "llama3_8b"),
    "Llama-3.1-8B": ("llama3", "8B", "llama3_8b"),
    "Llama-3-70B": ("llama3", "70B", "llama3_70b"),
    "Llama-3.1-70B": ("llama3", "70B", "llama3_70b"),
    "Llama-3.3-70B": ("llama3", "70B", "llama3_70b"),
    "Llama-3.1-405B": ("llama3", "405B", "llama3_405b"),
    "Qwen3-0.6B": ("qwen3", "0.6B", "qwen3_0_6b"),
    "Qwen3-1.7B": ("qwen3", "1.7B", "qwen3_1_7b"),
    "Qwen3-14B": ("qwen3", "14B", "qwen3_14b"),
    "Qwen3-32B": ("qwen3", "32B", "qwen3_32b"),
    "Qwen3-30B-A3B": ("qwen3", "30B-A3B", "qwen3_30b_a3b"),
    "DeepSeek-V3": ("deepseek_v3", "671B", "deepseek_v3_671b"),
    "GPT-OSS-20B": ("gpt_oss", "20b", "gpt_oss_20b"),
    "GPT-OSS-120B": ("gpt_oss", "120b", "gpt_oss_120b"),
}
"""Module, flavor of 0.2 and config of 0.3 of each model that is in both (models/*/__init__.py)."""

_KNOWN: Final = (f"{_T}mixed_precision_reduce", f"{_T}disable_cuda_graphs")
_IN_FP8: Final = ("llama3_405b",)  # configs of 0.3 whose linear layers are float8, and compiled
_ELSEWHERE: Final = ("checkpoint.", "validation.", "comm.", "fault_tolerance.", "experimental.")
"""Sections that change no step."""
Form = Literal["flags", "job"]


def implied(framework: str) -> dict[str, Any]:
    """What its name says: whether the model is compiled, which compile.enable turns on."""
    usual = habits(framework)
    return {**_IMPLIES, "implementation": usual.implementation, "fused": usual.fused}


def write(asked: Asked) -> Written:
    """Flags of 0.3 where they say the plan, else the job config of 0.2."""
    own = implied(asked.framework)
    if asked.plan.fused != own["fused"]:
        other = FRAMEWORKS[0] if asked.plan.fused else FRAMEWORKS[1]
        raise refused(NAME, "fused", asked.plan.fused, f"--framework {other} has it")
    check_implied(NAME, asked.plan, own, STATES)
    if asked.model.name not in _MODELS:
        raise BadInput(
            say(
                "--emit {name}: it has no {model} of its own; its models: {models}",
                name=NAME,
                model=asked.model.name,
                models=", ".join(_MODELS),
            )
        )
    settings = _settings(asked)
    in_flags, in_job = _not_in_flags(asked), _not_in_job(asked.plan)
    if in_flags is None:
        return _flags(asked, settings)
    if in_job is None:
        return _job(asked, settings)
    raise BadInput(
        say(
            "--emit {name}: flags of 0.3 cannot say {in_flags}, and the job config "
            "of 0.2 cannot say {in_job}; write {instead}",
            name=NAME,
            in_flags=in_flags,
            in_job=in_job,
            instead="--loss fused" if asked.plan.loss == "chunked" else "--sp",
        )
    )


def _not_in_flags(asked: Asked) -> str | None:
    """What 0.3 has in its configs and not in flags."""
    plan, config = asked.plan, _MODELS[asked.model.name][2]
    if (plan.compute == "fp8") != (config in _IN_FP8):
        return f"--compute {plan.compute} for {config}"
    if plan.loss != "chunked":
        return f"--loss {plan.loss} (losses of its configs are chunked)"
    return None if plan.dispatch == "all-to-all" else f"--dispatch {plan.dispatch}"


def _not_in_job(plan: Plan) -> str | None:
    """What 0.2 had no key for."""
    if plan.loss == "chunked":
        return "--loss chunked"
    return "--no-sp beside tp" if plan.tp > 1 and not plan.sp else None


def _flags(asked: Asked, settings: Settings) -> Written:
    plan, (module, _, config) = asked.plan, _MODELS[asked.model.name]
    settings[f"{_P}enable_sequence_parallel"] = plan.sp if plan.tp > 1 else None
    # Its graphs refuse pipelines and most experts; kernels are priced as the host launches them.
    settings[f"{_T}disable_cuda_graphs"] = True
    settings["compile.enable"] = plan.fused
    settings["compile.components"] = "model" if plan.fused else None
    kinds = {ours: theirs for theirs, ours in _RECOMPUTE.items()}
    words = [f"--module {module} --config {config}", *_spelt(settings)]
    words.append(f"activation-checkpoint:{kinds[plan.recompute]}")  # a subcommand: it comes last
    command = f"{TORCHRUN} -m torchtitan.train"
    text = script(asked, FLAGS, command, words).replace('\\\n  "$@"', "")
    return Written({"run.sh": text.replace(f"--config {config}", f'--config {config} "$@"')}, FLAGS)


def _spelt(settings: Settings) -> list[str]:
    """Tyro's way: --section.key value, --section.no-key for what is off."""
    words = []
    for key, value in settings.items():
        section, _, name = key.rpartition(".")
        if isinstance(value, bool):
            words.append(f"--{section}.{'' if value else 'no-'}{name.replace('_', '-')}")
        elif value is not None:
            words.append(f"--{key} {value}")
    return words


def _job(asked: Asked, own: Settings) -> Written:
    plan, (module, flavor, _) = asked.plan, _MODELS[asked.model.name]
    kinds = {ours: theirs for theirs, ours in _RECOMPUTE.items()}
    compiled = {"fused": plan.fused, "loss": plan.loss == "fused"}
    settings: Settings = {
        "job.description": f"{asked.model.name} on {asked.cluster.name}",
        "model.name": module,
        "model.flavor": flavor,
        "model.hf_assets_path": f"./assets/hf/{asked.model.name}",
        "model.converters": [_FP8] if plan.compute == "fp8" else [],
        "optimizer.name": "AdamW",
        **own,
        f"{_P}expert_parallel_comm_backend": (
            "deepep" if plan.dispatch == "deduplicated" else "standard"
        ),
        "activation_checkpoint.mode": kinds[plan.recompute],
        "activation_checkpoint.selective_ac_option": "op",
        "compile.enable": any(compiled.values()),
        "compile.components": [_COMPONENTS[what] for what, on in compiled.items() if on],
    }
    command = f'{TORCHRUN} -m torchtitan.train --job.config_file "$HERE/{FILE}"'
    files = {
        FILE: to_toml(settings, about(asked, JOB)),
        "run.sh": script(asked, JOB, command, []),
    }
    return Written(files, JOB)


def _settings(asked: Asked) -> Settings:
    """What both releases call the same."""
    plan, work = asked.plan, asked.workload
    if plan.recompute == "selective" or plan.recompute_layers != inf:
        what = "recompute" if plan.recompute == "selective" else "recompute_layers"
        instead = "--recompute none, products (its selective) or full, of all layers, is"
        raise refused(NAME, what, getattr(plan, what), instead)
    if plan.zero == 1 or (plan.cp > 1 and not plan.zero):
        raise refused(NAME, "zero", plan.zero, "--zero 2 or 3 (FSDP) is; 0 (DDP) without cp")
    if plan.offload_optimizer != plan.offload_parameters or plan.offload_optimizer not in (0, 1):
        instead = "all of --offload-optimizer and --offload-parameters, or neither"
        raise refused(NAME, "offload_optimizer", plan.offload_optimizer, instead)
    if plan.offload_to != "host":
        raise refused(NAME, "offload_to", plan.offload_to, "--offload-to host is")
    kept = {"adamw": "fp32", "adamw-bf16": "bf16"}  # states are as wide as the weights
    if kept.get(plan.optimizer) != plan.parameter_dtype:
        instead = "--parameter-dtype fp32 with adamw, or bf16 with adamw-bf16, is"
        raise refused(NAME, "optimizer", plan.optimizer, instead)
    if plan.compute not in ("bf16", "fp8", "fp32"):
        raise refused(NAME, "compute", plan.compute, "--compute bf16, fp8 or fp32 is")
    if plan.compute == "fp32" and plan.parameter_dtype != "fp32":
        raise refused(NAME, "parameter_dtype", plan.parameter_dtype, "fp32 beside --compute fp32")
    together = int(plan.micro_batch) if plan.pp == 1 else work.global_batch // int(plan.dp)
    said: Settings = {key: int(getattr(plan, name)) for name, key in _DEGREES.items()}
    if not asked.model.is_moe:
        del said[_DEGREES["ep"]]
    wide = {ours: theirs for theirs, ours in _WIDE.items()}
    return {
        f"{_T}seq_len": work.seq,
        f"{_T}local_batch_size": together,
        f"{_T}global_batch_size": work.global_batch,
        f"{_T}steps": asked.steps,
        f"{_T}dtype": wide[plan.parameter_dtype],
        f"{_T}mixed_precision_param": "float32" if plan.compute == "fp32" else "bfloat16",
        f"{_T}mixed_precision_reduce": "float32",
        f"{_T}enable_cpu_offload": bool(plan.offload_optimizer),
        **said,
        _SHARD: int(plan.dp_shard),
        _RESHARD: "never" if plan.zero == 2 else "always",
        **stage_settings(NAME, asked),
    }


# ── and back ─────────────────────────────────────────────────────────────────────────────────────


def read(said: Said, model: Model, accelerators: int) -> Found:
    """What a job config, or the flags of a script, say."""
    form: Form = "flags" if "module" in said.values else "job"
    if form == "flags":
        said = _switches(said)
    plan: dict[str, Any] = {name: said.whole(key, 1) for name, key in _DEGREES.items()}
    within = plan["tp"] * plan["cp"] * plan["pp"] * plan["dp_replicate"]
    shard = said.whole(_SHARD, -1)
    plan["dp_shard"] = max(accelerators // within, 1) if shard < 0 else shard
    shared = plan["dp_shard"] * plan["cp"] > 1
    policies = {**_ZERO, "default": 3 if plan["pp"] == 1 else 2}
    zero = said.choice(_RESHARD, policies, "default")
    plan["zero"] = zero if shared or plan["dp_replicate"] == 1 else 0
    plan["sp"] = plan["tp"] > 1 and said.switch(f"{_P}enable_sequence_parallel", usual=True)
    plan["dispatch"] = said.choice(f"{_P}expert_parallel_comm_backend", _DISPATCH, "standard")
    if said.whole(f"{_P}expert_tensor_parallel_degree", 1) > 1:
        plan["etp"] = said.whole(f"{_P}expert_tensor_parallel_degree", 1)
    plan |= read_stages(said, model, plan["pp"])
    work = _read_batch(said, plan)
    offloads = float(said.switch(f"{_T}enable_cpu_offload"))
    plan |= {"offload_optimizer": offloads, "offload_parameters": offloads}
    plan |= _read_recomputed(said, form, ceil(model.layers / plan["pp"]))
    plan |= _read_dtypes(said, form)
    for seen in ("nnodes", "nproc_per_node", *_KNOWN):
        said.get(seen)
    framework = FRAMEWORKS[0] if plan.pop("fused") else FRAMEWORKS[1]
    fields = implied_by(implied(framework), STATES) | plan
    other = _ELSEWHERE if plan["compute"] == "fp8" else (*_ELSEWHERE, "quantize.")
    harmless = frozenset(key for key in said.values if key.startswith(other))
    return Found(NAME, framework, fields, work, processes(said), said.unread(harmless))


def _switches(said: Said) -> Said:
    """`--training.no-key` as key = false, `--training.key` is true already."""
    values, lines = {}, {}
    for key, value in said.values.items():
        section, _, name = key.rpartition(".")
        off = bool(section) and name.startswith("no_")
        real = f"{section}.{name.removeprefix('no_')}" if off else key
        values[real], lines[real] = (False if off else value), said.lines[key]
    return Said(said.where, values, lines)


def _read_batch(said: Said, plan: dict[str, Any]) -> dict[str, Any]:
    """Batches; a pipeline splits a replica's into micro-batches, else a step adds several up."""
    together = said.whole(f"{_T}local_batch_size", 8)
    replicas = plan["dp_replicate"] * plan["dp_shard"]
    batch = said.whole(f"{_T}global_batch_size", -1)
    batch = together * replicas if batch < 0 else batch
    micro = said.whole(f"{_P}pipeline_parallel_microbatch_size", 1)
    plan["micro_batch"] = micro if plan["pp"] > 1 else together
    seq = said.whole(f"{_T}seq_len", 2048)
    steps = said.whole(f"{_T}steps", 10000)
    return {"seq": seq, "global_batch": batch, "tokens": steps * batch * seq}


def _read_recomputed(said: Said, form: Form, layers: int) -> dict[str, Any]:
    key = "activation_checkpoint" if form == "flags" else "activation_checkpoint.mode"
    kind = said.choice(key, _RECOMPUTE, "selective")
    option = said.get("activation_checkpoint.selective_ac_option")
    every = "op" if form == "flags" else str(option or "2")
    if kind != "products" or every == "op":
        return {"recompute": kind, "recompute_layers": inf}
    if not every.isdigit() or every == "0":
        raise said.wrong(
            "activation_checkpoint.selective_ac_option", join_or(["op", say("a number")])
        )
    return {
        "recompute": "full",
        "recompute_layers": max(layers // int(every), 1),
    }  # each n-th layer


def _read_dtypes(said: Said, form: Form) -> dict[str, Any]:
    held = said.choice(f"{_T}dtype", _WIDE, "float32")
    compute = said.choice(f"{_T}mixed_precision_param", _WIDE, "bfloat16")
    converters = said.get("model.converters") or []
    narrow = any("float8" in str(name) for name in converters) or said.get("config") in _IN_FP8
    components = said.get("compile.components") or ["model", "loss"]
    if isinstance(components, str):
        components = components.split(",")
    usual = said.get("config") in _IN_FP8  # CompileConfig.enable is off in the other configs
    compiled = components if said.switch("compile.enable", usual=usual) else []
    loss = "fused" if "loss" in compiled else "plain"
    return {
        "parameter_dtype": held,
        "optimizer": "adamw" if held == "fp32" else "adamw-bf16",
        "compute": "fp8" if narrow else compute,
        "fused": "model" in compiled,
        "loss": "chunked" if form == "flags" else loss,
    }
