"""The LLaMA line: RMSNorm, rope, gated FFN, mostly no biases; what differs is in the table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trueflops.model.architecture import Block, Model
from trueflops.model.config import Config
from trueflops.model.families.registry import assemble, head_dim, kv_heads, layer_windows, reads
from trueflops.model.layers import Attention, Ffn, NormPlacement


@dataclass(frozen=True)
class Traits:
    """How a family departs from LLaMA, where its config.json does not say so itself."""

    qkv_bias: bool = False
    attention_bias: bool = False  # default of the field `attention_bias`, for all four projections
    qk_norm: Literal["none", "head", "width"] = "none"
    norms: NormPlacement = "pre"
    tied: bool = False
    local: Literal["all", "alternate", "five of six", "after max_window_layers"] = "all"


TRAITS = {
    "llama": Traits(),
    "mistral": Traits(),
    "ministral": Traits(),
    "granite": Traits(),
    "phi3": Traits(),
    "qwen2": Traits(qkv_bias=True, local="after max_window_layers"),
    "qwen3": Traits(qk_norm="head", local="after max_window_layers"),
    "gemma": Traits(tied=True),
    "gemma2": Traits(norms="sandwich", tied=True, local="alternate"),
    "gemma3_text": Traits(qk_norm="head", norms="sandwich", tied=True, local="five of six"),
    "olmo2": Traits(qk_norm="width", norms="post"),
    "smollm3": Traits(),
}


@reads(*TRAITS)
def llama_like(c: Config, name: str) -> Model:
    traits = TRAITS[c.text("model_type")]
    hidden, layers = c.size("hidden_size"), c.layers("num_hidden_layers")
    ffn = Ffn(
        c.size("intermediate_size"),
        gated=True,
        bias=c.flag("mlp_bias", default=False),
        activation=c.text("hidden_act", "hidden_activation", default="silu"),
    )
    blocks = [
        Block(
            attention,
            ffn,
            None,
            norms=traits.norms,
            dropout=c.number("resid_pdrop", default=0.0),
            attention_dropout=c.number("attention_dropout", default=0.0),
        )
        for attention in attentions(c, traits, hidden, layers)
    ]
    return assemble(
        c,
        name,
        blocks,
        hidden,
        tied=traits.tied,
        most_positions=2048,
    )


def attentions(c: Config, traits: Traits, hidden: int, layers: int) -> list[Attention]:
    """One Attention per layer, windows included."""
    heads = c.size("num_attention_heads")
    kv, dim = kv_heads(c, heads, "num_key_value_heads"), head_dim(c, hidden, heads)
    bias = c.flag("attention_bias", default=traits.attention_bias)
    windows = layer_windows(c, layers, _local_rule(c, traits), "sliding_window")
    if c.has("use_sliding_window") and not c.flag("use_sliding_window", default=False):
        windows = [0] * layers
    return [
        Attention(
            heads,
            kv,
            dim,
            dim,
            window=window,
            qk_norm=traits.qk_norm,
            qkv_bias=bias or traits.qkv_bias,
            out_bias=bias,
        )
        for window in windows
    ]


def _local_rule(c: Config, traits: Traits):  # type: ignore[no-untyped-def]
    if traits.local == "alternate":
        return lambda layer: layer % 2 == 0
    if traits.local == "five of six":
        every = c.size("sliding_window_pattern", default=6)
        return lambda layer: (layer + 1) % every != 0
    if traits.local == "after max_window_layers":
        first = c.size("max_window_layers", default=28, least=0)
        return lambda layer: layer >= first
    return lambda layer: True
