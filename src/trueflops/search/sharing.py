"""What every choice leaves of a key's bytes on the chip, and what its replicas exchange.

Both depend on the layout of ranks and on the choice alone, so they are computed once for each pair
of these, and looked up for as many plans as there are.

In: keys, their choices, costs. Out: Sharing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueflops.clock import Clock
from trueflops.graph.kinds import CollectiveKind
from trueflops.model import Model
from trueflops.plan import BYTES, Plan
from trueflops.predict.costs import KeyedCosts, PieceCost
from trueflops.search.choices import Rows
from trueflops.search.families import Family
from trueflops.sizes import Array, Size, distinct

LAYOUT: Final = ("tp", "cp", "pp", "ep", "etp")
"""Degrees that lay out the ranks; with how many there are, they say how many replicas are left."""


@dataclass(frozen=True)
class Sharing:
    """Of pairs of a layout and a choice; those of a key lie where its choices do, but moved."""

    moved: Rows  # [key]
    dense: Array  # [pair]: of weights and states, the part that a rank holds on its chip
    experts: Array  # likewise, of what experts hold
    kept: Array  # of activations
    seconds: Array  # of what replicas exchange for every micro-batch, at least
    least_dense: Array  # [key]: the least of its choices
    least_experts: Array
    least_kept: Array

    def pairs(self, rows: Rows, columns: Rows) -> Rows:
        """Where keys with choices are found."""
        return self.moved[rows] + columns

    def only(self, rows: Rows) -> Sharing:
        """Of some keys."""
        names = ("moved", "least_dense", "least_experts", "least_kept")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})


class Exchange(NamedTuple):
    """What it takes to say how long replicas exchange something."""

    model: Model
    keyed: KeyedCosts
    clock: Clock


def sharing_of(family: Family, exchange: Exchange | None = None) -> Sharing:
    """Of all pairs; without an Exchange, as if replicas exchanged nothing."""
    pairs, keys = _Pairs.of(family), family.keys
    weights = BYTES[keys.trained_dtype] / (BYTES[keys.trained_dtype] + keys.state_bytes)
    dense = pairs.held(weights, pairs.dense_ways)
    experts = pairs.held(weights, pairs.expert_ways)
    kept = 1.0 - pairs.chosen["offload_activations"]
    return Sharing(
        moved=(pairs.starts - family.choices.starts[family.menu[pairs.first]])[pairs.layout],
        dense=dense,
        experts=experts,
        kept=kept,
        seconds=np.zeros(kept.size) if exchange is None else _exchanged(pairs, keys, *exchange),
        least_dense=pairs.least(dense),
        least_experts=pairs.least(experts),
        least_kept=pairs.least(kept),
    )


@dataclass(frozen=True)
class _Pairs:
    """The distinct layouts of a family's ranks, each with every choice of its menu."""

    layout: Rows  # [key]
    first: Rows  # [layout]: one of its keys
    starts: Rows  # [layout]: the first of its pairs
    at: Rows  # [pair]: its layout
    ranks: Plan  # [pair]: its degrees
    chosen: dict[str, Array]  # [pair]: the fields of its choice

    @classmethod
    def of(cls, family: Family) -> _Pairs:
        """All of a family."""
        degrees, layout = distinct([getattr(family.keys, name) for name in LAYOUT])
        first = np.empty(len(degrees), np.intp)
        first[layout] = np.arange(layout.size)
        at, columns = family.with_choices(first)
        ranks = Plan(**dict(zip(LAYOUT, degrees[at].T, strict=True)))
        starts = np.flatnonzero(np.diff(at, prepend=-1))
        return cls(layout, first, starts, at, ranks, family.choices.of(columns))

    @property
    def dense_ways(self) -> Array:
        """Ranks that hold the same dense parameters and may share them."""
        return np.asarray(self.chosen["dp_shard"] * self.ranks.cp)

    @property
    def expert_ways(self) -> Array:
        """Ranks that hold the same expert."""
        return np.asarray(self.ranks.expert_ways(self.chosen["dp_shard"]))

    def held(self, weights: float, ways: Array) -> Array:
        """On the chip: ZeRO-1 shares states, ZeRO-3 also weights, which are such a part of both."""
        zero = self.chosen["zero"]
        own = weights * (1.0 - self.chosen["offload_parameters"])
        states = (1.0 - weights) * (1.0 - self.chosen["offload_optimizer"])
        return own / np.where(zero >= 3, ways, 1.0) + states / np.where(zero >= 1, ways, 1.0)

    def least(self, size: Array) -> Array:
        """Of the choices of every key."""
        return np.minimum.reduceat(size, self.starts)[self.layout]


def _exchanged(pairs: _Pairs, keys: Plan, model: Model, keyed: KeyedCosts, clock: Clock) -> Array:
    """Seconds at least for every micro-batch, of the parameters of a mean stage: gradients from
    ZeRO-2 on; from ZeRO-3 on weights, too, twice.
    """
    seconds = np.zeros(pairs.at.size)
    sharing = np.flatnonzero(pairs.chosen["zero"] >= 2)
    if keys.engine != "ddp" or not sharing.size:
        return seconds
    where = pairs.first[pairs.at[sharing]]

    def held(of: Callable[[PieceCost], Size]) -> Array:
        """Of a mean stage."""
        whole = sum(
            times * spread(of(piece), keyed.which) for piece, times in keyed.costs.pieces(model)
        )
        return np.broadcast_to(whole / keys.pp, keys.count)[where]

    tied = spread(keyed.costs.head.tied_parameters, keyed.which) / keys.pp
    dense = held(lambda piece: piece.dense_parameters) - np.broadcast_to(tied, keys.count)[where]
    experts = held(lambda piece: piece.expert_parameters)
    ranks = pairs.ranks.take(sharing)

    def taken(kind: CollectiveKind, each: float) -> Array:
        def sent(group: Array, held: Array, stride: Size) -> Array:
            found = clock.collective(kind, group[sharing], held * each, stride)
            return np.asarray(found.seconds, np.float64)

        whole = sent(pairs.dense_ways, dense, ranks.tp)
        if np.any(experts):
            whole = whole + sent(pairs.expert_ways, experts, ranks.ep * ranks.etp)
        return whole

    gather = taken(CollectiveKind.ALL_GATHER, keys.gathered_bytes)
    twice = np.where(pairs.chosen["zero"][sharing] >= 3, 2.0, 0.0)
    seconds[sharing] = (
        taken(CollectiveKind.REDUCE_SCATTER, BYTES[keys.summed_dtype]) + twice * gather
    )
    return seconds


def spread(size: Size, which: NDArray[np.intp] | None) -> Size:
    """A size of each distinct cost, of every key."""
    return size if which is None or np.ndim(size) == 0 else np.asarray(size)[which]
