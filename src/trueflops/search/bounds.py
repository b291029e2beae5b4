"""What a plan takes at least, cheaply: so that most of a million need not be predicted to be
passed over.

Seconds: no stage is faster than its own kernels at full clock, nor than its host issues them. With
the slowest stage L, the mean stage U, m micro-batches, p stages and v pieces each (schedule.py)
    1f1b, gpipe  step ≥ (m − 1/v)·L + p·U/v
    others       step ≥ m·L, dualpipe m·U: their bubbles can vanish
Bytes: weights, optimizer states and activations in flight, each as divided or offloaded, are all
there when the last forward ends. tests/test_search.py holds both against every prediction.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trueflops.clock import Clock
from trueflops.model import Model
from trueflops.plan import BYTES, Plan
from trueflops.predict.costs import KeyedCosts, PieceCost
from trueflops.predict.memory import hold
from trueflops.predict.pipeline import USEFUL, exposed_shares
from trueflops.predict.schedule import in_flight
from trueflops.predict.stages import representative_stages
from trueflops.search.families import Choices, Family, Rows
from trueflops.sizes import Array, Size, summed


@dataclass(frozen=True)
class _Line:
    """A size of each stage [stage, key] that grows or shrinks with every layer that runs again."""

    none: Array  # where no layer does
    every: Array  # where all do

    def at(self, share: Array, rows: Rows) -> Array:
        """Where such a share of each stage's layers does."""
        start = self.none[:, rows]
        return start + share * (self.every[:, rows] - start)


@dataclass(frozen=True)
class Bounds:
    """Of all plans of a family; every method takes keys by row and their recomputed layers."""

    keys: Plan
    choices: Choices
    micro_batches: Array
    layers: Array  # [stage, key], and the last row of all stages together, divided evenly
    device: _Line  # likewise: seconds of a micro-batch on the chip
    host: _Line  # and on its host
    kept: _Line  # bytes of activations in flight
    dense: Array  # [stage, key]: bytes of parameters and of their states
    experts: Array
    weight_share: float  # of these bytes, what is weights
    expert_ways: Array  # [key]: ranks of each replica that hold the same expert

    def seconds(self, rows: Rows, again: Array) -> Array:
        """At least."""
        share = self._share(rows, again)
        each = np.maximum(self.device.at(share, rows), self.host.at(share, rows))
        mean = each[-1]
        slowest = np.maximum(np.max(each[:-1], axis=0), mean)
        m, schedule = self.micro_batches[rows], self.keys.schedule
        if schedule == "dualpipe":
            return m * mean
        if schedule not in ("gpipe", "1f1b"):
            return m * slowest
        pp, vpp = _of(self.keys.pp, rows), _of(self.keys.vpp, rows)
        return (m - 1.0 / vpp) * slowest + pp * mean / vpp

    def bytes(self, rows: Rows, again: Array) -> Array:
        """At least, under every choice: [row, choice]."""
        most = np.zeros((rows.size, self.choices.zero.size))
        kept = self.kept.at(self._share(rows, again)[:-1], rows)
        for stage in range(kept.shape[0]):
            beside = self._states(self.choices, stage, rows)
            outside = self.choices.offload_activations
            most = np.maximum(most, beside + kept[stage][:, None] * (1.0 - outside))
        return most

    def fewest_again(self, within: float) -> Array:
        """Of each key the fewest layers that must run again for its leanest choice to need no more
        bytes than that; infinity where not even all of them suffice.
        """
        rows = np.arange(self.dense.shape[1])
        outside = float(self.choices.offload_activations.max())
        needed = np.zeros(rows.size)
        for stage in range(self.dense.shape[0]):
            beside = self._states(self.choices, stage, rows).min(axis=1)
            none, every = (k[stage] * (1.0 - outside) for k in (self.kept.none, self.kept.every))
            over, saved = beside + none - within, none - every
            enough = (over > 0.0) & (over <= saved)
            share = np.divide(over, saved, out=np.where(over > 0.0, np.inf, 0.0), where=enough)
            needed = np.maximum(needed, np.ceil(share * self.layers[stage]))
        return needed

    def _states(self, choices: Choices, stage: int, rows: Rows) -> Array:
        """Weights and optimizer states of a stage, [row, choice]."""
        dense, experts = self.dense[stage, rows][:, None], self.experts[stage, rows][:, None]
        cp, ways = _of(self.keys.cp, rows)[:, None], self.expert_ways[rows][:, None]
        shared = dense / (choices.dp_shard * cp)
        shared = shared + experts / np.maximum(choices.dp_shard * ways, 1.0)
        own = dense + experts
        weights = np.where(choices.zero >= 3, shared, own) * (1.0 - choices.offload_parameters)
        states = np.where(choices.zero >= 1, shared, own) * (1.0 - choices.offload_optimizer)
        return self.weight_share * weights + (1.0 - self.weight_share) * states

    def _share(self, rows: Rows, again: Array) -> Array:
        """Of the layers of every stage, what runs again."""
        if self.keys.recompute == "none":
            return np.zeros((self.layers.shape[0], rows.size))
        layers = self.layers[:, rows]
        return np.minimum(again, layers) / np.maximum(layers, 1.0)


def bounds_of(model: Model, family: Family, keyed: KeyedCosts, clock: Clock, m: Size) -> Bounds:
    """Prepare them: a few numbers for each stage of each key."""
    keys, count = family.keys.but(recompute_layers=np.inf), family.keys.count
    stages = representative_stages(model, keys)
    costs, which = keyed.costs, keyed.which
    pieces = [costs.embedding, *costs.blocks, costs.head]
    whole = (1.0, *(float(model.pattern.count(kind)) for kind in range(len(model.blocks))), 1.0)
    held_by_stage = (stages.first, *stages.layers, stages.last)
    # The mean stage holds a share of everything: one more row.
    weights = [
        np.vstack(
            [np.broadcast_to(rows, stages.index.shape), np.broadcast_to(all_ / keys.pp, count)]
        )
        for rows, all_ in zip(held_by_stage, whole, strict=True)
    ]
    device = _line([_device(piece, keys, clock) for piece in pieces], weights, which)
    host = _line([_host(piece) for piece in pieces], weights, which)
    spread = keyed.spread()
    alone = keys.but(zero=0, dp_shard=1, dp_replicate=1)
    some, all_again = (
        hold(
            spread,
            alone.but(recompute=policy),
            representative_stages(model, alone.but(recompute=policy)),
        )
        for policy in ("none", keys.recompute)
    )
    flying = in_flight(keys, stages.index, m)
    shape = stages.index.shape
    each = BYTES[keys.trained_dtype] + keys.state_bytes
    return Bounds(
        keys=keys,
        choices=family.choices,
        micro_batches=np.broadcast_to(np.asarray(m, np.float64), count),
        layers=np.vstack([stages.all_layers, np.broadcast_to(model.layers / keys.pp, count)]),
        device=device,
        host=host,
        kept=_Line(
            np.broadcast_to(some.kept_bytes * flying, shape),
            np.broadcast_to(all_again.kept_bytes * flying, shape),
        ),
        dense=np.broadcast_to(some.dense * each, shape),
        experts=np.broadcast_to(some.experts * each, shape),
        weight_share=BYTES[keys.trained_dtype] / (BYTES[keys.trained_dtype] + keys.state_bytes),
        expert_ways=np.broadcast_to(
            np.asarray(keys.tp * keys.cp / (keys.ep * keys.etp), np.float64), count
        ),
    )


def _line(
    pieces: list[tuple[Size, Size]], weights: list[Array], which: NDArray[np.intp] | None
) -> _Line:
    """Seconds of stages that hold so much of each piece: forward and back, and once more."""
    none, more = np.zeros_like(weights[0]), np.zeros_like(weights[0])
    for place, ((once, again), weight) in enumerate(zip(pieces, weights, strict=True)):
        none = none + weight * _spread(once, which)
        if 0 < place < len(pieces) - 1:
            more = more + weight * _spread(again, which)
    return _Line(none, none + more)


def _device(piece: PieceCost, plan: Plan, clock: Clock) -> tuple[Size, Size]:
    exposed = exposed_shares(plan, clock)
    lost = 1.0 / clock.profile.curve("models")["typical"] - 1.0

    def taken(phase: str) -> Size:
        own = piece.of(phase, exposed) + lost * piece.clocked(phase)
        return own + clock.host.gap * piece.kernels.get(phase, 0.0)

    return summed(taken(phase) for phase in USEFUL), taken("recompute")


def _host(piece: PieceCost) -> tuple[Size, Size]:
    return summed(piece.host.get(phase, 0.0) for phase in USEFUL), piece.host.get("recompute", 0.0)


def _spread(size: Size, which: NDArray[np.intp] | None) -> Size:
    return size if which is None or np.ndim(size) == 0 else np.asarray(size)[which]


def _of(size: Size, rows: Rows) -> Array:
    """The sizes of some keys."""
    return (
        np.broadcast_to(np.asarray(size, np.float64), rows.shape)
        if np.ndim(size) == 0
        else np.asarray(size)[rows]
    )
