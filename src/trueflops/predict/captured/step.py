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
from itertools import zip_longest
from typing import Final

from trueflops.capture.recording import Call, Event, Recording, StepPhase, Waited
from trueflops.clock import Clock
from trueflops.predict.captured.host import between_calls, host_seconds
from trueflops.predict.captured.prices import Kernel, price_events
from trueflops.predict.floor import busy_seconds, floor_seconds
from trueflops.predict.terms import Estimate
from trueflops.profile import Curve

ROUNDS: Final = 3  # of running with the clock that the round before left


@dataclass(slots=True)
class Ran:
    """A kernel with its place in time."""

    kernel: Kernel
    issued: float
    start: float
    end: float
    queued: bool = False  # it was there before the one before it had ended


@dataclass
class CapturedStep:
    """A recorded step as it would run."""

    seconds: Estimate
    ran: list[Ran]
    host_seconds: float  # the host's own work, waits left out
    device_seconds: float  # of kernels on the main stream
    idle_seconds: float  # of the device, while it waited for the host
    gap_seconds: float  # of the device, between one kernel and the next of a full queue
    exposed_seconds: float  # of communication that nothing hid
    clock_ratio: float
    added_by_cap: float
    joules: float
    watts: float
    by_cause: dict[str, float] = field(default_factory=dict)

    @property
    def flop(self) -> float:
        """Of products and attention."""
        return sum(float(r.kernel.work.flop) for r in self.ran if r.kernel.matrix)


def captured_step(recording: Recording, clock: Clock) -> CapturedStep:
    """Price the recorded step and run it on two clocks."""
    events = recording.step()
    priced = price_events(events, clock)
    kernels = [k for each in priced for k in each]
    law = clock.profile.curve("dispatch")
    joules = sum(_joules(k, clock) for k in kernels)
    clocked = sum(k.seconds for k in kernels if k.clocked)
    slowed, added, ratio = 1.0, 0.0, 1.0
    alone = clock.chip.is_cpu
    for _ in range(ROUNDS):
        ran, end, own = _one_clock(events, priced, law) if alone else _run(
            events, priced, law, slowed)  # fmt: skip
        if not clocked:
            break
        held = clock.power.throttle(joules, clocked, end - added)
        added, ratio = float(held.added), float(held.ratio)
        slowed = 1.0 + added / clocked
    # Streams that share a link run side by side here; the link still carries them all.
    floor = _busiest_link(kernels, clock)
    late = max(0.0, floor - end)
    end += late
    watts = float(clock.power.watts(joules, end, ratio)) if clock.power.cap else 0.0
    main = sorted((r.start, r.end) for r in ran if r.kernel.cause != "communication")
    busy = _covered(main)
    covered = _covered(sorted((r.start, r.end) for r in ran))
    queued = sum(each.queued for each in ran)
    gaps = 0.0 if alone else min(queued * law["gap"], end - late - covered)
    return CapturedStep(
        seconds=_estimate(ran, end, own, busy, law, floor),
        ran=ran,
        host_seconds=own,
        device_seconds=busy,
        idle_seconds=max(0.0, end - late - covered - gaps),
        gap_seconds=gaps,
        exposed_seconds=covered - busy + late,
        clock_ratio=ratio,
        added_by_cap=added,
        joules=joules,
        watts=watts,
        by_cause=_by_cause(ran),
    )


def _busiest_link(kernels: list[Kernel], clock: Clock) -> float:
    """What no step goes below: the links of one tier, busy with all that is sent there."""
    sent = zip_longest(*(kernel.links for kernel in kernels), fillvalue=0.0)
    links = tuple(sum(tier) for tier in sent)
    return float(floor_seconds(busy_seconds(clock.cluster, links, 0.0)))


def _run(
    events: Sequence[Event], priced: list[list[Kernel]], law: Curve, slowed: float
) -> tuple[list[Ran], float, float]:
    """One pass over the events; `slowed` stretches what follows the chip's clock."""
    host, own = 0.0, 0.0
    phase: StepPhase = "forward"
    ran: list[Ran] = []
    done: dict[int, tuple[list[int], list[float]]] = defaultdict(lambda: ([], []))
    ready: dict[int, float] = defaultdict(float)
    for i, (event, kernels) in enumerate(zip(events, priced, strict=True)):
        if isinstance(event, Waited):
            until = _finished(done, event)
            if event.waiting < 0:
                host = max(host, until)
            else:
                ready[event.waiting] = max(ready[event.waiting], until)
        if not isinstance(event, Call):
            continue
        taken = host_seconds(event, phase, len(kernels), law)
        host, own, phase = host + taken, own + taken, event.phase
        for kernel in kernels:
            seconds = kernel.seconds * (slowed if kernel.clocked else 1.0)
            queued = ready[event.stream] > host + law["latency"]
            start = max(host + law["latency"], ready[event.stream])
            # Even in a full queue one kernel does not begin in the cycle in which another ends.
            ready[event.stream] = start + seconds + law["gap"]
            at, ends = done[event.stream]
            at.append(i)
            ends.append(start + seconds)
            ran.append(Ran(kernel, host, start, start + seconds, queued))
    return ran, max([host, *ready.values()]), own


def _one_clock(
    events: Sequence[Event], priced: list[list[Kernel]], law: Curve
) -> tuple[list[Ran], float, float]:
    """On a CPU one thread issues and computes: everything comes after what was before."""
    now, own = 0.0, 0.0
    ran: list[Ran] = []
    for event, kernels in zip(events, priced, strict=True):
        if isinstance(event, Call):
            taken = between_calls(event, law)
            now, own = now + taken, own + taken
            for kernel in kernels:
                ran.append(Ran(kernel, now, now, now + kernel.seconds))
                now += kernel.seconds
    return ran, now, own


def _finished(done: dict[int, tuple[list[int], list[float]]], event: Waited) -> float:
    """When a stream (or all of them) has done what it had been given at the mark."""
    streams = list(done) if event.awaited < 0 else [event.awaited]
    latest = 0.0
    for stream in streams:
        at, ends = done[stream]
        count = bisect_left(at, event.at)
        if count:
            latest = max(latest, ends[count - 1])
    return latest


def _joules(kernel: Kernel, clock: Clock) -> float:
    done, dtype = kernel.work, kernel.op.dtype if kernel.op else ""
    moved = done.bytes_read + done.bytes_written
    return float(clock.power.joules(done.flop, moved, dtype, matrix=kernel.matrix))


def _covered(spans: list[tuple[float, float]]) -> float:
    """Seconds in which at least one of these spans, in order, is under way."""
    total, until = 0.0, 0.0
    for start, end in spans:
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def _by_cause(ran: list[Ran]) -> dict[str, float]:
    total: dict[str, float] = defaultdict(float)
    for each in ran:
        total[each.kernel.cause] += each.end - each.start
    return dict(total)


def _estimate(
    ran: list[Ran], end: float, own: float, busy: float, law: Curve, floor: float
) -> Estimate:
    """Errors of one curve move together; the host's counts where the device waits for it."""
    spreads: dict[str, float] = defaultdict(float)
    for each in ran:
        spreads[each.kernel.curve] += (each.end - each.start) * each.kernel.error / end
    if end > 0.0:
        late = own if own >= busy else max(0.0, end - busy)  # what follows the host's own speed
        spreads["dispatch"] = law.error * min(late, end) / end
    return Estimate(end, dict(spreads), "derived", least=min(floor, end))
