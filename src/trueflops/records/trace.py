"""A run as a profiler saw it: work on the device, and the ops on the host that asked for it.

Plain data, free of torch and of any file format; interop/kineto/ makes it. Times are seconds
since the first event of the file.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from trueflops.graph.ir import Op
from trueflops.graph.kinds import CollectiveKind
from trueflops.records.recording import Call

Sort = Literal["kernel", "collective", "to_device", "to_host", "within"]
"""What a piece of device work is: a kernel, a collective, or a copy and its way."""
TracedPhase = Literal["forward", "recompute", "backward", "optimizer"]
Doing = Literal["launch", "wait", "allocate", "op", "annotation"]
"""What the host does: a call that launches, waits or allocates, an op, a stretch with a name."""
NOBODY: Final = -1  # launched this: no op of the trace is known to have


class Message(NamedTuple):
    """What a collective sends, as nccl-tests counts it."""

    kind: CollectiveKind
    payload_bytes: float
    group: int
    stride: int  # between neighbouring ranks of the group


class TracedKernel(NamedTuple):
    """One piece of work on the device."""

    name: str
    start: float
    seconds: float
    stream: int
    sort: Sort
    launched: float | None  # when the host began to ask for it
    thread: int  # on the host; NOBODY where that is not known
    launch: int  # its place in Trace.launches, or NOBODY
    message: Message | None = None
    moved_bytes: float = 0.0  # of a copy
    pageable: bool = False  # a copy from or to host memory that is not pinned

    @property
    def end(self) -> float:
        """When it was done."""
        return self.start + self.seconds


class Launch(NamedTuple):
    """One op of the program that put work on the device, with what that work should be."""

    name: str  # "aten::mm"
    label: str  # "mm 8192×8192×2048 bf16"
    call: Call | None  # its arguments; None where they were not recorded or say too little
    ops: tuple[Op, ...]  # what the call should launch; the same objects for equal calls
    phase: TracedPhase
    within: str = ""  # the innermost named stretch around it: Optimizer.step#AdamW.step


class HostEvent(NamedTuple):
    """Something the host did."""

    name: str
    start: float
    end: float
    doing: Doing


class Stretch(NamedTuple):
    """From here until the next one a thread was in this event, and in none inside it."""

    start: float
    event: HostEvent | None


@dataclass(frozen=True)
class Thread:
    """What one thread of the host did, innermost events only, in order."""

    stretches: tuple[Stretch, ...]
    starts: tuple[float, ...] = field(repr=False)

    def during(self, start: float, end: float) -> list[tuple[HostEvent | None, float]]:
        """The events between two moments, each with its seconds; None: no event, so Python."""
        found = []
        at = max(bisect_right(self.starts, start) - 1, 0)
        while at < len(self.starts) and self.starts[at] < end:
            until = self.starts[at + 1] if at + 1 < len(self.starts) else end
            seconds = min(until, end) - max(self.starts[at], start)
            if seconds > 0.0:
                found.append((self.stretches[at].event, seconds))
            at += 1
        return found


class Step(NamedTuple):
    """A step that the program named (ProfilerStep#3), as the host saw it."""

    name: str
    start: float
    end: float


@dataclass(frozen=True)
class Trace:
    """One device of one process: kernels in the order in which they started."""

    file: str
    device: str  # its name, where the file says it
    kernels: tuple[TracedKernel, ...]
    launches: tuple[Launch, ...]
    threads: dict[int, Thread]
    waits: tuple[HostEvent, ...]  # calls that wait for the device, or for memory
    overheads: tuple[HostEvent, ...]  # stretches that the profiler needed for itself
    steps: tuple[Step, ...]
    shapes: bool  # whether its ops tell theirs; without, little can be predicted
    launch_call_seconds: float  # the median of a call that launches a kernel
    warnings: tuple[str, ...] = ()
    of_host: bool = False  # no accelerator is in it: the host's own ops are the work
