"""One step on the device's clock: what ran when, what ran beside it, and when nothing did.

Every moment belongs to one cause, so causes and idle time sum to the step. Where several run at
once, the first of CAUSES has the moment: communication beside a kernel is hidden, alone exposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from trueflops.records.trace import NOBODY, Doing, Trace, TracedKernel

CAUSES: Final = ("matmul", "attention", "memory", "other", "communication", "copies")
Spent = Doing | str  # what the host does, or "python" (no event) or "profiler"


class Window(NamedTuple):
    """One step as the device saw it: its kernels, from its first to the next step's first."""

    name: str
    start: float
    end: float
    kernels: tuple[TracedKernel, ...]
    following: TracedKernel | None  # the first kernel of the next step

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.start


class Gap(NamedTuple):
    """A time in which nothing ran."""

    start: float
    seconds: float
    before: TracedKernel  # what ended it
    late: bool  # the host had not asked for that in time; otherwise it was waiting in the queue


class Occupied(NamedTuple):
    """Seconds of a window by cause, and those of communication that other work hid."""

    by_cause: dict[str, float]
    idle: float
    hidden: float


def windows(trace: Trace) -> list[Window]:
    """The steps that the program named; the whole trace where it named none."""
    kernels = trace.kernels
    if not trace.steps:
        return [_window("", list(kernels), None)]
    members: dict[int, list[TracedKernel]] = {}
    for kernel in kernels:
        asked = kernel.start if kernel.launched is None else kernel.launched
        for place, step in enumerate(trace.steps):
            if step.start <= asked < step.end:
                members.setdefault(place, []).append(kernel)
                break
    found = []
    for place in sorted(members):
        later = [members[p] for p in members if p > place]
        following = min((m[0] for m in later), key=lambda k: k.start, default=None)
        found.append(_window(trace.steps[place].name, members[place], following))
    return found or [_window("", list(kernels), None)]


def _window(name: str, kernels: list[TracedKernel], following: TracedKernel | None) -> Window:
    start, end = kernels[0].start, max(k.end for k in kernels)
    if following is not None and following.start >= end:
        end = following.start
    else:
        following = None
    return Window(name, start, end, tuple(kernels), following)


def median_window(found: Sequence[Window]) -> Window:
    """The step of median length, of those whose end is known; of two, the shorter."""
    whole = sorted((w for w in found if w.following), key=lambda w: w.seconds) or list(found)
    return whole[(len(whole) - 1) // 2]


def occupied(window: Window, causes: Sequence[str]) -> Occupied:
    """Share every moment of a window out; `causes` are those of its kernels."""
    marks = []
    for kernel, cause in zip(window.kernels, causes, strict=True):
        rank = CAUSES.index(cause)
        marks += [(kernel.start, 1, rank), (kernel.end, -1, rank)]
    marks.sort()
    by_cause = dict.fromkeys(CAUSES, 0.0)
    running = [0] * len(CAUSES)
    sent = CAUSES.index("communication")
    hidden, now = 0.0, window.start
    for at, change, rank in marks:
        first = next((r for r, n in enumerate(running) if n), None)
        if first is not None:
            by_cause[CAUSES[first]] += at - now
            if running[sent] and first < sent:
                hidden += at - now
        running[rank] += change
        now = at
    return Occupied(by_cause, window.seconds - sum(by_cause.values()), hidden)


def least_latency(kernels: Sequence[TracedKernel]) -> float:
    """From the call of the host to the first cycle of the kernel, at best."""
    return min((k.start - k.launched for k in kernels if k.launched is not None), default=0.0)


def gaps(window: Window) -> list[Gap]:
    """Every time in which nothing ran."""
    latency = least_latency(window.kernels)
    found, until = [], window.start
    last = (window.following,) if window.following else ()
    for kernel in (*window.kernels, *last):
        if kernel.start > until:
            late = kernel.launched is not None and kernel.launched + latency > until
            found.append(Gap(until, kernel.start - until, kernel, late))
        until = max(until, kernel.end)
    return found


def own_seconds(gap: Gap, trace: Trace) -> float:
    """Of a gap, what the profiler took for itself."""
    until = gap.start + gap.seconds
    return sum(max(0.0, min(e.end, until) - max(e.start, gap.start)) for e in trace.overheads)


def meanwhile(gap: Gap, trace: Trace) -> dict[Spent, float]:
    """What the thread that launched the next kernel did in a gap, in seconds of each."""
    thread = trace.threads.get(gap.before.thread)
    until = gap.start + gap.seconds
    if thread is None or gap.before.thread == NOBODY:
        return {}
    itself = own_seconds(gap, trace)
    spent: dict[Spent, float] = {}
    for event, seconds in thread.during(gap.start, until):
        key: Spent = "python" if event is None or event.doing == "annotation" else event.doing
        spent[key] = spent.get(key, 0.0) + seconds
    if itself > 0.0:  # the profiler's own work happens inside some call of the host
        whole = sum(spent.values()) or 1.0
        rest = max(0.0, 1.0 - itself / whole)
        spent = {key: seconds * rest for key, seconds in spent.items()}
        spent["profiler"] = min(itself, whole)
    return spent


def longest_event(gap: Gap, trace: Trace) -> str:
    """The name of what the host was in for most of a gap."""
    thread = trace.threads.get(gap.before.thread)
    if own_seconds(gap, trace) > gap.seconds / 2.0:
        return "the profiler itself"
    if thread is None:
        return ""
    total: dict[str, float] = {}
    for event, seconds in thread.during(gap.start, gap.start + gap.seconds):
        name = "Python" if event is None else event.name
        total[name] = total.get(name, 0.0) + seconds
    return max(total, key=lambda name: total[name], default="")


def replay(window: Window, saved: Sequence[float]) -> float:
    """How much sooner a window would end if its kernels were so much shorter each.

    The host stays as it was: a kernel starts no sooner than the call that launched it allows, so
    a kernel that saves time before a late launch only makes the gap behind it longer.
    """
    latency = least_latency(window.kernels)
    sooner = 0.0
    for kernel, less in zip(window.kernels, saved, strict=True):
        if kernel.launched is not None:
            sooner = min(sooner, max(kernel.start - kernel.launched - latency, 0.0))
        sooner += less
    last = window.following
    if last is not None and last.launched is not None:
        sooner = min(sooner, max(last.start - last.launched - latency, 0.0))
    return sooner
