"""Parameter shapes by named dimension: the one place that says which weights a layer has.

In: the parts of a layer. Out: Parameters, whose names and dims the graph lays out and shards.
The dims carry the meaning (`heads`, `ffn`, `vocab`, `experts` …) that sharding acts upon.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from trueflops.model.layers import Attention, Experts, Ffn, Indexer, NormPlacement, State

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


def attention_parameters(a: Attention, hidden: int) -> list[Parameter]:
    """Projections of one attention layer, its query/key norms and sinks."""
    h, q_heads, kv_heads = ("hidden", hidden), ("heads", a.heads), ("kv_heads", a.kv_heads)
    wide, value = ("head_dim", a.head_dim), ("value_dim", a.value_dim)
    bias = (h,) if a.out_bias else ()
    out = Parameter("attention.out", (h, q_heads, value), bias=bias, inputs=2)
    if a.latent:
        chooses = _indexer_parameters(a.indexer, a.latent.q_rank, hidden) if a.indexer else []
        return [*_latent_parameters(a, hidden), *chooses, out]
    if a.state:
        return [*_state_parameters(a, a.state, hidden), out]
    parts = [
        linear("attention.q", (q_heads, wide), h, a.qkv_bias),
        linear("attention.k", (kv_heads, wide), h, a.qkv_bias),
        linear("attention.v", (kv_heads, value), h, a.qkv_bias),
        out,
    ]
    if a.gated:
        parts.append(linear("attention.gate", (q_heads, value), h, a.qkv_bias))
    if a.qk_norm == "head":
        parts += [Parameter("attention.q_norm", (wide,)), Parameter("attention.k_norm", (wide,))]
    elif a.qk_norm == "width":
        parts += [
            Parameter("attention.q_norm", (q_heads, wide)),
            Parameter("attention.k_norm", (kv_heads, wide)),
        ]
    if a.sinks:
        parts.append(Parameter("attention.sinks", (q_heads,)))
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


def _state_parameters(a: Attention, state: State, hidden: int) -> list[Parameter]:
    """Linear attention: queries, keys, values and a gate; rates; a filter for each channel."""
    h, taps = ("hidden", hidden), ("taps", state.conv)
    keys = (("kv_heads", a.kv_heads), ("head_dim", a.head_dim))
    values = (("heads", a.heads), ("value_dim", a.value_dim))
    rates = ("rates", state.rates)
    return [
        Parameter("attention.q", (*keys, h)),
        Parameter("attention.k", (*keys, h)),
        Parameter("attention.v", (*values, h)),
        Parameter("attention.gate", (*values, h)),
        Parameter("attention.rates", (("heads", a.heads), rates, h)),
        Parameter("attention.conv_q", (*keys, taps)),
        Parameter("attention.conv_k", (*keys, taps)),
        Parameter("attention.conv_v", (*values, taps)),
        Parameter("attention.decay", (("heads", a.heads), rates)),
        Parameter("attention.out_norm", (("value_dim", a.value_dim),)),
    ]


def ffn_parameters(name: str, ffn: Ffn, hidden: int) -> list[Parameter]:
    """A dense FFN: (gate and) up, then down."""
    h, wide = ("hidden", hidden), ("ffn", ffn.width)
    gate = [linear(f"{name}.gate", (wide,), h, ffn.bias)] if ffn.gated else []
    return [
        *gate,
        linear(f"{name}.up", (wide,), h, ffn.bias),
        linear(f"{name}.down", (h,), wide, ffn.bias),
    ]


def expert_parameters(e: Experts, hidden: int) -> list[Parameter]:
    """Router, routed experts, and the shared expert if there is one."""
    h, wide, count = ("hidden", hidden), ("expert_ffn", e.width), ("experts", e.count)

    def routed(name: str, out: tuple[str, int], into: tuple[str, int]) -> Parameter:
        bias = (count, out) if e.bias else ()
        return Parameter(f"experts.{name}", (count, out, into), bias=bias, routed=True)

    parts = [linear("experts.router", (("choices", e.count),), h, e.router_bias)]
    if e.gated:
        parts.append(routed("gate", wide, h))
    parts += [routed("up", wide, h), routed("down", h, wide)]
    if e.shared_width:
        shared = ("ffn", e.shared_width)
        names = ("gate", "up") if e.gated else ("up",)
        parts += [Parameter(f"shared.{n}", (shared, h)) for n in names]
        parts.append(Parameter("shared.down", (h, shared)))
        if e.shared_gate:
            parts.append(Parameter("shared.weigh", (("one", 1), h)))
    return parts


def norm_parameters(
    placement: NormPlacement, hidden: int, *, shared: bool, bias: bool
) -> list[Parameter]:
    """The norms on the residual stream: two in a plain block, one shared, or four in a sandwich."""
    names = ["attention.norm"] if shared else ["attention.norm", "ffn.norm"]
    if placement == "sandwich":
        names += ["attention.post_norm", "ffn.post_norm"]
    return [norm_parameter(name, hidden, bias) for name in names]


def join_parameters(hidden: int) -> list[Parameter]:
    """Two streams side by side, each normed, then one product (DeepSeek-V3 §2.2, equation 21)."""
    both = ("joined", 2 * hidden)
    return [Parameter("join.norm", (both,)), Parameter("join.project", (("hidden", hidden), both))]


def norm_parameter(name: str, hidden: int, bias: bool) -> Parameter:
    """One norm over the hidden dimension: a gain, and a shift for LayerNorm with bias."""
    h = (("hidden", hidden),)
    return Parameter(name, h, bias=h if bias else ())


def linear(name: str, out: Dims, into: tuple[str, int], bias: bool) -> Parameter:
    """A matrix, and a vector of its outputs where it has a bias."""
    return Parameter(name, (*out, into), bias=out if bias else ())
