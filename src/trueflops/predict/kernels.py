"""Single kernels: seconds, rate and what bounds them, for rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trueflops.catalog import weakest
from trueflops.clock import Clock, curve_name, op_class
from trueflops.graph.ir import Collective, Op
from trueflops.graph.rules import work
from trueflops.predict.terms import Estimate
from trueflops.sizes import Array, Size

USUAL_SHARE = 0.8  # of a limit that good kernels reach: below it, something else binds


@dataclass(frozen=True)
class KernelPrice:
    """Rows of one kind: arrays of equal length. `bound` is compute, memory, start or links."""

    seconds: Estimate
    flop: Array
    moved_bytes: Array
    bound: tuple[str, ...]


def price_kernels(
    clock: Clock, ops: Sequence[Op], collective: Collective | None, rows: int
) -> KernelPrice:
    """Price ops that run one after another, or one collective, each an array over rows."""
    if collective is not None:
        return _price_collective(clock, collective, rows)
    works = [work(op) for op in ops]
    seconds = clock.op_seconds(ops, works)
    zero = np.zeros(rows)
    deviations: dict[str, Size] = {}
    whole, flop, moved, computing, moving = zero, zero, zero, zero, zero
    origins = []
    for op, done, taken in zip(ops, works, seconds, strict=True):
        kind = op_class(op)
        law = clock.profile.curve(curve_name(op))
        origins.append(law.origin)
        whole = whole + taken
        deviations[kind] = deviations.get(kind, 0.0) + taken * law.error
        flop, moved = flop + done.flop, moved + done.bytes_read + done.bytes_written
        bytes_ = done.bytes_read + done.bytes_written
        moving = moving + bytes_ / (USUAL_SHARE * clock.silicon.bandwidth)
        if kind != "memory":
            peak = clock.chip.peak_flop_per_second(op.dtype)
            computing = computing + done.flop / (USUAL_SHARE * peak)
    spreads = {kind: d / whole for kind, d in deviations.items()}
    waiting = whole - np.maximum(computing, moving)
    limits = np.stack([computing, moving, waiting])
    names = np.array(["compute", "memory", "start"])
    return KernelPrice(
        Estimate(whole, spreads, weakest(origins)),
        flop,
        moved,
        tuple(names[np.argmax(limits, axis=0)]),
    )


def _price_collective(clock: Clock, of: Collective, rows: int) -> KernelPrice:
    law = clock.profile.curve(f"collective.{of.kind}.{of.library}".rstrip("."))
    payload = np.broadcast_to(of.payload.bytes, (rows,)).astype(np.float64)
    seconds = clock.collective(of.kind, of.group, payload, 1.0, library=of.library)
    estimate = Estimate(seconds, {"collective": law.error}, law.origin)
    return KernelPrice(estimate, np.zeros(rows), payload, ("links",) * rows)
