"""What configs of fine-tuning programs share: they start Hugging Face's Trainer by other words.

In: a config, and its settings by the Trainer's names. Out: a plan as accelerate or DeepSpeed read
it (accelerate.py, deepspeed.py, trainer.py), with what those have no flag for. What a plan cannot
say is refused; what is not priced is told.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from trueflops.errors import BadInput
from trueflops.interop.launch import accelerate, deepspeed
from trueflops.interop.launch.named import text_named
from trueflops.interop.launch.settings import Found, Said, Settings
from trueflops.interop.launch.texts import from_json
from trueflops.interop.launch.trainer import as_wide
from trueflops.language import say, word
from trueflops.model import Model, another_model, known_model
from trueflops.model.checkpoints import format_in

BY_TRITON: Final[Mapping[str, Any]] = {"implementation": "library", "fused": False}
"""Norms, rotations and activations by Liger's or Unsloth's kernels: one each, none fused to the
next (as verify/training/written.py has them)."""
_DEEPSPEED: Final = "deepspeed"


@dataclass(frozen=True)
class Tuning:
    """A config as the Trainer takes it."""

    tool: str
    said: Said
    program: Said
    """Its settings by the Trainer's names."""
    sharing: Said
    """Its settings by the names of accelerate's config, where it names none of DeepSpeed's."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Of a plan, what the Trainer has no flag for."""
    notes: tuple[str, ...] = ()
    adapter_dtype: str = "fp32"  # as PEFT keeps adapters beside 16-bit weights


def translated(said: Said, words: Mapping[str, tuple[str, Any]]) -> Said:
    """Settings by another tool's names: of each the own key, whose line errors name, and value."""
    kept = {theirs: pair for theirs, pair in words.items() if pair[1] is not None}
    values: Settings = {theirs: value for theirs, (_, value) in kept.items()}
    lines = {theirs: said.lines[own] for theirs, (own, _) in kept.items() if own in said.lines}
    return Said(said.where, values, lines, {theirs: own for theirs, (own, _) in kept.items()})


def read_tuning(tuning: Tuning, model: Model, accelerators: int, file: Path) -> Found:
    """The plan of what a config starts."""
    config = _deepspeed(tuning.said, file)
    if config is None:
        found = accelerate.read(tuning.sharing, model, accelerators, tuning.program)
        return _completed(tuning, found)
    try:
        return _completed(tuning, deepspeed.read(config, model, accelerators, tuning.program))
    except deepspeed.BatchMismatch as error:
        raise deepspeed.BatchMismatch(str(error), _completed(tuning, error.found)) from None


def _completed(tuning: Tuning, found: Found) -> Found:
    """What was read, with what accelerate and DeepSpeed have no word for."""
    plan: dict[str, Any] = {"adapters": "", **found.plan, **tuning.fields}
    by_engine = found.framework == deepspeed.NAME
    if plan["adapters"]:
        # DeepSpeed narrows a whole module (runtime/engine.py, _configure_distributed_model).
        plan["adapter_dtype"] = plan["parameter_dtype"] if by_engine else tuning.adapter_dtype
        narrow = "fp32" if plan["compute"] == "tf32" else plan["compute"]
        plan["residual_dtype"] = narrow if plan["adapters"] == "qlora" else ""
    if not by_engine:
        trained = plan["adapter_dtype"] if plan["adapters"] else plan["parameter_dtype"]
        plan["optimizer"] = as_wide(_wide(plan["optimizer"]), trained)
        if found.framework == "trainer":  # autograd's gradients, which DDP sums as they are
            plan["gradient_dtype"] = plan["parameter_dtype"]
    notes = (*tuning.notes, *found.notes)
    return replace(found, tool=tuning.tool, plan=plan, processes=None, notes=notes)


def _wide(optimizer: str) -> str:
    """An optimizer as it is beside fp32 weights."""
    return optimizer.removesuffix("-bf16")


def _deepspeed(said: Said, file: Path) -> Said | None:
    """DeepSpeed's config: a file that is named, or a section."""
    section = f"{_DEEPSPEED}."
    said.asked.update(key for key in said.values if key.startswith(section))
    if said.get(_DEEPSPEED):
        return from_json(*text_named(said, _DEEPSPEED, file))
    inline = {k.removeprefix(section): k for k in said.values if k.startswith(section)}
    if not inline:
        return None
    return translated(said, {theirs: (own, said.values[own]) for theirs, own in inline.items()})


def sharing_of(said: Said, options: Iterable[str], degrees: Mapping[str, int]) -> Said:
    """FSDP as a Trainer's config asks for it, by the names of accelerate's; without it DDP.

    `options`: words of TrainingArguments.fsdp. `degrees`: of FSDP 2, by what accelerate calls them.
    Version 1 is what transformers took where none is named, until 5.20.
    """
    listed = list(options)
    section = {
        key.removeprefix("fsdp_config.").removeprefix("fsdp_"): key
        for key in said.values
        if key.startswith("fsdp_config.")
    }
    said.asked.update(section.values())
    if not listed and not section:
        return translated(said, {"distributed_type": ("fsdp", "MULTI_GPU")})
    f = "fsdp_config.fsdp_"
    version = section.get("version", "fsdp_version")
    if said.get(version) is None:
        version = "fsdp_version"
    number = said.whole(version, 1)
    words: dict[str, tuple[str, Any]] = {
        "distributed_type": ("fsdp", "FSDP"),
        f"{f}version": (version, number),
    }
    for name in ("activation_checkpointing", "offload_params"):
        if name in section:
            words[f + name] = (section[name], said.values[section[name]])
    if "offload" in listed:
        words[f"{f}offload_params"] = ("fsdp", True)
    if number == 2:
        if "reshard_after_forward" in section:
            own = section["reshard_after_forward"]
            words[f"{f}reshard_after_forward"] = (own, said.values[own])
        for name, degree in degrees.items():
            words[f"parallelism_config.parallelism_config_{name}"] = (name, degree)
    else:
        kind = next((w for w in listed if w in _KINDS), None)
        if kind:
            words[f"{f}sharding_strategy"] = ("fsdp", _KINDS[kind])
        elif "sharding_strategy" in section:
            own = section["sharding_strategy"]
            words[f"{f}sharding_strategy"] = (own, said.values[own])
    return translated(said, words)


_KINDS: Final = {
    "full_shard": "FULL_SHARD",
    "shard_grad_op": "SHARD_GRAD_OP",
    "no_shard": "NO_SHARD",
    "hybrid_shard": "HYBRID_SHARD",
}
"""Of TrainingArguments.fsdp (transformers, trainer_utils.py: FSDPOption)."""


# ── what is said, and what is refused ────────────────────────────────────────────────────────────


def refuse(said: Said, reasons: Mapping[str, str], values: Mapping[str, str]) -> None:
    """Refuse keys that no plan has, each with what to write instead.

    `reasons`: of keys that are on, or of any key in a section; `values`: the same of keys whose
    value is neither false nor what stands there.
    """
    for key, instead in reasons.items():
        own = next((k for k in said.values if k == key or k.startswith(f"{key}.")), None)
        if own is not None and (own != key or _is_on(said, key)):
            raise not_priced(said, own, word(instead))
    for key, kept in values.items():
        value = said.values.get(key)
        if _is_on(said, key) and str(value) != kept:
            raise said.wrong(key, kept)


def not_priced(said: Said, key: str, instead: str) -> BadInput:
    """The error of a setting that changes a step, and that no plan has."""
    return BadInput(
        say(
            "{place}: {name} changes what a step does, and is not priced; {instead}",
            place=said.place(key),
            name=key,
            instead=instead,
        )
    )


def _is_on(said: Said, key: str) -> bool:
    value = said.get(key)
    off: tuple[Any, ...] = (None, False, 0, "", "false", "none", "no", [])
    return (value.lower() if isinstance(value, str) else value) not in off


def told(said: Said, keys: Iterable[str]) -> tuple[str, ...]:
    """A note of each key that is on, changes a step a little, and was not read."""
    wanted = set(keys)
    on = [key for key in said.values if key.partition(".")[0] in wanted]
    said.asked.update(on)
    shown = {key.partition(".")[0]: key for key in reversed(on) if _is_on(said, key)}
    ordered = sorted(shown.values(), key=lambda key: said.lines.get(key, 0))
    return tuple(said.not_read(key) for key in ordered)


def by_default(said: Said, usual: Mapping[str, Any], library: str) -> tuple[str, ...]:
    """One note of what a config leaves out, as the program has it."""
    left = {key: value for key, value in usual.items() if said.values.get(key) is None}
    if not left:
        return ()
    settings = ", ".join(f"{key} {value}" for key, value in left.items())
    return (
        say(
            "{where}: {settings} by {library}'s own default",
            where=said.where,
            settings=settings,
            library=library,
        ),
    )


def check_checkpoint(said: Said, key: str, instead: str) -> None:
    """Refuse a checkpoint whose name says that its weights are packed, but for bitsandbytes'."""
    name = str(said.values[key])
    if by_bitsandbytes(name):
        return
    if _PACKED.search(name) or format_in(name) not in ("", "bf16"):
        raise not_priced(said, key, word(instead))


def by_bitsandbytes(checkpoint: str) -> bool:
    """Whether a checkpoint's name says that its weights lie packed as QLoRA packs them."""
    return re.search(r"\bbnb-(4bit|nf4)\b", checkpoint, re.IGNORECASE) is not None


_PACKED: Final = re.compile(r"\b(aqlm|awq|gptq|hqq|eetq)\b", re.IGNORECASE)


def other_model(said: Said, key: str, model: Model) -> tuple[str, ...]:
    """A note where a config names another model of the catalog than the one that is asked for."""
    named = said.get(key)
    other = known_model(named) if isinstance(named, str) else None
    return another_model(said.where, other, model)


def unpacked(said: Said, key: str, length: str, *, packs: bool) -> tuple[str, ...]:
    """A note of how long sequences are: where several stand in one, attention reaches less far;
    where they do not, most are shorter than the longest.
    """
    if packs:
        note = say(
            "{where}: {key}: attention is priced over {length} tokens, and reaches no further than "
            "one of the documents that are packed",
            where=said.where,
            key=key,
            length=length,
        )
    else:
        note = say(
            "{where}: no {key}: every sequence is priced as long as {length}, and shorter ones "
            "take less",
            where=said.where,
            key=key,
            length=length,
        )
    return (note,)
