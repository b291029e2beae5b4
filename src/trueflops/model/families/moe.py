"""Mixtures of experts: each reader says which layers route, and what runs beside the router."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trueflops.model.architecture import Block, Model
from trueflops.model.config import Config
from trueflops.model.families.llama import Traits, attentions
from trueflops.model.families.registry import (
    assemble,
    head_dim,
    kv_heads,
    layer_windows,
    one_a_layer,
    reads,
)
from trueflops.model.layers import Attention, Experts, Ffn, Indexer


@reads("mixtral", "granitemoe")
def mixtral(c: Config, name: str) -> Model:
    experts = Experts(
        c.size("num_local_experts"), c.size("num_experts_per_tok"), c.size("intermediate_size")
    )
    return _uniform(c, name, Traits(), experts)


@reads("minimax_m2")
def minimax_m2(c: Config, name: str) -> Model:
    experts = Experts(
        c.size("num_local_experts"), c.size("num_experts_per_tok"), c.size("intermediate_size")
    )
    use_norm = c.flag("use_qk_norm", default=True)
    return _uniform(c, name, Traits(qk_norm="width" if use_norm else "none"), experts)


@reads("minimax_m3", "minimax_m3_vl_text")
def minimax_m3(c: Config, name: str) -> Model:
    """MiniMax-M3: for each head of keys an indexer chooses blocks of them.

    MiniMaxM3VLTextConfig of transformers, and `sparse_attention_config` as releases have it.
    """
    layers, heads = c.layers("num_hidden_layers"), c.size("num_attention_heads")
    hidden, kv = c.size("hidden_size"), kv_heads(c, heads, "num_key_value_heads")
    dim = head_dim(c, hidden, heads)
    own = c.nested("sparse_attention_config") if c.has("sparse_attention_config") else c
    block = own.size("sparse_block_size", "index_block_size", default=128)
    chooses = Indexer(
        own.size("sparse_num_index_heads", "index_n_heads", default=kv),
        own.size("sparse_index_dim", "index_head_dim", default=128, most=65536),
        block * own.size("sparse_topk_blocks", "index_topk_blocks", default=16),
        block=block,
    )
    full = Attention(heads, kv, dim, dim, qk_norm="head")
    sparse = replace(full, indexer=chooses)
    marks = Config({**c.fields, **own.fields}, c.where)
    chosen = _marked(
        marks, "sparse_attention_freq", "layer_types", "minimax_m3_sparse", [False] * layers
    )
    routes = _marked(c, "moe_layer_freq", "mlp_layer_types", "sparse", [True] * layers)
    experts = Experts(
        c.size("num_local_experts"),
        c.size("num_experts_per_tok"),
        c.size("intermediate_size"),
        shared_width=c.size("shared_intermediate_size", default=3072, least=0),
    )
    dense = Ffn(c.size("dense_intermediate_size", default=12288), gated=True)
    blocks = [
        Block(sparse if few else full, None if routed else dense, experts if routed else None)
        for few, routed in zip(chosen, routes, strict=True)
    ]
    return _finish(c, name, blocks, hidden)


@reads("qwen2_moe", "qwen3_moe", "qwen3_vl_moe_text", "qwen3_omni_moe_text")
def qwen_moe(c: Config, name: str) -> Model:
    second = c.text("model_type") == "qwen2_moe"
    hidden, layers = c.size("hidden_size"), c.layers("num_hidden_layers")
    experts = Experts(
        c.size("num_experts"),
        c.size("num_experts_per_tok"),
        c.size("moe_intermediate_size"),
        shared_width=c.size("shared_expert_intermediate_size", least=0) if second else 0,
        shared_gate=second,
    )
    dense = Ffn(c.size("intermediate_size"), gated=True)
    every = c.size("decoder_sparse_step", default=1)
    only_dense = set(c.sizes("mlp_only_layers"))
    traits = Traits(qkv_bias=True, out_bias="") if second else Traits(qk_norm="head")
    blocks = [
        Block(a, dense, None) if i in only_dense or (i + 1) % every else Block(a, None, experts)
        for i, a in enumerate(attentions(c, traits, hidden, layers))
    ]
    return _finish(c, name, blocks, hidden)


@reads("olmoe")
def olmoe(c: Config, name: str) -> Model:
    experts = Experts(
        c.size("num_experts"), c.size("num_experts_per_tok"), c.size("intermediate_size")
    )
    return _uniform(c, name, Traits(qk_norm="width"), experts)


@reads("phimoe")
def phimoe(c: Config, name: str) -> Model:
    hidden, layers = c.size("hidden_size"), c.layers("num_hidden_layers")
    experts = Experts(
        c.size("num_local_experts"), c.size("num_experts_per_tok"), c.size("intermediate_size")
    )
    blocks = [
        Block(a, None, experts, norm="layer", norm_bias=True)
        for a in attentions(c, Traits(), hidden, layers)
    ]
    head_bias = c.flag("lm_head_bias", default=False)
    return assemble(c, name, blocks, hidden, tied=False, head_bias=head_bias)


@reads("ernie4_5_moe")
def ernie4_5_moe(c: Config, name: str) -> Model:
    hidden, layers = c.size("hidden_size"), c.layers("num_hidden_layers")
    width, bias = c.size("moe_intermediate_size"), c.flag("use_bias", default=False)
    experts = Experts(
        c.size("moe_num_experts"),
        c.size("moe_k"),
        width,
        shared_width=width * c.size("moe_num_shared_experts", default=2, least=0),
        router_bias=True,
    )
    dense = Ffn(c.size("intermediate_size"), gated=True, bias=bias)
    first = c.size("moe_layer_start_index", default=1, least=0)
    last = c.size("moe_layer_end_index", default=layers, least=-1)
    every = c.size("moe_layer_interval", default=1)
    routing = range(first, (layers if last < 0 else last) + 1)
    blocks = [
        Block(a, None, experts) if i in routing and (i + 1) % every == 0 else Block(a, dense, None)
        for i, a in enumerate(attentions(c, Traits(), hidden, layers))
    ]
    return assemble(c, name, blocks, hidden, tied=True)


@reads("dots1")
def dots1(c: Config, name: str) -> Model:
    hidden, layers = c.size("hidden_size"), c.layers("num_hidden_layers")
    every = attentions(c, Traits(qk_norm="head"), hidden, layers)
    return _finish(c, name, dense_first(c, every), hidden)


@reads("llama4_text")
def llama4(c: Config, name: str) -> Model:
    hidden, layers = c.size("hidden_size"), c.layers("num_hidden_layers")
    heads = c.size("num_attention_heads")
    kv, dim = kv_heads(c, heads, "num_key_value_heads"), head_dim(c, hidden, heads)
    experts = Experts(
        c.size("num_local_experts"),
        c.size("num_experts_per_tok"),
        c.size("intermediate_size"),
        shared_width=c.size("intermediate_size"),
    )
    dense = Ffn(c.size("intermediate_size_mlp"), gated=True)
    every = c.size("interleave_moe_layer_step", default=1)
    routing = set(c.sizes("moe_layers")) or {i for i in range(layers) if (i + 1) % every == 0}
    # iRoPE: three layers in four see only their own chunk; every fourth sees all, without rope.
    rope = c.sizes("no_rope_layers") or tuple(int((i + 1) % 4 != 0) for i in range(layers))
    one_a_layer(c, "no_rope_layers", rope, layers)
    windows = layer_windows(c, layers, lambda i: bool(rope[i]), "attention_chunk_size")
    bias = c.flag("attention_bias", default=False)
    norm = c.flag("use_qk_norm", default=True)
    blocks = []
    for i, window in enumerate(windows):
        attention = Attention(
            heads,
            kv,
            dim,
            dim,
            window=window,
            chunked=window > 0,
            rope=bool(rope[i]),
            qkv_bias=bias,
            out_bias=bias,
            qk_norm="unweighted" if norm and rope[i] else "none",
        )
        routes = i in routing
        blocks.append(Block(attention, None if routes else dense, experts if routes else None))
    return _finish(c, name, blocks, hidden)


@reads("gpt_oss")
def gpt_oss(c: Config, name: str) -> Model:
    hidden, layers = c.size("hidden_size"), c.layers("num_hidden_layers")
    heads = c.size("num_attention_heads")
    kv, dim = kv_heads(c, heads, "num_key_value_heads"), head_dim(c, hidden, heads)
    bias = c.flag("attention_bias", default=True)
    experts = Experts(
        c.size("num_local_experts"),
        c.size("num_experts_per_tok", "experts_per_token"),
        c.size("intermediate_size"),
        bias=True,
        router_bias=True,
    )
    blocks = [
        Block(
            Attention(heads, kv, dim, dim, window=w, qkv_bias=bias, out_bias=bias, sinks=True),
            None,
            experts,
        )
        for w in layer_windows(c, layers, lambda i: i % 2 == 0, "sliding_window")
    ]
    return _finish(c, name, blocks, hidden)


@reads("glm4_moe", "glm4v_moe_text", "solar_open")
def glm4_moe(c: Config, name: str) -> Model:
    hidden, layers = c.size("hidden_size"), c.layers("num_hidden_layers")
    heads = c.size("num_attention_heads")
    kv, dim = kv_heads(c, heads, "num_key_value_heads"), head_dim(c, hidden, heads)
    attention = Attention(
        heads,
        kv,
        dim,
        dim,
        # Glm4vMoeTextConfig of transformers has a bias where it is silent.
        qkv_bias=c.flag("attention_bias", default=c.text("model_type") == "glm4v_moe_text"),
        qk_norm="head" if c.flag("use_qk_norm", default=False) else "none",
    )
    return _finish(c, name, dense_first(c, [attention] * layers), hidden)


@reads("mimo_v2_flash")
def mimo_v2_flash(c: Config, name: str) -> Model:
    """MiMo-V2-Flash: five layers of six see a window, with twice the key heads, and have sinks.

    Fields as its release has them (`swa_…`, `hybrid_layer_pattern`, lists of ones and zeros), else
    as MiMoV2FlashConfig and MiMoV2FlashAttention of transformers have it.
    """
    layers, heads = c.layers("num_hidden_layers"), c.size("num_attention_heads")
    dim, value = c.size("head_dim", default=192), c.size("v_head_dim", default=128)
    kv = kv_heads(c, heads, "num_key_value_heads")
    # The query itself is counted beside `sliding_window_size` tokens before it.
    beside = c.size("sliding_window_size", default=0, least=0)
    own = c.size("swa_num_attention_heads", default=heads)
    full = Attention(heads, kv, dim, value, qkv_bias=c.flag("attention_bias", default=False),
                     sinks=c.flag("add_full_attention_sink_bias", default=False))  # fmt: skip
    local = replace(
        full,
        heads=own,
        kv_heads=kv_heads(c, own, "swa_num_key_value_heads")
        if c.has("swa_num_key_value_heads")
        else 2 * kv,
        head_dim=c.size("swa_head_dim", default=dim),
        value_dim=c.size("swa_v_head_dim", default=value),
        window=beside + 1 if beside else c.size("sliding_window", default=129),
        sinks=c.flag("add_swa_attention_sink_bias", default=True),
    )
    slides = [i > 0 and (i + 1) % 6 > 0 for i in range(layers)]
    slides = _marked(c, "hybrid_layer_pattern", "layer_types", "sliding_attention", slides)
    routes = [i > 0 for i in range(layers)]
    routes = _marked(c, "moe_layer_freq", "mlp_layer_types", "sparse", routes)
    experts = Experts(
        c.size("n_routed_experts"), c.size("num_experts_per_tok"), c.size("moe_intermediate_size")
    )
    dense = Ffn(c.size("intermediate_size"), gated=True)
    blocks = [
        Block(local if near else full, None if routed else dense, experts if routed else None)
        for near, routed in zip(slides, routes, strict=True)
    ]
    return _finish(c, name, blocks, c.size("hidden_size"))


def _marked(c: Config, ones: str, kinds: str, kind: str, usual: list[bool]) -> list[bool]:
    """Which layers are of a kind: by a list of ones and zeros, by one of names, or as usual."""
    said = [bool(one) for one in c.sizes(ones)] or [name == kind for name in c.texts(kinds)]
    if said:
        one_a_layer(c, ones if c.has(ones) else kinds, said, len(usual))
    return said or usual


@reads("dbrx")
def dbrx(c: Config, name: str) -> Model:
    hidden, heads = c.size("d_model"), c.size("n_heads")
    dim = head_dim(c, hidden, heads)
    routing = c.nested("ffn_config")
    experts = Experts(
        routing.size("moe_num_experts"), routing.size("moe_top_k"), routing.size("ffn_hidden_size")
    )
    attention = Attention(heads, kv_heads(c.nested("attn_config"), heads, "kv_n_heads"), dim, dim)
    block = Block(
        attention, None, experts, norm="layer", dropout=c.number("resid_pdrop", default=0)
    )
    return assemble(
        c,
        name,
        [block] * c.layers("n_layers"),
        hidden,
        tied=False,
        positions=("max_seq_len",),
        most_positions=2048,
    )


def dense_first(c: Config, attentions: Sequence[Attention]) -> list[Block]:
    """The DeepSeek layout: the first k layers dense, the rest routed with shared experts."""
    width = c.size("moe_intermediate_size")
    experts = Experts(
        c.size("n_routed_experts"),
        c.size("num_experts_per_tok"),
        width,
        shared_width=width * c.size("n_shared_experts", default=0, least=0),
    )
    first = c.size("first_k_dense_replace", default=0, least=0)
    # DeepSeek-V4 has no dense layer, nor a width for one.
    dense = Ffn(c.size("intermediate_size", default=width), gated=True)
    every = c.size("moe_layer_freq", default=1)
    return [
        Block(attention, dense, None) if i < first or i % every else Block(attention, None, experts)
        for i, attention in enumerate(attentions)
    ]


def _uniform(c: Config, name: str, traits: Traits, experts: Experts) -> Model:
    hidden, layers = c.size("hidden_size"), c.layers("num_hidden_layers")
    blocks = [Block(a, None, experts) for a in attentions(c, traits, hidden, layers)]
    return _finish(c, name, blocks, hidden)


def _finish(c: Config, name: str, blocks: list[Block], hidden: int) -> Model:
    return assemble(
        c,
        name,
        blocks,
        hidden,
        tied=False,
    )
