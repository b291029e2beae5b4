"""Memory of a captured program over time: every storage through the caching allocator.

The whole run is replayed, from building to the recorded step: what is reserved depends on what was
freed before.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import inf
from typing import Final

from trueflops.predict.captured.allocator import CachingAllocator, OutOfMemory, PlainAllocator
from trueflops.records.recording import Allocated, Began, Call, Emptied, Freed, Recording

PRODUCTS: Final = ("aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm")
_USUALLY: Final = {
    "optimizer state": "of all parameters", "gradients": "of all parameters",
    "library workspaces": "of matrix products",
}  # fmt: skip


@dataclass(slots=True)
class Holding:
    """A storage that was alive at the peak."""

    size_bytes: int
    category: str
    module: str
    op: str
    name: str = ""
    source: str = ""  # the user's line

    @property
    def place(self) -> str:
        """Whose it is: its parameter, its module, or what made it."""
        usual = _USUALLY.get(self.category, self.op)
        return self.name or self.module or usual


@dataclass
class CapturedMemory:
    """Peaks of the recorded step and what made them."""

    peak_allocated_bytes: int
    peak_reserved_bytes: int
    alive: list[Holding]
    timeline: list[tuple[int, dict[str, int]]]  # event of the step, bytes by category
    pool_bytes: int = 0  # that CUDA graphs keep for their replays, beside what is allocated

    def by(self, what: str) -> dict[str, int]:
        """Bytes at the peak by category, module, op or name, the largest first."""
        total: dict[str, int] = defaultdict(int)
        for holding in self.alive:
            total[getattr(holding, what)] += holding.size_bytes
        return dict(sorted(total.items(), key=lambda pair: -pair[1]))


def captured_memory(
    recording: Recording,
    *,
    workspace: int = 0,
    limit_bytes: float = inf,
    on_host: bool = False,
) -> CapturedMemory:
    """Replay the run: building, the warm-up step, the recorded step.

    What the cache holds is given back where a device has no more than `limit_bytes`; a run that
    needs more than that is replayed to its end all the same, to say how much.
    """
    allocator = (
        PlainAllocator()
        if on_host
        else CachingAllocator(expandable=recording.expandable, limit_bytes=limit_bytes)
    )
    categories = categories_of(recording)
    handles: dict[int, int] = {}
    alive: dict[int, Allocated] = {}
    held: dict[str, int] = defaultdict(int)
    threads: set[str] = set()
    timeline: list[tuple[int, dict[str, int]]] = []
    peak, at_peak, begun = 0, dict(alive), 0
    for i, event in enumerate(recording.events):
        if isinstance(event, Began):
            allocator.reset_peaks()
            begun, peak, at_peak = i, allocator.allocated_bytes, dict(alive)
            timeline.clear()
        elif isinstance(event, Emptied):
            allocator.empty_cache()
        elif isinstance(event, Freed):
            if event.storage in handles:
                allocator.free(handles.pop(event.storage))
                held[categories[event.storage]] -= alive.pop(event.storage).size_bytes
        elif isinstance(event, Allocated):
            handles[event.storage] = _allocate(allocator, event.size_bytes, event.stream)
            thread = _thread(event)
            if thread and thread not in threads:
                threads.add(thread)
                _allocate(allocator, workspace)
                held["library workspaces"] += workspace
            alive[event.storage] = event
            held[categories[event.storage]] += event.size_bytes
            timeline.append((i - begun, dict(held)))
            if allocator.allocated_bytes > peak:
                peak, at_peak = allocator.allocated_bytes, dict(alive)
    holdings = [
        Holding(
            e.size_bytes, categories[n], e.module, e.op, recording.parameters.get(n, ""), e.source
        )
        for n, e in at_peak.items()
    ]
    if held["library workspaces"]:
        holdings.append(Holding(held["library workspaces"], "library workspaces", "", ""))
    return CapturedMemory(
        allocator.peak_allocated_bytes,
        allocator.peak_reserved_bytes,
        holdings,
        timeline,
        sum(pool.idle_bytes for pool in recording.pools.values()),
    )


def _allocate(allocator: CachingAllocator | PlainAllocator, size: int, stream: int = 0) -> int:
    """A block of memory; of a device that is too small, as if it were larger from here on."""
    try:
        return allocator.allocate(size, stream)
    except OutOfMemory:
        allocator.limit_bytes = inf
        return allocator.allocate(size, stream)


def _thread(event: Allocated) -> str:
    """Forward and backward run in two threads of the host, each with a library handle."""
    if not event.op.startswith(PRODUCTS):
        return ""
    return "backward" if event.phase in ("backward", "recompute") else "forward"


def categories_of(recording: Recording) -> dict[int, str]:
    """What every storage is for: as optimizers say, or told by when it came and when it went.

    What the forward leaves for the backward is an activation; what the backward leaves, a gradient;
    what the optimizer leaves for the next step, its state, and so are weights that it alone has.
    """
    found: dict[int, str] = {}
    came: dict[int, Allocated] = {}
    phase = "forward"
    for event in recording.events:
        if isinstance(event, Call):
            phase = event.phase
        elif isinstance(event, Allocated):
            phase = event.phase
            came[event.storage] = event
            found[event.storage] = _at_end(event, recording)
        elif isinstance(event, Freed) and event.storage in came:
            begun = came[event.storage].phase
            if event.storage in recording.parameters or event.storage in recording.roles:
                continue
            if begun == phase or {begun, phase} <= {"backward", "recompute"}:
                is_again = begun == "recompute"
                found[event.storage] = "recomputed activations" if is_again else "temporary"
            elif begun == "forward":
                found[event.storage] = "activations"
            elif begun in ("backward", "recompute"):
                found[event.storage] = "gradients"
    return found


def _at_end(event: Allocated, recording: Recording) -> str:
    """Of a storage that never goes."""
    if event.storage in recording.parameters:
        return "parameters"
    role = recording.roles.get(event.storage)
    if role == "weights":
        return "optimizer state" if recording.parameters else "parameters"
    if role is not None:
        return role
    if event.phase == "optimizer":
        return "optimizer state"
    return "gradients" if event.phase in ("backward", "recompute") else "inputs and buffers"
