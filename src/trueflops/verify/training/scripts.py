"""What the script of a published run sets, or leaves at its framework's default, and its row omits.

In: a row, whose `source` names the document that the script lies beside. Out: fields of its plan,
and its model as that script builds it. Read off the scripts; never chosen by what comes out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from trueflops.model import Attention, Block, Model
from trueflops.records.tables import Row
from trueflops.verify.cells import text, whole

MEGATRON_DROPOUT: Final = 0.1  # megatron/training/arguments.py: --hidden-dropout


@dataclass(frozen=True)
class Script:
    """Words by which a row is known to have run it, all of them, and what it says."""

    words: tuple[str, ...]
    plan: Mapping[str, Any] = field(default_factory=dict)
    bare: bool = False  # Megatron-LM without the flags that would make a Llama of its GPT
    packed: bool = False  # one weight, with a bias, makes queries, keys and values
    keeps_all: bool = False  # trains without dropout


SCRIPTS: Final = (
    # PrimeIntellect-ai/prime-rl, src/prime_rl/trainer/rl/config.py (RLTrainerConfig): its
    # reinforcement trainer reads the head in pieces of the vocabulary (models/layers/lm_head.py:
    # FusedOutputLinear), unless that is turned off; the supervised one does not.
    Script(("prime-rl", "rl loss"), {"loss": "chunked"}),
    # MakazhanAlpamys/Soup, src/soup_cli/trainer/sft.py: from_pretrained without a dtype, which is
    # fp32 in the transformers 4.57.6 that ran (the document's own list), and bf16 by autocast.
    Script(("makazhanalpamys/soup", "step 17"), {"parameter_dtype": "fp32"}),
    # vuiseng9/megatron-tutorials, Makefile: calls scripts/2-*.sh with SP at its default, 0.
    Script(("megatron-tutorials 02-tp-sp.md", "weak scaling"), {"sp": False}),
    Script(("megatron-tutorials 02-tp-sp.md", "strong scaling"), {"sp": False}),
    # KellerJordan/modded-nanogpt, train_gpt2.py as each record's log has it: torch.compile takes
    # the whole model, whose forward ends with the loss.
    Script(("kellerjordan/modded-nanogpt", "autocast"), {"loss": "fused"}),
    # karpathy/nanoGPT, train.py (dropout = 0.0, torch.compile of the whole model) and model.py (the
    # forward ends with the loss); tyler-romero/nanogpt-speedrun, train_gpt2.py, began with it.
    Script(("nanogpt", "torch.compile"), {"loss": "fused"}, keeps_all=True),
    Script(("karpathy/nanogpt",), keeps_all=True),
    # karpathy/nanochat, nanochat/gpt.py and scripts/base_train.py: the same.
    Script(("karpathy/nanochat",), {"loss": "fused"}),
    # karpathy/llm.c, train_gpt2.cu: no kernel drops anything, and llmc/fused_classifier.cuh writes
    # the gradient of the logits over them.
    Script(("karpathy/llm.c",), {"loss": "fused"}, keeps_all=True),
    # pytorch/ao, that page: its H100 ran torchtitan 0.0.2 and PyTorch 2.7.0a0 of early 2025, and
    # torchtitan did not compile its loss from e8977b007 (December 2024) until bbb1b616e (April
    # 2025); its MI300X and B200 ran releases of August, which do (components/loss.py).
    Script(("torchao docs/source/workflows/training.md", "h100"), {"loss": "plain"}),
    # rasbt/LLMs-from-scratch, ch05/10_llm-training-speed/01_opt_single_gpu.py: model.to(bfloat16)
    # without autocast, and cross_entropy of what it returns.
    Script(("rasbt/llms-from-scratch",), {"loss": "narrow"}),
    # whyNLP/tinyllama, ds_config.json
    Script(("whynlp/tinyllama", "deepspeed"), {"zero": 2, "reduce_bucket": 2e8, "overlap": True}),
    # aws-samples/awsome-distributed-training, slurm/0.create_conda_env.sh: torchtitan of that day.
    Script(("awsome-distributed-training", "torchtitan", "2025-03"), {"loss": "plain"}),
    # deepspeedai/DeepSpeedExamples, training/bf16_master_weight: configs/*.json, and train.py,
    # which calls torch's MultiheadAttention: it has one in_proj_weight, and is asked for its
    # weights as well, so that it lays scores out (torch/nn/functional.py: need_weights).
    Script(("training/bf16_master_weight",), {"reduce_bucket": 5e7, "flash": False}, packed=True),
    # QwenLM/Qwen, finetune/ds_config_zero2.json
    Script(
        ("qwenlm/qwen readme.md", "zero-2"), {"reduce_bucket": 2e8, "overlap": True}, packed=True
    ),
    # huggingface.co/Qwen/Qwen-7B, modeling_qwen.py: QWenAttention has one c_attn, with a bias.
    Script(("qwenlm/qwen readme.md",), packed=True),
    # deepspeedai/DeepSpeedExamples, training/autotuning/hf/dsconfigs/ds_config_fp16_z1.json: the
    # stage alone. Without overlap_comm DeepSpeed reduces beside the backward from stage 3 on
    # (deepspeed/runtime/zero/config.py; constants.py in 2021).
    Script(("training/autotuning/hf", "zero-1"), {"overlap": False}),
    # FlagOpen/FlagPerf, training/benchmarks/llama2_7b/deepspeed/ds_config.json
    Script(("llama2_7b-deepspeed",), {"reduce_bucket": 1e7}),
    # FlagOpen/FlagPerf, training/benchmarks/llama3_{8,70}B/megatron/pretrain_llama3.sh: neither
    # --untie-embeddings-and-output-weights nor --position-embedding-type, --disable-bias-linear or
    # --hidden-dropout.
    Script(("flagperf", "llama3_8b-megatron"), {"sp": True}, bare=True),
    Script(("flagperf", "llama3_70b-megatron"), {"sp": True}, bare=True),
)


def _script(row: Row) -> Script:
    columns = ("source", "accelerator", "zero_or_fsdp", "framework", "notes")
    said = " ".join(text(row, column) for column in columns).casefold()
    return next((s for s in SCRIPTS if all(word in said for word in s.words)), Script(()))


def scripted_plan(row: Row) -> Mapping[str, Any]:
    """Fields of the plan that the script of a row sets."""
    return _script(row).plan


def scripted_model(row: Row, model: Model) -> Model:
    """The model as the script of a row builds it."""
    script = _script(row)
    if script.packed:
        return replace(model, blocks=tuple(map(_packed, model.blocks)))
    if script.keeps_all:
        return keeping_all(model)
    if not script.bare:
        return model
    blocks = tuple(
        replace(
            block,
            attention=_changed(block, rope=False, qkv_bias=True, out_bias=True),
            ffn=replace(block.ffn, bias=True) if block.ffn else None,
            dropout=MEGATRON_DROPOUT,
            attention_dropout=MEGATRON_DROPOUT,
        )
        for block in model.blocks
    )
    return replace(model, blocks=blocks, tied=True, learned_positions=whole(row, "seq_len") or 0)


def keeping_all(model: Model) -> Model:
    """The model trained without dropout, whatever its config.json leaves to a library's default."""
    blocks = (replace(block, dropout=0.0, attention_dropout=0.0) for block in model.blocks)
    return replace(model, blocks=tuple(blocks))


def _packed(block: Block) -> Block:
    return replace(block, attention=_changed(block, packed=True, qkv_bias=True))


def _changed(block: Block, **fields: Any) -> Attention | None:
    """A block's attention with other fields, where it has one."""
    return replace(block.attention, **fields) if block.attention else None
