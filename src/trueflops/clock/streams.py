"""The law of kernels that only move data: norms, casts, look-ups, pooling, the optimizer's step.

    t = launches·start + [ (bytes / (b·BW))^q + (indexed·c / (units·clock))^q
                          + (bytes / (pieces·u·clock))^q + (pieces·d / (units·clock))^q ]^(1/q)
`bytes` are what the op must read and write at least; a kernel that passes over its data more than
once, or badly, has a smaller share b. `indexed` elements are looked up or computed one by one, at c
cycles of a unit each. Work that falls into pieces which one block each must finish (a row of a
norm, a channel of a batch norm) draws at most u bytes a cycle for a piece, so that few pieces leave
units idle; many short ones cost d cycles each to deal out. Every class of kernels has a curve of
its own (`memory.norm`, `eager.batch_norm` …): parameters, and landmarks by bytes, run and pieces.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from trueflops.clock.law import Law, Parameter, Values, log2, stacked, together
from trueflops.clock.silicon import Silicon
from trueflops.graph.alignment import FULL
from trueflops.sizes import Array, Size

PLAIN: Final = {"element_cycles": 0.0, "piece_bytes": 1.0, "piece_cycles": 0.0, "sharpness": 4.0}
"""Of a kernel that neither looks elements up nor falls into pieces: a copy, a cast."""


class StreamWork(NamedTuple):
    """What a kernel moves, and the pieces it falls into; 0 where it falls into none.

    `run` elements lie together and are handled as one: the length of a summed row, the stretch that
    is copied at once.
    """

    moved_bytes: Size
    indexed: Size = 0.0
    launches: Size = 1.0
    run: Size = 0.0
    pieces: Size = 0.0
    loads: Size = FULL  # bytes at whose multiples rows start: graph/alignment.py


def limits(w: StreamWork, chip: Silicon, p: Values) -> tuple[Array, Array, Array, Array]:
    """Seconds that bytes, indexed elements, lonely pieces and many pieces each take alone."""
    moved, pieces = np.asarray(w.moved_bytes), np.asarray(w.pieces)
    p, cycle = {**PLAIN, **p}, 1.0 / chip.hertz
    moving = moved / (p["bandwidth"] * chip.bandwidth)
    indexing = np.asarray(w.indexed) * p["element_cycles"] * cycle / chip.units
    drawn = np.where(pieces > 0.0, pieces, 1.0) * p["piece_bytes"]
    alone = np.where(pieces > 0.0, moved * cycle / drawn, 0.0)
    dealing = pieces * p["piece_cycles"] * cycle / chip.units
    return moving, indexing, alone, dealing


def _formula(w: StreamWork, chip: Silicon, p: Values) -> Array:
    start = w.launches * p["start_cycles"] / chip.hertz
    sharpness = p.get("sharpness", PLAIN["sharpness"])
    return np.asarray(start + together(sharpness, *limits(w, chip, p)))


def _features(w: StreamWork, chip: Silicon) -> Array:
    shape = (log2(w.run), log2(w.pieces), log2(w.launches))
    return stacked(log2(w.moved_bytes), *shape, log2(w.loads))


STREAM: Final = Law(
    _formula,
    {
        "start_cycles": Parameter(
            4000.0, 500.0, 60000.0, "cycles of a launch before bytes move", unit="cycles"
        ),
        "bandwidth": Parameter(0.8, 0.02, 1.0, "of the memory's", "high", True),
        "element_cycles": Parameter(
            0.4, 0.0, 400.0, "of a unit for an element looked up or computed", "low", unit="cycles"
        ),
        "piece_bytes": Parameter(
            32.0, 0.05, 400.0, "bytes a cycle that one piece draws", "high", unit="B/cycle"
        ),
        "piece_cycles": Parameter(
            100.0, 0.0, 20000.0, "of a unit for dealing out a piece", "low", unit="cycles"
        ),
        "sharpness": Parameter(4.0, 1.2, 8.0, "exponent with which limits overlap", "both"),
    },
    _features,
    reach=(4.0, 4.0, 4.0, 2.0, 2.0),  # doublings of each
)
