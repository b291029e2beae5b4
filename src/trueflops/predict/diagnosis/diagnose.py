"""Where the time of a real step went, beside what each kernel should take, and what could be.

In: a Trace and a clock. Out: a Diagnosis. Measured causes and idle time sum to the step; what the
step could be is measured time less what is idle, slow or exposed, priced by the one clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from trueflops.catalog import weakest
from trueflops.clock import Clock
from trueflops.predict.advice import Advice
from trueflops.predict.diagnosis.advice import SHORT, Seen, advise
from trueflops.predict.diagnosis.causes import cause_of
from trueflops.predict.diagnosis.groups import (
    Group,
    NamedKernel,
    Pricer,
    group_kernels,
    name_kernels,
    short_name,
)
from trueflops.predict.diagnosis.timeline import (
    Gap,
    Occupied,
    Spent,
    Window,
    gaps,
    longest_event,
    meanwhile,
    median_window,
    occupied,
    replay,
    windows,
)
from trueflops.records.trace import NOBODY, Trace, TracedKernel
from trueflops.runtime.terms import Estimate


class Pause(NamedTuple):
    """A gap, told: what the host was in meanwhile, and what ended it."""

    at_seconds: float  # since the step began
    seconds: float
    late: bool
    host: str
    before: str


class Possible(NamedTuple):
    """What the step would take if something were mended; low and high of the 90 % interval."""

    name: str
    seconds: float
    low: float
    high: float


@dataclass(frozen=True)
class Diagnosis:
    """The answer; all times in seconds."""

    trace: Trace
    window: Window
    steps: tuple[tuple[str, float], ...]
    occupied: Occupied
    phases: dict[str, float]  # kernel time by phase
    pauses: tuple[Pause, ...]  # longest first
    spent: dict[Spent, float]  # what the host did while the device waited for it
    groups: tuple[Group, ...]  # by op and shape, or by op alone; costliest first
    named: tuple[NamedKernel, ...]  # by the kernels' own names; costliest first
    possible: tuple[Possible, ...]
    advice: tuple[Advice, ...]

    @property
    def busy_seconds(self) -> float:
        """Something ran."""
        return self.window.seconds - self.occupied.idle

    @property
    def late_seconds(self) -> float:
        """Idle because the host had not asked for the next kernel yet."""
        return sum(pause.seconds for pause in self.pauses if pause.late)

    @property
    def short_kernels(self) -> int:
        """Kernels that end before a host has launched the next one."""
        return sum(kernel.seconds < SHORT for kernel in self.window.kernels)

    @property
    def kernel_seconds(self) -> float:
        """The kernels' own time, side by side or not."""
        return sum(group.measured_seconds for group in self.groups)

    @property
    def priced_seconds(self) -> float:
        """Of the kernels that have a prediction."""
        return sum(g.measured_seconds for g in self.groups if g.predicted is not None)

    @property
    def predicted(self) -> Estimate | None:
        """All kernels that have a prediction; errors of one law move together."""
        found = [g.predicted for g in self.groups if g.predicted is not None]
        whole = sum(float(e.value) for e in found)
        if not whole:
            return None
        spreads: dict[str, float] = defaultdict(float)
        for each in found:
            for cause, spread in each.spreads.items():
                spreads[cause] += float(each.value) * float(spread) / whole
        return Estimate(whole, spreads, weakest([e.origin for e in found]))

    @property
    def peak_share(self) -> float:
        """Of the dense peak: the flop that products and attention did (HFU)."""
        at_peak = sum(float(g.predicted.least) for g in self.groups if g.predicted is not None)
        return at_peak / self.window.seconds

    @property
    def slow(self) -> tuple[Group, ...]:
        """Beyond the upper end of their interval, those that cost most first."""
        found = [group for group in self.groups if group.slow]
        return tuple(sorted(found, key=lambda g: -g.excess_seconds))


def diagnose(trace: Trace, clock: Clock | None) -> Diagnosis:
    """Look at the median step of a trace; without a clock, at what was measured alone."""
    found = windows(trace)
    window = median_window(found)
    pricer = Pricer(clock)
    causes = [cause_of(kernel, trace.launches) for kernel in window.kernels]
    shares = occupied(window, causes)
    groups = group_kernels(trace, window.kernels, pricer)
    idle = gaps(window)
    spent: dict[Spent, float] = defaultdict(float)
    for gap in idle:
        if gap.late:
            for what, seconds in meanwhile(gap, trace).items():
                spent[what] += seconds
    seen = Seen(trace, window, idle, spent, shares, groups, clock, pricer)
    return Diagnosis(
        trace,
        window,
        tuple((w.name, w.seconds) for w in found),
        shares,
        _phases(trace, window.kernels),
        _pauses(trace, window, idle),
        dict(spent),
        tuple(groups),
        tuple(name_kernels(trace, window.kernels)),
        tuple(_possible(trace, window, shares, groups)),
        tuple(advise(seen)),
    )


def _phases(trace: Trace, kernels: Sequence[TracedKernel]) -> dict[str, float]:
    total = dict.fromkeys(("forward", "recompute", "backward", "optimizer"), 0.0)
    for kernel in kernels:
        if kernel.launch != NOBODY:
            total[trace.launches[kernel.launch].phase] += kernel.seconds
    return {phase: seconds for phase, seconds in total.items() if seconds}


def _pauses(trace: Trace, window: Window, idle: Sequence[Gap]) -> tuple[Pause, ...]:
    found = []
    for gap in sorted(idle, key=lambda g: -g.seconds):
        kernel = gap.before
        known = kernel.launch != NOBODY
        before = trace.launches[kernel.launch].label if known else short_name(kernel.name)
        host = longest_event(gap, trace) if gap.late else ""
        found.append(Pause(gap.start - window.start, gap.seconds, gap.late, host, before))
    return tuple(found)


def _possible(
    trace: Trace, window: Window, shares: Occupied, groups: Sequence[Group]
) -> list[Possible]:
    """Each mend alone, then all of them."""
    whole, exposed = window.seconds, shares.by_cause["communication"]
    found = [Possible("as it is", whole, whole, whole)]
    if shares.idle > 0.0:
        found.append(_plain("no idle time", whole - shares.idle))
    slow = [g for g in groups if g.slow and g.cause != "communication"]
    if slow:
        sooner = [replay(window, _saved(trace, window, slow, end)) for end in _ENDS]
        found.append(Possible("slow kernels as predicted", *(whole - s for s in sooner)))
    if exposed > 0.0:
        found.append(_plain("communication hidden", whole - exposed))
    if len(found) > 2:
        # Communication can hide behind compute only as far as there is compute.
        least = shares.hidden + exposed
        rest = whole - shares.idle - exposed
        ends = [max(rest - sum(_less(g, end) for g in slow), least) for end in _ENDS]
        found.append(Possible("all together", *ends))
    return found


def _plain(name: str, seconds: float) -> Possible:
    return Possible(name, seconds, seconds, seconds)


_ENDS = ("value", "low", "high")


def _less(group: Group, end: str) -> float:
    """What a slow group would save if it took its prediction, or an end of its interval."""
    return max(group.measured_seconds - float(getattr(group.predicted, end)), 0.0)


def _saved(trace: Trace, window: Window, slow: Sequence[Group], end: str) -> list[float]:
    """Of each kernel: the share of its group's excess that its own time is."""
    share = {g.label: _less(g, end) / g.measured_seconds for g in slow}
    found = []
    for kernel in window.kernels:
        known = kernel.launch != NOBODY and kernel.sort == "kernel"
        label = trace.launches[kernel.launch].label if known else ""
        found.append(kernel.seconds * share.get(label, 0.0))
    return found
