"""A recorded step as it would run: its calls priced, replayed on two clocks, and told as a Term."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from trueflops.capture.lower import base_name
from trueflops.clock import Clock
from trueflops.clock.host import LISTS, HostLaw
from trueflops.predict.captured.lowering import Lowering
from trueflops.predict.captured.prices import Kernel, price_events
from trueflops.profile import Curve
from trueflops.records.recording import Call, Event, Recording, StepPhase, Waited
from trueflops.runtime import COMPUTE, Estimate, Term, busy_seconds, floor_seconds, leaf, total
from trueflops.runtime.replay import Issue, Placed, Score, Timeline, Wait, replay, shares

CAUSES: Final = {**COMPUTE, "host copy": "host copies"}
UPDATE: Final = "optimizer"
AGAIN: Final = "recomputation"
BUBBLE: Final = "pipeline bubble"
Ran = Placed[Kernel]


@dataclass
class CapturedStep:
    """A recorded step as it would run."""

    step: Term
    ran: list[Ran]
    host_seconds: float  # the host's own work, waits left out
    device_seconds: float  # of kernels on the main stream
    idle_seconds: float  # of the device, while it waited for the host
    gap_seconds: float  # of the device, between one kernel and the next of a full queue
    waited_seconds: float  # of the device, for other ranks that were replayed with this one
    exposed_seconds: float  # of communication that nothing hid
    clock_ratio: float
    added_by_cap: float
    joules: float
    watts: float

    @property
    def seconds(self) -> Estimate:
        """The whole step."""
        return self.step.estimate

    def told(self) -> list[Term]:
        """What a reader tells apart: parts of the step, of compute in it, and of its gaps."""
        return _told(self.step)

    @property
    def by_cause(self) -> dict[str, float]:
        """Seconds of kernels, whatever ran beside them."""
        found: dict[str, float] = defaultdict(float)
        for each in self.ran:
            found[each.kernel.cause] += each.seconds
        return dict(found)

    @property
    def flop(self) -> float:
        """Of products and attention."""
        return sum(float(r.kernel.work.flop) for r in self.ran if r.kernel.matrix)


def _told(whole: Term) -> list[Term]:
    found: list[Term] = []
    for part in whole.parts:
        inside = part.name in ("compute", "launch gaps")
        found += _told(part) if inside else [part]
    return found


@dataclass
class PricedStep:
    """A recorded step whose calls are priced, to be replayed alone or with other ranks."""

    kernels: list[Kernel]
    score: Score[Kernel]
    law: Curve  # of the host that issues them
    by_session: bool


def price_step(
    recording: Recording,
    clock: Clock,
    lowering: Lowering | None = None,
    meetings: Mapping[int, Hashable] | None = None,
) -> PricedStep:
    """Price the recorded step; `meetings`: by event, in which one other ranks take part."""
    events = recording.step()
    priced = price_events(events, clock, lowering or Lowering())
    kernels = [k for each in priced for k in each]
    law = clock.host.session if recording.by_session else clock.host.law
    session = law if recording.by_session else None
    alone = clock.chip.is_cpu
    issues = _issues(events, priced, clock.host, meetings or {}, one_thread=alone, session=session)
    score = Score(issues, sum(_joules(k, clock) for k in kernels))
    return PricedStep(kernels, score, law, recording.by_session)


def captured_step(
    recording: Recording, clock: Clock, lowering: Lowering | None = None
) -> CapturedStep:
    """Price the recorded step and run it on two clocks."""
    priced = price_step(recording, clock, lowering)
    issues, joules = priced.score
    alone = clock.chip.is_cpu
    found = replay(issues, priced.law, clock.power, joules, one_thread=alone)
    return as_step(priced, found, clock)


def as_step(priced: PricedStep, found: Timeline[Kernel], clock: Clock) -> CapturedStep:
    """A replayed step as a tree of terms."""
    kernels, joules = priced.kernels, priced.score.joules
    law, alone = priced.law, clock.chip.is_cpu
    # Streams that share a link run side by side here; the link still carries them all.
    floor = _busiest_link(kernels, clock)
    late = max(0.0, floor - found.end)
    end = found.end + late
    watts = float(clock.power.watts(joules, end, found.clock_ratio)) if clock.power.cap else 0.0
    parts, capped = _computing(found.placed)
    busy = sum(float(part.value) for part in parts) + capped
    covered = sum(shares(sorted((r.start, r.end) for r in found.placed)))
    waited = sum(shares(sorted((r.start - r.waited, r.end) for r in found.placed))) - covered
    gaps = 0.0 if alone else min(found.gaps, found.end - covered - waited)
    idle = max(0.0, found.end - covered - waited - gaps)
    sent = _sent(found.placed, covered - busy)
    power = clock.profile.curve("power")
    # What follows the host's own speed: all of it where the host is behind.
    behind = found.host if found.host >= busy else max(0.0, end - busy)
    whole = total(
        "step",
        total(
            "compute",
            *(part for part in parts if part.name != UPDATE),
            leaf("power cap", capped, power, "power"),
            total("launch gaps", Term("waiting for the host", idle), Term("between kernels", gaps)),
        ),
        *([Term(BUBBLE, waited)] if waited else []),
        sent,
        *(part for part in parts if part.name == UPDATE),
        Term("busiest link", late),
        cause="session" if priced.by_session else "dispatch",
        spread=law.error * min(behind, end) / end if end else 0.0,
        least=min(floor, end),
    )
    return CapturedStep(
        step=whole,
        ran=found.placed,
        host_seconds=found.host,
        device_seconds=busy,
        idle_seconds=idle,
        gap_seconds=gaps,
        waited_seconds=waited,
        exposed_seconds=float(sent.value) + late,
        clock_ratio=found.clock_ratio,
        added_by_cap=capped,
        joules=joules,
        watts=watts,
    )


def _issues(
    events: Sequence[Event],
    priced: list[list[Kernel]],
    host: HostLaw,
    meetings: Mapping[int, Hashable],
    *,
    one_thread: bool,
    session: Curve | None,
) -> list[Issue[Kernel]]:
    """Every event as what the host does for it."""
    found: list[Issue[Kernel]] = []
    before: StepPhase = "forward"
    launched: set[int] = set()  # CUDA graphs
    for i, (event, kernels) in enumerate(zip(events, priced, strict=True)):
        met = meetings.get(i) if kernels else None
        if isinstance(event, Waited):
            found.append(Issue(wait=Wait(event.waiting, event.awaited, event.at)))
        elif not isinstance(event, Call):
            found.append(Issue())
        elif one_thread:
            found.append(Issue(host.between_calls(event.views, event.modules), kernels))
        elif session is not None:
            found.append(Issue(len(kernels) * session["launch"], kernels, event.stream))
        elif event.graph >= 0:
            taken = 0.0 if event.graph in launched else host.law["graph"]
            launched.add(event.graph)
            found.append(Issue(taken, kernels, event.stream, graphed=True, meets=met))
        else:
            if event.region >= 0:
                taken = len(kernels) * host.law["generated"]
            else:
                listed = len(event.inputs) if base_name(event.op).startswith(LISTS) else 0
                taken = host.call_seconds((k.op for k in kernels), event.views, listed)
                if event.phase == "recompute" != before:
                    taken += host.law["checkpoint"]
            before = event.phase
            found.append(Issue(taken, kernels, event.stream, meets=met))
    return found


def _busiest_link(kernels: list[Kernel], clock: Clock) -> float:
    """What no step goes below: the links of one tier, busy with all that is sent there."""
    sent = zip_longest(*(kernel.links for kernel in kernels), fillvalue=0.0)
    links = tuple(sum(tier) for tier in sent)
    return float(floor_seconds(busy_seconds(clock.cluster, links, 0.0)))


def _joules(kernel: Kernel, clock: Clock) -> float:
    done, dtype = kernel.work, kernel.op.dtype if kernel.op else ""
    moved = done.bytes_read + done.bytes_written
    return float(clock.power.joules(done.flop, moved, dtype, matrix=kernel.matrix))


def _computing(placed: list[Ran]) -> tuple[list[Term], float]:
    """Kernels at full clock under the names that a planned step has, and what the cap added.

    Of kernels side by side each counts for what none before it covers.
    """
    ran = sorted((r for r in placed if r.kernel.cause != "communication"), key=lambda r: r.start)
    by: dict[tuple[str, str], dict[str, Term]] = defaultdict(dict)
    capped = 0.0
    for each, share in zip(ran, shares([(r.start, r.end) for r in ran]), strict=True):
        kernel = each.kernel
        slowed = max(each.seconds / kernel.seconds, 1.0) if kernel.clocked else 1.0
        alone = share / slowed
        capped += share - alone
        curves = by[_part_of(kernel)]
        so_far = float(curves[kernel.curve].value) if kernel.curve in curves else 0.0
        curves[kernel.curve] = Term(
            kernel.curve, so_far + alone, cause=kernel.curve, spread=kernel.error
        )
    again = [total(CAUSES[c], *curves.values()) for (p, c), curves in by.items() if p == AGAIN]
    found = [total(p, *curves.values()) for (p, _), curves in by.items() if p != AGAIN]
    return [*found, total(AGAIN, *again)] if again else found, capped


def _part_of(kernel: Kernel) -> tuple[str, str]:
    """Of a step. What walks over lists of tensors clips gradients or updates weights."""
    if kernel.call.phase == "optimizer" or base_name(kernel.call.op).startswith(LISTS):
        return UPDATE, ""
    if kernel.call.phase == "recompute":
        return AGAIN, kernel.cause
    return CAUSES[kernel.cause], ""


def _sent(placed: list[Ran], exposed: float) -> Term:
    """Communication that nothing hid, by whose error it has."""
    sent = [r for r in placed if r.kernel.cause == "communication"]
    whole = sum(r.seconds for r in sent)
    by: dict[str, tuple[float, float]] = {}
    for each in sent:
        seconds, _ = by.get(each.kernel.curve, (0.0, 0.0))
        by[each.kernel.curve] = seconds + each.seconds * exposed / whole, each.kernel.error
    parts = [Term(curve, s, cause=curve, spread=error) for curve, (s, error) in by.items()]
    return total("exposed communication", *parts)
