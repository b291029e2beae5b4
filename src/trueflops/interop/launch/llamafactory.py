"""LLaMA-Factory: its config as YAML, or its flags, read as the Trainer that it starts.

In: a config, and accelerate's where a script starts it with one. Out: the plan, and what is not
priced. As of hiyouga/LLaMA-Factory ff6d4d1 (August 2026), src/llamafactory: hparams/*_args.py (keys
and defaults), hparams/parser.py (what it asserts), model/adapter.py (what is trained, in which
dtype), model/model_utils (attention, checkpointing, quantization, liger_kernel, unsloth).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from trueflops.errors import BadInput
from trueflops.interop.launch import llamafactory_keys as keys
from trueflops.interop.launch.settings import Found, Said
from trueflops.interop.launch.trainer import BATCH
from trueflops.interop.launch.tuned import (
    BY_TRITON,
    Tuning,
    by_bitsandbytes,
    by_default,
    check_checkpoint,
    not_priced,
    other_model,
    read_tuning,
    refuse,
    sharing_of,
    told,
    translated,
    unpacked,
)
from trueflops.interop.launch.tuned_layers import ALL, experts_apart, frozen_head, read_targets
from trueflops.language import mark, say, word
from trueflops.model import Model

NAME: Final = "LLaMA-Factory"
MODEL: Final = "model_name_or_path"
OWN: Final = frozenset(
    ["stage", "finetuning_type", "template", "cutoff_len", "lora_target", "quantization_bit"]
)
"""Keys by which its configs are known beside the model's."""
DEFAULTS: Final[dict[str, Any]] = {
    "finetuning_type": "lora",
    "cutoff_len": 2048,
    **BATCH,
}
_ATTENTION: Final = {"auto": "sdpa", "disabled": "eager", "sdpa": "sdpa",
                     "fa2": "flash_attention_2", "fa3": "flash_attention_3"}  # fmt: skip
_LORA: Final = mark("lora beside quantization_bit: packed weights are trained by adapters alone")


def is_config(said: Said) -> bool:
    """Whether settings are LLaMA-Factory's."""
    return MODEL in said.values and bool(OWN & said.values.keys())


def read(
    said: Said, model: Model, accelerators: int, file: Path, sharing: Said | None = None
) -> Found:
    """What a config says; `sharing` is accelerate's."""
    _check(said)
    kind = said.choice("finetuning_type", keys.KINDS, "lora")
    half, by_autocast = _half(said)
    shared = _sharing(said) if sharing is None else sharing
    words = _trainer(said) | _dtypes(said, kind, half, by_autocast)
    fields = _kernels(said)
    if said.switch("tf32") and kind == "full" and not half:
        fields["compute"] = "tf32"
    if kind != "lora" and said.get("quantization_bit"):
        raise said.wrong("finetuning_type", word(_LORA))
    notes: tuple[str, ...] = ()
    if kind == "lora":
        targets = _targets(said, model)
        words |= _adapters(said, targets)
        notes = experts_apart(said, targets, model, packed=bool(said.get("quantization_bit")))
    elif kind == "freeze":
        frozen = _frozen(said, model)
        fields["freeze_layers"] = frozen
        notes = (frozen_head(said, "freeze_trainable_layers", model),)
    packs = said.switch("packing", usual=said.get("stage") == "pt") or said.switch("neat_packing")
    notes = (
        *other_model(said, MODEL, model),
        *(_alone(said, shared, accelerators) if sharing is None else ()),
        *by_default(said, DEFAULTS | ({} if half else {"bf16": False}), NAME),
        *notes,
        *unpacked(said, "packing", "cutoff_len", packs=packs),
        *told(said, keys.TOLD),
        *said.unread(keys.known(said.values)),
    )
    tuning = Tuning(NAME, said, translated(said, words), shared, fields, notes, _of_adapters(said))
    return read_tuning(tuning, model, accelerators, file)


def _sharing(said: Said) -> Said:
    """FSDP where the config itself asks for it."""
    options = said.get("fsdp") or []
    return sharing_of(said, options if isinstance(options, list) else str(options).split(), {})


def _alone(said: Said, sharing: Said, accelerators: int) -> tuple[str, ...]:
    """A note that replicas share nothing, where accelerate's config may say otherwise."""
    by_ddp = sharing.values["distributed_type"] != "FSDP" and not _by_deepspeed(said)
    if accelerators == 1 or not by_ddp:
        return ()
    return (
        say(
            "{where}: neither deepspeed nor fsdp: DDP is priced; where accelerate's config shares "
            "states, give the script that starts it",
            where=said.where,
        ),
    )


def _by_deepspeed(said: Said) -> bool:
    return any(key.partition(".")[0] == "deepspeed" and said.values[key] for key in said.values)


def _check(said: Said) -> None:
    """Refuse what trains otherwise, or nothing."""
    refuse(said, keys.REFUSED, keys.VALUES)
    said.choice("stage", {"pt": "pt", "sft": "sft"}, "sft")
    if not said.switch("do_train"):
        raise BadInput(
            say(
                "{place}: it trains nothing where do_train is not true; write do_train: true",
                place=said.place("do_train"),
            )
        )
    check_checkpoint(said, MODEL, keys.CHECKPOINT)


# ── the Trainer's words ──────────────────────────────────────────────────────────────────────────


def _trainer(said: Said) -> dict[str, tuple[str, Any]]:
    """TrainingArguments, by whose names most keys go already."""
    unsloth = said.switch("use_unsloth") or said.switch("use_unsloth_gc")
    off = "disable_gradient_checkpointing"
    checkpoints = not said.switch(off) or said.switch("gradient_checkpointing") or unsloth
    own = {key: said.count(key) or usual for key, usual in BATCH.items()}
    muon = said.switch("use_muon")
    attention = said.choice("flash_attn", _ATTENTION, "auto")
    return {
        **{key: (key, value) for key, value in own.items()},
        "max_length": ("cutoff_len", said.count("cutoff_len") or DEFAULTS["cutoff_len"]),
        "max_steps": ("max_steps", said.get("max_steps")),
        "gradient_checkpointing": (off, checkpoints),
        "optim": ("use_muon", "muon") if muon else ("optim", said.get("optim")),
        "attn_implementation": ("flash_attn", attention),
        "torch_compile": ("torch_compile", said.get("torch_compile")),
    }


def _half(said: Said) -> tuple[str, bool]:
    """The narrow dtype of products, "" for none, and whether autocast narrows to it."""
    pure = said.switch("pure_bf16")
    if pure and (said.switch("bf16") or said.switch("fp16")):
        key = "bf16" if said.switch("bf16") else "fp16"
        raise BadInput(
            say(
                "{place}: pure_bf16 and {key} are both true; leave one out",
                place=said.place(key),
                key=key,
            )
        )
    if pure or said.switch("bf16"):
        return "bf16", not pure
    return ("fp16", True) if said.switch("fp16") else ("", False)


def _dtypes(said: Said, kind: str, half: str, by_autocast: bool) -> dict[str, tuple[str, Any]]:
    """What is trained is fp32, unless pure_bf16 says otherwise; what is frozen is as narrow as
    products are, and bf16 where nothing says (init_adapter; extras/misc.py: infer_optim_dtype).
    """
    loaded = {"bf16": "bfloat16", "fp16": "float16", "": "bfloat16"}[half]
    return {
        "bf16": ("bf16", half == "bf16" and by_autocast),
        "fp16": ("fp16", half == "fp16"),
        "dtype": ("pure_bf16", loaded if kind != "full" or said.switch("pure_bf16") else None),
    }


def _adapters(said: Said, targets: list[str]) -> dict[str, tuple[str, Any]]:
    """LoRA's settings."""
    return {
        "use_peft": ("finetuning_type", True),
        "load_in_4bit": ("quantization_bit", _packs(said)),
        "lora_r": ("lora_rank", said.count("lora_rank") or 8),
        "lora_dropout": ("lora_dropout", said.real("lora_dropout", 0.0)),
        "lora_target_modules": ("lora_target", targets),
    }


def _packs(said: Said) -> bool:
    """Whether bitsandbytes packs frozen weights in 4 bits."""
    bits = said.count("quantization_bit")
    if not bits:
        return by_bitsandbytes(str(said.values[MODEL]))
    said.choice("quantization_method", {"bnb": True, "bitsandbytes": True}, "bnb")
    if bits == 8:
        raise not_priced(said, "quantization_bit", word(keys.EIGHT_BITS))
    if bits != 4:
        raise said.wrong("quantization_bit", "4")
    return True


def _targets(said: Said, model: Model) -> list[str]:
    """Layers with adapters; a text is a list that commas part."""
    value = said.get("lora_target") or "all"
    names = value if isinstance(value, list) else [name.strip() for name in str(value).split(",")]
    if names == ["all"]:
        return [ALL]
    listed = Said(said.where, {**said.values, "lora_target": names}, said.lines)
    return read_targets(listed, "lora_target", model)


# ── what the Trainer has no word for ─────────────────────────────────────────────────────────────


def _frozen(said: Said, model: Model) -> int:
    """First layers that are not trained, where the last ones are (_setup_freeze_tuning)."""
    if str(said.get("freeze_trainable_modules") or "all") != "all":
        raise said.wrong("freeze_trainable_modules", "all")
    count = said.whole("freeze_trainable_layers", 2)
    if count <= 0:
        raise said.wrong("freeze_trainable_layers", word(keys.LAST))
    return max(model.layers - count, 0)


def _kernels(said: Said) -> dict[str, Any]:
    """Liger's kernels, or Unsloth's."""
    found: dict[str, Any] = {}
    own = said.switch("use_liger_kernel")  # the Trainer's, which does the same
    if said.switch("enable_liger_kernel") or own:
        found |= {**BY_TRITON, "loss": "chunked"}
    if said.switch("use_unsloth"):
        found |= {**BY_TRITON, "loss": "fused", "lora_fused": True, "offload_activations": 1.0}
    if said.switch("use_unsloth_gc"):
        found["offload_activations"] = 1.0
    if said.switch("fp8"):
        found["compute"] = "fp8"
    return found


def _of_adapters(said: Said) -> str:
    """The dtype of adapters."""
    return "bf16" if said.switch("pure_bf16") else "fp32"
