"""What the host did, nested: which op a call was made in, which phase that op belongs to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from trueflops.interop.kineto.file import ANNOTATIONS, CALLS, OPS, Event
from trueflops.records.trace import Doing, HostEvent, Stretch, Thread, TracedPhase

_BACKWARD: Final = "autograd::engine::evaluate_function"
_OPTIMIZER: Final = "Optimizer.step"
_COPIES: Final = ("cudaMemcpy", "hipMemcpy", "hipMemcpyWithStream")  # which wait, unlike Async
_ALLOCATES: Final = ("Malloc", "Free", "HostAlloc", "MemCreate", "MemMap", "MemUnmap")


def is_runtime(event: Event) -> bool:
    """A call of the driver or the runtime, whoever made the device."""
    return event.category in CALLS


def doing(event: Event) -> Doing:
    """What kind of thing the host does."""
    if not is_runtime(event):
        return "annotation" if event.category in ANNOTATIONS else "op"
    if "Synchronize" in event.name or event.name in _COPIES:
        return "wait"
    if any(word in event.name for word in _ALLOCATES) and "Async" not in event.name:
        return "allocate"
    return "launch"


def nest(events: Iterable[Event]) -> dict[int, Thread]:
    """Give every event its parent; of each thread, what it was in the innermost."""
    by_thread: dict[object, list[Event]] = defaultdict(list)
    for event in events:
        by_thread[event.process, event.thread].append(event)
    threads = {}
    for number, members in enumerate(by_thread.values()):
        members.sort(key=lambda e: (e.start, -e.end))
        stretches = list(_stretches(members))
        threads[number] = Thread(tuple(stretches), tuple(s.start for s in stretches))
        for event in members:
            event.thread = number
    return threads


def _stretches(members: Sequence[Event]) -> Iterator[Stretch]:
    stack: list[tuple[Event, HostEvent]] = []
    for event in members:
        yield from _left(stack, event.start)
        event.parent = stack[-1][0] if stack else None
        seen = HostEvent(event.name, event.start, event.end, doing(event))
        stack.append((event, seen))
        yield Stretch(event.start, seen)
    yield from _left(stack, float("inf"))


def _left(stack: list[tuple[Event, HostEvent]], now: float) -> Iterator[Stretch]:
    """Leave every event that has ended by now."""
    while stack and stack[-1][1].end <= now:
        ended = stack.pop()[1].end
        yield Stretch(ended, stack[-1][1] if stack else None)


def ancestors(event: Event | None) -> Iterator[Event]:
    """The event and all that it is in."""
    while event is not None:
        yield event
        event = event.parent


def innermost_op(event: Event | None) -> Event | None:
    """The op that a call was made in."""
    return next((e for e in ancestors(event) if e.category in OPS), None)


def asked_by(event: Event) -> str:
    """The outermost op around a call: `aten::is_nonzero` rather than what it is made of."""
    names = [e.name for e in ancestors(event.parent) if e.category in OPS]
    torchs = [name for name in names if name.startswith("aten::")]
    return torchs[-1] if torchs else names[-1] if names else ""


def within(event: Event) -> str:
    """The innermost stretch that the program gave a name."""
    named = (e.name for e in ancestors(event) if e.category in ANNOTATIONS)
    return next((name for name in named if not name.startswith("ProfilerStep")), "")


def phase_of(event: Event) -> TracedPhase:
    """Where in a training step an op stands.

    A forward op has a number by which autograd finds it again. On the way back only what is
    computed anew gets one, so an op inside autograd's engine that has one is recomputation.
    """
    numbered = False
    for each in ancestors(event):
        if each.name.startswith(_BACKWARD):
            return "recompute" if numbered else "backward"
        if each.name.startswith(_OPTIMIZER):
            return "optimizer"
        if each.name.startswith("aten::") and "Sequence number" in each.args:
            numbered = numbered or each.args.get("Fwd thread id") == 0
    return "forward"
