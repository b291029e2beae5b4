"""An answer as a row of the table: values with both ends of their intervals, units in the names.

In: what train or infer answered. Out: cells by column, plain numbers and texts that JSON can hold.
"""

from __future__ import annotations

from math import isfinite
from typing import Final, Literal

from trueflops.plan.words import describe_plan, serving_words
from trueflops.predict import Bill, Estimate, ServingPoint, TrainingStep
from trueflops.units import SECONDS_PER_DAY

Cell = str | float | bool | None
Row = dict[str, Cell]
Status = Literal["ok", "does not fit", "not in time", "refused", "failed"]
STATUSES: Final[tuple[Status, ...]] = ("ok", "does not fit", "not in time", "refused", "failed")

DIGITS: Final = 10  # significant ones: below that, processors differ in how they round
_ENDS: Final = ("", "_low", "_high")
_ESTIMATES: Final = {
    "train": (
        "step_seconds", "memory_bytes", "tokens_per_second", "mfu", "cost_usd", "energy_kwh",
        "training_days",
    ),
    "infer": (
        "ttft_seconds", "tpot_seconds", "memory_bytes", "tokens_per_second",
        "usd_per_million_tokens", "power_watts", "joules_per_token",
    ),
}  # fmt: skip
# Of a column, in Arrow's words, whatever stands in it: so tables of several sweeps fit together.
KINDS: Final = {
    **{
        f"{name}{end}": "float64"
        for names in _ESTIMATES.values() for name in names for end in _ENDS
    },
    "capacity_bytes": "float64", "plan": "string", "fits": "bool_", "status": "string",
    "why": "string",
}  # fmt: skip


def columns_of(command: str) -> tuple[str, ...]:
    """What follows the cells of a question, in the order of the table."""
    estimates = [f"{name}{end}" for name in _ESTIMATES[command] for end in _ENDS]
    return (*estimates, "capacity_bytes", "plan", "fits", "status", "why")


def training_row(step: TrainingStep, bill: Bill, why: str) -> Row:
    """One plan; `why` it does not fit, where it does not."""
    fits = bool(step.fits)
    return {
        **_estimate("step_seconds", bill.step_seconds),
        **_estimate("memory_bytes", step.memory.estimate),
        **_estimate("tokens_per_second", bill.tokens_per_second),
        **_estimate("mfu", bill.mfu),
        **_estimate("cost_usd", bill.usd),
        **_estimate("energy_kwh", bill.kwh),
        **_estimate("training_days", bill.seconds.times(1.0 / SECONDS_PER_DAY)),
        "capacity_bytes": rounded(step.capacity_bytes),
        "plan": describe_plan(step.plan),
        "fits": fits,
        **_said("ok" if fits else "does not fit", why),
    }


def serving_row(point: ServingPoint, why: str, *, in_time: bool) -> Row:
    """One cut of a cluster; `why` it does not fit or is not in time, where that is so."""
    return {
        **_estimate("ttft_seconds", point.ttft),
        **_estimate("tpot_seconds", point.tpot),
        **_estimate("memory_bytes", point.memory.estimate),
        **_estimate("tokens_per_second", point.tokens_per_second),
        **_estimate("usd_per_million_tokens", point.usd_per_million_tokens),
        **_estimate("power_watts", point.watts),
        **_estimate("joules_per_token", point.joules_per_token),
        "capacity_bytes": rounded(point.capacity_bytes),
        "plan": " · ".join(serving_words(point.plan)),
        "fits": point.fits,
        **_said("does not fit" if not point.fits else "ok" if in_time else "not in time", why),
    }


def none_fits(why: str) -> Row:
    """A search without a plan that surely fits."""
    return {"fits": False, **_said("does not fit", why)}


def refused(why: str) -> Row:
    """A question that the command refuses."""
    return _said("refused", why)


def failed(why: str) -> Row:
    """A question that could not be answered though nothing is wrong with it."""
    return _said("failed", why)


def _said(status: Status, why: str) -> Row:
    return {"status": status, "why": " ".join(why.split())}


def _estimate(name: str, of: Estimate | None) -> Row:
    if of is None:
        return {}
    ends = zip(_ENDS, (of.value, of.low, of.high), strict=True)
    return {f"{name}{end}": rounded(float(value)) for end, value in ends}


def rounded(value: float) -> float | None:
    """So many digits as two processors agree on; None of what no table can hold."""
    return float(f"{value:.{DIGITS}g}") if isfinite(value) else None
