"""Llama's kin run in other ways: adapters, decoding, mixtures of experts; and compiled programs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    StaticCache,
)  # fmt: skip

from programs.images import ResNet, classify
from programs.kit import Step, fused, made, program, tokens, training
from programs.text import language

BF16 = torch.bfloat16
LLAMA_1B = {
    "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "head_dim": 64,
    "tie_word_embeddings": True,
}  # fmt: skip


class Adapted(nn.Module):
    """LoRA of Hu et al. 2021: a frozen layer and two thin ones beside it."""

    def __init__(self, frozen: nn.Linear, rank: int = 16) -> None:
        super().__init__()
        self.frozen = frozen
        self.drop = nn.Dropout(0.05)
        self.a = nn.Linear(frozen.in_features, rank, bias=False, device="cuda")
        self.b = nn.Linear(rank, frozen.out_features, bias=False, device="cuda")

    def forward(self, x: Tensor) -> Tensor:
        """Both, added; adapters stay in fp32, as PEFT keeps them."""
        thin = self.b(self.a(self.drop(x.to(self.a.weight.dtype))))
        return self.frozen(x) + (2.0 * thin).to(x.dtype)


@program("lora")
def llama_lora() -> Step:
    """A frozen Llama of 1B in bf16 with adapters on all linear layers of its blocks."""
    model: Any = made(LlamaForCausalLM, LlamaConfig(**LLAMA_1B, use_cache=False)).to(BF16)
    model.requires_grad_(False)
    for layer in model.model.layers:
        for part in (layer.self_attn, layer.mlp):
            for name, child in list(part.named_children()):
                if isinstance(child, nn.Linear):
                    setattr(part, name, Adapted(child))
    return language(model, 2, 1024, mixed=BF16)


def decoding(batch: int, length: int) -> Step:
    """One token for each sequence, greedily, with a cache of fixed length."""
    config = LlamaConfig(**LLAMA_1B)
    model: Any = made(LlamaForCausalLM, config).to(BF16).eval()
    cache = StaticCache(config=config, max_cache_len=length)
    ids = tokens(128256, batch, 1)
    place = torch.full((1,), length // 2, device="cuda", dtype=torch.long)
    positions = place.expand(batch, 1)

    def step() -> Tensor:
        with torch.no_grad():
            scores = model(
                input_ids=ids, past_key_values=cache, cache_position=place,
                position_ids=positions, use_cache=True,
            ).logits  # fmt: skip
            return scores[:, -1].argmax(-1)

    return step


@program("decode")
def llama_decode() -> Step:
    """A Llama of 1B, one sequence: bound by launches."""
    return decoding(1, 1024)


@program("decode")
def llama_decode_batch() -> Step:
    """Sixty-four sequences with a cache of 4096."""
    return decoding(64, 4096)


MIXTRAL = {
    "hidden_size": 1024, "intermediate_size": 3584, "num_hidden_layers": 8,
    "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 32000,
    "num_local_experts": 8, "num_experts_per_tok": 2, "use_cache": False,
}  # fmt: skip


@program("moe")
def mixtral_eager() -> Step:
    """Experts one after another, each with the tokens that chose it."""
    config = MixtralConfig(**MIXTRAL, experts_implementation="eager")
    return language(made(MixtralForCausalLM, config).to(BF16), 4, 1024, optimizer=fused)


@program("moe")
def mixtral_grouped() -> Step:
    """Experts in one grouped product."""
    config = MixtralConfig(**MIXTRAL, experts_implementation="grouped_mm")
    return language(made(MixtralForCausalLM, config).to(BF16), 4, 1024, optimizer=fused)


@program("moe")
def qwen3_moe_grouped() -> Step:
    """Many small experts, eight a token."""
    config = Qwen3MoeConfig(
        hidden_size=1024, intermediate_size=3072, moe_intermediate_size=384, num_hidden_layers=8,
        num_attention_heads=16, num_key_value_heads=4, head_dim=64, vocab_size=151936,
        num_experts=64, num_experts_per_tok=8, use_cache=False,
        experts_implementation="grouped_mm",
    )  # fmt: skip
    return language(made(Qwen3MoeForCausalLM, config).to(BF16), 2, 2048, optimizer=fused)


@program("compiled")
def resnet18_compiled() -> Step:
    """Channels-last in bf16 autocast, through torch.compile."""
    model = made(ResNet, (2, 2, 2, 2), False)
    return classify(
        model, 256, channels_last=True, mixed=BF16, run=torch.compile(model)
    )  # fmt: skip


@program("compiled")
def bert_compiled() -> Step:
    """Six layers of BERT-base in bf16 autocast, through torch.compile, clipped."""
    model = made(BertForMaskedLM, BertConfig(num_hidden_layers=6))
    run, ids = torch.compile(model), tokens(30522, 32, 512)
    return training(
        model.parameters(), lambda: run(input_ids=ids, labels=ids).loss, mixed=BF16, clip=1.0
    )
