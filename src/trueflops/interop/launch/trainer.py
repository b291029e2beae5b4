"""What files of DeepSpeed and accelerate leave to the program: flags of TRL's SFT; and back.

As of TRL 1.16.0 (trl/scripts/sft.py: SFTConfig and ModelConfig) and transformers 5.22.2
(training_args.py). A Trainer of one's own takes the same flags, has other defaults, and calls the
length as it likes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import inf
from typing import Any, Final

from trueflops.interop.launch.settings import Asked, Said, Settings, refused
from trueflops.language import say
from trueflops.plan import OPTIMIZERS
from trueflops.profile.frameworks import habits

PROGRAM: Final = "-m trl.scripts.sft"
RELEASE: Final = "TRL 1.16.0"
STATES: Final = frozenset(
    [
        "micro_batch",
        "recompute",
        "recompute_layers",
        "optimizer",
        "flash",
        "implementation",
        "adapters",
        "lora_rank",
        "lora_targets",
        "lora_dropout",
    ]
)
PACKED: Final[dict[str, Any]] = {
    "parameter_dtype": "bf16",
    "optimizer": "adamw-bf16",
    "adapter_dtype": "bf16",
    "residual_dtype": "bf16",
}
"""QLoRA as TRL has it: what is not packed is loaded in --dtype, which is that of products with
packed weights, too (get_quantization_config); adapters are cast to bf16 (SFTTrainer), and PEFT
lifts nothing to fp32."""
BEFORE: Final = (
    "# Weights and data are no part of a plan: MODEL is a checkpoint, DATASET one of the hub.",
    ": ${MODEL:?set MODEL to a checkpoint} ${DATASET:?set DATASET to a dataset}",
)
_OPTIMIZERS: Final = {
    "adamw_torch_fused": "adamw",
    "adamw_torch": "adamw",
    "adamw_bnb_8bit": "adamw-8bit",
    "adamw_8bit": "adamw-8bit",
    "sgd": "sgd",
    "adamw_hf": "adamw",
    "adamw_apex_fused": "adamw",
    "adamw_torch_8bit": "adamw-8bit",
    "paged_adamw": "adamw",
    "paged_adamw_32bit": "adamw",
    "paged_adamw_8bit": "adamw-8bit",
    "muon": "muon",
    "lion_32bit": "lion",
    "lion_8bit": "lion-8bit",
    "paged_lion_32bit": "lion",
    "paged_lion_8bit": "lion-8bit",
    "adafactor": "adafactor",
}
"""Of transformers' OptimizerNames (training_args.py); muon is that of programs which bring one."""
FIRST_OF_DTENSORS: Final = 2
"""The ZeRO stage from which on fully_shard holds weights, on whose DTensors no Adafactor runs."""
_ATTENTION: Final = {
    "sdpa": True,
    "flash_attention_2": True,
    "flash_attention_3": True,
    "flex_attention": True,
    "eager": False,
}
_LENGTHS: Final = ("model_max_length", "block_size", "max_seq_length", "max_seq_len", "cutoff_len",
                   "max_length")  # fmt: skip
"""What programs call the length of a sequence: FastChat and Alpaca; transformers' run_clm.py; TRL
before 0.20 and Unsloth; LLM-Foundry and OpenRLHF; LLaMA-Factory; TRL."""
BATCH: Final[Mapping[str, Any]] = {
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
}
DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "Trainer": {**BATCH, "gradient_checkpointing": False, "bf16": False},
    "TRL": {**BATCH, "max_length": 1024, "gradient_checkpointing": True, "bf16": True},
}
"""training_args.py; trl/trainer/sft_config.py, whose bf16 is on unless fp16 is."""
_TRL: Final = re.compile(r"(?:.*/)?sft\.py|.*\btrl[./]scripts\b.*")
_TARGETS: Final = {"attention": "q,k,v,o", "all-linear": ""}


def program_words(tool: str, asked: Asked, *, checkpoints: bool) -> list[str]:
    """The flags of a plan; `checkpoints`: whether the Trainer itself recomputes."""
    plan = asked.plan
    if plan.recompute not in ("none", "full") or plan.recompute_layers != inf:
        what = "recompute" if plan.recompute not in ("none", "full") else "recompute_layers"
        raise refused(
            tool, what, getattr(plan, what), "--recompute none, or full of all layers, is"
        )
    kept = plan.optimizer.removesuffix("-bf16")
    if kept == "muon" or kept not in _OPTIMIZERS.values():
        own = "--optimizer adamw, adamw-8bit, lion, lion-8bit, adafactor or sgd is"
        raise refused(tool, "optimizer", plan.optimizer, own)
    if plan.factored and asked.framework.startswith("fsdp2") and plan.zero >= FIRST_OF_DTENSORS:
        own = "--zero 0, or --framework deepspeed, whose pieces are no DTensors, is"
        raise refused(tool, "optimizer", plan.optimizer, own)
    eager = habits(asked.framework).implementation
    if plan.implementation not in (eager, "compiled"):
        own = f"--implementation {eager} or compiled is"
        raise refused(tool, "implementation", plan.implementation, own)
    together = int(plan.micro_batch * plan.dp)
    by_engine = asked.framework == "deepspeed"
    said: Settings = {
        "max_length": asked.workload.seq,
        "packing": True,
        "max_steps": asked.steps,
        "per_device_train_batch_size": int(plan.micro_batch),
        "gradient_accumulation_steps": asked.workload.global_batch // together,
        "gradient_checkpointing": plan.recompute == "full" and checkpoints,
        # Beside DeepSpeed's config the Trainer asks for the same (trainer_config_process).
        "bf16": plan.compute == "bf16" and (by_engine or plan.parameter_dtype != "bf16"),
        "fp16": plan.compute == "fp16",
        "dtype": {"bf16": "bfloat16", "fp16": "float16"}.get(plan.parameter_dtype, "float32"),
        "optim": next(theirs for theirs, ours in _OPTIMIZERS.items() if ours == kept),
        "attn_implementation": "sdpa" if plan.flash else "eager",
        "torch_compile": plan.implementation == "compiled",
        **_adapters(tool, asked),
    }
    model = '--model_name_or_path "$MODEL" --dataset_name "$DATASET"'
    return [model, *(f"--{key} {value}" for key, value in said.items())]


def _adapters(tool: str, asked: Asked) -> Settings:
    plan = asked.plan
    if not plan.adapters:
        return {}
    if "qkv" in plan.lora_targets:
        raise refused(tool, "lora_targets", plan.lora_targets, "q,k,v,o,gate,up,down are")
    layers = [
        name for name in _TARGETS.get(plan.lora_targets, plan.lora_targets).split(",") if name
    ]
    return {
        "use_peft": True,
        "load_in_4bit": plan.adapters == "qlora",
        **({"use_bnb_nested_quant": True} if plan.adapters == "qlora" else {}),
        "lora_r": plan.lora_rank,
        "lora_dropout": plan.lora_dropout,
        "lora_target_modules": " ".join(f"{name}_proj" for name in layers) or "all-linear",
    }


def kind_of(program: Said) -> str:
    """Whose defaults a program has: TRL's where the command names it, else the Trainer's."""
    pairs = zip(program.others, program.others[1:], strict=False)
    trl = any(map(_TRL.fullmatch, program.others)) or ("trl", "sft") in pairs
    return "TRL" if trl else "Trainer"


def half_of(program: Said) -> str:
    """The narrow dtype that its flags ask for; '' for none."""
    narrow = program.switch("fp16")
    usual = bool(DEFAULTS[kind_of(program)]["bf16"]) and not narrow
    wide = program.switch("bf16", usual=usual)
    return "bf16" if wide else "fp16" if narrow else ""


def batch_of(program: Said) -> tuple[int, int]:
    """Micro-batch, and how many a step adds up; as the Trainer has them where no flag says it."""
    micro, steps = (program.whole(key, usual) for key, usual in BATCH.items())
    return micro, steps


def read_program(
    said: Said, framework: str, plan: dict[str, Any], batch: int, unsaid: Iterable[str]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Fields that the flags say into `plan`; the workload as far as they say it; notes.

    `unsaid` are other flags of which the default was taken.
    """
    usual = DEFAULTS[kind_of(said)]
    checkpoints = said.switch("gradient_checkpointing", usual=usual["gradient_checkpointing"])
    plan["recompute"] = "full" if checkpoints or plan.get("recompute") == "full" else "none"
    plan["recompute_layers"] = inf
    kept = said.choice("optim", _OPTIMIZERS, "adamw_torch_fused")
    if plan.get("optimizer", "adamw") == "adamw":
        plan["optimizer"] = kept
    elif plan["optimizer"] == "adamw-bf16":
        plan["optimizer"] = as_wide(kept, "bf16")
    if str(said.get("optim")).startswith("paged"):
        plan["paged_states"] = True
    plan["flash"] = said.choice("attn_implementation", _ATTENTION, "sdpa")
    compiled = said.switch("torch_compile")
    plan["implementation"] = "compiled" if compiled else habits(framework).implementation
    plan |= _read_adapters(said)
    length = next((key for key in _LENGTHS if said.get(key) is not None), "max_length")
    seq = said.whole(length, usual.get("max_length", 0))
    # -1 steps, the Trainer's default, are as many as its epochs take.
    work = {"seq": seq, "tokens": max(said.whole("max_steps", 0), 0) * batch * seq}
    flags = [*unsaid, "gradient_checkpointing"]
    flags += ["max_length"] if length in usual else []
    return work, _by_default(said, flags)


def as_wide(optimizer: str, trained: str) -> str:
    """An optimizer beside trained weights of a dtype that no engine keeps a wide copy of.

    torch.optim keeps moments as wide as bf16 weights, bitsandbytes makes no copy of them.
    """
    narrow = f"{optimizer}-bf16"
    return narrow if trained == "bf16" and narrow in OPTIMIZERS else optimizer


def _by_default(said: Said, flags: Iterable[str]) -> tuple[str, ...]:
    """One note of what no flag says, as the program's library has it."""
    kind = kind_of(said)
    usual = DEFAULTS[kind]
    settings = ", ".join(f"{flag} {usual[flag]}" for flag in flags if said.get(flag) is None)
    if not settings:
        return ()
    note = say(
        "{where}: {settings} by {library}'s own default",
        where=said.where,
        settings=settings,
        library=kind,
    )
    return (note,)


def missing(program: Said | None) -> tuple[str, ...]:
    """What to say where a config was read without the script that starts a program with it."""
    if program is not None:
        return ()
    return (
        say("lengths, recomputation and adapters are the program's: give its script, or flags"),
    )


def _read_adapters(said: Said) -> dict[str, Any]:
    packed = said.switch("load_in_4bit")
    said.switch("use_bnb_nested_quant")  # known: scales are packed as well, 4.13 bits and not 4.5
    names = said.get("lora_target_modules") or "all-linear"
    if not said.switch("use_peft"):
        return {}
    layers = ",".join(
        n.removesuffix("_proj") for n in ([names] if isinstance(names, str) else names)
    )
    own = {theirs: ours for ours, theirs in _TARGETS.items()}
    return {
        "adapters": "qlora" if packed else "lora",
        "lora_rank": said.whole("lora_r", 16),
        "lora_dropout": said.real("lora_dropout", 0.05),
        "lora_targets": own.get(layers, layers),
    }
