"""Parameter shapes by named dimension: the one place that says which weights a layer has.

In: the parts of a layer. Out: Parameters, whose names and dims the graph lays out and shards.
The dims carry the meaning (`heads`, `ffn`, `vocab`, `experts` …) that sharding acts upon.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from trueflops.model.layers import (
    Attention,
    Experts,
    Ffn,
    Indexer,
    NormPlacement,
    Pooled,
    Recurrent,
)
from trueflops.sizes import Size

Dims = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One weight tensor. `bias` are the vectors added with it, kept beside their matrix."""

    name: str
    dims: Dims
    bias: Dims = ()
    routed: bool = False  # belongs to a routed expert: only some tokens see it
    inputs: int = 1  # how many of its last dims a product sums over

    @property
    def elements(self) -> int:
        """Matrix and bias together."""
        matrix = prod(size for _, size in self.dims)
        return matrix + (prod(size for _, size in self.bias) if self.bias else 0)


class Sides(NamedTuple):
    """A weight as matrices: how many, one for each expert, and the sides of each."""

    matrices: Size
    one: Size  # that maps to or from the hidden state; inside MLA and adapters the inner one
    other: Size


def sides_of(name: str, dims: Sequence[tuple[str, Size]]) -> Sides | None:
    """Of a weight by its dims; none of a vector: a norm, a bias, what has one number a row."""
    sizes = dict(dims)
    count = sizes.pop("experts", 1)
    names = list(sizes)
    if "norm" in name or name.endswith(".bias") or len(names) < 2:
        return None
    inner = "hidden" if "hidden" in sizes else names[0] if names[0] == "lora_rank" else names[-1]
    one = sizes.pop(inner)
    return Sides(count, one, prod(sizes.values()))


def attention_parameters(a: Attention, hidden: int) -> list[Parameter]:
    """Projections of one attention layer, its query/key norms and sinks."""
    h, q_heads, kv_heads = ("hidden", hidden), ("heads", a.heads), ("kv_heads", a.kv_heads)
    wide, value = ("head_dim", a.head_dim), ("value_dim", a.value_dim)
    if a.pooled:
        return _pooled_parameters(a, a.pooled, hidden)
    bias = (h,) if a.out_bias else ()
    out = Parameter("attention.out", (h, q_heads, value), bias=bias, inputs=2)
    if a.borrows:
        own = [Parameter("attention.q_norm", (wide,))] if a.qk_norm == "head" else []
        return [linear("attention.q", (q_heads, wide), h, a.qkv_bias), *own, out]
    if a.latent:
        chooses = _indexer_parameters(a.indexer, a.latent.q_rank, hidden) if a.indexer else []
        return [*_latent_parameters(a, hidden), *chooses, out]
    parts = [
        linear("attention.q", (q_heads, wide), h, a.qkv_bias),
        linear("attention.k", (kv_heads, wide), h, a.qkv_bias),
        *([] if a.keys_as_values else [linear("attention.v", (kv_heads, value), h, a.qkv_bias)]),
        out,
    ]
    if a.gated:
        gate = ("value_dim", a.gate_dim)
        parts.append(linear("attention.gate", (q_heads, gate), h, a.qkv_bias))
    if a.qk_norm == "head":
        parts += [Parameter("attention.q_norm", (wide,)), Parameter("attention.k_norm", (wide,))]
    elif a.qk_norm == "width":
        parts += [
            Parameter("attention.q_norm", (q_heads, wide)),
            Parameter("attention.k_norm", (kv_heads, wide)),
        ]
    if a.sinks:
        parts.append(Parameter("attention.sinks", (q_heads,)))
    if a.indexer:  # as many queries as heads of keys, split with them; one key (MiniMaxM3VLIndexer)
        narrow = ("index_dim", a.indexer.head_dim)
        parts += [
            Parameter("attention.index_q", (("kv_heads", a.indexer.heads), narrow, h)),
            Parameter("attention.index_k", (narrow, h)),
            Parameter("attention.index_q_norm", (narrow,)),
            Parameter("attention.index_norm", (narrow,)),
        ]
    return parts


def _latent_parameters(a: Attention, hidden: int) -> list[Parameter]:
    latent = a.latent
    assert latent is not None
    h, heads, wide = ("hidden", hidden), ("heads", a.heads), ("head_dim", a.head_dim)
    q_rank, kv_rank = ("q_rank", latent.q_rank), ("kv_rank", latent.kv_rank)
    parts = []
    if latent.q_rank:
        parts += [
            linear("attention.q_down", (q_rank,), h, a.qkv_bias),
            Parameter("attention.q_norm", (q_rank,)),
            Parameter("attention.q_up", (heads, wide, q_rank)),
        ]
    else:
        parts.append(Parameter("attention.q", (heads, wide, h)))
    with_rope = ("kv_rank_and_rope", latent.kv_rank + latent.rope_dim)
    key_and_value = ("key_and_value_dim", latent.nope_dim + a.value_dim)
    return [
        *parts,
        linear("attention.kv_down", (with_rope,), h, a.qkv_bias),
        Parameter("attention.kv_norm", (kv_rank,)),
        Parameter("attention.kv_up", (heads, key_and_value, kv_rank)),
    ]


def _indexer_parameters(indexer: Indexer, q_rank: int, hidden: int) -> list[Parameter]:
    """Its queries, the one key of a token and that key's LayerNorm, a weight for each head.

    Every rank has all of them (vLLM's Indexer: ReplicatedLinear), hence dims of their own.
    """
    if indexer.shared:
        return []
    h, heads, wide = (
        ("hidden", hidden),
        ("index_heads", indexer.heads),
        ("index_dim", indexer.head_dim),
    )
    into = ("q_rank", q_rank) if q_rank else h
    return [
        Parameter("attention.index_q", (heads, wide, into)),
        Parameter("attention.index_k", (wide, h)),
        Parameter("attention.index_norm", (wide,), bias=(wide,)),
        Parameter("attention.index_weigh", (heads, h)),
    ]


def _pooled_parameters(a: Attention, p: Pooled, hidden: int) -> list[Parameter]:
    """Keys, their pools and the indexer are on every rank; heads and their groups are split
    (vLLM's models/deepseek_v4/attention.py: fused_wqa_wkv; wq_b, wo_a, wo_b).
    """
    h, heads, low = ("hidden", hidden), ("heads", a.heads), ("q_rank", p.q_rank)
    key, groups = ("kv_rank", a.head_dim), ("heads", p.out_groups)
    each = ("group_dim", a.heads * a.value_dim // p.out_groups)
    out_low = ("out_rank", p.out_rank)
    parts = [
        Parameter("attention.q_down", (low, h)),
        Parameter("attention.q_norm", (low,)),
        Parameter("attention.q_up", (heads, ("head_dim", a.head_dim), low)),
        Parameter("attention.kv", (key, h)),
        Parameter("attention.kv_norm", (key,)),
        Parameter("attention.sinks", (heads,)),
        Parameter("attention.out_low", (groups, out_low, each)),
        Parameter("attention.out", (h, groups, out_low), inputs=2),
    ]
    if p.rate:
        parts += _pool_parameters("pool", p, a.head_dim, hidden)
    if a.indexer:
        wide = (("index_heads", a.indexer.heads), ("index_dim", a.indexer.head_dim))
        parts += [
            Parameter("attention.index_q", (*wide, low)),
            Parameter("attention.index_weigh", (wide[0], h)),
            *_pool_parameters("index", p, a.indexer.head_dim, hidden),
        ]
    return parts


def _pool_parameters(name: str, p: Pooled, wide: int, hidden: int) -> list[Parameter]:
    """What is pooled, by which weights, a bias for each place in a pool, and the pool's norm."""
    made, h = ("pooled", p.ways * wide), ("hidden", hidden)
    return [
        Parameter(f"attention.{name}_kv", (made, h)),
        Parameter(f"attention.{name}_gate", (made, h)),
        Parameter(f"attention.{name}_place", (("places", p.rate), made)),
        Parameter(f"attention.{name}_norm", (("pooled_dim", wide),)),
    ]


def mixing_parameter(name: str, streams: int, mixes: int, scales: int, hidden: int) -> Parameter:
    """From all residual streams to the numbers that mix them, each with a base; a few scales."""
    wide = (("streams", streams), ("hidden", hidden))
    return Parameter(name, (("mixes", mixes), *wide), bias=(("mixes", mixes + scales),), inputs=2)


def recurrent_parameters(r: Recurrent, hidden: int) -> list[Parameter]:
    """Of a layer that keeps a state: projections, filters, rates, what each head has learned."""
    h, heads = ("hidden", hidden), ("heads", r.heads)
    values = (heads, ("value_dim", r.value_dim))
    if r.rule == "filter":
        return _gated_filter(r, hidden)
    parts = [linear("recurrent.v", values, h, r.bias)]
    parts += _scanned(r) if r.rule == "scan" else _keyed(r, hidden)
    if r.rule == "delta" and r.rank:
        parts += [
            Parameter("recurrent.gate_down", (("gate_rank", r.rank), h)),
            Parameter("recurrent.gate_up", (*values, ("gate_rank", r.rank))),
        ]
    else:
        parts.append(linear("recurrent.gate", values, h, r.bias))
    if r.conv:
        parts.append(_filter("recurrent.conv_v", values, r))
    if r.norm != "none":
        parts.append(Parameter("recurrent.out_norm", values[1:] if r.norm == "head" else values))
    bias = (h,) if r.out_bias else ()
    return [*parts, Parameter("recurrent.out", (h, *values), bias=bias, inputs=2)]


def _gated_filter(r: Recurrent, hidden: int) -> list[Parameter]:
    """Values, what they are multiplied by before and behind their filter, and the filter."""
    h, values = ("hidden", hidden), (("heads", r.heads), ("value_dim", r.value_dim))
    bias = (h,) if r.out_bias else ()
    return [
        *(linear(f"recurrent.{name}", values, h, r.bias) for name in "qkv"),
        _filter("recurrent.conv_v", values, r),
        Parameter("recurrent.out", (h, *values), bias=bias, inputs=2),
    ]


def _keyed(r: Recurrent, hidden: int) -> list[Parameter]:
    """Queries, keys and rates of a layer that makes them from its input."""
    h, heads = ("hidden", hidden), ("heads", r.heads)
    keys = (("kv_heads", r.key_heads), ("head_dim", r.key_dim))
    parts = [linear("recurrent.q", keys, h, r.bias), linear("recurrent.k", keys, h, r.bias)]
    if r.conv:
        parts += [_filter("recurrent.conv_q", keys, r), _filter("recurrent.conv_k", keys, r)]
    if r.rates:
        parts.append(linear("recurrent.rates", (heads, ("rates", r.rates)), h, r.bias))
    learned = r.learned
    if r.rank:  # a rate for every channel of a key, each with a bias of its own
        channels = (heads, ("head_dim", r.key_dim))
        parts += [
            Parameter("recurrent.rate_down", (("rank", r.rank), h)),
            Parameter("recurrent.rate_up", (*channels, ("rank", r.rank))),
        ]
        learned += r.key_dim
    if learned:
        parts.append(Parameter("recurrent.decay", (heads, ("learned", learned))))
    return parts


def _scanned(r: Recurrent) -> list[Parameter]:
    """Mamba's: rates, keys and queries are made of the filtered values, all narrow."""
    heads, key = ("heads", r.heads), ("head_dim", r.key_dim)
    narrow = ("narrow", r.rank + 2 * r.key_dim)
    parts = [
        Parameter("recurrent.narrow", (narrow, heads, ("value_dim", r.value_dim)), inputs=2),
        linear("recurrent.rate_up", (heads,), ("rank", r.rank), True),
        Parameter("recurrent.decay", (heads, ("learned", r.key_dim + r.learned))),
    ]
    if r.inner_norms == "weighted":
        parts.append(Parameter("recurrent.rate_norm", (("rank", r.rank),)))
        parts += [Parameter(f"recurrent.{name}_norm", (key,)) for name in "qk"]
    return parts


def _filter(name: str, channels: Dims, r: Recurrent) -> Parameter:
    """A causal filter of `conv` taps for each channel."""
    return Parameter(name, (*channels, ("taps", r.conv)), bias=channels if r.conv_bias else ())


def ffn_parameters(name: str, ffn: Ffn, hidden: int) -> list[Parameter]:
    """A dense FFN: (gate and) up, then down."""
    h, wide = ("hidden", hidden), ("ffn", ffn.width)
    own = [linear(f"{name}.gate", (wide,), h, ffn.bias)] if ffn.gated else []
    if ffn.learned:
        own.append(Parameter(f"{name}.act", (("learned", ffn.learned),)))
    return [
        *own,
        linear(f"{name}.up", (wide,), h, ffn.bias),
        linear(f"{name}.down", (h,), wide, ffn.bias),
    ]


def expert_parameters(e: Experts, hidden: int) -> list[Parameter]:
    """Router, routed experts, and the shared expert if there is one."""
    h, wide, count = ("hidden", hidden), ("expert_ffn", e.width), ("experts", e.count)
    seen, low = ("hidden", e.latent or hidden), ("latent", e.latent)

    def routed(name: str, out: tuple[str, int], into: tuple[str, int]) -> Parameter:
        bias = (count, out) if e.bias else ()
        return Parameter(f"experts.{name}", (count, out, into), bias=bias, routed=True)

    parts = [linear("experts.router", (("choices", e.count),), h, e.router_bias)]
    if e.scaled:
        parts += [Parameter("experts.scale", (h,)), Parameter("experts.each", (("each", e.count),))]
    if e.gated:
        parts.append(routed("gate", wide, seen))
    parts += [routed("up", wide, seen), routed("down", seen, wide)]
    if e.latent:
        parts += [
            Parameter("latent.down", (low, h)),
            Parameter("latent.up", (h, low)),
        ]
    if e.shared_width:
        shared = ("ffn", e.shared_width)
        names = ("gate", "up") if e.gated else ("up",)
        parts += [Parameter(f"shared.{n}", (shared, h)) for n in names]
        parts.append(Parameter("shared.down", (h, shared)))
        if e.shared_gate:
            parts.append(Parameter("shared.weigh", (("one", 1), h)))
    return parts


def norm_parameters(
    parts: tuple[str, ...], placement: NormPlacement, hidden: int, *, bias: bool
) -> list[Parameter]:
    """The norms on the residual stream: one for each part of a block, two in a sandwich."""
    names = [f"{part}.norm" for part in parts]
    if placement == "sandwich":
        names += [f"{part}.post_norm" for part in parts]
    return [norm_parameter(name, hidden, bias) for name in names]


def beside_parameters(hidden: int) -> list[Parameter]:
    """Of a dense FFN beside experts: the norm before these, and one behind each."""
    h = (("hidden", hidden),)
    return [Parameter(name, h) for name in ("ffn.made_norm", "experts.norm", "experts.made_norm")]


def own_parameters(width: int, hidden: int) -> list[Parameter]:
    """Of a layer with an input of its own: into that width and out of it, and the norm behind."""
    h, own = ("hidden", hidden), ("own", width)
    return [
        Parameter("own.gate", (own, h)),
        Parameter("own.out", (h, own)),
        Parameter("own.norm", (h,)),
    ]


def join_parameters(hidden: int, *, apart: bool = False) -> list[Parameter]:
    """Two streams side by side, each normed, then one product (DeepSeek-V3 §2.2, equation 21); or,
    where there are several residual streams, a product of the embedding and one of each of them
    (vLLM's models/deepseek_v4/nvidia/mtp.py: e_proj, h_proj).
    """
    h, both = ("hidden", hidden), ("joined", 2 * hidden)
    if apart:
        square = (("joined", hidden), h)
        return [
            Parameter("join.embedding_norm", (h,)),
            Parameter("join.stream_norm", (h,)),
            Parameter("join.embedding", square),
            Parameter("join.stream", square),
        ]
    return [Parameter("join.norm", (both,)), Parameter("join.project", (h, both))]


def norm_parameter(name: str, hidden: int, bias: bool) -> Parameter:
    """One norm over the hidden dimension: a gain, and a shift for LayerNorm with bias."""
    h = (("hidden", hidden),)
    return Parameter(name, h, bias=h if bias else ())


def linear(name: str, out: Dims, into: tuple[str, int], bias: bool) -> Parameter:
    """A matrix, and a vector of its outputs where it has a bias."""
    return Parameter(name, (*out, into), bias=out if bias else ())
