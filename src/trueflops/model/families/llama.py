"""The LLaMA line: RMSNorm, rope, gated FFN, mostly no biases; what differs is in the table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trueflops.model.architecture import Block, Model
from trueflops.model.config import Config
from trueflops.model.families.registry import (
    assemble,
    head_dim,
    kv_heads,
    layer_windows,
    reads,
)
from trueflops.model.layers import Attention, Ffn, NormPlacement


@dataclass(frozen=True)
class Traits:
    """How a family departs from LLaMA, where its config.json does not say so itself."""

    qkv_bias: bool = False
    attention_bias: bool = False  # default of the field `attention_bias`
    out_bias: str = "attention_bias"  # the field that the last projection follows; empty: it has no
    qk_norm: Literal["none", "head", "width"] = "none"
    qk_norm_field: str = ""  # a field that asks for norms over the whole width
    norm: Literal["rms", "layer"] = "rms"
    norms: NormPlacement = "pre"
    norm_bias: bool = False
    parallel: bool = False  # attention and FFN read the same normed input
    gated: bool = True
    tied: bool = False
    local: Literal[
        "all", "alternate", "three of four", "five of six", "after max_window_layers"
    ] = "all"


TRAITS = {
    "llama": Traits(),
    "mistral": Traits(),
    "ministral": Traits(),
    "ministral3": Traits(),
    "granite": Traits(),
    "phi3": Traits(),
    "mimo": Traits(qkv_bias=True, out_bias="", local="after max_window_layers"),  # Qwen2's layers
    "qwen2": Traits(qkv_bias=True, out_bias="", local="after max_window_layers"),
    # Text parts of models that see and hear, Qwen2's layers; before transformers 4.52 the fields of
    # these lie beside the others in one config.json.
    **dict.fromkeys(
        ("qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text", "qwen2_5_omni_text"),
        Traits(qkv_bias=True, out_bias="", local="after max_window_layers"),
    ),
    "qwen3": Traits(qk_norm="head", local="after max_window_layers"),
    "qwen3_vl_text": Traits(qk_norm="head"),
    "gemma": Traits(tied=True),
    "gemma2": Traits(norms="sandwich", tied=True, local="alternate"),
    "gemma3_text": Traits(qk_norm="head", norms="sandwich", tied=True, local="five of six"),
    "olmo2": Traits(qk_norm="width", norms="post"),
    "olmo3": Traits(qk_norm="width", norms="post", local="three of four"),
    "smollm3": Traits(),
    "helium": Traits(),
    "arcee": Traits(gated=False),
    "apertus": Traits(qk_norm="head", gated=False),
    # LLaMA's layers under names of their own (vLLM's models/registry.py, models/internlm2.py).
    "internlm2": Traits(),
    "internlm3": Traits(),
    "minicpm": Traits(tied=True),
    "exaone": Traits(),
    "glm": Traits(out_bias=""),
    "glm4v_text": Traits(attention_bias=True, out_bias="", norms="sandwich"),
    "glm4": Traits(out_bias="", norms="sandwich"),
    "seed_oss": Traits(attention_bias=True, out_bias="attention_out_bias"),
    "ernie4_5": Traits(tied=True),
    "exaone4": Traits(qk_norm="head", norms="post", local="three of four"),
    "hunyuan_v1_dense": Traits(qk_norm="head"),
    "cohere": Traits(norm="layer", parallel=True, tied=True, qk_norm_field="use_qk_norm"),
    "cohere2": Traits(norm="layer", parallel=True, tied=True, local="three of four"),
    "stablelm": Traits(norm="layer", norm_bias=True, out_bias="", qk_norm_field="qk_layernorm"),
}


@reads(*TRAITS)
def llama_like(c: Config, name: str) -> Model:
    traits = TRAITS[c.text("model_type")]
    hidden, layers = c.size("hidden_size"), c.layers("num_hidden_layers", "num_layers")
    parallel = c.flag("use_parallel_residual", default=traits.parallel)
    usual = "xielu" if c.text("model_type") == "apertus" else "silu"
    activation = c.text("hidden_act", "hidden_activation", default=usual)
    ffn = Ffn(
        c.size("intermediate_size"),
        gated=traits.gated,
        bias=c.flag("mlp_bias", "use_bias", default=False),
        activation=activation,
        learned=2 if activation == "xielu" else 0,  # alpha_p, alpha_n (arXiv 2411.13010)
    )
    blocks = [
        Block(
            attention,
            ffn,
            None,
            norm=traits.norm,
            norm_bias=traits.norm_bias,
            norms=traits.norms,
            parallel=parallel,
            shared_norm=parallel,
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
    bias = c.flag("attention_bias", "use_qkv_bias", "use_bias", default=traits.attention_bias)
    last = traits.out_bias and c.flag(traits.out_bias, "use_bias", default=False)
    asked = traits.qk_norm_field and c.flag(traits.qk_norm_field, default=False)
    windows = layer_windows(c, layers, local_rule(c, traits), "sliding_window")
    if c.has("use_sliding_window") and not c.flag("use_sliding_window", default=False):
        windows = [0] * layers
    return [
        Attention(
            heads,
            kv,
            dim,
            dim,
            window=window,
            qk_norm="width" if asked else traits.qk_norm,
            qkv_bias=bias or traits.qkv_bias,
            out_bias=bool(last),
        )
        for window in windows
    ]


def local_rule(c: Config, traits: Traits):  # type: ignore[no-untyped-def]
    if traits.local == "alternate":
        return lambda layer: layer % 2 == 0
    if traits.local in ("three of four", "five of six"):
        usual = 4 if traits.local == "three of four" else 6
        said = c.fields.get("sliding_window_pattern")
        # EXAONE 4 writes it out: "LLLG".
        every = len(said) if said and isinstance(said, str) else None
        every = every or c.size("sliding_window_pattern", default=usual)
        return lambda layer: (layer + 1) % every != 0
    if traits.local == "after max_window_layers":
        first = c.size("max_window_layers", default=28, least=0)
        return lambda layer: layer >= first
    return lambda layer: True
