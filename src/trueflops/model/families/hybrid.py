"""Hybrids: most layers keep a state of fixed size, every fourth a cache that grows."""

from __future__ import annotations

from trueflops.errors import BadConfig
from trueflops.language import say
from trueflops.model.architecture import Block, Model
from trueflops.model.config import Config
from trueflops.model.families.registry import assemble, head_dim, kv_heads, one_a_layer, reads
from trueflops.model.layers import Attention, Experts, Ffn, State

LINEAR, FULL = "linear_attention", "full_attention"
MOE = ("qwen3_next", "qwen3_5_moe_text")


@reads("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
def qwen_hybrid(c: Config, name: str) -> Model:
    """Qwen3-Next and Qwen3.5: the gated delta rule beside gated attention."""
    hidden, layers = c.size("hidden_size"), c.layers("num_hidden_layers")
    heads = c.size("num_attention_heads")
    dim = head_dim(c, hidden, heads)
    bias = c.flag("attention_bias", default=False)
    full = Attention(
        heads,
        kv_heads(c, heads, "num_key_value_heads"),
        dim,
        dim,
        qk_norm="head",
        qkv_bias=bias,
        out_bias=bias,
        gated=True,
    )
    states = c.size("linear_num_value_heads")
    linear = Attention(
        states,
        kv_heads(c, states, "linear_num_key_heads"),
        c.size("linear_key_head_dim"),
        c.size("linear_value_head_dim"),
        rope=False,
        state=State(c.size("linear_conv_kernel_dim", default=4, most=1024)),
    )
    blocks = [
        _block(c, linear if kind == LINEAR else full, layer)
        for layer, kind in enumerate(_kinds(c, layers))
    ]
    return assemble(c, name, blocks, hidden, tied=False, most_positions=32768)


def _kinds(c: Config, layers: int) -> list[str]:
    """What each layer is: as `layer_types` says, else by `full_attention_interval`."""
    every = c.size("full_attention_interval", default=4)
    said = list(c.texts("layer_types"))
    kinds = said or [LINEAR if (i + 1) % every else FULL for i in range(layers)]
    one_a_layer(c, "layer_types", kinds, layers)
    if other := next((kind for kind in kinds if kind not in (LINEAR, FULL)), ""):
        raise BadConfig(
            say(
                "{where}: layer_types has {other!r}; known are {linear} and {full}",
                where=c.where,
                other=other[:40],
                linear=LINEAR,
                full=FULL,
            )
        )
    return kinds


def _block(c: Config, attention: Attention, layer: int) -> Block:
    every = c.size("decoder_sparse_step", default=1)
    dense = layer in c.sizes("mlp_only_layers") or (layer + 1) % every > 0
    if c.text("model_type") not in MOE or dense:
        return Block(attention, Ffn(c.size("intermediate_size"), gated=True), None)
    experts = Experts(
        c.size("num_experts"),
        c.size("num_experts_per_tok"),
        c.size("moe_intermediate_size"),
        shared_width=c.size("shared_expert_intermediate_size", least=0),
        shared_gate=True,
    )
    return Block(attention, None, experts)
