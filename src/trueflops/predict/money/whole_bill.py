"""The whole bill of a training run: failures, checkpoints, restarts, power at the meter, ownership.

In: a predicted step and how the cluster is run (Operation). Out: WholeBill. Accelerators are paid
for and draw power as in a step while they restart or repeat work, so that dollars and kilowatt-
hours grow with the time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, isfinite, log
from typing import Final

import numpy as np

from trueflops.catalog import Price
from trueflops.predict.money.bill import Bill, host_watts, training_bill
from trueflops.predict.money.checkpoint import Checkpoint, checkpoint_of
from trueflops.predict.money.goodput import Interrupted, best_interval
from trueflops.predict.money.operation import (
    PUE_ERROR,
    RESTART_ERROR,
    STORAGE_ERROR,
    Operation,
    usual_operation,
)
from trueflops.predict.money.ownership import Ownership, ownership
from trueflops.predict.training.step import TrainingStep
from trueflops.runtime.terms import Estimate

HOPELESS: Final = 9.0  # times the ideal time, on top of it
LEAST_GOODPUT: Final = 1e-6


@dataclass(frozen=True)
class WholeBill:
    """A run as it really goes. What the catalog cannot price is None."""

    ideal: Bill
    operation: Operation
    checkpoint: Checkpoint
    interrupted: Interrupted
    overhead: Estimate  # time beyond the ideal time, over it
    mtbf_seconds: Estimate  # of the whole job
    interruptions: Estimate
    checkpoints: float
    seconds: Estimate
    accelerator_hours: Estimate
    usd: Estimate | None
    kwh: Estimate | None  # at the meter
    ownership: Ownership | None

    @property
    def hopeless(self) -> bool:
        """Whether less than a tenth of the time is work: further figures mean nothing."""
        return float(self.overhead.value) > HOPELESS

    @property
    def goodput(self) -> Estimate:
        """The share of the time that is work which counts; it reaches farther down than up."""
        value, low, high = (
            1.0 / (1.0 + float(x))
            for x in (self.overhead.value, self.overhead.high, self.overhead.low)
        )
        sides = (log(value / max(low, LEAST_GOODPUT)), log(high / value))
        return Estimate(value, {}, self.overhead.origin, most=1.0, unstated=sides)

    @property
    def owned_usd(self) -> Estimate | None:
        """The run on accelerators of one's own that are always in use."""
        if self.ownership is None:
            return None
        return self.accelerator_hours.times(self.ownership.usd_per_hour)

    @property
    def break_even(self) -> float | None:
        """The share of hours above which owning is cheaper than this rent; None where never."""
        if self.ownership is None or self.ideal.price is None:
            return None
        return self.ownership.break_even(self.ideal.price.usd_per_hour)


def whole_bill(
    step: TrainingStep, operation: Operation | None = None, rent: Price | None = None
) -> WholeBill:
    """What the run takes with all that comes on top of its steps.

    >>> import trueflops as tf
    >>> where, asked = tf.cluster("8xH100"), tf.Training(seq=1024, global_batch=512, tokens=1e11)
    >>> trainer = tf.Trainer(tf.read_model("GPT-2"), asked, where, tf.profile_of(where.accelerator))
    >>> bill = tf.whole_bill(trainer.predict_one(tf.Plan(dp_replicate=8)))
    >>> bool(bill.seconds.value > bill.ideal.seconds.value), bool(0.9 < bill.goodput.value < 1)
    (True, True)
    """
    how = operation or usual_operation(step.cluster)
    ideal = training_bill(step, rent=rent)
    one = checkpoint_of(step, how.storage_bytes_per_second, asynchronous=how.asynchronous)
    run = _run(step, how, one, float(ideal.seconds.value))
    overhead = _overhead(step, how, one, run)
    stretch = _stretched(overhead)
    seconds, hours = (each.times(stretch) for each in (ideal.seconds, ideal.accelerator_hours))
    often = {"failures": _rate_error(step, how)}
    mtbf = Estimate(run.mtbf_seconds, often, "fitted")
    pue = Estimate(how.pue, {"pue": how.error("pue", PUE_ERROR)}, "assumed", least=1.0)
    return WholeBill(
        ideal=ideal,
        operation=how,
        checkpoint=one,
        interrupted=run,
        overhead=overhead,
        mtbf_seconds=mtbf,
        interruptions=seconds.over(mtbf),
        checkpoints=float(np.ceil(ideal.seconds.value / run.interval_seconds)),
        seconds=seconds,
        accelerator_hours=hours,
        usd=ideal.usd.times(stretch) if ideal.usd else None,
        kwh=ideal.kwh.times(stretch).times(pue) if ideal.kwh else None,
        ownership=_ownership(step, how, ideal),
    )


def _run(step: TrainingStep, how: Operation, one: Checkpoint, work: float) -> Interrupted:
    """Failures of chips and reclaimed nodes, both at random; checkpoints at the best interval.

    One cannot begin before the last is written, and a run ends with one.
    """
    mtbf = 1.0 / sum(_rates(step, how))
    interval = how.interval_seconds or float(best_interval(one.stall_seconds, mtbf))
    return Interrupted(
        mtbf_seconds=mtbf,
        stall_seconds=one.stall_seconds,
        restart_seconds=how.restart_seconds + one.write_seconds,  # it is read back at that rate
        unsafe_seconds=one.unsafe_seconds,
        interval_seconds=min(max(interval, one.unsafe_seconds), work),
    )


def _rates(step: TrainingStep, how: Operation) -> tuple[float, float]:
    """Failures and reclaims a second, of the whole job."""
    reclaimed = step.cluster.nodes / how.spot.seconds if how.spot else 0.0
    return step.cluster.count / how.mtbf.seconds, reclaimed


def _rate_error(step: TrainingStep, how: Operation) -> float:
    """Of the logarithm of both rates together: each counts by its share."""
    failed, reclaimed = _rates(step, how)
    spreads = how.mtbf.spread * failed, (how.spot.spread if how.spot else 0.0) * reclaimed
    return float(np.hypot(*spreads)) / (failed + reclaimed)


def _overhead(step: TrainingStep, how: Operation, one: Checkpoint, run: Interrupted) -> Estimate:
    """Time beyond work, as far off as failures, restarts and storage may be from what is usual.

    Each is moved by its standard deviation; a run keeps the interval that was planned for it.
    """
    errors = {
        "failures": _rate_error(step, how),
        "restart": how.error("restart", RESTART_ERROR),
        "storage": how.error("storage", STORAGE_ERROR),
    }

    def moved(cause: str, sign: float) -> float:
        by = {name: exp(sign * errors[name]) if name == cause else 1.0 for name in errors}
        each = replace(
            run,
            mtbf_seconds=run.mtbf_seconds / by["failures"],
            stall_seconds=one.stall_seconds * (1.0 if one.asynchronous else by["storage"]),
            restart_seconds=how.restart_seconds * by["restart"] + one.write_seconds * by["storage"],
            unsafe_seconds=one.unsafe_seconds * by["storage"],
        )
        return float(each.stretch) - 1.0

    spreads = {}
    for cause in errors:
        low, high = moved(cause, -1.0), moved(cause, 1.0)
        spreads[cause] = log(high / low) / 2.0 if low > 0.0 and isfinite(high) else 0.0
    return Estimate(min(float(run.stretch) - 1.0, 2.0 * HOPELESS), spreads, "fitted")


def _stretched(overhead: Estimate) -> Estimate:
    """Time over ideal time: never less than it."""
    value = 1.0 + float(overhead.value)
    share = float(overhead.value) / value
    spreads = {cause: share * spread for cause, spread in overhead.spreads.items()}
    return Estimate(value, spreads, overhead.origin, least=1.0)


def _ownership(step: TrainingStep, how: Operation, ideal: Bill) -> Ownership | None:
    """None where neither a purchase price nor a power figure is known."""
    limit = step.cluster.accelerator.get("power.tdp")
    if ideal.watts is None or limit is None:
        return None
    installed = step.cluster.watts or limit + host_watts(step.cluster, limit)
    return ownership(how, installed, float(ideal.watts.value) / step.cluster.count)
