"""What users saw: percentiles of waiting, first token, time per token, whole request; goodput.

In: Served, of one or several replicas. Out: an Outcome. Definitions are those of vLLM's benchmark:
    TTFT = first − sent      TPOT = (ended − first) / (output − 1)      ITL: each gap between tokens
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from trueflops.serve.scheduler import Served
from trueflops.sizes import Array

PERCENTILES: Final = (50.0, 90.0, 99.0)


@dataclass(frozen=True)
class Spread:
    """How one quantity is spread over requests, or over gaps."""

    values: Array
    weights: Array | None = None

    @property
    def mean(self) -> float:
        """Of all."""
        return float(np.average(self.values, weights=self.weights)) if len(self.values) else 0.0

    def at(self, percentile: float) -> float:
        """The value that so many percent do not exceed."""
        if not len(self.values):
            return 0.0
        if self.weights is None:
            return float(np.percentile(self.values, percentile))
        order = np.argsort(self.values)
        mass = np.cumsum(self.weights[order])
        at = np.searchsorted(mass, percentile / 100.0 * mass[-1])
        return float(self.values[order][min(int(at), len(order) - 1)])


@dataclass(frozen=True)
class Outcome:
    """Every request of a load, as its users saw it."""

    queue: Spread
    ttft: Spread
    tpot: Spread
    itl: Spread
    e2e: Spread
    seconds: float  # from the first request sent to the last that ended
    requests: int
    written: float  # tokens
    read: float
    preempted: int
    most_writing: int  # of one replica at once
    queueing: tuple[float, float] = (0.0, 0.0)
    """How much sooner and later first tokens come, as logarithms, where steps take as little and as
    long as they may: beyond that itself, for queues grow faster than what they wait for."""

    @property
    def tokens_per_second(self) -> float:
        """Written, by all replicas."""
        return self.written / self.seconds

    @property
    def requests_per_second(self) -> float:
        """That ended."""
        return self.requests / self.seconds

    @property
    def waited(self) -> float:
        """The share of the time to first token before a prompt was worked on; of all together."""
        return min(self.queue.mean / self.ttft.mean, 1.0)

    def in_time(self, ttft: float, tpot: float) -> float:
        """Share of the requests that kept both limits; goodput is this times their rate."""
        first, each = self.ttft.values <= ttft, self.tpot.values <= tpot
        return float(np.mean(first & each))

    def keeps(self, ttft: float, tpot: float, percentile: float) -> bool:
        """Whether both limits hold at a percentile."""
        return self.ttft.at(percentile) <= ttft and self.tpot.at(percentile) <= tpot


def outcome(served: Sequence[Served]) -> Outcome:
    """Of all replicas together."""

    def all_of(name: str) -> Array:
        return np.concatenate([getattr(one, name) for one in served])

    sent, started, first, ended = (all_of(n) for n in ("sent", "started", "first", "ended"))
    written = np.concatenate([one.requests.output for one in served])
    each = (ended - first) / np.maximum(written - 1.0, 1.0)
    return Outcome(
        queue=Spread(started - sent),
        ttft=Spread(first - sent),
        tpot=Spread(each),  # of a single token it is 0, as vLLM's benchmark counts it
        itl=Spread(all_of("gaps"), all_of("gap_weights")),
        e2e=Spread(ended - sent),
        seconds=float(ended.max() - sent.min()),
        requests=len(sent),
        written=float(written.sum()),
        read=float(sum(one.requests.input.sum() for one in served)),
        preempted=sum(one.preempted for one in served),
        most_writing=max(int(one.steps.writing.max(initial=0)) for one in served),
    )
