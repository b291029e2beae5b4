"""What a row trained: all weights, or adapters beside frozen ones, by its column `peft` and notes.

What is not said is the plan's default, a guess; what is known of a script that the notes name
stands in RECIPES; of several that a row names, the last one says most.
"""

from __future__ import annotations

import re
from typing import Any, Final

from trueflops.errors import shorten
from trueflops.records.tables import Row
from trueflops.verify.cells import Missing, number, text
from trueflops.verify.run_words import kind_of_task

RANK: Final = re.compile(r"(?:\b|_)r(?:ank)?[ =:_-]*([1-9]\d{0,3})\b(?!\.\d)")
DROPOUT: Final = re.compile(r"dropout[ =:]*(0?\.\d{1,4})\b")
_LAYER: Final = r"(?:[qkvo]|qkv|gate|up|down)"
_TARGETS: Final = re.compile(rf"\b(?:on|modules|targets?)[ =:]*({_LAYER}(?:,\s?{_LAYER})*)\b(?!_)")
_PROJECTIONS: Final = re.compile(r"\b([qkvo]|gate|up|down)_proj\b")
_JOINED: Final = re.compile(r"\b(?:qkv|query_key_value|wqkv|c_attn|qkv_proj)\b")
_EVERY_LINEAR: Final = re.compile(
    r"all[- ]linear|target(?:s|_modules)?[ =:]+all\b|(?:attention|attn)\W{1,3}(?:and )?(?:mlp|ffn)"
)
ADAPTERS: Final = ("", "none", "no", "n", "full", "full fine-tune", "false", "-")
"""What the column says where everything was trained."""
# PEFT 0.12 of July 2024 first kept adapters in fp32 beside 16-bit weights; until then they were as
# wide as these, and torch's AdamW kept its moments as wide as them.
FIRST_WITH_WIDE_ADAPTERS: Final = 2024
RECIPES: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    # QwenLM/Qwen, finetune.py: LoraArguments, with c_attn, c_proj, w1 and w2. Its modeling_qwen.py
    # takes norm and rotation from flash-attn where that is installed.
    (
        "finetune/*.sh",
        {
            "lora_rank": 64,
            "lora_targets": "qkv,o,gate,up,down",
            "lora_dropout": 0.05,
            "implementation": "library",
            "fused": False,
        },
    ),
    # foundation-model-stack/fms-acceleration, scripts/benchmarks/scenarios.yaml
    ("fms-hf-tuning", {"lora_dropout": 0.1}),
    # Lightning-AI/litgpt, litgpt/finetune/lora.py: setup
    ("litgpt", {"lora_rank": 8, "lora_targets": "q,v", "lora_dropout": 0.05}),
    # hiyouga/LLaMA-Factory, src/llamafactory/hparams/finetuning_args.py: LoraArguments
    ("factory", {"lora_rank": 8, "lora_targets": "all-linear"}),
    # unslothai/unsloth, unsloth/models/llama.py: get_peft_model; unsloth/kernels/fast_lora.py
    ("unsloth", {"lora_targets": "q,k,v,o,gate,up,down", "lora_fused": True}),
    # NVIDIA/NeMo, nemo/collections/llm/recipes: finetune_performance_optimizations; adapters are
    # layers of Megatron-Core in bf16.
    ("nemo", {"lora_targets": "qkv", "adapter_dtype": "bf16"}),
    # NVIDIA-NeMo/Automodel, examples/llm_finetune/*_peft.yaml ('*_proj', dim 8) and
    # components/_peft/lora.py: adapters are of the weight's dtype, moments of theirs.
    (
        "automodel",
        {
            "lora_rank": 8,
            "lora_targets": "all-linear",
            "adapter_dtype": "bf16",
            "optimizer": "adamw-bf16",
            "residual_dtype": "bf16",
        },
    ),
    # pytorch/torchtune, recipes/configs/*/*_lora.yaml since November 2024 (pull request 1954), and
    # modules/peft/lora.py: everything that is not packed is of the recipe's one dtype.
    (
        "torchtune",
        {
            "lora_rank": 8,
            "lora_targets": "q,v,o,gate,up,down",
            "adapter_dtype": "bf16",
            "optimizer": "adamw-bf16",
            "residual_dtype": "bf16",
        },
    ),
)


def read_tuning(row: Row, zero: int) -> dict[str, Any]:
    """Fields of the plan; none where everything was trained."""
    adapters = _adapters(row)
    if not adapters:
        return {}
    notes = f"{text(row, 'peft')}; {text(row, 'notes')}".casefold()
    fields: dict[str, Any] = {"adapters": adapters}
    said = f"{text(row, 'framework')} {notes}".casefold()
    for words, known in RECIPES:
        if words in said:
            fields |= known
    if rank := RANK.search(notes):
        fields["lora_rank"] = int(rank[1])
    if dropped := DROPOUT.search(notes):
        fields["lora_dropout"] = float(dropped[1])
    if targets := _targets(notes):
        fields["lora_targets"] = targets
    by_triton = "foak" in text(row, "framework").casefold()
    if adapters == "qlora":
        return _packed(notes, zero, by_triton=by_triton) | fields
    if (number(row, "year") or 9999) < FIRST_WITH_WIDE_ADAPTERS:
        fields |= {"adapter_dtype": "bf16", "optimizer": "adamw-bf16"}
    return fields


def _adapters(row: Row) -> str:
    """`lora`, `qlora` or nothing, by the column `peft`; where it is empty, by the task."""
    said = text(row, "peft").casefold()
    task = kind_of_task(text(row, "task")).casefold()
    if not said and task in ("lora", "qlora"):
        said = task
    if said in ADAPTERS or re.match(r"full\b|no\b|without\b", said):
        return ""
    if re.search(r"q-?lora", said):
        return "qlora"
    if re.match(r"(?:rs-?)?lora\b", said):
        return "lora"
    raise Missing(f"peft {shorten(said, 30)!r} is not modelled: lora, qlora, or empty")


def _targets(notes: str) -> str:
    """Which layers have adapters: 'on q,v', 'q_proj and v_proj', 'Wqkv', 'all-linear'."""
    if found := _TARGETS.search(notes):
        return found[1].replace(" ", "")
    if _EVERY_LINEAR.search(notes):
        return "all-linear"
    if named := dict.fromkeys(_PROJECTIONS.findall(notes)):
        return ",".join(named)
    return "qkv" if _JOINED.search(notes) else ""


def stated_tuning(row: Row) -> frozenset[str]:
    """Of what says how adapters were trained, the fields that a row or its script states."""
    return frozenset(read_tuning(row, 0)) & {"lora_rank", "lora_targets"}


def _packed(notes: str, zero: int, *, by_triton: bool) -> dict[str, Any]:
    """How the frozen weights lay in memory, and whether PEFT lifted the others to fp32.

    fms-acceleration brings a Triton kernel for GPTQ and lifts nothing
    (plugins/accelerated-peft: framework_plugin_bnb.py, gptqmodel); TRL leaves sharded models alone
    (sft_trainer.py, is_sharded_qlora).
    """
    accelerated = "accelerated-peft" in notes
    if "gptq" in notes:
        kernel = "gptq-int4" if accelerated else "gptq-int4-torch"
        return {"base_format": kernel, "lora_fused": by_triton}
    lifted = "" if zero < 3 and not accelerated else "bf16"
    return {"base_format": "nf4", "residual_dtype": lifted, "lora_fused": by_triton}
