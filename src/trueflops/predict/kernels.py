"""Single kernels: seconds, rate and what bounds them, for rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trueflops.catalog import weakest
from trueflops.clock import Clock, PricedOp, streams
from trueflops.clock.attention import decode_limits, prompt_limits
from trueflops.clock.matmul import best_limits
from trueflops.clock.works import MOVING, law_work
from trueflops.graph.ir import Collective, Op
from trueflops.interop.kernels import Batch
from trueflops.profile import CurveKey
from trueflops.runtime.terms import Estimate
from trueflops.sizes import Array, Size

LIMITS: Final = ("compute", "memory", "serial", "start", "indexing")
ATTENTION_LIMITS: Final = {
    "attention": prompt_limits,
    "attention_backward": prompt_limits,
    "attention_decode": decode_limits,
}
USUAL_SHARE: Final = 0.8  # of a limit that good kernels reach: below it, something else binds


@dataclass(frozen=True)
class KernelPrice:
    """Rows of one kind: arrays of equal length. `bound` is one of LIMITS, or links."""

    seconds: Estimate
    flop: Array
    moved_bytes: Array
    bound: NDArray[np.str_]

    def take(self, rows: NDArray[np.intp]) -> KernelPrice:
        """Some of the rows, perhaps several times."""
        return KernelPrice(
            self.seconds.take(rows), self.flop[rows], self.moved_bytes[rows], self.bound[rows]
        )


def price_batch(clock: Clock, batch: Batch) -> KernelPrice:
    """Price what rows of a table ask for: each distinct kernel once, in the order of its rows."""
    ops, collective = batch.distinct()
    return price_kernels(clock, ops, collective, batch.kernels).take(batch.kernel)


def batch_seconds(clock: Clock, batch: Batch) -> Estimate:
    """The same, for who asks for the time alone."""
    rows, (ops, collective) = batch.kernels, batch.distinct()
    if collective is not None:
        return _collective_seconds(clock, collective, rows).take(batch.kernel)
    return _in_sequence(clock.price_ops(ops), rows).take(batch.kernel)


def price_kernels(
    clock: Clock, ops: Sequence[Op], collective: Collective | None, rows: int
) -> KernelPrice:
    """Price ops that run one after another, or one collective, each an array over rows."""
    if collective is not None:
        sent = _collective_seconds(clock, collective, rows)
        payload = np.broadcast_to(collective.payload.bytes, (rows,)).astype(np.float64)
        return KernelPrice(sent, np.zeros(rows), payload, np.full(rows, "links"))
    priced = clock.price_ops(ops)
    flop, moved = np.zeros(rows), np.zeros(rows)
    limits = dict.fromkeys(LIMITS, np.zeros(rows))
    for op, each in zip(ops, priced, strict=True):
        done = each.work
        flop, moved = flop + done.flop, moved + done.bytes_read + done.bytes_written
        for name, seconds_alone in limits_alone(clock, op, each).items():
            limits[name] = limits[name] + seconds_alone
    longest = np.argmax(np.stack([np.broadcast_to(limits[n], (rows,)) for n in LIMITS]), axis=0)
    return KernelPrice(
        _in_sequence(priced, rows),
        np.broadcast_to(flop, (rows,)),
        np.broadcast_to(moved, (rows,)),
        np.array(LIMITS)[longest],
    )


def _in_sequence(priced: Sequence[PricedOp], rows: int) -> Estimate:
    """Ops one after another, with the errors of the curves that priced them."""
    whole, least = np.zeros(rows), np.zeros(rows)
    deviations: dict[str, Size] = {}
    origins = []
    for op in priced:
        kind = op.pricing.kind
        origins.append(op.curve.origin)
        whole, least = whole + op.seconds, least + op.least
        deviations[kind] = deviations.get(kind, 0.0) + op.seconds * op.curve.error
    spreads = {kind: d / whole for kind, d in deviations.items()}
    return Estimate(whole, spreads, weakest(origins), np.minimum(least, whole))


def limits_alone(clock: Clock, op: Op, priced: PricedOp) -> dict[str, Size]:
    """Seconds that each limit alone would take: by its law where that has them, else roughly."""
    taken, _, done, pricing, law = priced
    kind, chip = pricing.kind, clock.silicon
    if kind == "matmul":
        asked = law_work(pricing, [op], [done])
        found = best_limits(asked, chip, law.values)
        return {name: np.ravel(size) for name, size in zip(LIMITS[:4], found, strict=True)}
    if kind in ATTENTION_LIMITS:
        bounds = ATTENTION_LIMITS[kind](law_work(pricing, [op], [done]), chip, law.values)
        return {name: np.ravel(size) for name, size in bounds._asdict().items()}
    if kind == "eager":  # each element may be looked up by its own offsets
        each = streams.limits(law_work(pricing, [op], [done]), chip, law.values)
        memory, indexing, alone, dealing = map(np.ravel, each)
        memory = np.maximum(memory, np.maximum(alone, dealing))
        rest = np.maximum(np.ravel(taken) - np.maximum(memory, indexing), 0.0)
        return {"memory": memory, "indexing": indexing, "start": rest}
    moving = (done.bytes_read + done.bytes_written) / (USUAL_SHARE * chip.bandwidth)
    computing: Size = 0.0
    if kind not in MOVING:
        computing = done.flop / (USUAL_SHARE * clock.chip.peak_flop_per_second(op.dtype))
    start = law.values.get("start_cycles", 0.0) / chip.hertz
    busy = np.maximum(taken - start, 0.0)
    is_compute = np.asarray(computing) >= np.asarray(moving)
    return {
        "compute": np.where(is_compute, busy, 0.0),
        "memory": np.where(is_compute, 0.0, busy),
        "start": start,
    }


def _collective_seconds(clock: Clock, of: Collective, rows: int) -> Estimate:
    law = clock.profile.curve(CurveKey("collective", operation=of.kind, kernel=of.library))
    payload = np.broadcast_to(of.payload.bytes, (rows,)).astype(np.float64)
    seconds = clock.collective(of.kind, of.group, payload, 1.0, library=of.library).seconds
    return Estimate(seconds, {"collective": law.error}, law.origin)
