"""Which layers each pipeline stage holds, for one plan or many.

Layers are dealt out as evenly as can be; a remainder goes past the first stage, which also holds
the embedding, and last of all to the last one, which holds the head. Of all stages with the same
layers only the earliest can be the fullest (it has the most micro-batches in flight) and all are
equally fast, so one representative of each stands for the rest: exact, and cheap for a million.

A rank of zb-v holds stages r and 2p−1−r. One of dualpipe holds r and p−1−r, and runs half of the
micro-batches on either: its row is the mean of both, of which it holds two (`weight_copies`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from trueflops.model import Model
from trueflops.plan import Plan, Schedule
from trueflops.plan.pieces import deal
from trueflops.sizes import Array, Size
from trueflops.tables import by_row

STAGES: Final = ("pp", "vpp", "first_stage_layers", "last_stage_layers")
"""The numeric plan fields that say which layers a stage has."""


@dataclass(frozen=True, kw_only=True)
class Stages:
    """Representative stages: arrays [stage, plan]; `layers[k]` counts layers of block kind k."""

    index: Array
    layers: tuple[Array, ...]
    first: Array  # 1.0 where the stage holds the embedding, 0.5 if half of the micro-batches do so
    last: Array  # the same of the head
    heads: int  # how often a micro-batch passes that: once, and once for each module behind it
    recomputed: Size  # the part of each stage's layers that run again, [stage, plan]
    recomputed_on_average: Size  # the same over all stages, [plan]

    @property
    def has_first(self) -> Array:
        """1.0 where it holds the embedding, for however many micro-batches."""
        return np.ceil(self.first)

    @property
    def has_last(self) -> Array:
        """1.0 where it holds the head."""
        return np.ceil(self.last)

    @property
    def all_layers(self) -> Array:
        """Layers of each stage, of all kinds."""
        return all_layers(self.layers)


def all_layers(layers: tuple[Array, ...]) -> Array:
    """Of all kinds together."""
    total, *others = layers
    for each in others:
        total = total + each
    return total


def recomputed_share(plan: Plan, layers: Size) -> Size:
    """The part of so many layers that recompute."""
    if plan.recompute == "none":
        return 0.0
    return np.minimum(plan.recompute_layers, layers) / np.maximum(layers, 1.0)


def representative_stages(model: Model, plan: Plan) -> Stages:
    """The stages that can be the slowest or the fullest."""
    return _stages(model, plan, every=False)


def mean_stage(model: Model, plan: Plan) -> Stages:
    """One stage that holds its share of everything, as if layers could be divided."""
    pp = np.atleast_2d(np.asarray(plan.pp, np.float64))
    kinds = range(len(model.blocks))
    share = recomputed_share(plan, model.layers / plan.pp)
    return Stages(
        index=np.zeros_like(pp),
        layers=tuple(model.pattern.count(kind) / pp for kind in kinds),
        first=1.0 / pp,
        last=1.0 / pp,
        heads=1 + model.modules,
        recomputed=share,
        recomputed_on_average=share,
    )


def every_stage(model: Model, plan: Plan) -> Stages:
    """All stages of a single plan, for a report."""
    return _stages(model, plan, every=True)


def every_piece(model: Model, plan: Plan) -> Stages:
    """All pieces of a single plan in layer order, as if each were a stage of its own."""
    return _stages(model, plan, every=True, pieces=True)


def _stages(model: Model, plan: Plan, *, every: bool, pieces: bool = False) -> Stages:
    keys, spread = by_row([getattr(plan, name) for name in STAGES])
    tables = [
        _table(
            model.pattern, model.modules, len(model.blocks), *map(int, key),
            schedule=plan.schedule, every=every, pieces=pieces,
        )
        for key in keys
    ]  # fmt: skip
    most = max(len(t) for t in tables)
    # Pad with repeats of the first stage: a repeat can change neither a maximum nor an argmax.
    padded = np.array([[*t, *([t[0]] * (most - len(t)))] for t in tables], dtype=np.float64)
    index, first, last, *layers = map(spread, padded.transpose(2, 1, 0))  # each [stage, plan]
    return Stages(
        index=index,
        layers=tuple(layers),
        first=first,
        last=last,
        heads=1 + model.modules,
        recomputed=recomputed_share(plan, all_layers(tuple(layers))),
        recomputed_on_average=recomputed_share(plan, model.layers / plan.pp),
    )


@lru_cache(maxsize=4096)
def _table(
    pattern: tuple[int, ...],
    modules: int,
    kinds: int,
    pp: int,
    vpp: int,
    head: int,
    tail: int,
    *,
    schedule: Schedule,
    every: bool,
    pieces: bool,
) -> tuple[tuple[float, ...], ...]:
    """Rows of (stage, first, last, layers of kind 0, layers of kind 1, …)."""
    stages = (2 * pp, 1) if schedule == "zb-v" else (pp, vpp)  # its pieces are stages of their own
    counts = deal(len(pattern) - modules, *stages, head, tail)
    counts[-1] += modules  # where the head is that they share
    held: list[list[float]] = []  # of each piece
    layer = 0
    for piece, size in enumerate(counts):
        kind_of = pattern[layer : layer + size]
        ends = float(piece == 0), float(piece == len(counts) - 1)
        held.append([*ends, *(float(kind_of.count(kind)) for kind in range(kinds))])
        layer += size
    if not pieces:
        share = 0.5 if schedule == "dualpipe" else 1.0
        held = [_row(held, own, share) for own in pieces_of(schedule, pp, len(counts))]
    rows: dict[tuple[float, ...], tuple[float, ...]] = {}
    for stage, row in enumerate(held):
        rows.setdefault((*row, stage) if every else tuple(row), (float(stage), *row))
    return tuple(rows.values())


def pieces_of(schedule: Schedule, pp: int, pieces: int) -> list[tuple[int, ...]]:
    """The pieces that each rank holds."""
    ranks = range(pp)
    if schedule in ("zb-v", "dualpipe"):
        return [(rank, pieces - 1 - rank) for rank in ranks]
    return [tuple(range(rank, pieces, pp)) for rank in ranks]


def _row(held: list[list[float]], own: tuple[int, ...], share: float) -> list[float]:
    return [share * sum(column) for column in zip(*(held[piece] for piece in own), strict=True)]
