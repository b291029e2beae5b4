"""Gemma 4: heads of two widths, dense FFN beside experts, layers with keys and inputs of others.

Layers that see all have heads of their own width, whose keys may be values too. In mixtures every
layer has a dense FFN and experts, which read the same stream. In the small ones (E2B, E4B) the last
layers attend to keys of an earlier one, and each layer has an input of its own from a second table
(transformers models/gemma4/modeling_gemma4.py: Gemma4TextAttention, Gemma4TextDecoderLayer).
"""

from __future__ import annotations

from trueflops.errors import BadConfig
from trueflops.language import say
from trueflops.model.architecture import Block, Model
from trueflops.model.config import Config
from trueflops.model.families.llama import Traits, local_rule
from trueflops.model.families.registry import assemble, kv_heads, layer_windows, reads
from trueflops.model.layers import Attention, Experts, Ffn


@reads("gemma4_text")
def gemma4(c: Config, name: str) -> Model:
    hidden, layers = c.size("hidden_size"), c.layers("num_hidden_layers")
    own = c.size("hidden_size_per_layer_input", default=256, least=0)
    first = layers - _borrowing(c, layers)
    local = local_rule(c, Traits(local="five of six"))
    windows = layer_windows(c, layers, local, "sliding_window")
    doubled = c.flag("use_double_wide_mlp", default=False)
    experts = _experts(c) if c.flag("enable_moe_block", default=False) else None
    blocks = [
        Block(
            _attention(c, window, borrows=layer >= first),
            _ffn(c, 2 if doubled and layer >= first else 1),
            experts,
            norms="sandwich",
            own=own,
        )
        for layer, window in enumerate(windows)
    ]
    rows = c.size("vocab_size_per_layer_input", default=c.size("vocab_size")) if own else 0
    return assemble(c, name, blocks, hidden, tied=True, most_positions=131072, own_rows=rows)


def _borrowing(c: Config, layers: int) -> int:
    """How many of the last layers attend to keys of an earlier one; some must have their own."""
    count = c.size("num_kv_shared_layers", default=0, least=0)
    if count >= layers:
        raise BadConfig(
            say(
                "{where}: {count} of {layers} layers share keys of an earlier one; at most "
                "{most} can",
                where=c.where,
                count=count,
                layers=layers,
                most=layers - 1,
            )
        )
    return count


def _attention(c: Config, window: int, *, borrows: bool) -> Attention:
    heads, bias = c.size("num_attention_heads"), c.flag("attention_bias", default=False)
    shared = c.flag("attention_k_eq_v", default=False) and not window
    keys = kv_heads(c, heads, "num_key_value_heads")
    if shared:
        keys = kv_heads(c, heads, "num_global_key_value_heads", "num_key_value_heads")
    dim = c.size("head_dim", default=256) if window else c.size("global_head_dim", default=512)
    return Attention(
        heads, keys, dim, dim, window=window, qkv_bias=bias, out_bias=bias, qk_norm="head",
        value_norm=True, keys_as_values=shared, borrows=borrows,
    )  # fmt: skip


def _ffn(c: Config, times: int) -> Ffn:
    return Ffn(times * c.size("intermediate_size"), gated=True, activation=_activation(c))


def _experts(c: Config) -> Experts:
    return Experts(
        c.size("num_experts"),
        c.size("top_k_experts"),
        c.size("moe_intermediate_size", "expert_intermediate_size"),
        activation=_activation(c),
        scaled=True,
    )


def _activation(c: Config) -> str:
    return c.text("hidden_activation", default="gelu_pytorch_tanh")
