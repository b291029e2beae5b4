"""Two clocks: the host issues calls one after another, streams of the device run what they get.

A kernel starts when it has been issued, its stream is free and what it waits for is done. Where
the host is ahead the device is busy all the time; where it is behind, the device idles: small
models run 20–30 % slower than their kernels. A chip at its power cap then slows what follows its
clock, and all is run once more. Several ranks are replayed together: where they meet, in a
collective or with a message, none goes on before all are there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Generator, Hashable, Mapping, Sequence
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
    meets: Hashable = None  # what is the same for all ranks that take part in this kernel
    graphed: bool = False  # its kernels are nodes of a CUDA graph, which the device itself starts


@dataclass(slots=True)
class Placed(Generic[K]):
    """A kernel with its place in time."""

    kernel: K
    issued: float
    start: float
    end: float
    gap: float = 0.0  # before it, where it was there before the one before it had ended
    waited: float = 0.0  # seconds before its start in which it waited for other ranks

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


class Score(NamedTuple, Generic[K]):
    """What one rank runs, and the energy that its kernels need."""

    issues: Sequence[Issue[K]]
    joules: float

    @property
    def clocked(self) -> float:
        """Seconds of kernels that slow down with the chip's clock."""
        return sum(k.seconds for each in self.issues for k in each.kernels if k.clocked)


def replay(
    issues: Sequence[Issue[K]], law: Curve, power: PowerLaw, joules: float, *, one_thread: bool
) -> Timeline[K]:
    """Run it on two clocks, or on one where a thread both issues and computes (a CPU)."""
    score = Score(issues, joules)
    return replay_together({0: score}, law, power, one_thread=one_thread)[0]


def replay_together(
    ranks: Mapping[int, Score[K]], law: Curve, power: PowerLaw, *, one_thread: bool
) -> dict[int, Timeline[K]]:
    """Run several ranks, each on clocks of its own that begin together, and let them meet."""
    clocked = {rank: score.clocked for rank, score in ranks.items()}
    found: dict[int, Timeline[K]] = {rank: Timeline() for rank in ranks}
    for _ in range(ROUNDS):
        if one_thread:
            ran = {rank: _one_clock(score.issues) for rank, score in ranks.items()}
        else:
            ran = _meeting(ranks, law, {rank: found[rank].slowed for rank in ranks})
        for rank, now in ran.items():
            before = found[rank]
            now.capped, now.clock_ratio, now.slowed = (
                before.capped, before.clock_ratio, before.slowed,
            )  # fmt: skip
            if clocked[rank]:
                held = power.throttle(ranks[rank].joules, clocked[rank], now.end - now.capped)
                now.capped, now.clock_ratio = float(held.added), float(held.ratio)
                now.slowed = 1.0 + now.capped / clocked[rank]
            found[rank] = now
        if not any(clocked.values()):
            break
    return found


class Meetings:
    """When each meeting of several ranks starts: once all that take part are there."""

    def __init__(self, ranks: Mapping[int, Score[K]]) -> None:
        self._missing: dict[Hashable, int] = defaultdict(int)
        self._latest: dict[Hashable, float] = defaultdict(float)
        for score in ranks.values():
            for issue in score.issues:
                if issue.meets is not None:
                    self._missing[issue.meets] += 1

    def arrive(self, meeting: Hashable, ready: float) -> None:
        """One rank is there."""
        self._missing[meeting] -= 1
        self._latest[meeting] = max(self._latest[meeting], ready)

    def start(self, meeting: Hashable) -> float | None:
        """When it starts; None: not all are there yet."""
        return None if self._missing[meeting] else self._latest[meeting]

    def give_up(self) -> None:
        """Ranks wait for one another for ever: those that are there go on without the others.

        Their recordings are not of the same step, or one host waits where another does not.
        """
        for meeting in self._latest:
            self._missing[meeting] = 0


def _meeting(
    ranks: Mapping[int, Score[K]], law: Curve, slowed: Mapping[int, float]
) -> dict[int, Timeline[K]]:
    """One pass of all ranks: each runs until it needs to know when a meeting starts."""
    meetings = Meetings(ranks)
    runs = {r: _two_clocks(score.issues, law, slowed[r], meetings) for r, score in ranks.items()}
    found: dict[int, Timeline[K]] = {}
    wanted: dict[int, Hashable] = {}
    while runs:
        moved = False
        for rank, run in list(runs.items()):
            if rank in wanted and meetings.start(wanted[rank]) is None:
                continue
            moved = True
            try:
                wanted[rank] = next(run)
            except StopIteration as ended:
                found[rank] = ended.value
                del runs[rank]
        if not moved:
            meetings.give_up()
    return found


def _two_clocks(
    issues: Sequence[Issue[K]], law: Curve, slowed: float, meetings: Meetings
) -> Generator[Hashable, None, Timeline[K]]:
    """One pass; `slowed` stretches what follows the chip's clock.

    Yields a meeting whose start it must know to go on. A kernel in which ranks meet does not keep
    its host; only what comes after it on its stream, or waits for it, needs to know its end.
    """
    host, own = 0.0, 0.0
    placed: list[Placed[K]] = []
    done: dict[int, tuple[list[int], list[float]]] = defaultdict(lambda: ([], []))
    ready: dict[int, float] = defaultdict(float)
    gap: dict[int, float] = defaultdict(float)  # after a stream's last kernel
    unsettled: dict[int, tuple[int, Hashable, Placed[K]]] = {}  # by stream: issue, meeting, kernel

    def settle(stream: int) -> Generator[Hashable, None, None]:
        at, meeting, kernel = unsettled[stream]
        while (start := meetings.start(meeting)) is None:
            yield meeting
        del unsettled[stream]
        kernel.waited = max(0.0, start - kernel.start)
        kernel.start, kernel.end = kernel.start + kernel.waited, kernel.end + kernel.waited
        ready[stream] = kernel.end + gap[stream]
        done[stream][0].append(at)
        done[stream][1].append(kernel.end)

    for i, issue in enumerate(issues):
        if issue.wait is not None:
            for stream in list(unsettled) if issue.wait.awaited < 0 else [issue.wait.awaited]:
                if stream in unsettled and unsettled[stream][0] < issue.wait.at:
                    yield from settle(stream)
            until = _finished(done, issue.wait)
            if issue.wait.waiting < 0:
                host = max(host, until)
            else:
                waiting = issue.wait.waiting
                if waiting in unsettled:
                    yield from settle(waiting)
                ready[waiting] = max(ready[waiting], until)
        host, own = host + issue.host, own + issue.host
        for kernel in issue.kernels:
            if issue.stream in unsettled:
                yield from settle(issue.stream)
            seconds = kernel.seconds * (slowed if kernel.clocked else 1.0)
            queued = ready[issue.stream] > host + law["latency"]
            start = max(host + law["latency"], ready[issue.stream])
            ran = Placed(kernel, host, start, start + seconds, gap[issue.stream] if queued else 0.0)
            placed.append(ran)
            # Even in a full queue one kernel does not begin in the cycle in which another ends.
            gap[issue.stream] = law["node" if issue.graphed else "gap"]
            if issue.meets is not None:
                unsettled[issue.stream] = i, issue.meets, ran
                meetings.arrive(issue.meets, start)
                continue
            ready[issue.stream] = start + seconds + gap[issue.stream]
            at, ends = done[issue.stream]
            at.append(i)
            ends.append(start + seconds)
    for stream in list(unsettled):
        yield from settle(stream)
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
