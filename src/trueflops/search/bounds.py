"""What a plan takes at least, cheaply: so that most of a million need not be predicted to be
passed over.

Seconds: no stage is faster than its own kernels, nor than its host issues them; the power cap
slows them by what one step of Newton's method says, with an update beside them as long as any.
With the slowest stage L, the mean stage U, m micro-batches, p stages, v pieces each (schedule.py)
    1f1b, gpipe   step ≥ (m − 1/v)·L + p·U/v
    zb-h1, zb-h2  step ≥ (m − 1)·x + p·U − k·(x − G), k = min(2(p−1), m), or 3(p−1)
    zb-v          step ≥ m·U + (p−1)·(3/2·G − x)
    dualpipe      step ≥ m·L + p·D + pairs · max(D − own compute, 0), D: the experts' all-to-all
for the least x ≥ L, with step ≥ m·x: the slowest stage as it really runs, of which G at least is no
weight gradient. Where replicas exchange something for every micro-batch (ZeRO-2: gradients; ZeRO-3:
these, and weights twice) step ≥ m · that: it hides behind compute or is waited for.
Bytes: weights, optimizer states and activations in flight, each as divided or offloaded, are all
there when the last forward ends. tests/test_search.py holds both against every prediction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from trueflops.clock import Clock, PowerLaw
from trueflops.graph.program import AXES
from trueflops.model import Model
from trueflops.plan import BYTES, Plan
from trueflops.predict.costs import KeyedCosts, PieceCost
from trueflops.predict.training.hooks import captured
from trueflops.predict.training.pipeline import USEFUL, exposed_shares
from trueflops.predict.training.schedule import in_flight, pairs
from trueflops.predict.training.stages import Stages, mean_stage, representative_stages
from trueflops.search.choices import Rows
from trueflops.search.families import Family, one_long
from trueflops.search.sharing import Exchange, Sharing, sharing_of, spread
from trueflops.sizes import Array, Size
from trueflops.tables import summed

EARLY: Final = tuple(phase for phase in USEFUL if phase != "backward_weight")
PASSES: Final = 8.0  # over the states, in one update, at most


@dataclass(frozen=True)
class _Line:
    """A size of each stage [stage, key] that grows or shrinks with every layer that runs again."""

    none: Array  # where no layer does
    every: Array  # where all do

    def only(self, rows: Rows) -> _Line:
        """Of some keys."""
        return _Line(self.none.take(rows, axis=-1), self.every.take(rows, axis=-1))

    def at(self, share: Array, rows: Rows) -> Array:
        """Where such a share of each stage's layers does."""
        start = self.none[:, rows]
        return start + share * (self.every[:, rows] - start)


@dataclass(frozen=True)
class _Early:
    """What no weight gradient is of the stages of a zero-bubble schedule, as `Bounds` has all."""

    device: _Line
    host: _Line
    clocked: _Line

    def only(self, rows: Rows) -> _Early:
        """Of some keys."""
        return _Early(self.device.only(rows), self.host.only(rows), self.clocked.only(rows))

    def at(self, share: Array, rows: Rows, capped: Array) -> Array:
        """Seconds at least, [stage, key]; the cap slows what follows the clock by so much."""
        each = np.maximum(self.device.at(share, rows), self.host.at(share, rows))
        return (each + capped * self.clocked.at(share, rows))[:-1]


@dataclass(frozen=True)
class _Dispatched:
    """The experts' all-to-all of a micro-batch, and the kernels that it can hide behind."""

    sent: _Line
    beside: _Line

    def only(self, rows: Rows) -> _Dispatched:
        """Of some keys."""
        return _Dispatched(self.sent.only(rows), self.beside.only(rows))


@dataclass(frozen=True)
class Bounds:
    """Of all plans of a family; every method takes keys by row and their recomputed layers."""

    keys: Plan
    sharing: Sharing
    micro_batches: Array
    layers: Array  # [stage, key], and the last row of all stages together, divided evenly
    device: _Line  # likewise: seconds of a micro-batch on the chip
    host: _Line  # and on its host
    clocked: _Line  # of the former, what follows the chip's clock
    joules: _Line
    update: Array  # seconds that an update may take at most, by the micro-batch
    power: PowerLaw
    kept: _Line  # [stage, key]: bytes of activations in flight
    dense: Array  # [stage, key]: bytes of parameters and of their states
    experts: Array
    early: _Early | None  # of schedules that move weight gradients; None: of an outline
    dispatched: _Dispatched | None  # of dualpipe

    def only(self, rows: Rows) -> Bounds:
        """Of some keys: all that has one number for each of them, as far as it has."""
        changed: dict[str, Any] = {"keys": one_long(self.keys, rows)}
        for name in (each.name for each in fields(self)):
            size = getattr(self, name)
            if isinstance(size, _Line | _Early | _Dispatched | Sharing):
                changed[name] = size.only(rows)
            elif isinstance(size, np.ndarray):
                changed[name] = size.take(rows, axis=-1)
        return replace(self, **changed)

    def seconds(self, rows: Rows, again: Array) -> Array:
        """At least."""
        share = self._share(rows, again)
        each = np.maximum(self.device.at(share, rows), self.host.at(share, rows))
        joules, clocked = self.joules.at(share, rows), self.clocked.at(share, rows)
        added = self.power.least_added(joules, clocked, each + self.update[rows])
        each = each + added
        mean = each[-1]
        slowest = np.maximum(np.max(each[:-1], axis=0), mean)
        m, schedule = self.micro_batches[rows], self.keys.schedule
        pp, vpp = _of(self.keys.pp, rows), _of(self.keys.vpp, rows)
        if schedule in ("gpipe", "1f1b"):
            return (m - 1.0 / vpp) * slowest + pp * mean / vpp
        if self.dispatched is not None:
            return m * slowest + self._waited(rows, share)
        if self.early is None:
            return m * slowest
        early = np.min(self.early.at(share, rows, added / np.maximum(clocked, 1e-300)), axis=0)
        return np.maximum(m * slowest, self._with_bubble(rows, slowest, mean, early))

    def _waited(self, rows: Rows, share: Array) -> Array:
        """For the all-to-all of dualpipe's mean stage: alone, and in pairs that it outlasts."""
        if self.dispatched is None:
            return np.zeros(rows.size)
        sent = self.dispatched.sent.at(share, rows)[-1]
        longer = np.maximum(sent - self.dispatched.beside.at(share, rows)[-1], 0.0)
        keys = self.keys.take(rows)
        return keys.pp * sent + pairs(keys, self.micro_batches[rows]) * longer

    def _with_bubble(self, rows: Rows, slowest: Array, mean: Array, early: Array) -> Array:
        """Of zero-bubble schedules, whose weight gradients fill some of it (schedule.py)."""
        m, others = self.micro_batches[rows], _of(self.keys.pp, rows) - 1.0
        if self.keys.schedule == "zb-v":
            return m * (m * mean + 1.5 * others * early) / (m + others)
        filled = np.minimum((2.0 if self.keys.schedule == "zb-h1" else 3.0) * others, m)
        whole = (others + 1.0) * mean + filled * early
        slope = m - 1.0 - filled
        return np.where(slope >= 0.0, slope * slowest + whole, m * whole / (1.0 + filled))

    def chosen_seconds(self, rows: Rows, seconds: Array, columns: Rows) -> Array:
        """The same under a choice each."""
        sent = self.sharing.seconds[self.sharing.pairs(rows, columns)]
        return np.maximum(seconds, self.micro_batches[rows] * sent)

    def bytes(self, rows: Rows, again: Array, at: Rows, columns: Rows) -> Array:
        """At least, of some of these rows under a choice each."""
        kept = self.kept.at(self._share(rows, again)[:-1], rows)
        which = rows[at]
        pairs, sharing = self.sharing.pairs(which, columns), self.sharing
        dense, experts, inside = sharing.dense[pairs], sharing.experts[pairs], sharing.kept[pairs]
        most = np.zeros(at.size)
        for stage in range(kept.shape[0]):
            held = self.dense[stage][which] * dense + self.experts[stage][which] * experts
            most = np.maximum(most, held + kept[stage][at] * inside)
        return most

    def fewest_again(self, within: float) -> Array:
        """Of each key the fewest layers that must run again for the leanest of choices to need no
        more bytes than that; infinity where not even all of them suffice.
        """
        sharing = self.sharing
        needed = np.zeros(self.dense.shape[1])
        for stage in range(self.dense.shape[0]):
            beside = self.dense[stage] * sharing.least_dense
            beside = beside + self.experts[stage] * sharing.least_experts
            none, every = (k[stage] * sharing.least_kept for k in (self.kept.none, self.kept.every))
            over, saved = beside + none - within, none - every
            enough = (over > 0.0) & (over <= saved)
            share = np.divide(over, saved, out=np.where(over > 0.0, np.inf, 0.0), where=enough)
            needed = np.maximum(needed, np.ceil(share * self.layers[stage]))
        return needed

    def _share(self, rows: Rows, again: Array) -> Array:
        """Of the layers of every stage, what runs again."""
        if self.keys.recompute == "none":
            return np.zeros((self.layers.shape[0], rows.size))
        layers = self.layers[:, rows]
        return np.minimum(again, layers) / np.maximum(layers, 1.0)


def bounds_of(model: Model, family: Family, keyed: KeyedCosts, clock: Clock, m: Size) -> Bounds:
    """Prepare them: a few numbers for each stage of each key."""
    stages = representative_stages(model, family.keys)
    sharing = sharing_of(family, Exchange(model, keyed, clock))
    return _bounds(model, family, keyed, clock, m, stages, sharing)


def outline_of(model: Model, family: Family, keyed: KeyedCosts, clock: Clock, m: Size) -> Bounds:
    """The same as if all stages were the mean one: seconds are bounds still, only less tight; bytes
    are no bounds, but say which plans to try first.
    """
    mean = mean_stage(model, family.keys)
    return replace(_bounds(model, family, keyed, clock, m, mean, sharing_of(family)), early=None)


def _bounds(
    model: Model,
    family: Family,
    keyed: KeyedCosts,
    clock: Clock,
    m: Size,
    stages: Stages,
    sharing: Sharing,
) -> Bounds:
    keys, count = family.keys.but(recompute_layers=np.inf), family.keys.count
    costs = captured(keyed.costs, family.keys, clock)
    held = _Weighed((stages.first, *stages.layers, stages.last), keyed.which)
    mean = mean_stage(model, keys)
    passed = _Weighed(  # and by the mean stage: one more row
        (
            np.vstack([stages.first, mean.first]),
            *(np.vstack(rows) for rows in zip(stages.layers, mean.layers, strict=True)),
            np.vstack([stages.last, mean.last]) * stages.heads,
        ),
        keyed.which,
    )
    pieces = (costs.embedding, *costs.blocks, costs.head)
    exposed = exposed_shares(keys, clock)
    lost = 1.0 / clock.profile.curve("models")["typical"] - 1.0

    def device(piece: PieceCost, phase: str) -> Size:
        own = piece.of(phase, exposed) + lost * piece.clocked(phase)
        return own + clock.host.gap * piece.kernels.get(phase, 0.0)

    def host(piece: PieceCost, phase: str) -> Size:
        return piece.host.get(phase, 0.0)

    def line(of: Callable[[PieceCost, str], Size], phases: Sequence[str] = USEFUL) -> _Line:
        once = [summed(of(piece, phase) for phase in phases) for piece in pieces]
        again = [0.0, *(of(block, "recompute") for block in costs.blocks), 0.0]
        none = passed.sum(once)
        return _Line(none, none + passed.sum(again))

    tied = spread(costs.head.tied_parameters, keyed.which) * stages.last * stages.has_first
    dense = held.sum([piece.dense_parameters for piece in pieces]) - tied
    experts = held.sum([piece.expert_parameters for piece in pieces])
    each = BYTES[keys.trained_dtype] + keys.state_bytes
    flying = in_flight(keys, stages.index, m)
    some, again = (
        flying * held.sum([costs.embedding.kept_bytes, *kept, 0.0])
        for kept in (costs.kept_whole, [block.kept_bytes for block in costs.blocks])
    )
    return Bounds(
        early=_Early(*(line(of, EARLY) for of in (device, host, PieceCost.clocked)))
        if keys.schedule.startswith("zb")
        else None,
        dispatched=_Dispatched(
            line(lambda piece, phase: piece.of_cause(phase, "ep")), line(_computed)
        )
        if keys.bidirectional
        else None,
        keys=keys,
        sharing=sharing,
        micro_batches=np.broadcast_to(np.asarray(m, np.float64), count),
        layers=np.vstack([stages.all_layers, np.broadcast_to(model.layers / keys.pp, count)]),
        device=line(device),
        host=line(host),
        clocked=line(PieceCost.clocked),
        joules=line(lambda piece, phase: piece.joules.get(phase, 0.0)),
        update=np.broadcast_to(_longest_update(dense + experts, keys, clock) / m, count),
        power=clock.power,
        kept=_Line(some, again),
        dense=dense * each,
        experts=experts * each,
    )


@dataclass(frozen=True)
class _Weighed:
    """How much of each piece stages hold, [stage, key] each."""

    weights: tuple[Array, ...]
    which: NDArray[np.intp] | None

    def sum(self, sizes: Sequence[Size]) -> Array:
        """Of all pieces together."""
        total = np.zeros_like(self.weights[0])
        for weight, size in zip(self.weights, sizes, strict=True):
            if np.ndim(size) or size:
                total += weight * spread(size, self.which)
        return total


def _computed(piece: PieceCost, phase: str) -> Size:
    """Seconds of kernels, without communication inside layers."""
    own = (s for (at, cause), s in piece.seconds.items() if at == phase and cause not in AXES)
    return summed(own)


def _longest_update(parameters: Size, keys: Plan, clock: Clock) -> Size:
    """Of a rank that shares with nobody: every byte of its states and gradients moved so often as
    an optimizer over lists does, at half the memory's bandwidth. Newton–Schulz steps, whole
    tensors that Adafactor's temporaries move, searches for 8-bit moments: for ever.
    """
    if keys.optimizer == "muon" or keys.factored or keys.blockwise:
        return np.inf
    moved = PASSES * (keys.state_bytes + 2.0 * BYTES["fp32"]) * np.max(parameters, axis=0)
    return moved / (0.5 * clock.chip.need("memory.bandwidth"))


def _of(size: Size, rows: Rows) -> Array:
    """The sizes of some keys."""
    return (
        np.broadcast_to(np.asarray(size, np.float64), rows.shape)
        if np.ndim(size) == 0
        else np.asarray(size)[rows]
    )
