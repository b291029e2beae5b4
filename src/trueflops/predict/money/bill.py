"""From seconds to what people ask: tokens per second, MFU, days, dollars, kilowatt-hours.

MFU counts three times the forward's matmuls and causal attention (head included), whatever the
plan, against the dense peak of the compute dtype; HFU counts all that is really computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from trueflops.catalog import Cluster, Price, mean_price, price, weakest
from trueflops.clock import PowerLaw
from trueflops.predict.training.step import TrainingStep
from trueflops.profile import Profile
from trueflops.runtime.terms import Z90, Estimate
from trueflops.sizes import Size
from trueflops.units import JOULES_PER_KWH, SECONDS_PER_HOUR

HOST_LOAD: Final = 0.5  # of what fans, processors and network draw at most (assumed)
USUAL_HOST: Final = 0.35  # of an accelerator's cap, where no node's power is published (assumed)
HOST_ERROR: Final = 0.1  # of the whole power


@dataclass(frozen=True)
class Bill:
    """A whole training run. What the catalog cannot price is None."""

    step_seconds: Estimate
    tokens_per_second: Estimate
    mfu: Estimate
    hfu: Estimate
    steps: float
    seconds: Estimate
    accelerator_hours: Estimate
    price: Price | None
    usd: Estimate | None
    watts: Estimate | None  # of the whole cluster
    kwh: Estimate | None


def training_bill(step: TrainingStep, *, rent: Price | None = None, pue: float = 1.0) -> Bill:
    """Everything that follows from the step's time: steps, days, dollars, energy.

    >>> import trueflops as tf
    >>> where, asked = tf.cluster("8xH100"), tf.Training(seq=1024, global_batch=512, tokens=1e9)
    >>> profile = tf.profile_of(where.accelerator)
    >>> trainer = tf.Trainer(tf.read_model("GPT-2"), asked, where, profile)
    >>> bill = tf.training_bill(trainer.predict_one(tf.Plan(dp_replicate=8)))
    >>> bill.steps, bill.price.kind, bool(bill.usd.low < bill.usd.value < bill.usd.high)
    (1908.0, 'on demand', True)
    """
    cluster, workload = step.cluster, step.workload
    seconds = step.step.estimate
    peak = cluster.accelerator.peak_flop_per_second(step.plan.compute)
    steps = np.ceil(workload.tokens / workload.tokens_per_step)
    whole = seconds.times(steps)
    hours = whole.times(cluster.count / SECONDS_PER_HOUR)
    rent = rent or going_price(cluster)
    work = step.work
    watts = cluster_watts(cluster, step.profile, work.joules, work.clock_ratio, seconds, pue)
    return Bill(
        step_seconds=seconds,
        tokens_per_second=seconds.under(workload.tokens_per_step),
        mfu=seconds.under(step.work.model_flop / peak),
        hfu=seconds.under(step.work.hardware_flop / peak),
        steps=float(steps),
        seconds=whole,
        accelerator_hours=hours,
        price=rent,
        usd=hours.times(rent_estimate(rent)) if rent else None,
        watts=watts,
        kwh=watts.times(whole).times(1.0 / JOULES_PER_KWH) if watts else None,
    )


def going_price(cluster: Cluster) -> Price | None:
    """The rent given in the user's cluster file, else the catalog's."""
    if cluster.usd_per_hour is not None:
        given = cluster.usd_per_hour
        return Price(given, given, given, "", cluster.name, "given")
    if cluster.cards:
        return mean_price([price(card) for card in cluster.cards])
    return price(cluster.accelerator)


def rent_estimate(rent: Price) -> Estimate:
    """A rent as an estimate: providers differ more than any prediction."""
    if rent.kind == "given":
        return Estimate(rent.usd_per_hour, {}, "assumed")
    # The cheapest offers are taken; the dearest is the list price that few pay.
    spread = float(np.log(rent.usd_per_hour / max(rent.low, 1e-9))) / Z90
    return Estimate(rent.usd_per_hour, {"price": max(spread, 0.1)}, "datasheet")


def cluster_watts(
    cluster: Cluster, profile: Profile, joules: Size, ratio: Size, taken: Estimate, pue: float
) -> Estimate | None:
    """Power while the work runs, from the same energies that decide the clock.

    `joules` are one accelerator's at full clock; None where the catalog knows no power limit.
    """
    law = PowerLaw(cluster.accelerator, profile.curve("power"))
    if law.cap is None:
        return None
    own = cluster.accelerator.get("power.tdp") or law.cap  # a host knows nothing of --power
    each = law.watts(joules, taken.value, ratio) + host_watts(cluster, own)
    spreads = {"power": law.law.error, "host": HOST_ERROR}
    return Estimate(each * cluster.count * pue, spreads, weakest((law.law.origin, "derived")))


def host_watts(cluster: Cluster, limit: float) -> float:
    """What a node draws beside its accelerators, per accelerator: part of its published maximum."""
    if cluster.watts is None:
        return USUAL_HOST * limit
    return max(HOST_LOAD * (cluster.watts - limit), 0.05 * limit)
