"""DeepSeek-V4: keys that are pooled, several residual streams, experts in every layer."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from trueflops.errors import BadConfig
from trueflops.language import say
from trueflops.model.architecture import Model
from trueflops.model.config import Config
from trueflops.model.families.moe import dense_first
from trueflops.model.families.registry import assemble, one_a_layer, reads, refuse_unknown
from trueflops.model.layers import Attention, Indexer, Pooled

SLIDING, SPARSE, HEAVY = (
    "sliding_attention",
    "compressed_sparse_attention",
    "heavily_compressed_attention",
)
RATES: Final = {SPARSE: 4, HEAVY: 128}  # DeepseekV4Config of transformers, default_compress_rates


@reads("deepseek_v4", "deepseek_ref")
def deepseek_v4(c: Config, name: str) -> Model:
    """Fields as transformers writes them (configuration_deepseek_v4.py) or as the releases have
    them (`compress_ratios`); SGLang's conversions call the same type deepseek_ref.
    """
    layers, streams = c.layers("num_hidden_layers"), c.size("hc_mult", default=4, most=1024)
    kinds = _kinds(c, layers)
    known = {kind: _attention(c, kind) for kind in set(kinds)}
    blocks = dense_first(c, [known[kind] for kind in kinds])
    return assemble(
        c, name, [replace(block, streams=streams) for block in blocks], c.size("hidden_size"),
        tied=False, most_positions=1_048_576,
    )  # fmt: skip


def _kinds(c: Config, layers: int) -> list[str]:
    """What each layer sees beside its window; ratios may go on for the modules behind the last."""
    rates, by_rate = _rates(c), {0: SLIDING}
    by_rate |= {rate: kind for kind, rate in rates.items()}
    usual = [HEAVY if i < 2 or i % 2 else SPARSE for i in range(layers)]
    kinds = list(c.texts("layer_types") or usual)
    field = "layer_types"
    if not c.has("layer_types") and c.has("compress_ratios"):
        field = "compress_ratios"
        kinds = [by_rate.get(rate, str(rate)) for rate in c.sizes(field)]
    kinds = kinds[:layers]
    one_a_layer(c, field, kinds, layers)
    known = by_rate if field == "compress_ratios" else RATES
    refuse_unknown(c, field, kinds, (SLIDING, SPARSE, HEAVY).__contains__, known)
    return kinds


def _rates(c: Config) -> dict[str, int]:
    said = c.nested("compress_rates") if c.has("compress_rates") else c
    return {
        SPARSE: said.size(SPARSE, "compress_rate_csa", default=RATES[SPARSE]),
        HEAVY: said.size(HEAVY, "compress_rate_hca", default=RATES[HEAVY]),
    }


def _attention(c: Config, kind: str) -> Attention:
    heads, wide = c.size("num_attention_heads"), c.size("head_dim", default=512, most=65536)
    groups = c.size("o_groups", default=8)
    if heads % groups:
        raise BadConfig(
            say(
                "{where}: {heads} heads do not divide into {groups} groups (o_groups)",
                where=c.where,
                heads=heads,
                groups=groups,
            )
        )
    chosen = Indexer(c.size("index_n_heads"), c.size("index_head_dim"), c.size("index_topk"))
    return Attention(
        heads,
        1,
        wide,
        wide,
        window=c.size("sliding_window", default=128),
        sinks=True,
        indexer=chosen if kind == SPARSE else None,
        pooled=Pooled(
            c.size("q_lora_rank"),
            c.size("qk_rope_head_dim", default=wide // 8, most=wide),
            groups,
            c.size("o_lora_rank"),
            0 if kind == SLIDING else _rates(c)[kind],
            overlaps=kind == SPARSE,
        ),
    )
