"""Sizes that matrix engines read slowly, and a recording as it were with such a size padded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from trueflops.capture.lower import base_name
from trueflops.predict.captured.groups import alike_layers
from trueflops.predict.captured.step import Ran
from trueflops.predict.odd_sides import is_odd
from trueflops.records.recording import Allocated, Call, Event, RecordedTensor, Recording

MOST: Final = 3  # sizes that are tried


class OddSize(NamedTuple):
    """A size of a parameter that products run over, and is no multiple of eight."""

    size: int
    name: str  # 'the vocabulary', or the parameter's
    seconds: float  # of products with such a side


def odd_sizes(recorded: Recording, ran: Iterable[Ran]) -> list[OddSize]:
    """Odd sizes of parameters by the seconds of the products over them, the most first."""
    names = _parameter_sizes(recorded)
    taken: dict[int, float] = defaultdict(float)
    for each in ran:
        kernel = each.kernel
        if kernel.matrix and kernel.op is not None:
            sides = {int(n) for t in _operands(kernel.call) for n in t.shape}
            for size in sides & names.keys():
                taken[size] += each.seconds
    found = [OddSize(size, names[size], seconds) for size, seconds in taken.items()]
    return sorted(found, key=lambda odd: (-odd.seconds, odd.size))[:MOST]


def _operands(call: Call) -> Iterable[RecordedTensor]:
    return (*call.inputs, *call.outputs)


def _parameter_sizes(recorded: Recording) -> dict[int, str]:
    found: dict[int, str] = {}
    for call in recorded.calls():
        looked_up = base_name(call.op) == "embedding"
        for array in call.inputs:
            name = recorded.parameters.get(array.storage)
            if name is None:
                continue
            for size in array.shape:
                if is_odd(size):
                    found.setdefault(size, alike_layers(name))
            if looked_up and len(array.shape) == 2 and array.shape[0] in found:
                found[array.shape[0]] = "the vocabulary"
    return found


def padded(recorded: Recording, size: int, to: int) -> Recording:
    """The same run with every dimension of this size padded; storages grow with their tensors."""
    grown: dict[int, float] = {}
    events: list[Event] = []
    for event in recorded.events:
        if isinstance(event, Call):
            for array in _operands(event):
                if size in array.shape:
                    more = (to / size) ** array.shape.count(size)
                    grown[array.storage] = max(grown.get(array.storage, 1.0), more)
            events.append(_padded_call(event, size, to))
        else:
            events.append(event)
    return replace(
        recorded,
        events=[
            e._replace(size_bytes=round(e.size_bytes * grown[e.storage]))
            if isinstance(e, Allocated) and e.storage in grown
            else e
            for e in events
        ],
    )


def _padded_call(call: Call, size: int, to: int) -> Call:
    if not any(size in array.shape for array in _operands(call)):
        return call
    inputs, outputs = (
        tuple(_padded_tensor(array, size, to) for array in arrays)
        for arrays in (call.inputs, call.outputs)
    )
    return call._replace(inputs=inputs, outputs=outputs)


def _padded_tensor(array: RecordedTensor, size: int, to: int) -> RecordedTensor:
    if size not in array.shape:
        return array
    shape = tuple(to if n == size else n for n in array.shape)
    if not array.dense:  # a slice or an expanded view: strides that step over whole rows
        strides = tuple(s // size * to if s % size == 0 else s for s in array.strides)
        return array._replace(shape=shape, strides=strides)
    stride, by_place = 1, dict[int, int]()
    for place in sorted(range(len(shape)), key=lambda i: (array.strides[i], array.shape[i])):
        by_place[place] = stride
        stride *= shape[place]
    return array._replace(shape=shape, strides=tuple(by_place[i] for i in range(len(shape))))
