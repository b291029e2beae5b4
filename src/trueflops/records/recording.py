"""What a captured program did, as plain data free of torch; capture/ writes it.

A Recording is a list of events in the order in which the host met them: calls of ATen ops and
collectives, storages that came and went, streams that waited for one another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Final, Literal, NamedTuple

from trueflops.dtypes import of_torch
from trueflops.units import BITS_PER_BYTE

StepPhase = Literal["build", "forward", "recompute", "backward", "optimizer"]
HOST: Final = "cpu"


class RecordedTensor(NamedTuple):
    """A tensor as an op reads or writes it: its storage, shape, strides and type."""

    storage: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: str = "cuda"
    offset: int = 0

    @property
    def bits(self) -> float:
        """Of one element."""
        return float(of_torch(self.dtype).bits)

    @property
    def elements(self) -> int:
        """As the op counts them, repeated ones again."""
        return prod(self.shape)

    @property
    def distinct(self) -> int:
        """Elements that really lie in memory: an expanded dimension is stored once."""
        return prod(n for n, s in zip(self.shape, self.strides, strict=True) if s or n == 0)

    @property
    def bytes(self) -> float:
        """That must be moved to read or write it once."""
        return self.distinct * self.bits / BITS_PER_BYTE

    @property
    def dense(self) -> bool:
        """Whether its elements fill one stretch of memory, in whatever order of dimensions."""
        expected = 1
        pairs = sorted((s, n) for n, s in zip(self.shape, self.strides, strict=True) if n != 1)
        for stride, size in pairs:
            if stride != expected:
                return False
            expected *= size
        return True


class Call(NamedTuple):
    """One op that the program launched."""

    op: str  # "aten.mm.default"
    inputs: tuple[RecordedTensor, ...]
    outputs: tuple[RecordedTensor, ...]
    numbers: tuple[object, ...]  # its other arguments, as they were given
    phase: StepPhase
    module: str
    stream: int
    region: int  # of torch.compile, or −1
    group: tuple[int, ...] = ()  # the ranks that a collective joins
    views: int = 0  # views taken since the call before: no kernels, but time of the host
    modules: int = 0  # modules entered since then
    parts: tuple[Call, ...] = ()  # what a compiler made this one kernel of
    tf32: bool = False  # its products of fp32 run as tf32
    source: str = ""  # the user's line that called it, or whose backward it is: "train.py:12"
    graph: int = -1  # the launch of a CUDA graph that it is part of, or −1


class Allocated(NamedTuple):
    """A storage came."""

    storage: int
    size_bytes: int
    stream: int
    phase: StepPhase
    module: str
    op: str
    source: str = ""  # the user's line, as of a Call


class Freed(NamedTuple):
    """A storage went."""

    storage: int


class Waited(NamedTuple):
    """A stream (or the host: −1) waits until another has done what it was given so far."""

    waiting: int
    awaited: int  # a stream, or −1 for all of them
    at: int  # how many events of the step had been seen when the awaited mark was set


class Emptied(NamedTuple):
    """Free memory that the allocator had kept went back to the device (torch.cuda.empty_cache)."""

    stream: int = 0  # on which the host stood


class Began(NamedTuple):
    """A part of the run begins: building, the warmup_steps step, the recorded step."""

    part: str


Event = Call | Allocated | Freed | Waited | Emptied | Began


@dataclass
class Pool:
    """Memory that CUDA graphs keep for their replays, whatever is freed of it."""

    held_bytes: int = 0  # by tensors that are alive
    peak_bytes: int = 0

    def take(self, size: int) -> None:
        """A tensor came."""
        self.held_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.held_bytes)

    def give(self, size: int) -> None:
        """A tensor went; its block stays."""
        self.held_bytes -= size

    @property
    def idle_bytes(self) -> int:
        """Kept for replays, though no tensor is there."""
        return self.peak_bytes - self.held_bytes


@dataclass
class Recording:
    """A program on one rank: everything it did, and what is known of its tensors."""

    events: list[Event] = field(default_factory=list)
    parameters: dict[int, str] = field(default_factory=dict)  # storage -> the parameter's name
    roles: dict[int, str] = field(default_factory=dict)
    """Of storages of which an optimizer says it: gradients, optimizer state, or the weights that it
    updates, which are copies where modules have parameters of their own."""
    parameter_count: int = 0
    rank: int = 0
    world: int = 1
    warnings: list[str] = field(default_factory=list)
    torch: str = ""  # the release that ran it
    modules: dict[str, str] = field(default_factory=dict)  # path -> class
    results: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Of each compiled region, the storages it returns whose gradients autograd will ask for."""
    by_session: bool = False  # a session runs a graph, as onnxruntime does: no Python between calls

    pools: dict[int, Pool] = field(default_factory=dict)
    """Of CUDA graphs, by number."""
    expandable: bool = False  # segments of memory grow by pages: expandable_segments:True

    def step(self) -> list[Event]:
        """The events of the recorded step."""
        begun = [i for i, e in enumerate(self.events) if isinstance(e, Began)]
        return self.events[begun[-1] + 1 :] if begun else self.events

    def calls(self) -> Iterator[Call]:
        """The calls of the recorded step."""
        return (event for event in self.step() if isinstance(event, Call))
