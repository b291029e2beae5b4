"""What would help: the step with twice as much of each resource, and why one chip beats another.

In: hardware, and who predicts the best step on any. Out: speed-ups. A ratio of two steps is divided
over resources by Shapley's value (1953): the mean, over all orders in which the resources of one
are exchanged for those of the other, of what each gains. The factors multiply to the ratio.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb, exp, log
from typing import Final

from trueflops.errors import TrueflopsError
from trueflops.plan import Plan
from trueflops.predict import Trainer, TrainingStep
from trueflops.search.hardware import Hardware, Resource, mixed, more_of

TWICE: Final = 2.0
EXCHANGED: Final = (
    Resource.FLOPS,
    Resource.BANDWIDTH,
    Resource.MEMORY,
    Resource.LINKS,
    Resource.NETWORK,
)
"""A chip's power cap goes with its FLOP/s: neither is had without the other."""
Best = Callable[[Hardware], TrainingStep | None]


@dataclass(frozen=True)
class Help:
    """What more of one resource does."""

    resource: Resource
    same_plan: float  # times as fast
    best: TrainingStep | None  # of all plans there; None where none was sought
    best_plan: float | None


def what_helps(
    step: TrainingStep,
    best: Best | None = None,
    factor: float = TWICE,
    say: Callable[[str], None] = lambda text: None,
) -> list[Help]:
    """The same step, and with `best` the best plan, on hardware with more of each resource."""
    own = Hardware(step.cluster, step.profile)
    found = []
    for resource in own.resources:
        say(f"{factor:g} × {resource.value}")
        there = more_of(own, resource, factor)
        same = speed_up(step, _predict(step, there, step.plan))
        sought = best(there) if best else None
        # The plan at hand is one of those that could be chosen there.
        gain = max(speed_up(step, sought), same) if sought else None
        found.append(Help(resource, same, sought, gain))
    return found


def speed_up(before: TrainingStep, after: TrainingStep) -> float:
    """How many times as fast."""
    return float(before.step.value) / float(after.step.value)


def why_faster(
    slow: TrainingStep,
    fast: TrainingStep,
    best: Best,
    say: Callable[[str], None] = lambda text: None,
) -> dict[Resource, float]:
    """By which factor each resource makes `fast` faster than `slow`; they multiply to the ratio."""
    own, other = (Hardware(each.cluster, each.profile) for each in (slow, fast))
    both = set(own.resources) | set(other.resources)
    parts = [resource for resource in EXCHANGED if resource in both]
    rates: dict[frozenset[Resource], float] = {}
    for count in range(len(parts) + 1):
        for taken in map(frozenset, combinations(parts, count)):
            say(f"{len(rates) + 1} of {2 ** len(parts)} mixtures")
            step = best(mixed(own, other, taken))
            if step is None:
                raise TrueflopsError("no plan surely fits a mixture of the two chips")
            rates[taken] = -log(float(step.step.value))
    return {part: exp(value) for part, value in shapley(parts, rates).items()}


def shapley(
    parts: Sequence[Resource], worth: dict[frozenset[Resource], float]
) -> dict[Resource, float]:
    """What each part adds, as the mean over all orders in which parts are added."""
    n, found = len(parts), {}
    for part in parts:
        others = [each for each in parts if each is not part]
        found[part] = sum(
            (worth[frozenset((*taken, part))] - worth[frozenset(taken)]) / (n * comb(n - 1, size))
            for size in range(n)
            for taken in combinations(others, size)
        )
    return found


def _predict(step: TrainingStep, there: Hardware, plan: Plan) -> TrainingStep:
    return Trainer(step.model, step.workload, *there).predict_one(plan)
