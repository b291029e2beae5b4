"""torchtune: a recipe's config as YAML.

In: a config. Out: the plan, and what is not priced. As of pytorch/torchtune bd2a0fc (April 2026):
recipes/*_finetune_*.py (keys and defaults; a config does not name its recipe, so that several
accelerators run the distributed one), recipes/configs, torchtune/modules/peft/lora.py,
torchtune/modules/loss/cross_entropy_loss.py.
"""

from __future__ import annotations

import re
from typing import Any, Final

from trueflops.errors import BadInput, printable
from trueflops.interop.launch.settings import Found, Said, implied_by
from trueflops.interop.launch.trainer import as_wide
from trueflops.interop.launch.tuned import by_default, refuse
from trueflops.language import mark, say, word
from trueflops.model import Model, another_model, known_model
from trueflops.profile.frameworks import habits

NAME: Final = "torchtune"
FRAMEWORKS: Final = ("torchtune", "torchtune-compiled")
MODEL: Final = "model._component_"
_OPTIMIZER: Final = "optimizer._component_"
DEFAULTS: Final[dict[str, Any]] = {
    "gradient_accumulation_steps": 1,
    "enable_activation_checkpointing": False,
}
_DTYPES: Final = {"bf16": "bf16", "fp32": "fp32"}
_OPTIMIZERS: Final = {
    "torch.optim.AdamW": "adamw",
    "torch.optim.Adam": "adamw",
    "torch.optim.SGD": "sgd",
    "bitsandbytes.optim.PagedAdamW": "adamw",
    "bitsandbytes.optim.PagedAdamW8bit": "adamw-8bit",
    "bitsandbytes.optim.AdamW": "adamw",
    "bitsandbytes.optim.AdamW8bit": "adamw-8bit",
    "torchao.optim.AdamW8bit": "adamw-8bit",
}
_LOSSES: Final = {
    "torchtune.modules.loss.LinearCrossEntropyLoss": "chunked",
    "torchtune.modules.loss.CEWithChunkedOutputLoss": "narrow",
    "torch.nn.CrossEntropyLoss": "plain",
}
"""With the head, some tokens at a time; or of logits as they are, lifted some at a time."""
_TARGETS: Final = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "output_proj": "o"}
_FFN: Final = ("gate", "up", "down")
_LEAVE: Final = mark("leave it out")
_REFUSED: Final = {
    "quantizer": _LEAVE,
    "model.use_dora": _LEAVE,
    "model.apply_lora_to_output": mark("leave it out: only adapters of a layer's own are"),
    "enable_fp8_training": _LEAVE,
    "teacher_model": _LEAVE,
    "policy_model": _LEAVE,
    "reward_and_value_model": _LEAVE,
    "context_parallel_dim": mark("1 is: no plan of torchtune splits the sequence"),
}
_FULL: Final = mark("full, or left out")
_ONE: Final = mark("1 beside optimizer_in_bwd, which it asserts")
_SECTIONS: Final = (
    "tokenizer.", "checkpointer.", "dataset", "metric_logger.", "profiler.", "lr_scheduler.",
    "optimizer.", "loss.", "model.", "log_", "run_val", "batch_size_val", "custom_sharded_layers",
    "activation_offloading_use_streams", "clip_grad_norm", "tensor_parallel_plan", "save_",
    "enable_async_checkpointing", "shuffle", "collate_fn", "fp8_recipe_name", "compile",
)  # fmt: skip
"""How keys begin that are of data, checkpoints, reports or of what was read."""


def is_config(said: Said) -> bool:
    """Whether settings are those of a recipe with a model."""
    return str(said.values.get(MODEL)).startswith("torchtune.")


def read(said: Said, model: Model, accelerators: int) -> Found:
    """What a config says."""
    refuse(said, _REFUSED, {})
    if _OPTIMIZER not in said.values:
        raise BadInput(
            say(
                "{where}: it trains nothing, as it has no {key}; give a config of a recipe that "
                "does",
                where=said.where,
                key=_OPTIMIZER,
            )
        )
    compiled = said.switch("compile") or any(
        key.startswith("compile.") and said.switch(key) for key in said.values
    )
    framework = FRAMEWORKS[int(compiled)]
    usual = habits(framework)
    dtype = said.choice("dtype", _DTYPES, "bf16")
    plan = _degrees(said, accelerators) | {
        "compute": dtype,
        "parameter_dtype": dtype,
        "gradient_dtype": dtype,
        "mixed": usual.mixed,
        "fused": usual.fused,
        "implementation": usual.implementation,
        "loss": said.choice("loss._component_", _LOSSES, next(iter(_LOSSES))),
        **_updates(said, dtype),
        **_kept(said),
        **_adapters(said, dtype),
    }
    plan["micro_batch"] = said.count("batch_size") or 1
    steps = said.count("gradient_accumulation_steps") or 1
    if plan["update_in_backward"] and steps > 1:
        raise said.wrong("gradient_accumulation_steps", word(_ONE))
    batch = plan["micro_batch"] * steps * plan["dp_replicate"] * plan["dp_shard"]
    seq, notes = _length(said)
    per_epoch = said.whole("max_steps_per_epoch", 0)
    tokens = per_epoch * said.whole("epochs", 1) * batch * seq
    work = {"seq": seq, "global_batch": batch, "tokens": tokens}
    harmless = frozenset(key for key in said.values if key.startswith(_SECTIONS))
    return Found(
        NAME,
        framework,
        implied_by({}, frozenset(plan)) | plan,
        {name: value for name, value in work.items() if value},
        None,
        (
            *_other_model(said, model),
            *by_default(said, DEFAULTS, NAME),
            *notes,
            *said.unread(harmless),
        ),
    )


def _degrees(said: Said, accelerators: int) -> dict[str, Any]:
    """What is left of the cluster shares weights, unless it is one."""
    tp = said.count("tensor_parallel_dim") or 1
    copies = said.count("data_parallel_replicate_dim") or 1
    shard = said.whole("data_parallel_shard_dim", -1)
    shard = max(accelerators // (tp * copies), 1) if shard < 0 else shard
    reshards = said.switch("fsdp_reshard_after_forward", usual=True)
    zero = (3 if reshards else 2) if accelerators > 1 else 0
    offloads = float(said.switch("fsdp_cpu_offload"))
    return {
        "tp": tp,
        "dp_replicate": copies,
        "dp_shard": shard,
        "zero": zero,
        "offload_optimizer": offloads,
        "offload_parameters": offloads,
    }


def _updates(said: Said, dtype: str) -> dict[str, Any]:
    """The optimizer, and when it runs."""
    named = str(said.get(_OPTIMIZER))
    kept = said.choice(_OPTIMIZER, _OPTIMIZERS, "torch.optim.AdamW")
    return {
        "optimizer": as_wide(kept, dtype),
        "paged_states": ".Paged" in named,
        "update_in_backward": said.switch("optimizer_in_bwd"),
    }


def _kept(said: Said) -> dict[str, Any]:
    """Recomputation, and activations on the host."""
    if said.get("ac_mode") not in (None, "full"):
        raise said.wrong("ac_mode", word(_FULL))
    said.get("ac_option")
    on = said.switch("enable_activation_checkpointing")
    if said.switch("enable_activation_offloading") and not on:
        raise BadInput(
            say(
                "{place}: enable_activation_offloading asks for enable_activation_checkpointing: "
                "true",
                place=said.place("enable_activation_offloading"),
            )
        )
    return {
        "recompute": "full" if on else "none",
        "offload_activations": float(said.switch("enable_activation_offloading")),
    }


def _adapters(said: Said, dtype: str) -> dict[str, Any]:
    """LoRA by the model's builder and its arguments; all is of the recipe's one dtype."""
    builder = str(said.get(MODEL)).rpartition(".")[2]
    if not builder.startswith(("lora_", "qlora_", "qdora_", "dora_")):
        return {"adapters": ""}
    named = said.get("model.lora_attn_modules") or []
    names = named if isinstance(named, list) else [named]
    if unknown := [name for name in names if name not in _TARGETS]:
        raise BadInput(
            say(
                "{place}: no layer {name} for adapters; there are {names}",
                place=said.place("model.lora_attn_modules"),
                name=printable(str(unknown[0]), 40),
                names=", ".join(_TARGETS),
            )
        )
    targets = [_TARGETS[name] for name in names]
    targets += _FFN if said.switch("model.apply_lora_to_mlp") else ()
    packed = builder.startswith("qlora_") or said.switch("model.quantize_base")
    return {
        "adapters": "qlora" if packed else "lora",
        "lora_rank": said.count("model.lora_rank") or 8,
        "lora_dropout": said.real("model.lora_dropout", 0.0),
        "lora_targets": ",".join(targets),
        "adapter_dtype": dtype,
        "residual_dtype": dtype if packed else "",
    }


def _length(said: Said) -> tuple[int, tuple[str, ...]]:
    """Tokens of a sequence, where the tokenizer cuts them; else samples are as long as they are."""
    seq = said.count("tokenizer.max_seq_len")
    packs = said.switch("dataset.packed")
    if seq and packs:
        return seq, ()
    note = say(
        "{where}: no dataset.packed: every sequence is priced as long as tokenizer.max_seq_len, "
        "and shorter ones take less",
        where=said.where,
    )
    if not seq:
        note = say(
            "{where}: tokenizer.max_seq_len is not said, so that sequences are as long as samples: "
            "say how long with --seq",
            where=said.where,
        )
    return seq, (note,)


def _other_model(said: Said, model: Model) -> tuple[str, ...]:
    """A note where the builder is of another model: llama3_1_8b is Llama-3.1-8B."""
    builder = re.sub(r"^(q?lora|q?dora)_", "", str(said.get(MODEL)).rpartition(".")[2])
    spelt = re.fullmatch(r"([a-z]+?)(\d?)(?:_(\d))?_([\d_.]+m?b)(?:_\w+)?", builder)
    if not spelt:
        return ()
    family, major, minor, size = spelt.groups(default="")
    size = size.replace("_", ".")
    version = f"{major}.{minor}" if minor else major
    for name in (f"{family}-{version}-{size}", f"{family}{version}-{size}"):
        other = known_model(name)
        if other is not None:
            break
    return another_model(said.where, other, model)
