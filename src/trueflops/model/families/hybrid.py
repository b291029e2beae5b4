"""Hybrids of linear attention: most layers keep a state of fixed size, some a cache that grows."""

from __future__ import annotations

from collections.abc import Sequence

from trueflops.model.architecture import Block, Model
from trueflops.model.config import Config
from trueflops.model.families.mla import latent_attention
from trueflops.model.families.registry import (
    assemble,
    head_dim,
    kv_heads,
    one_a_layer,
    reads,
    refuse_fields,
    refuse_unknown,
)
from trueflops.model.layers import Attention, Experts, Ffn, Recurrent

LINEAR, FULL, CONV = "linear_attention", "full_attention", "conv"
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
    linear = gated_delta(
        states,
        kv_heads(c, states, "linear_num_key_heads"),
        c.size("linear_key_head_dim"),
        c.size("linear_value_head_dim"),
        c.size("linear_conv_kernel_dim", default=4, most=1024),
    )
    every = c.size("full_attention_interval", default=4)
    usual = [LINEAR if (i + 1) % every else FULL for i in range(layers)]
    blocks = [
        _mixing(kind, full, linear, *_qwen_ffn(c, layer))
        for layer, kind in enumerate(layer_kinds(c, usual))
    ]
    return assemble(c, name, blocks, hidden, tied=False, most_positions=32768)


def gated_delta(heads: int, keys: int, key_dim: int, value_dim: int, conv: int) -> Recurrent:
    """Qwen3NextGatedDeltaNet: of a head and token how much is kept and written, A_log, dt_bias."""
    return Recurrent("delta", heads, keys, key_dim, value_dim, rates=2, learned=2, conv=conv)


def layer_kinds(c: Config, usual: Sequence[str]) -> list[str]:
    """What each layer is: as `layer_types` says, else as is usual in the family."""
    kinds = list(c.texts("layer_types") or usual)
    one_a_layer(c, "layer_types", kinds, len(usual))
    refuse_unknown(c, "layer_types", kinds, (LINEAR, FULL).__contains__, (LINEAR, FULL))
    return kinds


def _mixing(
    kind: str, full: Attention, linear: Recurrent, ffn: Ffn | None, experts: Experts | None
) -> Block:
    """A layer of one kind."""
    return Block(full if kind == FULL else None, ffn, experts, linear if kind == LINEAR else None)


def _qwen_ffn(c: Config, layer: int) -> tuple[Ffn | None, Experts | None]:
    every = c.size("decoder_sparse_step", default=1)
    dense = layer in c.sizes("mlp_only_layers") or (layer + 1) % every > 0
    if c.text("model_type") not in MOE or dense:
        return Ffn(c.size("intermediate_size"), gated=True), None
    return None, Experts(
        c.size("num_experts"),
        c.size("num_experts_per_tok"),
        c.size("moe_intermediate_size"),
        shared_width=c.size("shared_expert_intermediate_size", least=0),
        shared_gate=True,
    )


@reads("kimi_linear")
def kimi_linear(c: Config, name: str) -> Model:
    """Kimi Linear: delta attention with a rate for each channel, beside latent attention.

    Fields as its release has them (`linear_attn_config`, layers counted from 1), or as transformers
    writes them (configuration_kimi_linear.py).
    """
    hidden, layers = c.size("hidden_size"), c.layers("num_hidden_layers")
    refuse_fields(c, "attn_res_block_size", "routed_expert_hidden_size")  # Kimi K3's
    of = c.nested("linear_attn_config") if c.has("linear_attn_config") else c
    side = of.size("head_dim" if of is not c else "linear_head_dim", default=128, most=65536)
    heads = of.size("num_heads" if of is not c else "linear_num_heads", default=32)
    conv = of.size(
        "short_conv_kernel_size" if of is not c else "linear_conv_kernel_dim", default=4, most=1024
    )
    linear = Recurrent("delta", heads, heads, side, side, rates=1, learned=1, rank=side, conv=conv)
    full = latent_attention(c)
    whole = set(of.sizes("full_attn_layers"))  # counted from 1
    last = (i and i % 4 == 0 for i in range(layers))
    usual = (i + 1 in whole for i in range(layers)) if whole else last
    width = c.size("moe_intermediate_size")
    experts = Experts(
        c.size("num_experts", "num_local_experts", "n_routed_experts"),
        c.size("num_experts_per_token", "num_experts_per_tok"),
        width,
        shared_width=width * c.size("num_shared_experts", "n_shared_experts", default=1, least=0),
    )
    dense = Ffn(c.size("intermediate_size"), gated=True)
    first = c.size("first_k_dense_replace", default=1, least=0)
    widths = list(c.texts("mlp_layer_types")) or ["dense"] * first + ["sparse"] * (layers - first)
    one_a_layer(c, "mlp_layer_types", widths, layers)
    kinds = layer_kinds(c, [FULL if is_full else LINEAR for is_full in usual])
    blocks = [
        _mixing(kind, full, linear, dense if wide == "dense" else None,
                None if wide == "dense" else experts)
        for kind, wide in zip(kinds, widths, strict=True)
    ]  # fmt: skip
    return assemble(c, name, blocks, hidden, tied=False,
                    positions=("max_position_embeddings", "model_max_length"),
                    most_positions=1048576)  # fmt: skip


@reads("minimax", "minimax_text_01", "minimax_m1")
def minimax(c: Config, name: str) -> Model:
    """MiniMax-Text-01 and M1: lightning attention in seven of eight layers (arXiv 2501.08313).

    vLLM keeps its states in the model's dtype (mamba_utils.py, linear_attention_state_dtype).
    """
    hidden, layers = c.size("hidden_size"), c.layers("num_hidden_layers")
    heads = c.size("num_attention_heads")
    dim = head_dim(c, hidden, heads)
    full = Attention(heads, kv_heads(c, heads, "num_key_value_heads"), dim, dim)
    linear = Recurrent(
        "decay", heads, heads, dim, dim, norm="width", bits=16.0,
        chunk=c.size("block_size", default=256, most=65536),
    )  # fmt: skip
    experts = Experts(
        c.size("num_local_experts"), c.size("num_experts_per_tok"), c.size("intermediate_size")
    )
    # 0 is lightning attention, 1 softmax (the release's config.json); a list says it in any case.
    listed = c.sizes("attn_type_list")
    usual = [FULL if bool(at) else LINEAR for at in listed]
    usual = usual or [LINEAR if i % 2 else FULL for i in range(layers)]
    one_a_layer(c, "attn_type_list", usual, layers)
    blocks = [_mixing(kind, full, linear, None, experts) for kind in layer_kinds(c, usual)]
    return assemble(c, name, blocks, hidden, tied=False, most_positions=131072)


@reads("lfm2", "lfm2_moe")
def lfm2(c: Config, name: str) -> Model:
    """LFM2: short filters, gated before and behind, in most layers; attention in some.

    Lfm2Config, Lfm2MLP and Lfm2MoeSparseMoeBlock of transformers.
    """
    hidden, layers = c.size("hidden_size"), c.layers("num_hidden_layers")
    heads = c.size("num_attention_heads")
    dim, bias = head_dim(c, hidden, heads), c.flag("conv_bias", default=False)
    full = Attention(heads, kv_heads(c, heads, "num_key_value_heads"), dim, dim, qk_norm="head")
    near = Recurrent(
        "filter", hidden // dim, hidden // dim, dim, dim, norm="none", bias=bias, out_bias=bias,
        conv=c.size("conv_L_cache", default=3, most=1024), conv_bias=bias,
    )  # fmt: skip
    whole = set(c.sizes("full_attn_idxs"))
    usual = [FULL if i in whole or not c.has("full_attn_idxs") else CONV for i in range(layers)]
    kinds = list(c.texts("layer_types") or usual)
    one_a_layer(c, "layer_types", kinds, layers)
    refuse_unknown(c, "layer_types", kinds, (CONV, FULL).__contains__, (CONV, FULL))
    routed = c.text("model_type") == "lfm2_moe"
    ffn = Ffn(c.size("intermediate_size") if routed else _lfm2_width(c), gated=True)
    first = c.size("num_dense_layers", default=2, least=0) if routed else layers
    experts = None
    if routed:
        experts = Experts(
            c.size("num_experts"), c.size("num_experts_per_tok"), c.size("moe_intermediate_size")
        )
    blocks = [
        Block(full if kind == FULL else None, None if i >= first else ffn,
              experts if i >= first else None, near if kind == CONV else None)
        for i, kind in enumerate(kinds)
    ]  # fmt: skip
    return assemble(c, name, blocks, hidden, tied=True, most_positions=128000)


def _lfm2_width(c: Config) -> int:
    """Two thirds of what is said, rounded up, unless it is said to be exact."""
    width = c.size("block_ff_dim", "intermediate_size")
    if not c.flag("block_auto_adjust_ff_dim", default=True):
        return width
    times = c.number("block_ffn_dim_multiplier", default=1.0, most=1024.0)
    every = c.size("block_multiple_of", default=256)
    return -(-int(times * int(2 * width / 3)) // every) * every
