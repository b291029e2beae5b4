"""A prompt of a recurrent layer: tokens of a chunk are taken together, in the form of products.

Kernel by kernel, what lies between them goes through memory:
    delta  flash-linear-attention's ops/gated_delta_rule/chunk.py, chunk_gated_delta_rule_fwd, which
           vLLM and SGLang carry; rates by channel (ops/kda/chunk.py) are read in the same places
    decay  state-spaces/mamba, ops/triton/ssd_combined.py, _mamba_chunk_scan_combined_fwd; lightning
           attention's kernels are taken to be these, without rates
    scan   state-spaces/mamba, ops/selective_scan_interface.py: one kernel, token after token
Of what lies between them little is kept for the backward, which makes the rest again: of delta the
solved products (ChunkGatedDeltaRuleFunction), of decay nothing, not even what was filtered
(MambaSplitConv1dScanCombinedFn).
"""

from __future__ import annotations

from math import prod
from typing import Final

from trueflops.graph.build.layout import Layout
from trueflops.graph.ir import Tensor
from trueflops.graph.kinds import Kind
from trueflops.model.layers import Recurrent

WIDE_BITS: Final = 32.0
SCAN_FLOP: Final = 9.0  # of a number of the state and token (state-spaces/mamba, issue 110)


def read_in_chunks(
    at: Layout, r: Recurrent, q: Tensor, k: Tensor, v: Tensor, rates: tuple[Tensor, ...]
) -> Tensor:
    """What every token of a prompt reads of the states before it."""
    read = {"delta": _corrected, "decay": _faded, "scan": _scanned}[r.rule]
    return read(_Kernels(at, r), q, k, v, rates)


class _Kernels:
    """Kernels of one layer's core, and the tensors between them."""

    def __init__(self, at: Layout, r: Recurrent) -> None:
        self.at, self.r = at, r
        heads = ("heads", r.heads)
        self.keys, self.values = (
            (heads, ("head_dim", r.key_dim)),
            (heads, ("value_dim", r.value_dim)),
        )
        self.mixed = at.tensor("state.mixed", *self.values)

    def kernel(
        self,
        name: str,
        taken: list[Tensor],
        made: list[Tensor],
        flop: float,
        *weights: str,
        kind: Kind = Kind.CHUNKED,
        **facts: float,
    ) -> Tensor:
        """One kernel, with so many operations for each token and head."""
        held = self.at.weights(*(w for w in weights if w in self.at.parameters))
        numbers = sum(prod(float(size) for _, size in t.dims[2:]) for t in made)
        each = flop * self.r.heads / numbers
        return self.at.op(kind, f"recurrent.{name}", taken, made, held, part="",
                          variant=None, dtype="", flop_per_element=each, **facts)  # fmt: skip

    def states(self, name: str, bits: float = 0.0) -> Tensor:
        """A state for each chunk, spread over its tokens."""
        spread = ("value_dim", self.r.value_dim / self.r.chunk)
        return self.at.tensor(name, *self.keys, spread, bits=bits)


def _corrected(by: _Kernels, q: Tensor, k: Tensor, v: Tensor, rates: tuple[Tensor, ...]) -> Tensor:
    at, r, heads = by.at, by.r, ("heads", by.r.heads)
    keys, values, chunk = float(r.key_dim), float(r.value_dim), float(r.chunk)
    inside = at.tensor("chunk.products", heads, ("chunk", r.chunk), bits=WIDE_BITS)
    solved = at.tensor("chunk.solved", heads, ("chunk", r.chunk))
    w, u = at.tensor("chunk.w", *by.keys), at.tensor("chunk.u", *by.values)
    rewritten, passing = at.tensor("chunk.values", *by.values), by.states("chunk.states")
    by.kernel("chunk_products", [k, *rates], [inside], 2.0 * chunk * keys, "recurrent.decay")
    by.kernel("chunk_solve", [inside], [solved], chunk * chunk, keeps_results=1.0)
    by.kernel("chunk_rewrite", [k, v, *rates, solved], [w, u], 2.0 * chunk * (keys + values),
              again=1.0)  # fmt: skip
    by.kernel("chunk_states", [k, w, u, *rates], [rewritten, passing], 4.0 * keys * values,
              again=1.0)  # fmt: skip
    return by.kernel("chunk_mix", [q, k, rewritten, passing, *rates], [by.mixed],
                     2.0 * (keys * values + chunk * (keys + values)))  # fmt: skip


def _faded(by: _Kernels, q: Tensor, k: Tensor, v: Tensor, rates: tuple[Tensor, ...]) -> Tensor:
    at, r = by.at, by.r
    keys, values, chunk = float(r.key_dim), float(r.value_dim), float(r.chunk)
    fading = list(rates)
    if rates:  # Δ and the running sum of Δ·A
        both = at.tensor("chunk.rates", ("heads", r.heads), ("both", 2.0), bits=WIDE_BITS)
        fading = [by.kernel("chunk_rates", fading, [both], 4.0, "recurrent.decay", again=1.0)]
    groups = ("kv_heads", r.key_heads)
    own, before = by.states("chunk.states", WIDE_BITS), by.states("chunk.passed")
    inside = at.tensor("chunk.products", groups, ("chunk", r.chunk), bits=WIDE_BITS)
    by.kernel("chunk_states", [k, v, *fading], [own], 2.0 * keys * values, again=1.0)
    by.kernel("chunk_pass", [own, *fading], [before], 2.0 * keys * values / chunk, again=1.0,
              tokens=chunk)  # fmt: skip
    shared = r.key_heads / r.heads  # heads of one group share these
    by.kernel("chunk_products", [q, k], [inside], 2.0 * chunk * keys * shared, again=1.0)
    return by.kernel("chunk_mix", [inside, q, v, before, *fading], [by.mixed],
                     2.0 * values * (keys + chunk))  # fmt: skip


def _scanned(by: _Kernels, q: Tensor, k: Tensor, v: Tensor, rates: tuple[Tensor, ...]) -> Tensor:
    flop = SCAN_FLOP * by.r.key_dim * by.r.value_dim
    return by.kernel("scan", [q, k, v, *rates], [by.mixed], flop, "recurrent.decay",
                     kind=Kind.SCANNED)  # fmt: skip
