"""What a row trained: all weights, or adapters beside frozen ones, by its column `peft` and notes.

What is not said is the plan's default, a guess; what is known of a script that the notes name
stands in RECIPES; of several that a row names, the last one says most.
"""

from __future__ import annotations

import re
from typing import Any, Final

from trueflops.records.tables import Row
from trueflops.verify.cells import noted, number, text

RANK: Final = r"\br(?:ank)?[ =]*(\d{1,4})\b"
_TARGETS: Final = re.compile(r"\bon ((?:[qkvo]|gate|up|down)(?:,\s?(?:[qkvo]|gate|up|down))*)\b")
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
    adapters = text(row, "peft").casefold()
    if adapters not in ("lora", "qlora"):
        return {}
    notes = text(row, "notes").casefold()
    fields: dict[str, Any] = {"adapters": adapters}
    said = f"{text(row, 'framework')} {notes}".casefold()
    for words, known in RECIPES:
        if words in said:
            fields |= known
    if rank := noted(row, RANK):
        fields["lora_rank"] = rank
    if found := _TARGETS.search(notes):
        fields["lora_targets"] = found[1].replace(" ", "")
    elif "all linear" in notes or "all-linear" in notes:
        fields["lora_targets"] = "all-linear"
    by_triton = _has_kernels(row)
    if by_triton:
        fields |= {"implementation": "library", "fused": False}
    if adapters == "qlora":
        return _packed(notes, zero, by_triton=by_triton) | fields
    if (number(row, "year") or 9999) < FIRST_WITH_WIDE_ADAPTERS:
        fields |= {"adapter_dtype": "bf16", "optimizer": "adamw-bf16"}
    return fields


def stated_tuning(row: Row) -> frozenset[str]:
    """Of what says how adapters were trained, the fields that a row or its script states."""
    return frozenset(read_tuning(row, 0)) & {"lora_rank", "lora_targets"}


def _has_kernels(row: Row) -> bool:
    """Fused ops and kernels of fms-acceleration: norms, rotations and the loss by Triton.

    Logits are lifted to fp32 before that loss, as Hugging Face's models do.
    """
    return "foak" in text(row, "framework").casefold()


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
