"""Megatron-LM: a script that starts pretrain_gpt.py with the flags of a plan, and back.

As of core_v0.16.1: megatron/training/arguments.py (flags, defaults and what validate_args asks).
"""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import Any, Final

from trueflops.errors import nearest
from trueflops.interop.launch.core import (
    IMPLIES,
    STATES,
    computed_in,
    core_plan,
    core_settings,
    environment,
    held_in,
)
from trueflops.interop.launch.core_model import check_model
from trueflops.interop.launch.core_stages import FIRST, LAST, LAYOUT, VPP
from trueflops.interop.launch.megatron_flags import FLAGS
from trueflops.interop.launch.megatron_model import model_flags
from trueflops.interop.launch.settings import (
    ALIKE,
    Asked,
    Found,
    Said,
    Settings,
    Written,
    check_implied,
    implied_by,
    refused,
)
from trueflops.interop.launch.shell import TORCHRUN, flags, processes, script
from trueflops.model import Model
from trueflops.plan.captures import STEP

NAME: Final = "megatron"
FRAMEWORKS: Final = ("megatron",)
RELEASE: Final = "Megatron-LM core_v0.16.1"
USUAL: Final[dict[str, Any]] = {"overlap": True}  # off unless asked for, and who emits asks

_FLAGS: Final = {
    VPP: "num_virtual_stages_per_pipeline_rank",
    FIRST: "decoder_first_pipeline_num_layers",
    LAST: "decoder_last_pipeline_num_layers",
    LAYOUT: "pipeline_model_parallel_layout",
    "model.fp8": "fp8_format",
    "model.fp4": "fp4_format",
    "model.num_moe_experts": "num_experts",
    "ddp.bucket_size": "ddp_bucket_size",
}
"""Flags that are not called as the field of megatron-core that they set."""
_IN_FP32: Final = "ddp.grad_reduce_in_fp32"
_SECTIONS: Final = {
    "train": ["micro_batch_size", "global_batch_size", "train_iters"],
    "ddp": [
        "use_distributed_optimizer",
        "overlap_grad_reduce",
        "overlap_param_gather",
        "use_megatron_fsdp",
        "data_parallel_sharding_strategy",
        "num_distributed_optimizer_instances",
    ],
    "optimizer": [
        "optimizer",
        "use_precision_aware_optimizer",
        "optimizer_cpu_offload",
        "optimizer_offload_fraction",
    ],
}
_HARMLESS: Final = frozenset(
    [
        "model.fp8_amax_history_len",
        "model.fp8_amax_compute_algo",
        "model.init_model_with_meta_device",
        "model.ckpt_format",
        "model.no_gradient_accumulation_fusion",
        "model.no_check_for_nan_in_loss_and_grad",
        "model.max_position_embeddings",
        "model.decoder_seq_length",
        "model.attention_softmax_in_fp32",
    ]
)


def write(asked: Asked) -> Written:
    """The script."""
    check_implied(NAME, asked.plan, IMPLIES, STATES)
    if asked.plan.captured == {STEP} and asked.plan.ep > 1:  # validate_args: with padded experts
        raise refused(NAME, "cuda_graphs", STEP, "attention,router goes beside --ep")
    settings = {_flag(key): value for key, value in core_settings(NAME, asked).items()}
    layout = _flag(LAYOUT)
    if settings[layout]:
        settings[layout] = f'"{settings[layout]}"'  # bash would read it as a pipe
        settings[_flag(VPP)] = None
    in_fp32 = settings.pop(_flag(_IN_FP32))
    if asked.plan.gradient_dtype == "fp16":
        in_fp32 = None  # what --fp16 sums in unless told otherwise
    elif asked.plan.parameter_dtype == "fp32":
        in_fp32 = None
    settings["accumulate_allreduce_grads_in_fp32"] = in_fp32 is True
    settings["grad_reduce_in_bf16"] = in_fp32 is False
    settings["no_check_for_nan_in_loss_and_grad"] = asked.plan.captured == {STEP}
    settings |= {"seq_length": asked.workload.seq, **_beside_fsdp(asked)}
    words = [
        *flags({key.replace("_", "-"): value for key, value in settings.items()}),
        *model_flags(NAME, asked.model, asked.workload.seq),
        '--lr "${LR:-3e-4}"',
        "${DATA:---mock-data --tokenizer-type NullTokenizer --vocab-size "
        f"{asked.model.vocab - 1}}}",
    ]
    before = [
        *environment(asked),
        "# LR and DATA (--data-path …, --tokenizer-type …) are no part of a plan: set them.",
        "PROGRAM=${PROGRAM:-pretrain_gpt.py}",
    ]
    text = script(asked, RELEASE, f'{TORCHRUN} "$PROGRAM"', words, before=before)
    return Written({"run.sh": text}, RELEASE)


def _beside_fsdp(asked: Asked) -> Settings:
    """What Megatron-FSDP asks for (validate_args; docs/source/api-guide/custom_fsdp.md)."""
    if asked.plan.zero < 2:
        return {}
    if asked.plan.optimizer != "adamw":
        raise refused(NAME, "optimizer", asked.plan.optimizer, "--zero 2 and 3 need adamw")
    return {"ckpt_format": "fsdp_dtensor", "no_gradient_accumulation_fusion": True}


def _flag(key: str) -> str:
    return _FLAGS.get(key, key.partition(".")[2])


def read(said: Said, model: Model, accelerators: int) -> Found:
    """What the flags of a script say."""
    core = _as_core(said)
    each = core.whole("model.num_layers_per_virtual_pipeline_stage", 0)
    if each:
        stages = core.whole("model.pipeline_model_parallel_size", 1)
        pieces = core.whole("model.num_layers", model.layers) // (stages * each)
        core = Said(core.where, {**core.values, VPP: pieces}, core.lines, core.spelt, core.asked)
    if core.switch("model.recompute_activations"):
        changed = {**core.values, "model.recompute_granularity": "selective"}
        core = Said(core.where, changed, core.lines, core.spelt, core.asked)
    other = check_model(core, model, alone=True)
    plan = core_plan(core, model, accelerators)
    plan["compute"] = computed_in(core)
    plan["parameter_dtype"] = plan["gradient_dtype"] = held_in(plan["compute"])
    wide = core.switch("model.accumulate_allreduce_grads_in_fp32")
    narrow = core.switch("model.grad_reduce_in_bf16")
    if wide or (plan["parameter_dtype"] == "bf16" and not narrow):  # validate_args
        plan["gradient_dtype"] = "fp32"
    work = _workload(core)
    started = processes(said)
    core.asked.update({"model.nnodes", "model.nproc_per_node"})
    notes = (*other, *core.unread(_HARMLESS, _misspelt(core)))
    fields = implied_by(IMPLIES, STATES) | plan
    return Found(NAME, "megatron", fields, work, started, notes)


def _as_core(said: Said) -> Said:
    """The flags by the fields of megatron-core that they set."""
    keys = {flag: key for key, flag in _FLAGS.items()}
    keys |= {flag: f"{section}.{flag}" for section, names in _SECTIONS.items() for flag in names}
    named = {flag: keys.get(flag, f"model.{flag}") for flag in said.values}
    values = {named[flag]: value for flag, value in said.values.items()}
    lines = {named[flag]: line for flag, line in said.lines.items()}
    every = {key: flag for flag, key in keys.items()} | {key: flag for flag, key in named.items()}
    spelt = {key: "--" + flag.replace("_", "-") for key, flag in every.items()}
    return Said(said.where, values, lines, spelt)


def _misspelt(core: Said) -> dict[str, str]:
    """Flags that nearly are one of Megatron-LM's, and that one; others are a program's own."""
    alike = {}
    for key in core.values:
        flag = core.spelt[key].removeprefix("--")
        for meant in [] if flag in FLAGS else nearest(flag, FLAGS, most=1):
            if SequenceMatcher(None, flag, meant).ratio() >= ALIKE:
                alike[key] = f"--{meant}"
    return alike


def _workload(core: Said) -> dict[str, Any]:
    seq, batch = core.whole("model.seq_length", 0), core.whole("train.global_batch_size", 0)
    samples = core.whole("model.train_samples", core.whole("train.train_iters", 0) * batch)
    work = {"seq": seq, "global_batch": batch, "tokens": samples * seq}
    return {name: value for name, value in work.items() if value}
