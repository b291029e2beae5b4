"""DeepSpeed: its config as JSON, and a script that starts a Trainer with it; and back.

As of DeepSpeed 0.19.8: runtime/config.py, runtime/zero/config.py, runtime/precision_config.py,
runtime/tensor_parallel/config.py; https://www.deepspeed.ai/docs/config-json/
"""

from __future__ import annotations

from typing import Any, Final

from trueflops.errors import BadInput
from trueflops.interop.launch import trainer
from trueflops.interop.launch.deepspeed_auto import BUCKET, MICRO, STEPS, WHOLE, fill
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
from trueflops.interop.launch.shell import TORCHRUN, processes, script
from trueflops.interop.launch.texts import to_json
from trueflops.language import mark, say
from trueflops.model import Model
from trueflops.units import MILLION

NAME: Final = "deepspeed"
FRAMEWORKS: Final = ("deepspeed",)
RELEASE: Final = "DeepSpeed 0.19.8"
FILE: Final = "ds_config.json"
USUAL: Final[dict[str, Any]] = {"sp": False}
STATES: Final = trainer.STATES | frozenset(
    [
        "tp",
        "dp_replicate",
        "dp_shard",
        "zero",
        "compute",
        "parameter_dtype",
        "gradient_dtype",
        "overlap",
        "reduce_bucket",
        "offload_optimizer",
        "offload_parameters",
        "offload_to",
    ]
)
IMPLIES: Final = {"mixed": "engine"}
_Z: Final = "zero_optimization."
_BUCKET: Final = 500 * MILLION  # reduce_bucket_size, where nobody says (runtime/zero/config.py)
_WEIGHTS: Final = 3  # ZeroStageEnum of runtime/zero/config.py
_DEVICES: Final = {"none": "", "cpu": "host", "nvme": "nvme"}
_OPTIMIZERS: Final = {"adamw": "AdamW", "adamw-bf16": "AdamW", "sgd": "SGD", "lion": "Lion"}
_NVME: Final = "/local_nvme"


def write(asked: Asked) -> Written:
    """The config, and the script."""
    release = f"{RELEASE} and {trainer.RELEASE}"
    check_implied(NAME, asked.plan, IMPLIES, STATES)
    words = [f'--deepspeed "$HERE/{FILE}"', *trainer.program_words(NAME, asked, checkpoints=True)]
    command = f"{TORCHRUN} {trainer.PROGRAM}"
    files = {
        FILE: to_json(config(NAME, asked)),
        "run.sh": script(asked, release, command, words, before=trainer.BEFORE),
    }
    return Written(files, release)


def config(tool: str, asked: Asked) -> Settings:
    """The settings of a plan."""
    plan, work = asked.plan, asked.workload
    _check(tool, asked)
    own = plan.optimizer in _OPTIMIZERS
    pure = plan.optimizer == "adamw-bf16"
    return {
        WHOLE: work.global_batch,
        MICRO: int(plan.micro_batch),
        STEPS: int(plan.micro_batches(work.global_batch)),
        "bf16.enabled": plan.parameter_dtype == "bf16",
        "bf16.bf16_master_weights_and_grads": True if pure else None,
        "bf16.bf16_optimizer_states": True if pure else None,
        "fp16.enabled": plan.parameter_dtype == "fp16",
        "data_types.grad_accum_dtype": plan.gradient_dtype,
        # The learning rate is the Trainer's, which fills in what is 'auto'.
        "optimizer.type": _OPTIMIZERS[plan.optimizer] if own else None,
        "optimizer.params.lr": "auto" if own else None,
        "zero_allow_untested_optimizer": not own,
        f"{_Z}stage": int(plan.zero),
        f"{_Z}overlap_comm": plan.overlap,
        BUCKET: int(plan.reduce_bucket or _BUCKET),
        **_offloaded("optimizer", plan.offload_optimizer, plan.offload_to),
        **_offloaded("param", plan.offload_parameters, plan.offload_to),
        "tensor_parallel.autotp_size": int(plan.tp) if plan.tp > 1 else None,
    }


def _check(tool: str, asked: Asked) -> None:
    """Refuse what the config has no key for."""
    plan = asked.plan
    if plan.zero and plan.dp_replicate > 1:
        raise refused(tool, "dp_replicate", plan.dp_replicate, "ZeRO shares over all replicas")
    if plan.tp > 1 and plan.zero == 3:
        raise refused(tool, "tp", plan.tp, "AutoTP goes with --zero 0, 1 or 2")
    if plan.compute != plan.parameter_dtype:
        own = "weights as wide as products, with fp32 copies, are: --compute bf16, fp16 or fp32"
        raise refused(tool, "parameter_dtype", plan.parameter_dtype, own)
    if plan.optimizer == "adamw-bf16" and (not plan.zero or plan.gradient_dtype != "bf16"):
        raise refused(
            tool, "optimizer", plan.optimizer, "it needs --zero 1 to 3 and bf16 gradients"
        )
    offloads = bool(plan.offload_optimizer or plan.offload_parameters)
    if offloads and (not plan.zero or plan.optimizer not in _OPTIMIZERS):
        raise BadInput(
            say(
                "--emit {tool}: only ZeRO's AdamW is offloaded there; add --zero 1, 2 or 3",
                tool=tool,
            )
        )
    if plan.offload_parameters not in (0, 1) or (plan.offload_parameters and plan.zero < 3):
        own = "all of them, with --zero 3, is"
        raise refused(tool, "offload_parameters", plan.offload_parameters, own)
    if 0 < plan.offload_optimizer < 1 and plan.zero < 3:
        raise refused(tool, "offload_optimizer", plan.offload_optimizer, "a share needs --zero 3")


def _offloaded(what: str, share: Any, where: str) -> Settings:
    if not share:
        return {}
    key = f"{_Z}offload_{what}"
    return {
        f"{key}.device": "nvme" if where == "nvme" else "cpu",
        f"{key}.nvme_path": _NVME if where == "nvme" else None,
        f"{key}.pin_memory": True,
        f"{key}.ratio": float(share) if what == "optimizer" else None,
    }


# ── and back ─────────────────────────────────────────────────────────────────────────────────────


class BatchMismatch(BadInput):
    """Batch sizes that DeepSpeed's assertion refuses, with all that a file says: a flag may win."""

    def __init__(self, message: str, found: Found) -> None:
        self.found = found
        super().__init__(message)


def read(said: Said, model: Model, accelerators: int, program: Said | None = None) -> Found:
    """What a config says, and the flags of the script that starts a program with it."""
    said, taken, notes = fill(said, model, program)
    plan = read_config(said, accelerators)
    work, mismatch = _batch(said, plan)
    if program is not None:
        more, defaults = trainer.read_program(program, NAME, plan, work["global_batch"], taken)
        work, notes = work | more, notes + defaults
    keys = ("bf16.", "fp16.", "optimizer.params", "scheduler", "gradient_clipping", "zero_allow")
    harmless = frozenset(key for key in said.values if key.startswith(keys) or "path" in key)
    stated = STATES if program is not None else STATES | {"adapters"}
    fields = implied_by(IMPLIES, stated) | plan
    started = processes(program) if program is not None else None
    found = {name: value for name, value in work.items() if value}
    ignored = _ignored(said)  # which asks for keys that are then not unread
    notes = (*said.unread(harmless | _MINOR), *notes, *ignored, *trainer.missing(program))
    result = Found(NAME, NAME, fields, found, started, notes)
    if mismatch:
        raise BatchMismatch(mismatch, result)
    return result


_MINOR: Final = frozenset(
    f"{_Z}{key}"
    for key in [
        "contiguous_gradients",
        "allgather_partitions",
        "allgather_bucket_size",
        "reduce_scatter",
        "sub_group_size",
        "stage3_prefetch_bucket_size",
        "stage3_param_persistence_threshold",
        "stage3_max_live_parameters",
        "stage3_max_reuse_distance",
        "round_robin_gradients",
        "stage3_gather_16bit_weights_on_model_save",
        "offload_optimizer.pin_memory",
        "offload_param.pin_memory",
        "offload_optimizer.buffer_count",
        "offload_param.buffer_count",
        "offload_param.buffer_size",
        "offload_param.max_in_cpu",
        "offload_optimizer.fast_init",
    ]
)
"""Sizes of buffers and the like, of which a plan has no field."""


def read_config(said: Said, accelerators: int) -> dict[str, Any]:
    """The fields that a config says."""
    half = "bf16" if said.switch("bf16.enabled") else "fp32"
    half = "fp16" if said.switch("fp16.enabled") else half
    zero = said.whole(f"{_Z}stage", 0)
    tp = max(said.whole("tensor_parallel.autotp_size", 1), 1)
    replicas = max(accelerators // tp, 1)
    pure = said.switch("bf16.bf16_optimizer_states")
    said.get("bf16.bf16_master_weights_and_grads")
    kinds = {"AdamW": "adamw", "Adam": "adamw", "adam": "adamw", "adamw": "adamw", "SGD": "sgd"}
    kinds |= {"Lion": "lion", "lion": "lion"}
    optimizer = said.choice("optimizer.type", kinds, "AdamW")
    if pure and optimizer != "adamw":
        raise said.wrong("optimizer.type", mark("AdamW beside bf16_optimizer_states"))
    widths = {"fp32": "fp32", "bf16": "bf16", "fp16": "fp16"}
    bucket = said.real(BUCKET, _BUCKET)
    states, where = _read_offloaded(said, "optimizer")
    if 0 < states < 1 and zero < _WEIGHTS:  # offload_ratio_check of runtime/zero/config.py
        raise said.wrong(f"{_Z}offload_optimizer.ratio", mark("1; less goes with ZeRO stage 3"))
    weights, other = _read_offloaded(said, "param") if zero >= _WEIGHTS else (0.0, "")
    return {
        "tp": tp,
        "zero": zero,
        "dp_replicate": 1 if zero else replicas,
        "dp_shard": replicas if zero else 1,
        "compute": half,
        "parameter_dtype": half,
        "gradient_dtype": said.choice("data_types.grad_accum_dtype", widths, half),
        "optimizer": "adamw-bf16" if pure else optimizer,
        "overlap": said.switch(f"{_Z}overlap_comm", usual=zero == 3),
        "reduce_bucket": 0.0 if bucket == _BUCKET else bucket,
        "offload_optimizer": states,
        "offload_parameters": weights,
        "offload_to": where or other or "host",
    }


def _ignored(said: Said) -> list[str]:
    """Weights are offloaded at stage 3 alone: _configure_zero_optimizer of runtime/engine.py hands
    offload_param to no other.
    """
    stage = said.whole(f"{_Z}stage", 0)
    if stage >= _WEIGHTS or not _read_offloaded(said, "param")[0]:
        return []
    return [
        say(
            "{place}: offload_param moves nothing at ZeRO stage {stage}, DeepSpeed heeds it at "
            "stage 3 alone: weights stay on the accelerators",
            place=said.place(f"{_Z}offload_param.device"),
            stage=stage,
        )
    ]


def _read_offloaded(said: Said, what: str) -> tuple[float, str]:
    key = f"{_Z}offload_{what}"
    where = said.choice(f"{key}.device", _DEVICES, "none")
    share = said.real(f"{key}.ratio", 1.0)
    return (share if where else 0.0), where


def _batch(said: Said, plan: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Any two of the three batch sizes say the third (runtime/config.py); how they contradict each
    other, if they do.
    """
    replicas = plan["dp_replicate"] * plan["dp_shard"]
    whole, micro, steps = (said.count(key) for key in (WHOLE, MICRO, STEPS))
    if not micro and whole:
        micro = max(whole // (replicas * (steps or 1)), 1)
    if whole and not steps:
        steps = max(whole // (replicas * micro), 1)
    together = micro * (steps or 1) * replicas
    if micro:
        plan["micro_batch"] = micro
    if not whole or whole == together:
        return {"global_batch": together}, ""
    mismatch = say(  # _batch_assertion
        "{place}: train_batch_size {whole} is not micro-batch {micro} × accumulation {steps} × "
        "{replicas} data-parallel ranks = {together}; leave out one of the three, or write "
        "--global-batch",
        place=said.place(WHOLE),
        whole=whole,
        micro=micro,
        steps=steps,
        replicas=replicas,
        together=together,
    )
    return {"global_batch": whole}, mismatch
