"""The GPT line: LayerNorm, biases, plain GELU FFN; positions learned, by alibi or by rope."""

from __future__ import annotations

from trueflops.model.architecture import Block, Model
from trueflops.model.config import Config
from trueflops.model.families.registry import (
    assemble,
    head_dim,
    kv_heads,
    layer_windows,
    reads,
    refuse_fields,
)
from trueflops.model.layers import Attention, Ffn


@reads("gpt2")
def gpt2(c: Config, name: str) -> Model:
    """Attention and FFN with biases, learned positions, one packed projection."""
    return _gpt2(c, name, one_key=False, activation="gelu_new")


def _gpt2(c: Config, name: str, *, one_key: bool, activation: str) -> Model:
    """GPT-2's blocks; `one_key` that all heads of queries share."""
    hidden, heads = c.size("n_embd", "hidden_size"), c.size("n_head", "num_attention_heads")
    dim, kv = head_dim(c, hidden, heads), 1 if one_key else heads
    block = Block(
        Attention(heads, kv, dim, dim, rope=False, qkv_bias=True, out_bias=True, packed=True),
        Ffn(
            c.size("n_inner", default=4 * hidden),
            gated=False,
            bias=True,
            activation=c.text("activation_function", default=activation),
        ),
        None,
        norm="layer",
        norm_bias=True,
        dropout=c.number("resid_pdrop", default=0.1),
        attention_dropout=c.number("attn_pdrop", default=0.1),
    )
    positions = c.size("n_positions", "max_position_embeddings", default=1024)
    return assemble(
        c,
        name,
        [block] * c.layers("n_layer", "num_hidden_layers"),
        hidden,
        tied=True,
        positions=("n_positions", "max_position_embeddings"),
        most_positions=positions,
        learned_positions=positions,
    )


@reads("opt")
def opt(c: Config, name: str) -> Model:
    hidden, heads = c.size("hidden_size"), c.size("num_attention_heads")
    dim, bias = head_dim(c, hidden, heads), c.flag("enable_bias", default=True)
    pre_norm = c.flag("do_layer_norm_before", default=True)
    block = Block(
        Attention(heads, heads, dim, dim, rope=False, qkv_bias=bias, out_bias=bias),
        Ffn(
            c.size("ffn_dim"),
            gated=False,
            bias=bias,
            activation=c.text("activation_function", default="relu"),
        ),
        None,
        norm="layer",
        norm_bias=c.flag("layer_norm_elementwise_affine", default=True),
        dropout=c.number("dropout", default=0.1),
        attention_dropout=c.number("attention_dropout", default=0.0),
    )
    positions = c.size("max_position_embeddings", default=2048)
    return assemble(
        c,
        name,
        [block] * c.layers("num_hidden_layers"),
        hidden,
        tied=True,
        most_positions=positions,
        learned_positions=positions + 2,  # OPT offsets its position ids by two
        embedding_dim=c.size("word_embed_proj_dim", default=hidden),
        final_norm=pre_norm and not c.flag("_remove_final_layer_norm", default=False),
    )


@reads("bloom")
def bloom(c: Config, name: str) -> Model:
    hidden, heads = c.size("hidden_size", "n_embed"), c.size("n_head", "num_attention_heads")
    dim = head_dim(c, hidden, heads)
    block = Block(
        Attention(heads, heads, dim, dim, rope=False, qkv_bias=True, out_bias=True, packed=True),
        Ffn(4 * hidden, gated=False, bias=True, activation="gelu"),
        None,
        norm="layer",
        norm_bias=True,
        dropout=c.number("hidden_dropout", default=0.0),
        attention_dropout=c.number("attention_dropout", default=0.0),
    )
    return assemble(
        c,
        name,
        [block] * c.layers("n_layer", "num_hidden_layers"),
        hidden,
        tied=True,
        positions=("seq_length",),
        most_positions=2048,
        embedding_norm=True,
    )


@reads("gpt_neox")
def gpt_neox(c: Config, name: str) -> Model:
    hidden, heads = c.size("hidden_size"), c.size("num_attention_heads")
    dim, bias = head_dim(c, hidden, heads), c.flag("attention_bias", default=True)
    block = Block(
        Attention(heads, heads, dim, dim, qkv_bias=bias, out_bias=bias, packed=True),
        Ffn(c.size("intermediate_size"), gated=False, bias=True, activation="gelu"),
        None,
        norm="layer",
        norm_bias=True,
        parallel=c.flag("use_parallel_residual", default=True),
        dropout=c.number("hidden_dropout", default=0.0),
        attention_dropout=c.number("attention_dropout", default=0.0),
    )
    return assemble(
        c,
        name,
        [block] * c.layers("num_hidden_layers"),
        hidden,
        tied=False,
        most_positions=2048,
    )


@reads("gptj")
def gpt_j(c: Config, name: str) -> Model:
    hidden, heads = c.size("n_embd"), c.size("n_head")
    dim = head_dim(c, hidden, heads)
    block = Block(
        Attention(heads, heads, dim, dim),
        Ffn(c.size("n_inner", default=4 * hidden), gated=False, bias=True, activation="gelu"),
        None,
        norm="layer",
        norm_bias=True,
        parallel=True,
        shared_norm=True,
        dropout=c.number("resid_pdrop", default=0.0),
        attention_dropout=c.number("attn_pdrop", default=0.0),
    )
    return assemble(
        c,
        name,
        [block] * c.layers("n_layer"),
        hidden,
        tied=False,
        positions=("n_positions",),
        most_positions=2048,
        head_bias=True,
    )


@reads("falcon")
def falcon(c: Config, name: str) -> Model:
    hidden = c.size("hidden_size")
    heads = c.size("num_attention_heads", "n_head")
    dim, bias = head_dim(c, hidden, heads), c.flag("bias", default=False)
    new_style = c.flag("new_decoder_architecture", default=False)
    multi_query = c.flag("multi_query", default=True)
    shared = 1 if multi_query and not new_style else heads
    kv = kv_heads(c, heads, "num_kv_heads", "n_head_kv") if new_style else shared
    parallel = new_style or c.flag("parallel_attn", default=True)
    norms = c.size("num_ln_in_parallel_attn", default=2 if new_style else 1)
    block = Block(
        Attention(
            heads,
            kv,
            dim,
            dim,
            rope=not c.flag("alibi", default=False),
            packed=True,
            qkv_bias=bias,
            out_bias=bias,
        ),
        Ffn(
            c.size("ffn_hidden_size", default=4 * hidden), gated=False, bias=bias, activation="gelu"
        ),
        None,
        norm="layer",
        norm_bias=True,
        parallel=parallel,
        shared_norm=parallel and norms == 1,
        dropout=c.number("hidden_dropout", default=0.0),
        attention_dropout=c.number("attention_dropout", default=0.0),
    )
    return assemble(
        c,
        name,
        [block] * c.layers("num_hidden_layers", "n_layer"),
        hidden,
        tied=True,
        most_positions=2048,
    )


@reads("mpt")
def mpt(c: Config, name: str) -> Model:
    hidden, heads = c.size("d_model"), c.size("n_heads")
    dim = head_dim(c, hidden, heads)
    kv = heads
    if c.has("attn_config"):
        kv = kv_heads(c.nested("attn_config"), heads, "kv_n_heads")
    block = Block(
        Attention(heads, kv, dim, dim, rope=False, packed=True),
        Ffn(c.size("expansion_ratio", default=4) * hidden, gated=False, activation="gelu"),
        None,
        norm="layer",
        dropout=c.number("resid_pdrop", default=0.0),
    )
    return assemble(
        c,
        name,
        [block] * c.layers("n_layers"),
        hidden,
        tied=True,
        positions=("max_seq_len",),
        most_positions=2048,
    )


@reads("starcoder2")
def starcoder2(c: Config, name: str) -> Model:
    hidden, heads = c.size("hidden_size"), c.size("num_attention_heads")
    layers, bias = c.layers("num_hidden_layers"), c.flag("use_bias", default=True)
    kv, dim = kv_heads(c, heads, "num_key_value_heads"), head_dim(c, hidden, heads)
    blocks = [
        Block(
            Attention(heads, kv, dim, dim, window=window, qkv_bias=bias, out_bias=bias),
            Ffn(c.size("intermediate_size"), gated=False, bias=bias, activation="gelu"),
            None,
            norm="layer",
            norm_bias=True,
            dropout=c.number("residual_dropout", default=0.0),
            attention_dropout=c.number("attention_dropout", default=0.0),
        )
        for window in layer_windows(c, layers, lambda _: True, "sliding_window")
    ]
    return assemble(
        c,
        name,
        blocks,
        hidden,
        tied=True,
    )


@reads("nemotron")
def nemotron(c: Config, name: str) -> Model:
    hidden, heads = c.size("hidden_size"), c.size("num_attention_heads")
    kv, dim = kv_heads(c, heads, "num_key_value_heads"), head_dim(c, hidden, heads)
    bias, ffn_bias = c.flag("attention_bias", default=False), c.flag("mlp_bias", default=False)
    block = Block(
        Attention(heads, kv, dim, dim, qkv_bias=bias, out_bias=bias),
        Ffn(c.size("intermediate_size"), gated=False, bias=ffn_bias, activation="relu2"),
        None,
        norm="layer",
        norm_bias=True,
    )
    return assemble(
        c,
        name,
        [block] * c.layers("num_hidden_layers"),
        hidden,
        tied=False,
    )


@reads("phi")
def phi(c: Config, name: str) -> Model:
    """Phi-1, 1.5 and 2: attention and FFN read one normed input; biases everywhere."""
    refuse_fields(c, "qk_layernorm")
    hidden, heads = c.size("hidden_size"), c.size("num_attention_heads")
    kv, dim = kv_heads(c, heads, "num_key_value_heads"), head_dim(c, hidden, heads)
    block = Block(
        Attention(heads, kv, dim, dim, qkv_bias=True, out_bias=True),
        Ffn(c.size("intermediate_size"), gated=False, bias=True, activation="gelu_new"),
        None,
        norm="layer",
        norm_bias=True,
        parallel=True,
        shared_norm=True,
        dropout=c.number("resid_pdrop", default=0.0),
        attention_dropout=c.number("attention_dropout", default=0.0),
    )
    blocks = [block] * c.layers("num_hidden_layers")
    return assemble(c, name, blocks, hidden, tied=False, most_positions=2048, head_bias=True)


@reads("gpt_bigcode")
def gpt_bigcode(c: Config, name: str) -> Model:
    """StarCoder and SantaCoder: GPT-2 with one key for all heads."""
    shared = c.flag("multi_query", default=True)
    return _gpt2(c, name, one_key=shared, activation="gelu_pytorch_tanh")
