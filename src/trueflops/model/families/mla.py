"""Latent attention (arXiv 2405.04434): queries and keys through a low rank, experts after it."""

from __future__ import annotations

from dataclasses import replace

from trueflops.errors import BadConfig
from trueflops.language import say
from trueflops.model.architecture import Block, Model
from trueflops.model.config import Config
from trueflops.model.families.moe import dense_first
from trueflops.model.families.registry import assemble, head_dim, kv_heads, one_a_layer, reads
from trueflops.model.layers import Attention, Ffn, Indexer, Latent

FULL, SHARED = "full", "shared"


@reads("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm4_moe_lite", "glm_moe_dsa")
def deepseek(c: Config, name: str) -> Model:
    layers = c.layers("num_hidden_layers")
    attention = latent_attention(c) if c.flag("use_mla", default=True) else _whole_attention(c)
    indexers = _indexers(c, layers) if c.has("index_topk") else [None] * layers
    return assemble(
        c,
        name,
        dense_first(c, [replace(attention, indexer=indexer) for indexer in indexers]),
        c.size("hidden_size"),
        tied=False,
    )


@reads("deepseek", "deepseek_ocr2_text")
def deepseek_moe(c: Config, name: str) -> Model:
    """DeepSeek-MoE (arXiv 2401.06066), and the decoder of DeepSeek-OCR: keys and values in full."""
    layers = [_whole_attention(c)] * c.layers("num_hidden_layers")
    return assemble(c, name, dense_first(c, layers), c.size("hidden_size"), tied=False)


@reads("minicpm3", "youtu")
def dense_latent(c: Config, name: str) -> Model:
    """Latent attention without experts: MiniCPM3, Youtu-LLM."""
    ffn = Ffn(c.size("intermediate_size"), gated=True, bias=c.flag("mlp_bias", default=False))
    layers = [Block(latent_attention(c), ffn, None)] * c.layers("num_hidden_layers")
    return assemble(c, name, layers, c.size("hidden_size"), tied=True)


def _whole_attention(c: Config) -> Attention:
    """Of a family with latent attention, where a release has none (`use_mla`: DeepSeek-OCR)."""
    heads, bias = c.size("num_attention_heads"), c.flag("attention_bias", default=False)
    dim = head_dim(c, c.size("hidden_size"), heads)
    keys = kv_heads(c, heads, "num_key_value_heads")
    return Attention(heads, keys, dim, dim, qkv_bias=bias, out_bias=bias)


def latent_attention(c: Config) -> Attention:
    """By the fields that every family with latent attention has."""
    heads = c.size("num_attention_heads")
    nope, rope = c.size("qk_nope_head_dim"), c.size("qk_rope_head_dim")
    bias = c.flag("attention_bias", default=False)
    return Attention(
        heads,
        heads,
        nope + rope,
        c.size("v_head_dim"),
        qkv_bias=bias,
        out_bias=bias,
        latent=Latent(
            c.size("q_lora_rank", default=0, least=0), c.size("kv_lora_rank"), nope, rope
        ),
    )


def _indexers(c: Config, layers: int) -> list[Indexer]:
    """Of each layer: `shared` ones reuse the choice of the last `full` one before them.

    GlmMoeDsaConfig of transformers: `indexer_types`, else the letters of `index_topk_pattern`, else
    every so many layers (`index_topk_freq`) behind the first (`index_skip_topk_offset`).
    """
    own = Indexer(c.size("index_n_heads"), c.size("index_head_dim"), c.size("index_topk"))
    shared = replace(own, shared=True)
    freq = c.size("index_topk_freq", default=1)
    offset = c.size("index_skip_topk_offset", default=2, least=0)
    kinds = c.texts("indexer_types")
    if not kinds and c.has("index_topk_pattern"):
        listed = isinstance(c.fields["index_topk_pattern"], list)
        kinds = c.texts("index_topk_pattern") if listed else tuple(c.text("index_topk_pattern"))
    if not kinds:
        kinds = tuple(FULL if max(i - offset + 1, 0) % freq == 0 else SHARED for i in range(layers))
    one_a_layer(c, "indexer_types", kinds, layers)
    kinds = tuple({"F": FULL, "S": SHARED}.get(kind, kind) for kind in kinds)
    if not set(kinds) <= {FULL, SHARED} or kinds[0] == SHARED:
        raise BadConfig(
            say(
                "{where}: of each layer indexer_types says {full} or {shared}, of the first {full}",
                where=c.where,
                full=FULL,
                shared=SHARED,
            )
        )
    return [own if kind == FULL else shared for kind in kinds]
