"""What a parameter server saw, as plain data, and what `trueflops stragglers` predicts of it.

In: every gradient that was used, in order, and how long workers computed and exchanged. Out: rates
and staleness, measured; and the same by the simulation of predict/stragglers, which is given what
each worker's computing and exchanging took, but not how they met. Needs no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from trueflops.predict.stragglers.simulate import Mode, Progress, Workers, simulate
from trueflops.predict.training.through_one import Passed

FEWEST: Final = 8
"""Steps of each worker that are simulated at least, so that half of them can be left to settle."""


class Used(NamedTuple):
    """One gradient that changed the weights."""

    worker: int
    task: int  # which sequences
    age: int  # updates by others between reading the weights and changing them
    at: float  # seconds since the server began
    loss: float


@dataclass(frozen=True, kw_only=True)
class Served:
    """A run with a parameter server."""

    updates: Mode
    staleness: int  # the bound
    drop: int
    tokens_per_gradient: float
    used: tuple[Used, ...]
    dropped: int
    most_ahead: int  # steps that a worker was before the slowest when it began one
    waited_seconds: float  # of all workers, for the server's answer
    lasted_seconds: float
    compute_seconds: tuple[tuple[float, ...], ...]  # [worker][step]
    exchange_seconds: tuple[tuple[float, ...], ...]  # gradients there and weights back, no waiting
    passed: tuple[Passed, ...]  # the server, in a step of as many gradients as there are workers
    socket_bytes: int | None  # that the server sent in all, as the kernel counts; None: it does not

    @property
    def workers(self) -> int:
        """How many."""
        return len(self.compute_seconds)

    @property
    def settled(self) -> tuple[Used, ...]:
        """All but each worker's first, before which nobody can have been stale."""
        return self.used[self.workers :] or self.used

    @property
    def tokens_per_second(self) -> float | None:
        """After the first step; None where there is no other."""
        if len(self.used) <= self.workers:
            return None
        begun = self.used[self.workers - 1].at
        lasted = self.used[-1].at - begun
        return len(self.settled) * self.tokens_per_gradient / lasted if lasted > 0.0 else None

    @property
    def mean_staleness(self) -> float:
        """Of the gradients after the first step."""
        return sum(each.age for each in self.settled) / max(len(self.settled), 1)

    @property
    def most_staleness(self) -> int:
        """Of all gradients."""
        return max((each.age for each in self.used), default=0)

    @property
    def dropped_share(self) -> float:
        """Of all gradients."""
        return self.dropped / max(len(self.used) + self.dropped, 1)

    @property
    def waiting_share(self) -> float:
        """Of all workers' time."""
        return self.waited_seconds / max(self.lasted_seconds * self.workers, 1e-9)


def foresee(served: Served) -> Progress | None:
    """The simulation of these workers; None where one of them has not finished two steps."""
    compute = [_later(own) for own in served.compute_seconds]
    exchange = [_later(own) for own in served.exchange_seconds]
    if not all(compute) or not all(exchange):
        return None
    serving = np.array([float(np.mean(own)) for own in exchange])
    steps = max(len(served.used) // served.workers, FEWEST)
    measured = np.array([np.resize(own, steps) for own in compute])  # again from its first on
    # All ranks of a synchronous step wait for one another: the mean exchange is each one's.
    workers = Workers(measured, float(serving.mean()), serving)
    return simulate(served.updates, workers, served.staleness, served.drop)


def _later(own: Sequence[float]) -> Sequence[float]:
    """All but the first, in which torch allocates and threads start."""
    return own[1:]
