"""Latent attention (arXiv 2405.04434): queries and keys through a low rank, experts after it."""

from __future__ import annotations

from dataclasses import replace

from trueflops.errors import BadConfig
from trueflops.language import say
from trueflops.model.architecture import Model
from trueflops.model.config import Config
from trueflops.model.families.moe import dense_first
from trueflops.model.families.registry import assemble, reads
from trueflops.model.layers import Attention, Indexer, Latent


@reads("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm4_moe_lite", "glm_moe_dsa")
def deepseek(c: Config, name: str) -> Model:
    attention = replace(latent_attention(c), indexer=_indexer(c) if c.has("index_topk") else None)
    return assemble(
        c,
        name,
        dense_first(c, attention, c.layers("num_hidden_layers")),
        c.size("hidden_size"),
        tied=False,
    )


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


def _indexer(c: Config) -> Indexer:
    if c.has("index_topk_pattern", "indexer_types") or c.size("index_topk_freq", default=1) > 1:
        raise BadConfig(
            say("{where}: layers that share an indexer's choice are not read yet", where=c.where)
        )
    return Indexer(c.size("index_n_heads"), c.size("index_head_dim"), c.size("index_topk"))
