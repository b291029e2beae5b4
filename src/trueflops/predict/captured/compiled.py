"""Regions of torch.compile: calls become the kernels that a compiler would make of them.

Which calls join is the one model of `graph/passes/compiled.py`; here a recording's events are
rewritten by it. So most intermediate tensors take neither time nor memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from trueflops.capture.lower import tensor
from trueflops.graph.ir import Op, Tensor
from trueflops.graph.kinds import Kind
from trueflops.graph.passes.compiled import CompiledRegion, GeneratedKernel, joins
from trueflops.graph.variants import EagerKernel
from trueflops.predict.captured.lowering import Lowering
from trueflops.records.recording import (
    Allocated,
    Began,
    Call,
    Event,
    Freed,
    RecordedTensor,
    Recording,
    Waited,
)
from trueflops.units import GIGA

FUSED = "compiled.fused.default"
# No recording has so many storages: numbers beyond are those of tensors made up here.
_UNUSED = int(GIGA)
_DRAWN = (
    "rand",
    "dropout",
    "bernoulli",
    "normal",
    "uniform",
    "multinomial",
)  # never twice the same


def fuse_regions(recording: Recording, lowering: Lowering) -> Recording:
    """The same recording with every compiled region fused; untouched where there is none."""
    step = recording.step()
    if not any(isinstance(e, Call) and e.region >= 0 for e in step):
        return recording
    begun = [i for i, e in enumerate(recording.events) if isinstance(e, Began)]
    fused = _Fusing(step, recording.results, lowering).events()
    # The settling step ran like the recorded one; what it left behind stays.
    before = _lasting(recording.events[: begun[-1]])
    return replace(
        recording,
        events=[*before, Began("warmup"), *_renumbered(fused), Began("step"), *fused],
        warnings=[
            *recording.warnings,
            "compiled parts are fused by a model of TorchInductor, not by TorchInductor",
        ],
    )


def as_if_compiled(recording: Recording, lowering: Lowering) -> Recording:
    """The same step as if forward and backward were one compiled region: what fusion would save."""
    marked = [
        event._replace(region=0)
        if isinstance(event, Call) and event.phase != "optimizer" and not event.group
        else event
        for event in recording.events
    ]
    return fuse_regions(replace(recording, events=marked), lowering)


def _lasting(events: Sequence[Event]) -> list[Event]:
    """Storages that are still there in the end, and nothing else."""
    gone = {e.storage for e in events if isinstance(e, Freed)}
    return [e for e in events if isinstance(e, Allocated) and e.storage not in gone]


def _renumbered(events: Sequence[Event]) -> list[Event]:
    """Memory events of one more step, with storages of its own, for a cache that is warm."""
    own = {e.storage for e in events if isinstance(e, Allocated)}
    gone = {e.storage for e in events if isinstance(e, Freed)}
    return [
        event._replace(storage=-event.storage)
        for event in events
        if isinstance(event, (Allocated, Freed)) and event.storage in own & gone
    ]


def _without_repeats(step: list[Event]) -> list[Event]:
    """Of calls in a region that do the same to the same, the first alone (a mask for each layer).

    Not in the backward, whose recomputation repeats the forward on purpose.
    """
    known: dict[tuple[object, ...], tuple[RecordedTensor, ...]] = {}
    instead: dict[int, int] = {}
    changed: dict[int, int] = defaultdict(int)  # how often a storage was written in place
    found: list[Event] = []
    places: list[int] = []  # from a place in the step to one in what is found
    for event in step:
        places.append(len(found))
        if isinstance(event, Waited):
            at = places[event.at] if event.at < len(places) else len(found)
            found.append(event._replace(at=at))
            continue
        if not isinstance(event, Call):
            if not (isinstance(event, (Allocated, Freed)) and event.storage in instead):
                found.append(event)
            continue
        call = event._replace(
            inputs=tuple(
                a._replace(storage=instead.get(a.storage, a.storage)) for a in event.inputs
            )
        )
        name = call.op.split(".")[1]
        in_place = name.endswith("_")
        for array in call.outputs if in_place else ():
            changed[array.storage] += 1
        drawn = any(word in name for word in _DRAWN)
        fits = call.region >= 0 and call.phase == "forward" and not (in_place or drawn)
        read = tuple((a, changed[a.storage]) for a in call.inputs)
        key = (call.region, call.op, read, str(call.numbers), _shapes(call.outputs))
        if fits and call.outputs and key in known:
            for mine, first in zip(call.outputs, known[key], strict=True):
                instead[mine.storage] = first.storage
            gone = {a.storage for a in call.outputs}  # whose allocation has just been written down
            while found and isinstance(found[-1], Allocated) and found[-1].storage in gone:
                found.pop()
            continue
        if fits:
            known[key] = call.outputs
        found.append(call)
    return found


def _shapes(arrays: tuple[RecordedTensor, ...]) -> tuple[object, ...]:
    return tuple((a.shape, a.strides, a.dtype) for a in arrays)


class _Kernel(NamedTuple):
    """Calls that run as one, and what it reads and writes, by storage."""

    calls: list[int]
    reads: dict[int, RecordedTensor]
    writes: dict[int, RecordedTensor]


def _storage(name: str) -> int:
    """Of a tensor that stands for an array (`capture.lower.tensor`)."""
    return int(name[1:])


class _Fusing:
    """One step's events, call by call."""

    def __init__(
        self, step: Sequence[Event], results: dict[int, tuple[int, ...]], lowering: Lowering
    ) -> None:
        self.results, self.lowering = results, lowering
        self.step = _without_repeats(list(step))
        self.calls = {i: e for i, e in enumerate(self.step) if isinstance(e, Call)}
        self.readers: dict[int, list[int]] = defaultdict(list)
        self.makers: dict[int, int] = {}
        self.arrays: dict[
            int, RecordedTensor
        ] = {}  # by the identity of the tensor that stands for it
        self.freed = {e.storage for e in self.step if isinstance(e, Freed)}
        for i, call in self.calls.items():
            for array in call.inputs:
                self.readers[array.storage].append(i)
            for array in call.outputs:
                self.makers.setdefault(array.storage, i)

    def events(self) -> list[Event]:
        """The step with its regions fused."""
        kernels: dict[int, _Kernel] = {}  # by the place at which it runs
        inside: set[int] = set()
        for region in sorted({c.region for c in self.calls.values() if c.region >= 0}):
            own = [i for i, call in self.calls.items() if call.region == region]
            inside.update(own)
            compiled = CompiledRegion(
                {i: self._node(i) for i in own},
                lambda name, region=region: self._read_elsewhere(name, region),  # type: ignore[misc]
                lambda name: _storage(name) not in self.freed,
            )
            launching = [i for i in own if self.lowering(self.calls[i])]
            for backward in (False, True):
                part = [i for i in launching if (self.calls[i].phase != "forward") == backward]
                for made in compiled.kernels(part):
                    kernels[made.members[-1]] = self._kernel(made)
        return self._rewritten(kernels, inside)

    def _node(self, i: int) -> Op:
        """A call as one op that reads and makes all that the call does.

        A loss picks single elements: compilers do so inside the kernel that makes them.
        """
        call = self.calls[i]
        ops = self.lowering(call) or [Op(call.op, Kind.POINTWISE)]
        apart = [op for op in ops if not joins(op)]
        main = ops[0] if "nll_loss" in call.op or not apart else apart[0]
        inputs = list(call.inputs)
        if main.variant is EagerKernel.GATHER and call.outputs[0].elements < inputs[0].elements:
            # Of a table the rows that are looked up.
            rows = call.outputs[0]
            inputs[0] = inputs[0]._replace(shape=rows.shape, strides=rows.strides)
        return replace(
            main, inputs=self._tensors(inputs), outputs=self._tensors(call.outputs), weights=()
        )

    def _tensors(self, arrays: Iterable[RecordedTensor]) -> tuple[Tensor, ...]:
        found = []
        for array in arrays:
            found.append(tensor(array))
            self.arrays[id(found[-1])] = array
        return tuple(found)

    def _read_elsewhere(self, name: str, region: int) -> bool:
        """Whether a call beyond the region reads it."""
        return any(self.calls[i].region != region for i in self.readers[_storage(name)])

    def _kernel(self, made: GeneratedKernel) -> _Kernel:
        return _Kernel(
            made.members,
            {_storage(name): self.arrays[id(t)] for name, t in made.reads.items()},
            {_storage(name): self.arrays[id(t)] for name, t in made.writes.items()},
        )

    def _rewritten(self, kernels: dict[int, _Kernel], inside: set[int]) -> list[Event]:
        """Events in order; a storage of a region lives from its kernel to its last reader."""
        written = {storage for kernel in kernels.values() for storage in kernel.writes}
        vanished = {
            a.storage for i in inside for a in self.calls[i].outputs if a.storage not in written
        }
        last: dict[int, int] = {}
        for i, call in self.calls.items():
            if i not in inside:
                for array in call.inputs:
                    last[array.storage] = max(last.get(array.storage, -1), i)
        for place, kernel in kernels.items():
            for storage in kernel.reads:
                last[storage] = max(last.get(storage, -1), place)
        local = {s for s in written if self.makers.get(s) in inside}
        # What others read (a gradient) lives until the program lets go of it, the rest only until
        # its last reader: generated code frees at once.
        escaped = {s for s in local if any(i not in inside for i in self.readers[s])}
        until: dict[int, int] = {}
        for place, kernel in kernels.items():
            for storage in kernel.writes:
                until[storage] = max(until.get(storage, place), last.get(storage, place), place)
        dying: dict[int, list[int]] = defaultdict(list)
        for storage in local & self.freed - escaped:
            dying[until[storage]].append(storage)
        allocated = {e.storage: e for e in self.step if isinstance(e, Allocated)}
        tangents = self._tangents(kernels)
        events: list[Event] = []
        moved: list[int] = []  # from a place in the step as recorded to one in the fused step
        for i, event in enumerate(self.step):
            moved.append(len(events))
            if isinstance(event, Waited):
                at = moved[event.at] if event.at < len(moved) else len(events)
                events.append(event._replace(at=at))
            elif isinstance(event, (Allocated, Freed)):
                if isinstance(event, Freed) and event.storage in escaped:
                    events.append(event)
                elif event.storage in local or event.storage in vanished:
                    pass
                elif isinstance(event, Freed) and last.get(event.storage, -1) > i:
                    dying[last[event.storage]].append(event.storage)  # the backward reads it
                else:
                    events.append(event)
            elif i in kernels:
                kernel = kernels[i]
                events += tangents.pop(i, ())
                # Written by several kernels, a storage comes with the first of them.
                fresh = [s for s in kernel.writes if s in allocated and s in local]
                events += [allocated.pop(s) for s in fresh]
                events.append(self._as_call(kernel))
            elif i not in inside:
                events.append(event)
            events += [Freed(storage) for storage in dying.get(i, ())]
        return events

    def _tangents(self, kernels: dict[int, _Kernel]) -> dict[int, list[Event]]:
        """Zeros for every result of a region that nobody differentiates: autograd hands them in.

        A model that returns its logits beside the loss pays for a gradient of them.
        """
        found: dict[int, list[Event]] = {}
        for region, results in self.results.items():
            places = sorted(
                p for p, k in kernels.items()
                if self.calls[p].region == region and self.calls[p].phase == "backward"
            )  # fmt: skip
            for storage in results:
                maker = self.makers.get(storage)
                outside = [i for i in self.readers[storage] if self.calls[i].region != region]
                if maker is None or outside or not places:
                    continue
                array = next(a for a in self.calls[maker].outputs if a.storage == storage)
                zeros = array._replace(storage=-_UNUSED - storage)
                fill = self.calls[places[0]]._replace(
                    op="aten.zeros.default", inputs=(), outputs=(zeros,), numbers=(), region=-1
                )
                came = Allocated(zeros.storage, int(array.bytes), 0, "backward", "", fill.op)
                found.setdefault(places[0], []).extend((came, fill))
                found.setdefault(places[-1], []).append(Freed(zeros.storage))
        return found

    def _as_call(self, kernel: _Kernel) -> Call:
        calls = [self.calls[i] for i in kernel.calls]
        if len(calls) == 1 and not all(map(joins, self.lowering(calls[0]))):
            return calls[0]._replace(views=0, modules=0)
        return calls[-1]._replace(
            op=FUSED,
            inputs=tuple(kernel.reads.values()),
            outputs=tuple(kernel.writes.values()),
            numbers=(),
            views=0,
            modules=0,
            parts=tuple(calls),
        )
