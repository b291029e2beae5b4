"""How long each tensor of a graph lives: calls in, the events of a recording out.

Weights and inputs stay. A result comes with its call and goes after its last reader. The pass has
run once before, as any session is warmed up: its memory is that of a second one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from trueflops.dtypes import of_torch
from trueflops.errors import printable
from trueflops.records.recording import Allocated, Began, Call, Event, Freed, RecordedTensor
from trueflops.units import BITS_PER_BYTE


def events_of(
    calls: Sequence[Call],
    arrays: Iterable[RecordedTensor],
    inputs: Iterable[int],
    parameters: Mapping[int, str],
    kept: Collection[int],
) -> list[Event]:
    """`arrays` are whole tensors; of `inputs`, `parameters` and what is `kept`, the storages."""
    last = {
        array.storage: i for i, call in enumerate(calls) for array in (*call.inputs, *call.outputs)
    }
    sizes: dict[int, int] = {}
    for array in arrays:
        sizes[array.storage] = max(_size(array), sizes.get(array.storage, 0))
    for call in calls:
        for array in call.outputs:
            sizes.setdefault(array.storage, _size(array))
    built: list[Event] = []
    there: set[int] = set()
    for storage in (*inputs, *parameters):
        if storage in last or storage in kept:
            module = printable(parameters.get(storage, "").rpartition(".")[0])
            built.append(Allocated(storage, sizes[storage], 0, "build", module, ""))
            there.add(storage)
    lasting = there | set(kept)
    step: list[Event] = []
    for i, call in enumerate(calls):
        for array in call.outputs:
            if array.storage not in there:
                there.add(array.storage)
                size = sizes[array.storage]
                step.append(Allocated(array.storage, size, 0, "forward", call.module, call.op))
        step.append(call)
        touched = {array.storage for array in (*call.inputs, *call.outputs)}
        step += [Freed(s) for s in sorted(touched) if last[s] == i and s not in lasting]
    before = [
        event._replace(storage=-event.storage)
        for event in step
        if isinstance(event, Allocated | Freed) and event.storage not in lasting
    ]
    return [Began("build"), *built, Began("warmup"), *before, Began("step"), *step]


def _size(array: RecordedTensor) -> int:
    return int(-(-array.elements * of_torch(array.dtype).bits // BITS_PER_BYTE))
