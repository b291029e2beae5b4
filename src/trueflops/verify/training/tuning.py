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
from trueflops.verify.training.words import kind_of_task

RANK: Final = re.compile(r"(?:\b|_)r(?:ank)?[ =:_-]*([1-9]\d{0,3})\b(?!\.\d)")
DROPOUT: Final = re.compile(r"dropout[ =:]*(0?\.\d{1,4})\b")
_LAYER: Final = r"(?:[qkvo]|qkv|gate|up|down)"
_TARGETS: Final = re.compile(rf"\b(?:on|modules|targets?)[ =:]*({_LAYER}(?:,\s?{_LAYER})*)\b(?!_)")
_PROJECTIONS: Final = re.compile(r"\b([qkvo]|gate|up|down)_proj\b")
_JOINED: Final = re.compile(r"\b(?:qkv|query_key_value|wqkv|c_attn|qkv_proj)\b")
# Megatron-core names its layers otherwise, fused ones as one: core/models/gpt/gpt_layer_specs.py,
# core/transformer/multi_latent_attention.py
_OF_MEGATRON: Final = re.compile(
    r"\blinear_(qkv|proj|fc1|fc2|q(?:_down|_up)?_proj|kv_(?:down|up)_proj)\b"
)
_MEGATRONS: Final = {
    "qkv": "qkv",
    "proj": "o",
    "fc1": "gate,up",
    "fc2": "down",
    "q": "q",
    "kv": "v",
}
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
    # NVIDIA-NeMo/Megatron-Bridge, src/megatron/bridge/peft/lora.py: LoRA, dim 32 on linear_qkv,
    # linear_proj, linear_fc1 and linear_fc2; its adapters are layers of Megatron-Core in bf16
    # (peft/utils.py: ParallelLinearAdapter, of the model's params_dtype).
    (
        "megatron-bridge",
        {"lora_rank": 32, "lora_targets": "qkv,o,gate,up,down", "adapter_dtype": "bf16"},
    ),
    # NVIDIA/NeMo, nemo/collections/llm/recipes: finetune_performance_optimizations; adapters are
    # layers of Megatron-Core in bf16. Megatron-Bridge's perf_recipes, which NeMo's containers run,
    # adapt linear_qkv likewise (perf_recipes/llama/*/llama3.py), with the 16 of 70B and 405B
    # (recipes/llama/h100/llama3.py: peft_cfg.dim).
    ("nemo", {"lora_rank": 16, "lora_targets": "qkv", "adapter_dtype": "bf16"}),
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
    # MakazhanAlpamys/Soup, src/soup_cli/config/schema.py: dropout, and target_modules left to PEFT
    # (peft/utils/constants.py: of Llama, q_proj and v_proj).
    ("soup (", {"lora_targets": "q,v", "lora_dropout": 0.05}),
    # PrimeIntellect-ai/prime-rl, src/prime_rl/trainer/config.py (LoRAConfig) and models/layers/
    # lora: adapters are of the dtype of the weight, which is loaded in fp32.
    ("prime-rl", {"lora_rank": 16, "lora_targets": "q,k,v,o,gate,up,down"}),
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
RECOMPUTES: Final = (
    # hiyouga/LLaMA-Factory, src/llamafactory/hparams/model_args.py: disable_gradient_checkpointing
    # is False; model/model_utils/checkpointing.py: prepare_model_for_training.
    "factory",
    # unslothai/unsloth, unsloth/models/llama.py: get_peft_model, use_gradient_checkpointing.
    "unsloth",
)
"""Who recomputes every layer where nothing is said."""
READIED_BY_PEFT: Final = re.compile(r"\bpeft\b|bitsandbytes")
NOT_LIFTED: Final = (
    # hiyouga/LLaMA-Factory, model/model_utils/checkpointing.py: norms on request, nothing else.
    "factory",
    # unslothai/unsloth, unsloth/models/_utils.py: prepare_model_for_kbit_training of its own.
    "unsloth",
    # axolotl-ai-cloud/axolotl, src/axolotl/loaders/model.py, _configure_embedding_dtypes: what
    # PEFT lifted is narrowed again for FlashAttention and for Cut Cross-Entropy.
    "axolotl",
)
"""Whose embedding, head and norms stay narrow beside packed weights."""


def usual_recomputation(row: Row) -> str:
    """What is recomputed where a row does not say: nothing, but for those who do by default, and
    for packed weights that PEFT readies (peft/utils/other.py: prepare_model_for_kbit_training,
    use_gradient_checkpointing=True).
    """
    named = text(row, "framework").casefold()
    packed = _adapters(row) == "qlora" and READIED_BY_PEFT.search(named)
    return "full" if packed or any(word in named for word in RECOMPUTES) else "none"


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
    if adapters == "qlora":
        return _packed(notes, zero, text(row, "framework").casefold()) | fields
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
    if of_megatron := _OF_MEGATRON.findall(notes):
        return ",".join(dict.fromkeys(_MEGATRONS[name.split("_")[0]] for name in of_megatron))
    if _EVERY_LINEAR.search(notes):
        return "all-linear"
    if named := dict.fromkeys(_PROJECTIONS.findall(notes)):
        return ",".join(named)
    return "qkv" if _JOINED.search(notes) else ""


def stated_tuning(row: Row) -> frozenset[str]:
    """Of what says how adapters were trained, the fields that a row or its script states."""
    return frozenset(read_tuning(row, 0)) & {"lora_rank", "lora_targets"}


def _packed(notes: str, zero: int, framework: str) -> dict[str, Any]:
    """How the frozen weights lay in memory, and whether PEFT lifted the others to fp32.

    fms-acceleration brings a Triton kernel for GPTQ and lifts nothing
    (plugins/accelerated-peft: framework_plugin_bnb.py, gptqmodel); TRL leaves sharded models alone
    (sft_trainer.py, is_sharded_qlora).
    """
    accelerated = "accelerated-peft" in notes
    by_triton = "foak" in framework
    if "gptq" in notes:
        kernel = "gptq-int4" if accelerated else "gptq-int4-torch"
        return {"base_format": kernel, "lora_fused": by_triton}
    narrow = zero >= 3 or accelerated or any(word in framework for word in NOT_LIFTED)
    lifted = "bf16" if narrow else ""
    return {"base_format": "nf4", "residual_dtype": lifted, "lora_fused": by_triton}
