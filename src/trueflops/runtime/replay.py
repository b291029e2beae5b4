"""Two clocks: the host issues calls one after another, streams of the device run what they get.

A kernel starts when it has been issued, its stream is free and what it waits for is done. Where
the host is ahead the device is busy all the time; where it is behind, the device idles: small
models run 20–30 % slower than their kernels. A chip at its power cap then slows what follows its
clock, and all is run once more.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from trueflops.clock import PowerLaw
from trueflops.profile import Curve

ROUNDS: Final = 3  # of running with the clock that the round before left


class Timed(Protocol):
    """What is replayed: something that occupies a stream for a while."""

    @property
    def seconds(self) -> float:
        """At full clock."""
        ...

    @property
    def clocked(self) -> bool:
        """Whether it slows down with the chip's clock."""
        ...


K = TypeVar("K", bound=Timed)


class Wait(NamedTuple):
    """A stream (or the host, −1) waits for what another (or all, −1) was given before `at`."""

    waiting: int
    awaited: int
    at: int


@dataclass(frozen=True, slots=True)
class Issue(Generic[K]):
    """Host work, and the kernels that it puts on a stream; or a wait."""

    host: float = 0.0
    kernels: Sequence[K] = ()
    stream: int = 0
    wait: Wait | None = None
    graphed: bool = False  # its kernels are nodes of a CUDA graph, which the device itself starts


@dataclass(slots=True)
class Placed(Generic[K]):
    """A kernel with its place in time."""

    kernel: K
    issued: float
    start: float
    end: float
    gap: float = 0.0  # before it, where it was there before the one before it had ended

    @property
    def seconds(self) -> float:
        """How long it ran."""
        return self.end - self.start


@dataclass
class Timeline(Generic[K]):
    """A replayed step."""

    placed: list[Placed[K]] = field(default_factory=list)
    end: float = 0.0
    host: float = 0.0  # the host's own work, waits left out
    capped: float = 0.0  # seconds that the power cap added to kernels
    clock_ratio: float = 1.0
    slowed: float = 1.0  # by which kernels that follow the clock are stretched

    @property
    def gaps(self) -> float:
        """Seconds between kernels that followed one another without a pause of the host."""
        return sum(each.gap for each in self.placed)


def replay(
    issues: Sequence[Issue[K]], law: Curve, power: PowerLaw, joules: float, *, one_thread: bool
) -> Timeline[K]:
    """Run it on two clocks, or on one where a thread both issues and computes (a CPU)."""
    clocked = sum(k.seconds for each in issues for k in each.kernels if k.clocked)
    found: Timeline[K] = Timeline()
    for _ in range(ROUNDS):
        ran = _one_clock(issues) if one_thread else _two_clocks(issues, law, found.slowed)
        ran.capped, ran.clock_ratio, ran.slowed = found.capped, found.clock_ratio, found.slowed
        if not clocked:
            return ran
        held = power.throttle(joules, clocked, ran.end - ran.capped)
        added = float(held.added)
        found = Timeline(
            ran.placed, ran.end, ran.host, added, float(held.ratio), 1.0 + added / clocked
        )
    return found


def _two_clocks(issues: Sequence[Issue[K]], law: Curve, slowed: float) -> Timeline[K]:
    """One pass; `slowed` stretches what follows the chip's clock."""
    host, own = 0.0, 0.0
    placed: list[Placed[K]] = []
    done: dict[int, tuple[list[int], list[float]]] = defaultdict(lambda: ([], []))
    ready: dict[int, float] = defaultdict(float)
    gap: dict[int, float] = defaultdict(float)  # after a stream's last kernel
    for i, issue in enumerate(issues):
        if issue.wait is not None:
            until = _finished(done, issue.wait)
            if issue.wait.waiting < 0:
                host = max(host, until)
            else:
                waiting = issue.wait.waiting
                ready[waiting] = max(ready[waiting], until)
        host, own = host + issue.host, own + issue.host
        for kernel in issue.kernels:
            seconds = kernel.seconds * (slowed if kernel.clocked else 1.0)
            queued = ready[issue.stream] > host + law["latency"]
            start = max(host + law["latency"], ready[issue.stream])
            before = gap[issue.stream] if queued else 0.0
            # Even in a full queue one kernel does not begin in the cycle in which another ends.
            gap[issue.stream] = law["node" if issue.graphed else "gap"]
            ready[issue.stream] = start + seconds + gap[issue.stream]
            at, ends = done[issue.stream]
            at.append(i)
            ends.append(start + seconds)
            placed.append(Placed(kernel, host, start, start + seconds, before))
    return Timeline(placed, max([host, *ready.values()]), own)


def _one_clock(issues: Sequence[Issue[K]]) -> Timeline[K]:
    """Everything comes after what was before."""
    now, own = 0.0, 0.0
    placed: list[Placed[K]] = []
    for issue in issues:
        now, own = now + issue.host, own + issue.host
        for kernel in issue.kernels:
            placed.append(Placed(kernel, now, now, now + kernel.seconds))
            now += kernel.seconds
    return Timeline(placed, now, own)


def _finished(done: dict[int, tuple[list[int], list[float]]], wait: Wait) -> float:
    """When a stream (or all of them) has done what it had been given at the mark."""
    streams = list(done) if wait.awaited < 0 else [wait.awaited]
    latest = 0.0
    for stream in streams:
        at, ends = done[stream]
        count = bisect_left(at, wait.at)
        if count:
            latest = max(latest, ends[count - 1])
    return latest


def shares(spans: Sequence[tuple[float, float]]) -> list[float]:
    """Of spans in order of their start, the seconds of each that none before it covers."""
    found, until = [], 0.0
    for start, end in spans:
        found.append(max(0.0, end - max(start, until)))
        until = max(until, end)
    return found
