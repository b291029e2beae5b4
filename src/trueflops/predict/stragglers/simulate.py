"""Workers of which one is slow, or all now and then, under four ways to combine their gradients.

In: seconds of every worker's steps, and of its communication. Out: Progress, from a simulation by
events: gradients used a second, how stale they were, time spent waiting, gradients thrown away.
    synchronous   all wait for the slowest: n / E[max of n steps]
    drops         a step ends when all but the slowest b are there (Chen et al. 2016)
    bounded       no worker is more than s steps ahead of the slowest (Ho et al. 2013, SSP)
    asynchronous  nobody waits: the sum of all rates (Dean et al. 2012; Recht et al. 2011)
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import heapify, heappop, heappush
from math import inf
from typing import Final, NamedTuple

import numpy as np

from trueflops.language import mark
from trueflops.sizes import Array

SETTLED: Final = 0.5  # of all gradients: what comes before is how the workers drift apart


class Mode(StrEnum):
    """When a gradient is used."""

    SYNCHRONOUS = "synchronous"
    DROPS = mark("drops the slowest")
    BOUNDED = mark("bounded staleness")
    ASYNCHRONOUS = "asynchronous"


@dataclass(frozen=True)
class Workers:
    """What each worker takes."""

    compute_seconds: Array  # [worker, step]
    all_reduce_seconds: float  # after each synchronous step
    server_seconds: Array  # [worker]: gradients to the servers and parameters back

    @property
    def count(self) -> int:
        """How many."""
        return len(self.compute_seconds)


class Span(NamedTuple):
    """What a worker did for a while; between spans it waited."""

    worker: int
    start: float
    end: float
    computes: bool  # or communicates


@dataclass(frozen=True)
class Progress:
    """How training went under one mode, once it had settled."""

    mode: Mode
    gradients_per_second: float
    updates_per_second: float
    mean_staleness: float  # updates by others between reading parameters and changing them
    most_staleness: int
    most_ahead: int  # steps that a worker was before the slowest when it began one
    waiting_share: float  # of all workers' time
    dropped_share: float  # of all gradients
    spans: tuple[Span, ...]  # of the first steps


def draw_workers(
    count: int, steps: int, step_seconds: float, slow: float, jitter: float, seed: int
) -> Array:
    """Seconds of each step [worker, step]: rank 0 takes `slow` times as long, all vary at random.

    Factors are log-normal with mean 1; jitter is their standard deviation.
    """
    spread = np.sqrt(np.log1p(jitter**2))
    factors = np.random.default_rng(seed).lognormal(-(spread**2) / 2.0, spread, (count, steps))
    factors[0] *= slow
    return np.asarray(step_seconds * factors)


def simulate(mode: Mode, workers: Workers, staleness: int, drop: int) -> Progress:
    """Run until as many gradients were used as the workers have steps."""
    match mode:
        case Mode.SYNCHRONOUS:
            return _in_rounds(mode, workers, 0)
        case Mode.DROPS:
            return _in_rounds(mode, workers, drop)
        case Mode.BOUNDED:
            return _by_servers(mode, workers, float(staleness))
        case Mode.ASYNCHRONOUS:
            return _by_servers(mode, workers, inf)


@dataclass
class _Log:
    """What happened, in the order of time."""

    mode: Mode
    workers: Workers
    used: list[tuple[float, int]] = field(default_factory=list)  # when, and how stale
    most_ahead: int = 0
    dropped: list[float] = field(default_factory=list)
    waits: list[tuple[float, float]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    updates: list[float] = field(default_factory=list)

    @property
    def done(self) -> bool:
        """Whether as many gradients were used as there are steps."""
        return len(self.used) >= self.workers.compute_seconds.size

    def works(self, worker: int, start: float, computing: float, sending: float) -> None:
        """A step, and what is sent after it; only the first ones are kept to be drawn."""
        if len(self.spans) < 100 * self.workers.count:
            self.spans.append(Span(worker, start, start + computing, True))
            if sending > 0.0:
                begin = start + computing
                self.spans.append(Span(worker, begin, begin + sending, False))

    def progress(self) -> Progress:
        """Means over what came after the workers had drifted apart."""
        times = np.array([when for when, _ in self.used])
        begun, ended = times[int(SETTLED * len(times)) - 1], times[-1]
        after = times > begun
        stale = np.array([age for _, age in self.used])[after]
        waited = sum(max(end - max(start, begun), 0.0) for start, end in self.waits)
        dropped = sum(when > begun for when in self.dropped)
        lasted = ended - begun
        return Progress(
            self.mode,
            gradients_per_second=float(after.sum() / lasted),
            updates_per_second=float(sum(when > begun for when in self.updates) / lasted),
            mean_staleness=float(stale.mean()),
            most_staleness=int(stale.max()),
            most_ahead=self.most_ahead,
            waiting_share=float(waited / (lasted * self.workers.count)),
            dropped_share=float(dropped / (dropped + after.sum())),
            spans=tuple(self.spans),
        )


def _in_rounds(mode: Mode, workers: Workers, drop: int) -> Progress:
    """Steps that end when all but `drop` gradients of the newest parameters are there.

    Who comes later finds its gradient of old parameters dropped, and takes the newest.
    """
    log = _Log(mode, workers)
    seconds, sum_up = workers.compute_seconds, workers.all_reduce_seconds
    enough = workers.count - drop
    version, opened = 0, 0.0
    steps = [0] * workers.count
    based = [0] * workers.count
    finishing = [(float(seconds[w, 0]), w) for w in range(workers.count)]
    heapify(finishing)
    arrived: list[tuple[float, int]] = []

    def begin(worker: int, now: float) -> None:
        steps[worker] += 1
        based[worker] = version
        takes = float(seconds[worker, steps[worker] % seconds.shape[1]])
        heappush(finishing, (now + takes, worker))

    while not log.done:
        now, worker = heappop(finishing)
        took = float(seconds[worker, steps[worker] % seconds.shape[1]])
        fresh = based[worker] == version
        log.works(worker, now - took, took, 0.0)
        if not fresh:
            log.dropped.append(now)
            log.waits.append((now, max(now, opened)))
            begin(worker, max(now, opened))
            continue
        arrived.append((now, worker))
        if len(arrived) < enough:
            continue
        version, opened = version + 1, now + sum_up
        log.updates.append(opened)
        for came, each in arrived:
            log.used.append((opened, 0))
            log.waits.append((came, now))
            if sum_up > 0.0 and len(log.spans) < 100 * workers.count:
                log.spans.append(Span(each, now, opened, False))
            begin(each, opened)
        arrived.clear()
    return log.progress()


def _by_servers(mode: Mode, workers: Workers, bound: float) -> Progress:
    """Each gradient is used as it comes; a worker more than `bound` steps ahead waits."""
    log = _Log(mode, workers)
    seconds = workers.compute_seconds
    steps = [0] * workers.count
    at_step = Counter({0: workers.count})  # how many workers have done so many
    slowest, version = 0, 0
    read = [0] * workers.count
    finishing: list[tuple[float, int]] = []
    blocked: dict[int, float] = {}

    def begin(worker: int, now: float) -> None:
        read[worker] = version
        log.most_ahead = max(log.most_ahead, steps[worker] - slowest)
        computes = float(seconds[worker, steps[worker] % seconds.shape[1]])
        sends = float(workers.server_seconds[worker])
        log.works(worker, now, computes, sends)
        heappush(finishing, (now + computes + sends, worker))

    for worker in range(workers.count):
        begin(worker, 0.0)
    while not log.done:
        now, worker = heappop(finishing)
        age, version = version - read[worker], version + 1
        at_step[steps[worker]] -= 1
        steps[worker] += 1
        at_step[steps[worker]] += 1
        blocked[worker] = now
        if at_step[slowest] == 0:
            slowest += 1
            free = [w for w in blocked if steps[w] - slowest <= bound]
        else:
            free = [worker] if steps[worker] - slowest <= bound else []
        log.used.append((now, age))
        log.updates.append(now)
        for each in sorted(free):
            log.waits.append((blocked.pop(each), now))
            begin(each, now)
    return log.progress()
