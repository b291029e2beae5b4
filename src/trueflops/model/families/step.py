"""Step-3.5 and 3.7: layers of a window may have more heads than others; each head has one gate."""

from __future__ import annotations

from dataclasses import replace

from trueflops.errors import BadConfig
from trueflops.language import say
from trueflops.model.architecture import Block, Model
from trueflops.model.config import Config
from trueflops.model.families.registry import assemble, head_dim, kv_heads, one_a_layer, reads
from trueflops.model.layers import Attention, Experts, Ffn

SLIDING, SPARSE = "sliding_attention", "sparse"


@reads("step3p7", "step3p5")
def step(c: Config, name: str) -> Model:
    """Step3p7TextConfig and Step3p7Attention of transformers, whose text part is called step3p5,
    and the spellings of the releases that these read.
    """
    layers, hidden = c.layers("num_hidden_layers"), c.size("hidden_size")
    full, local = _attentions(c, hidden)
    experts = Experts(
        c.size("n_routed_experts", "moe_num_experts", "num_experts"),
        c.size("num_experts_per_tok", "moe_top_k"),
        c.size("moe_intermediate_size"),
        shared_width=c.size("share_expert_dim", "share_expert_dims", default=1280, least=0),
    )
    dense = Ffn(c.size("intermediate_size"), gated=True, bias=c.flag("mlp_bias", default=False))
    near = _of_kind(c, "layer_types", SLIDING, [False] * layers)
    routes = _of_kind(c, "mlp_layer_types", SPARSE, _routed(c, layers))
    blocks = [
        Block(local if slides else full, None if routed else dense, experts if routed else None)
        for slides, routed in zip(near, routes, strict=True)
    ]
    return assemble(c, name, blocks, hidden, tied=False)


def _attentions(c: Config, hidden: int) -> tuple[Attention, Attention]:
    """Of a layer that sees all, and of one with a window."""
    heads, bias = c.size("num_attention_heads"), c.flag("attention_bias", default=False)
    dim = head_dim(c, hidden, heads)
    keys = kv_heads(c, heads, "num_key_value_heads", "num_attention_groups")
    gate = c.flag("use_head_wise_attn_gate", default=True)
    full = Attention(
        heads, keys, dim, dim, qkv_bias=bias, out_bias=bias, qk_norm="head", gated=gate,
        one_gate=gate,
    )  # fmt: skip
    other = c.nested("attention_other_setting") if c.has("attention_other_setting") else c
    more = c.size("num_sliding_attention_heads", default=other.size("num_attention_heads"))
    if more % keys:
        raise BadConfig(
            say(
                "{where}: {count} key/value heads do not divide {heads} heads",
                where=c.where,
                count=keys,
                heads=more,
            )
        )
    return full, replace(full, heads=more, window=c.size("sliding_window", default=0, least=0))


def _of_kind(c: Config, field: str, kind: str, usual: list[bool]) -> list[bool]:
    """Which layers are of a kind; a list may go on for the modules behind the last layer."""
    said = c.texts(field)[: len(usual)]
    if not said:
        return usual
    one_a_layer(c, field, said, len(usual))
    return [each == kind for each in said]


def _routed(c: Config, layers: int) -> list[bool]:
    """Layers of experts where no list names each: by number ("3,4,5"), else behind the first."""
    first = c.size("first_k_dense_replace", default=3, least=0)
    named = set(c.text("moe_layers_enum", default="").replace(" ", "").split(",")) - {""}
    return [str(i) in named if named else i >= first for i in range(layers)]
