"""Regions of torch.compile: calls become the kernels that a compiler would make of them.

Forward and backward of a region are fused apart. What the backward needs and no kernel of the
forward writes is computed again inside the kernel that needs it, from what was written: the rule
of torch's partitioner, in short. So most intermediate tensors take neither time nor memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from trueflops.capture.lower import lower, tensor
from trueflops.capture.recording import (
    Allocated,
    Array,
    Began,
    Call,
    Event,
    Freed,
    Recording,
    Waited,
)
from trueflops.graph.ir import Op
from trueflops.graph.kinds import Kind
from trueflops.graph.passes.compiled import compiled_groups, joins

FUSED = "compiled.fused.default"
_UNUSED = (
    10**9
)  # no recording has so many storages: numbers beyond are those of tensors made up here
_DRAWN = (
    "rand",
    "dropout",
    "bernoulli",
    "normal",
    "uniform",
    "multinomial",
)  # never twice the same


def fuse_regions(recording: Recording) -> Recording:
    """The same recording with every compiled region fused; untouched where there is none."""
    step = recording.step()
    if not any(isinstance(e, Call) and e.region >= 0 for e in step):
        return recording
    begun = [i for i, e in enumerate(recording.events) if isinstance(e, Began)]
    fused = _Fusing(step, recording.results).events()
    # The settling step ran like the recorded one; what it left behind stays.
    before = _lasting(recording.events[: begun[-1]])
    return replace(
        recording,
        events=[*before, Began("settle"), *_renumbered(fused), Began("step"), *fused],
        warnings=[
            *recording.warnings,
            "compiled parts are fused by a model of TorchInductor, not by TorchInductor",
        ],
    )


def as_if_compiled(recording: Recording) -> Recording:
    """The same step as if forward and backward were one compiled region: what fusion would save."""
    marked = [
        event._replace(region=0)
        if isinstance(event, Call) and event.phase != "optimizer" and not event.group
        else event
        for event in recording.events
    ]
    return fuse_regions(replace(recording, events=marked))


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
    known: dict[tuple[object, ...], tuple[Array, ...]] = {}
    instead: dict[int, int] = {}
    changed: dict[int, int] = defaultdict(int)  # how often a storage was written in place
    found: list[Event] = []
    for event in step:
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


def _shapes(arrays: tuple[Array, ...]) -> tuple[object, ...]:
    return tuple((a.shape, a.strides, a.dtype) for a in arrays)


@dataclass
class _Kernel:
    """Calls that run as one, and what it reads and writes."""

    calls: list[int]
    reads: dict[int, Array]
    writes: dict[int, Array]


class _Fusing:
    """One step's events, call by call."""

    def __init__(self, step: Sequence[Event], results: dict[int, tuple[int, ...]]) -> None:
        self.results = results
        self.step = _without_repeats(list(step))
        self.calls = {i: e for i, e in enumerate(self.step) if isinstance(e, Call)}
        self.lowered = {i: lower(call) for i, call in self.calls.items()}
        self.readers: dict[int, list[int]] = defaultdict(list)
        self.makers: dict[int, int] = {}
        for i, call in self.calls.items():
            for array in call.inputs:
                self.readers[array.storage].append(i)
            for array in call.outputs:
                self.makers.setdefault(array.storage, i)

    def events(self) -> list[Event]:
        """The step with its regions fused."""
        kernels: dict[int, _Kernel] = {}  # by the place at which it runs
        inside: set[int] = set()
        written: set[int] = set()
        regions = sorted({c.region for c in self.calls.values() if c.region >= 0})
        for region in regions:
            for backward in (False, True):
                part = [
                    i for i, c in self.calls.items()
                    if c.region == region and (c.phase != "forward") == backward
                ]  # fmt: skip
                inside.update(part)
                for kernel in self._kernels(part, written):
                    kernels[kernel.calls[-1]] = kernel
                    written.update(kernel.writes)
        return self._rewritten(kernels, inside, written)

    def _kernels(self, part: Sequence[int], written: set[int]) -> list[_Kernel]:
        """Fuse one direction of a region."""
        owner = [i for i in part if self.lowered[i]]
        nodes = [self._node(i) for i in owner]
        found: list[_Kernel] = []
        placed: set[int] = set()
        for group in compiled_groups(nodes):
            members = [i for i in dict.fromkeys(owner[n] for n in group) if i not in placed]
            if not members:
                continue
            placed.update(members)
            alone = not joins(nodes[group[0]])
            found.append(self._kernel(members, set(part), written, alone=alone))
            written |= set(found[-1].writes)
        return found

    def _node(self, i: int) -> Op:
        """A call as one op that reads and makes all that the call does.

        A loss picks single elements: compilers do so inside the kernel that makes them.
        """
        call, ops = self.calls[i], self.lowered[i]
        apart = [op for op in ops if not joins(op)]
        main = ops[0] if "nll_loss" in call.op or not apart else apart[0]
        return replace(
            main,
            inputs=tuple(tensor(a) for a in call.inputs),
            outputs=tuple(tensor(a) for a in call.outputs),
            weights=(),
        )

    def _kernel(
        self, members: list[int], part: set[int], written: set[int], *, alone: bool
    ) -> _Kernel:
        own, region = set(members), self.calls[members[0]].region
        made = {a.storage: a for i in members for a in self.calls[i].outputs}
        reads: dict[int, Array] = {}
        for i in members:
            for array in self.calls[i].inputs:
                if array.storage not in made or self.makers.get(array.storage) not in own:
                    for source in self._sources(array, written, region):
                        reads.setdefault(source.storage, source)
        writes = {
            storage: array for storage, array in made.items()
            if alone or self._must_be_written(storage, own, part)
        }  # fmt: skip
        return _Kernel(members, reads, writes)

    def _must_be_written(self, storage: int, own: set[int], part: set[int]) -> bool:
        """Whether somebody else in this direction, or outside, reads it."""
        readers = [i for i in self.readers[storage] if i not in own]
        region = self.calls[min(own)].region
        if any(i in part or self.calls[i].region != region for i in readers):
            return True
        if not readers:  # a result of the region: it outlives the step's last call
            return not any(isinstance(e, Freed) and e.storage == storage for e in self.step)
        # Only the backward reads it: small results of reductions are kept, others made again.
        maker = self.makers[storage]
        small = self.calls[maker].outputs[0].elements * 8 < max(
            (a.elements for a in self.calls[maker].inputs), default=0
        )
        return small or any(op.kind is Kind.MOVEMENT for op in self.lowered[maker])

    def _sources(self, array: Array, written: set[int], region: int, deep: int = 0) -> list[Array]:
        """The array itself if it lies in memory, else what it is made again from in its region."""
        maker = self.makers.get(array.storage)
        if maker is None or array.storage in written or deep > 40:
            return [array]
        if self.calls[maker].region != region:
            return [array]
        found: dict[int, Array] = {}
        for source in self.calls[maker].inputs:
            if source.storage != array.storage:
                for each in self._sources(source, written, region, deep + 1):
                    found.setdefault(each.storage, each)
        return list(found.values())

    def _rewritten(
        self, kernels: dict[int, _Kernel], inside: set[int], written: set[int]
    ) -> list[Event]:
        """Events in order; a storage of a region lives from its kernel to its last reader."""
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
        freed = {e.storage for e in self.step if isinstance(e, Freed)}
        # What others read (a gradient) lives until the program lets go of it, the rest only until
        # its last reader: generated code frees at once.
        escaped = {s for s in local if any(i not in inside for i in self.readers[s])}
        until: dict[int, int] = {}
        for place, kernel in kernels.items():
            for storage in kernel.writes:
                until[storage] = max(until.get(storage, place), last.get(storage, place), place)
        dying: dict[int, list[int]] = defaultdict(list)
        for storage in local & freed - escaped:
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
        if len(calls) == 1 and not all(joins(op) for op in self.lowered[kernel.calls[0]]):
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
