"""From steps that really ran to a correction of a profile, and how much it helps elsewhere.

In: observed steps, each of a plan. Out: factors of compute, host and links that bring predictions
nearest to them,
    minimise  Σ ln²(predicted / measured) + (SURE / WIDE)² Σ ln²(factor)
by Gauss-Newton: what the steps do not tell apart stays near 1. Judged by leaving each step out
once. Needs no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from trueflops.catalog import Cluster
from trueflops.language import say
from trueflops.model import Model
from trueflops.plan import Plan
from trueflops.predict import Trainer, TrainingStep
from trueflops.profile import Curve, Profile, profile_of
from trueflops.profile.correction import CORRECTION, FACTORS, RESERVE
from trueflops.run.sharing import share_cores
from trueflops.workload import Training

SURE: Final = 0.1  # of ln(seconds): how far steps of one plan lie apart (assumed)
WIDE: Final = 0.5  # of ln(factor): how far a profile may be off (assumed)
_NUDGE: Final = 0.05
_ROUNDS, _ROUNDS_AGAIN = 6, 2
_FAR: Final = 1.0  # of ln(factor), in one round
_DONE: Final = 1e-3


@dataclass(frozen=True, kw_only=True)
class Observed:
    """One plan that ran: what it took, and what is needed to predict it."""

    model: Model
    plan: Plan
    workload: Training
    where: Cluster
    framework: str
    seconds: float
    reserved_bytes: float | None = None  # by the allocator, where that is known
    said: Mapping[str, Any]  # as it stands in the file

    @property
    def name(self) -> str:
        """Its plan, without the dtypes, and its batch."""
        plan = {name: value for name, value in self.said["plan"].items() if "dtype" not in name}
        plan.pop("compute", None)
        words = " ".join(f"{name} {value}" for name, value in plan.items()) or say("one rank")
        return say(
            "{words}, seq {seq}, batch {batch}",
            words=words,
            seq=self.workload.seq,
            batch=self.workload.global_batch,
        )


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A correction, and the steps it was fitted to."""

    values: Mapping[str, float]
    before: tuple[float, ...]  # predicted seconds of each, uncorrected
    after: tuple[float, ...]
    left_out: tuple[float, ...]  # by a fit that did not see it; empty for fewer than three


def correct(observed: Sequence[Observed], base: Profile | None) -> Fit:
    """Fit all steps; `base` is the profile that is corrected, None for what is shipped."""
    found = _Fitting(observed, base)
    start = np.zeros(len(FACTORS))
    every = list(range(len(observed)))
    logs = found.fit(every, start, _ROUNDS)
    left_out = []
    if len(observed) > 2:
        for one in every:
            others = [each for each in every if each != one]
            left_out.append(found.seconds(one, found.fit(others, logs, _ROUNDS_AGAIN)))
    factors = dict(zip(FACTORS, (float(f) for f in np.exp(logs)), strict=True))
    return Fit(
        values={**factors, RESERVE: found.reserve()},
        before=tuple(found.seconds(one, start) for one in every),
        after=tuple(found.seconds(one, logs) for one in every),
        left_out=tuple(left_out),
    )


def curve_of(values: Mapping[str, float], steps: int) -> Curve:
    """As a profile stores it."""
    return Curve(dict(values), SURE, "fitted", f"{steps} plans that ran: trueflops run --calibrate")


def missed(predicted: Sequence[float], observed: Sequence[Observed]) -> float:
    """The median error."""
    return median(abs(p / each.seconds - 1.0) for p, each in zip(predicted, observed, strict=True))


class _Fitting:
    def __init__(self, observed: Sequence[Observed], base: Profile | None) -> None:
        self.observed, self.base = observed, base
        self._known: dict[tuple[int, tuple[float, ...]], TrainingStep] = {}

    def seconds(self, one: int, logs: NDArray[np.float64]) -> float:
        """Predicted for one step under a correction."""
        return float(self._step(one, logs).step.value)

    def reserve(self) -> float:
        """Bytes that allocators had reserved beyond what was predicted, the median."""
        start = np.zeros(len(FACTORS))
        more = [
            each.reserved_bytes - float(self._step(one, start).peak("reserved").value)
            for one, each in enumerate(self.observed)
            if each.reserved_bytes is not None
        ]
        return max(median(more), 0.0) if more else 0.0

    def fit(
        self, which: Sequence[int], start: NDArray[np.float64], rounds: int
    ) -> NDArray[np.float64]:
        """Logarithms of the factors."""
        logs, firm = start.copy(), (SURE / WIDE) ** 2
        for _ in range(rounds):
            errors = self._errors(which, logs)
            slopes = np.stack(
                [
                    (self._errors(which, logs + _NUDGE * unit) - errors) / _NUDGE
                    for unit in np.eye(len(FACTORS))
                ],
                axis=1,
            )
            squares = slopes.T @ slopes + firm * np.eye(len(FACTORS))
            step = -np.linalg.solve(squares, slopes.T @ errors + firm * logs)
            logs = logs + np.clip(step, -_FAR, _FAR)
            if np.max(np.abs(step)) < _DONE:
                break
        return logs

    def _errors(self, which: Sequence[int], logs: NDArray[np.float64]) -> NDArray[np.float64]:
        ratios = [self.seconds(one, logs) / self.observed[one].seconds for one in which]
        return np.log(np.array(ratios))

    def _step(self, one: int, logs: NDArray[np.float64]) -> TrainingStep:
        key = one, tuple(float(x) for x in logs)
        if key not in self._known:
            values = dict(zip(FACTORS, (float(f) for f in np.exp(logs)), strict=True))
            self._known[key] = predicted(self.observed[one], self.base, {**values, RESERVE: 0.0})
        return self._known[key]


def predicted(each: Observed, base: Profile | None, values: Mapping[str, float]) -> TrainingStep:
    """A step under a correction."""
    chip = each.where.accelerator
    given = base or Profile(f"{chip.name}, corrected", chip.name, {})
    return predicted_under(each, given.having({CORRECTION: curve_of(values, 1)}))


def predicted_under(each: Observed, given: Profile | None) -> TrainingStep:
    """A step under a profile's own curves; None for what is shipped."""
    profile = profile_of(each.where.accelerator, each.framework, given)
    where, profile = share_cores(each.where, profile)
    return Trainer(each.model, each.workload, where, profile).predict_one(each.plan)
