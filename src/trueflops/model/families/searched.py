"""Layers that a search chose one by one: Llama-Nemotron, whose `block_configs` differ (DeciLM)."""

from __future__ import annotations

from typing import Final

from trueflops.errors import BadConfig
from trueflops.language import say
from trueflops.model.architecture import Block, Model
from trueflops.model.config import Config
from trueflops.model.families.registry import (
    assemble,
    head_dim,
    one_a_layer,
    reads,
    refuse_fields,
)
from trueflops.model.layers import Attention, Ffn

WIDTHS: Final = 256  # an FFN's width is rounded up to a multiple of it
# What the search may put in the place of a half, and no release that we know has.
UNREAD: Final = ("replace_with_linear", "sparsify", "window_length", "num_sink_tokens")


@reads("nemotron-nas")
def nemotron_nas(c: Config, name: str) -> Model:
    """Of each layer: how many heads share a key, how wide its FFN is, and whether it has either.

    vLLM's models/nemotron_nas.py, DeciLMDecoderLayer. A layer that has neither does nothing, and is
    left out.
    """
    hidden, layers = c.size("hidden_size"), c.layers("num_hidden_layers")
    given = c.objects("block_configs")
    one_a_layer(c, "block_configs", given, layers)
    blocks = [Block(_attention(c, own, hidden), _ffn(c, own, hidden), None) for own in given]
    return assemble(c, name, [block for block in blocks if block.parts], hidden, tied=False)


def _attention(c: Config, layer: Config, hidden: int) -> Attention | None:
    own = _half(layer, "attention")
    if own is None:
        return None
    heads, bias = c.size("num_attention_heads"), c.flag("attention_bias", default=False)
    dim, sharing = head_dim(c, hidden, heads), own.size("n_heads_in_group")
    if heads % sharing:
        raise BadConfig(
            say(
                "{where}: {heads} heads do not divide into groups of {sharing} (n_heads_in_group)",
                where=own.where,
                heads=heads,
                sharing=sharing,
            )
        )
    return Attention(heads, heads // sharing, dim, dim, qkv_bias=bias, out_bias=bias)


def _ffn(c: Config, layer: Config, hidden: int) -> Ffn | None:
    own = _half(layer, "ffn")
    if own is None:
        return None
    if own.has("ffn_mult"):
        exact = int(2.0 * own.number("ffn_mult", default=1.0, most=1024.0) * hidden / 3.0)
        width = -(-exact // WIDTHS) * WIDTHS
    else:
        width = own.size("intermediate_size")
    act = own.text("hidden_act", default=c.text("hidden_act", default="silu"))
    return Ffn(width, gated=True, bias=c.flag("mlp_bias", default=False), activation=act)


def _half(layer: Config, name: str) -> Config | None:
    """What is said of one half of a layer; None where it has none."""
    own = layer.nested(name)
    if own.flag("no_op", default=False):
        return None
    refuse_fields(own, *UNREAD)
    return own
