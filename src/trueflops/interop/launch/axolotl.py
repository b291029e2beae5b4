"""axolotl: its config as YAML, read as the Trainer that it starts.

In: a config. Out: the plan, and what is not priced. As of axolotl-ai-cloud/axolotl 067b021 (July
2026): utils/schemas/config.py and training.py (keys and defaults), utils/schemas/validation.py,
utils/config/__init__.py (resolve_dtype), core/builders/base.py (TrainingArguments),
loaders/model.py and adapter.py (dtypes, packed weights, adapters), utils/distributed.py (degrees).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from trueflops.errors import BadInput
from trueflops.interop.launch import axolotl_keys as keys
from trueflops.interop.launch.settings import Found, Said
from trueflops.interop.launch.tuned import (
    BY_TRITON,
    Tuning,
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
from trueflops.interop.launch.tuned_layers import (
    ALL,
    check_rank,
    experts_apart,
    frozen_head,
    frozen_layers,
    read_targets,
)
from trueflops.language import mark, say, word
from trueflops.model import Model

NAME: Final = "axolotl"
MODEL: Final = "base_model"
DEFAULTS: Final[dict[str, Any]] = {
    "sequence_len": 512,
    "micro_batch_size": 1,
    "gradient_accumulation_steps": 1,
    "optimizer": "adamw_torch_fused",
    "gradient_checkpointing": False,
}
_DEGREES: Final = {
    "tp_size": "tensor_parallel_size",
    "cp_size": "context_parallel_size",
    "dp_shard_size": "dp_shard_size",
    "dp_replicate_size": "dp_replicate_size",
}
_KERNELS: Final = ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel")
_LIGER: Final = ("liger_rope", "liger_rms_norm", "liger_layer_norm", "liger_glu_activation",
                 "liger_swiglu")  # fmt: skip
_QLORA: Final = mark("true beside adapter: qlora, which it asserts")
_LORA: Final = mark("false beside adapter: lora; packed weights are adapter: qlora")


def read(said: Said, model: Model, accelerators: int, file: Path) -> Found:
    """What a config says."""
    refuse(said, keys.REFUSED, {})
    check_checkpoint(said, MODEL, keys.CHECKPOINT)
    plugins = _plugins(said)
    narrow, dtypes, notes = _dtypes(said)
    sharing = _sharing(said, accelerators)
    program = _program(said, narrow, sharing, model)
    fields = dtypes | _kernels(said, plugins, sharing) | _offloads(said)
    of_layers, more = _layers(said, model)
    notes = (
        *other_model(said, MODEL, model),
        *by_default(said, DEFAULTS, NAME),
        *notes,
        *more,
        *unpacked(said, "sample_packing", "sequence_len", packs=said.switch("sample_packing")),
        *_idle(said, plugins),
        *told(said, keys.TOLD),
        *said.unread(keys.known(said.values)),
    )
    tuning = Tuning(NAME, said, program, sharing, fields | of_layers, notes)
    return read_tuning(tuning, model, accelerators, file)


# ── the Trainer's words ──────────────────────────────────────────────────────────────────────────


def _program(said: Said, narrow: str, sharing: Said, model: Model) -> Said:
    """TrainingArguments and LoraConfig."""
    micro = said.count("micro_batch_size") or 1
    whole = said.count("batch_size")  # of one GPU, all that a step adds up
    steps = said.count("gradient_accumulation_steps") or max(whole // micro, 1)
    mixed = said.values.get("bf16") != "full"  # 'full' is bf16 without autocast
    words: dict[str, tuple[str, Any]] = {
        "per_device_train_batch_size": ("micro_batch_size", micro),
        "gradient_accumulation_steps": ("gradient_accumulation_steps", steps),
        "max_length": ("sequence_len", said.count("sequence_len") or DEFAULTS["sequence_len"]),
        "max_steps": ("max_steps", said.get("max_steps")),
        "gradient_checkpointing": ("gradient_checkpointing", _recomputes(said)),
        "bf16": ("bf16", narrow == "bf16" and mixed),
        "fp16": ("fp16", narrow == "fp16"),
        "optim": ("optimizer", said.get("optimizer")),
        "attn_implementation": _attention(said),
        "torch_compile": ("torch_compile", said.get("torch_compile")),
        "dtype": ("bf16", _loaded(narrow, said, sharing)),
    }
    return translated(said, words | _adapters(said, model))


def _recomputes(said: Said) -> bool:
    """Of every layer; activations of adapters that are offloaded are not made again."""
    words = {"true": True, "unsloth": True, "offload": True, "offload_disk": True, "false": False}
    on = said.choice("gradient_checkpointing", words | {"True": True, "False": False}, "false")
    moved = said.get("activation_offloading")
    return on and not (moved in (True, "legacy", "disk") and said.get("adapter"))


def _offloads(said: Said) -> dict[str, Any]:
    """Activations that are kept on the host: those of layers, or where layers begin."""
    moved = said.get("activation_offloading")
    kind = said.get("gradient_checkpointing")
    if kind in ("unsloth", "offload", "offload_disk"):
        moved = "disk" if kind == "offload_disk" else True
    if moved in (None, False):
        return {}
    if moved not in (True, "legacy", "hidden_states", "disk"):
        raise said.wrong("activation_offloading", "true, hidden_states, disk, false")
    return {"offload_activations": 1.0, **({"offload_to": "nvme"} if moved == "disk" else {})}


def _attention(said: Said) -> tuple[str, str | None]:
    """The implementation by transformers' name; the switches before it name one, too."""
    own = "attn_implementation"
    on = [flag for flag in keys.SWITCHES if said.switch(flag)]
    if said.get(own) is None:
        return (on[0], keys.ATTENTION[keys.SWITCHES[on[0]]]) if on else (own, None)
    if on:
        raise BadInput(
            say(
                "{place}: {key} and attn_implementation name an attention both; leave one out",
                place=said.place(on[0]),
                key=on[0],
            )
        )
    return own, said.choice(own, keys.ATTENTION, "sdpa")


def _dtypes(said: Said) -> tuple[str, dict[str, Any], tuple[str, ...]]:
    """What weights are loaded in, "" for fp32, and what products compute in beyond it."""
    wide = said.values.get("bf16", "auto")
    narrows = said.switch("fp16") or said.switch("float16")
    for key in ("bf16", "bfloat16", "float32", "tf32"):
        said.get(key)
    notes: tuple[str, ...] = ()
    if wide == "auto" and not narrows:
        notes = (
            say(
                "{place}: bf16 is auto, taken as true, as on accelerators that have it",
                place=said.place("bf16"),
            ),
        )
    if wide not in ("auto", "full", None):
        wide = said.switch("bf16")
    elif wide == "auto":
        wide = not narrows
    if said.switch("fp8"):
        return "bf16", {"compute": "fp8"}, notes
    if wide or said.switch("bfloat16"):
        return "bf16", {}, notes
    if narrows:
        return "fp16", {}, notes
    exact = said.values.get("tf32", "auto") == "auto" or said.switch("tf32")
    return "", {"compute": "tf32"} if exact else {}, notes


def _loaded(narrow: str, said: Said, sharing: Said) -> str | None:
    """The dtype of weights: accelerate's FSDP 1 widens those that are trained under autocast
    (accelerator.py); axolotl's own way to FSDP 2 does not (monkeypatch/accelerate/fsdp2.py).
    """
    first = sharing.values.get("fsdp_config.fsdp_version") == 1
    if first and not said.get("adapter") and said.values.get("bf16") != "full":
        return None
    return {"bf16": "bfloat16", "fp16": "float16"}.get(narrow)


def _adapters(said: Said, model: Model) -> dict[str, tuple[str, Any]]:
    """LoRA's settings; what contradicts the kind of adapter is refused."""
    kind = said.choice("adapter", {"": "", "lora": "lora", "qlora": "qlora"}, "")
    packed = said.switch("load_in_4bit")
    if said.switch("load_in_8bit"):
        raise not_priced(said, "load_in_8bit", word(keys.EIGHT_BITS))
    if not kind:
        if packed:
            raise said.wrong("load_in_4bit", word(keys.WHOLE))
        return {}
    if packed != (kind == "qlora"):
        key = "load_in_4bit" if said.get("load_in_4bit") is not None else "adapter"
        raise said.wrong(key, word(_QLORA if kind == "qlora" else _LORA))
    check_rank(said, "lora_r")
    targets = _targets(said, model)
    return {
        "use_peft": ("adapter", True),
        "load_in_4bit": ("load_in_4bit", packed),
        "lora_r": ("lora_r", said.get("lora_r")),
        "lora_dropout": ("lora_dropout", said.real("lora_dropout", 0.0)),
        "lora_target_modules": ("lora_target_modules", targets),
    }


def _targets(said: Said, model: Model) -> list[str]:
    """Layers with adapters; PEFT's own of Llama and its like where none are named."""
    if said.switch("lora_target_linear"):
        said.get("lora_target_modules")
        return [ALL]
    found = read_targets(said, "lora_target_modules", model)
    if said.get("lora_target_parameters"):
        found += read_targets(said, "lora_target_parameters", model)
    return list(dict.fromkeys(found)) or ["q", "v"]


# ── what the Trainer has no word for ─────────────────────────────────────────────────────────────


def _layers(said: Said, model: Model) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Layers that are not trained, and what adapters of experts are."""
    if said.get("adapter"):
        packed = said.switch("load_in_4bit") and not said.switch("quantize_moe_experts")
        return {}, experts_apart(said, _targets(said, model), model, packed=packed)
    patterns = said.get("unfrozen_parameters")
    if not patterns:
        return {}, ()
    listed = patterns if isinstance(patterns, list) else [patterns]
    frozen = frozen_layers(said, "unfrozen_parameters", listed, model)
    head = any("lm_head" in str(pattern) for pattern in listed)
    notes = () if head else (frozen_head(said, "unfrozen_parameters", model),)
    return {"freeze_layers": frozen}, notes


def _plugins(said: Said) -> frozenset[str]:
    """The plugins by the last word of their path; those that change what is trained are refused."""
    value = said.get("plugins") or []
    paths = value if isinstance(value, list) else [value]
    names = [str(path).rpartition(".")[2] for path in paths]
    for name in names:
        if name in keys.OTHER_TRAINING:
            raise BadInput(
                say(
                    "{place}: plugin {name} trains otherwise, and is not priced; leave it out",
                    place=said.place("plugins"),
                    name=name,
                )
            )
    return frozenset(names)


def _kernels(said: Said, plugins: frozenset[str], sharing: Said) -> dict[str, Any]:
    """Kernels of Liger and Cut Cross-Entropy, and axolotl's own of adapters."""
    found: dict[str, Any] = {}
    if keys.LIGER in plugins:
        if any(said.switch(key) for key in _LIGER):
            found |= BY_TRITON
        if said.switch("liger_cross_entropy"):
            found["loss"] = "fused"
        if said.switch("liger_fused_linear_cross_entropy"):
            found["loss"] = "chunked"
    if keys.CUT in plugins and said.switch("cut_cross_entropy", usual=True):
        found["loss"] = "chunked"
    if said.switch("flash_attn_cross_entropy"):
        found["loss"] = "fused"
    if said.get("adapter") and _fuses_adapters(said, sharing):
        found["lora_fused"] = True
    return found


def _fuses_adapters(said: Said, sharing: Said) -> bool:
    """Its kernels of adapters: as said, or by itself where nothing forbids them
    (check_auto_enable_lora_kernels).
    """
    if any(said.get(key) is not None for key in (*_KERNELS, "lora_embedding_kernel")):
        return any(said.switch(key) for key in _KERNELS)
    first = sharing.values.get("fsdp_config.fsdp_version") == 1
    return not first and not said.switch("trust_remote_code")


def _idle(said: Said, plugins: frozenset[str]) -> tuple[str, ...]:
    """A note of Liger's settings without its plugin, which then does nothing."""
    on = [key for key in said.values if key.startswith("liger_") and said.values[key] is True]
    if not on or keys.LIGER in plugins:
        return ()
    return (
        say(
            "{place}: {name} does nothing without {plugin} under plugins",
            place=said.place(on[0]),
            name=on[0],
            plugin=f"axolotl.integrations.liger.{keys.LIGER}",
        ),
    )


def _sharing(said: Said, accelerators: int) -> Said:
    """FSDP and its degrees; what is left of the cluster shares states."""
    said.get("sequence_parallel_degree")
    if said.get("context_parallel_size") is None:
        cp = said.count("sequence_parallel_degree") or 1
    else:
        cp = said.count("context_parallel_size") or 1
    tp = said.count("tensor_parallel_size") or 1
    copies = said.count("dp_replicate_size") or 1
    shard = said.count("dp_shard_size")
    options = said.get("fsdp") or []
    listed = options if isinstance(options, list) else str(options).split()
    if options is True:
        listed = ["full_shard"]
    left = max(accelerators // (tp * cp * copies), 1)
    degrees = {
        "tp_size": tp,
        "cp_size": cp,
        "dp_replicate_size": copies if copies > 1 or not shard else max(left // shard, 1),
        "dp_shard_size": shard or left,
    }
    sharing = sharing_of(said, listed, degrees)
    by_deepspeed = said.get("deepspeed") or any(k.startswith("deepspeed.") for k in said.values)
    version = sharing.values.get("fsdp_config.fsdp_version")
    if by_deepspeed and version:
        raise BadInput(
            say(
                "{place}: deepspeed and fsdp share states both; leave one out",
                place=said.place("deepspeed"),
            )
        )
    for name, own in _DEGREES.items():
        if version != 2 and said.values.get(own) is not None and degrees[name] > 1:
            raise said.wrong(own, word(_SECOND))
    if version != 2 and cp > 1:
        raise said.wrong("sequence_parallel_degree", word(_SECOND))
    return sharing


_SECOND: Final = mark("1, or more beside fsdp_version: 2 and fsdp_config")
