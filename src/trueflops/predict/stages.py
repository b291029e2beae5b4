"""Which layers each pipeline stage holds, for one plan or many.

Layers are dealt out as evenly as can be; a remainder goes past the first stage, which also holds
the embedding, and last of all to the last one, which holds the head. Of all stages with the same
layers only the earliest can be the fullest (it has the most micro-batches in flight) and all are
equally fast, so one representative of each stands for the rest: exact, and cheap for a million.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from trueflops.model import Model
from trueflops.plan import Plan
from trueflops.sizes import Array, Size, distinct


@dataclass(frozen=True, kw_only=True)
class Stages:
    """Representative stages: arrays [stage, plan]; `layers[k]` counts layers of block kind k."""

    index: Array
    layers: tuple[Array, ...]
    first: Array  # 1.0 where the stage holds the embedding
    last: Array  # 1.0 where it holds the head
    recomputed: Size  # the part of each stage's layers that run again, [stage, plan]
    recomputed_on_average: Size  # the same over all stages, [plan]

    @property
    def all_layers(self) -> Array:
        """Layers of each stage, of all kinds."""
        return all_layers(self.layers)


def all_layers(layers: tuple[Array, ...]) -> Array:
    """Of all kinds together."""
    total = np.zeros_like(layers[0])
    for each in layers:
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


def every_stage(model: Model, plan: Plan) -> Stages:
    """All stages of a single plan, for a report."""
    return _stages(model, plan, every=True)


def _stages(model: Model, plan: Plan, *, every: bool) -> Stages:
    keys, which = distinct((plan.pp, plan.vpp, plan.first_stage_layers, plan.last_stage_layers))
    tables = [_table(model.pattern, len(model.blocks), *map(int, key), every=every) for key in keys]
    most = max(len(t) for t in tables)
    # Pad with repeats of the first stage: a repeat can change neither a maximum nor an argmax.
    padded = np.array([[*t, *([t[0]] * (most - len(t)))] for t in tables], dtype=np.float64)
    rows = padded.transpose(2, 1, 0)[:, :, which]  # [column, stage, plan]
    layers = tuple(rows[3:])
    return Stages(
        index=rows[0],
        layers=layers,
        first=rows[1],
        last=rows[2],
        recomputed=recomputed_share(plan, all_layers(layers)),
        recomputed_on_average=recomputed_share(plan, model.layers / plan.pp),
    )


@lru_cache(maxsize=4096)
def _table(
    pattern: tuple[int, ...], kinds: int, pp: int, vpp: int, head: int, tail: int, *, every: bool
) -> tuple[tuple[float, ...], ...]:
    """Rows of (stage, first, last, layers of kind 0, layers of kind 1, …)."""
    counts = deal(len(pattern), pp, vpp, head, tail)
    held: list[list[int]] = [[0] * kinds for _ in range(pp)]
    layer = 0
    for chunk, size in enumerate(counts):
        for kind in pattern[layer : layer + size]:
            held[chunk % pp][kind] += 1
        layer += size
    rows: dict[tuple[float, ...], tuple[float, ...]] = {}
    for stage, layers in enumerate(held):
        ends = (float(stage == 0), float(stage == pp - 1))
        key = (*ends, *layers, stage) if every else (*ends, *layers)
        rows.setdefault(key, (float(stage), *ends, *map(float, layers)))
    return tuple(rows.values())


def deal(layers: int, pp: int, vpp: int = 1, first: int = 0, last: int = 0) -> list[int]:
    """Layers of each of the pp·vpp pieces, in layer order; piece i lies on stage i mod pp.

    `first` and `last` are of whole stages; where these are interleaved, the piece with the
    embedding and that with the head get fewer, or none (Llama 3, arXiv 2407.21783 §3.3.2).
    """
    pieces = pp * vpp
    fixed: dict[int, int] = {}
    if first:
        fixed |= dict(zip(reversed(range(0, pieces, pp)), _evenly(first, vpp), strict=True))
    if last and pieces > 1:
        fixed |= dict(zip(range(pp - 1, pieces, pp), _evenly(last, vpp), strict=True))
    free = [i for i in range(pieces) if i not in fixed]
    rest = max(layers - sum(fixed.values()), 0)
    middle_first = sorted(free, key=lambda i: (i == pieces - 1, i == 0, i))
    dealt = fixed | dict(zip(middle_first, _evenly(rest, len(free)), strict=True))
    return [dealt[i] for i in range(pieces)]


def _evenly(layers: int, pieces: int) -> list[int]:
    """As even as can be, what is left over to the first of them."""
    each, extra = divmod(layers, pieces) if pieces else (0, 0)
    return [each + (i < extra) for i in range(pieces)]
