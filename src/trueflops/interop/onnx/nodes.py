"""Tensors and nodes of an ONNX graph as the rules see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final, NamedTuple

from trueflops.records.call_text import plain_strides
from trueflops.records.recording import RecordedTensor

Shape = tuple[int, ...]
# Of torch, or ours where it has none, in the order of TensorProto.DataType.
DTYPES: Final = (
    "", "float32", "uint8", "int8", "uint16", "int16", "int32", "int64", "", "bool", "float16",
    "float64", "uint32", "uint64", "complex64", "complex128", "bfloat16", "float8_e4m3fn",
    "float8_e4m3fn", "float8_e5m2", "float8_e5m2", "int4", "int4", "fp4", "float8_e8m0fnu",
)  # fmt: skip


class Value(NamedTuple):
    """A tensor: its numbers where they are few and known; constant if known when it is loaded."""

    kind: int  # TensorProto.DataType
    shape: Shape
    constant: bool = False
    data: Any = None

    @property
    def dtype(self) -> str:
        """As torch calls it."""
        return DTYPES[self.kind] if 0 <= self.kind < len(DTYPES) else ""

    @property
    def elements(self) -> int:
        """How many."""
        return prod(self.shape)


class AtenCall(NamedTuple):
    """A call of ATen that stands for a node, or for a part of one."""

    op: str  # "mm"
    inputs: Sequence[RecordedTensor]
    outputs: Sequence[RecordedTensor]
    numbers: tuple[object, ...] = ()


class BadNode(Exception):
    """A node that lacks an input or an attribute, or whose inputs do not go together."""


@dataclass(frozen=True)
class Node:
    """A node with its operands, missing ones None, and what is known of their numbers."""

    op: str
    contrib: bool  # of onnxruntime, which has ops of ONNX's names
    attributes: Mapping[str, Any]
    inputs: tuple[RecordedTensor | None, ...]
    outputs: tuple[RecordedTensor | None, ...]
    data: tuple[Any, ...]
    storage: Callable[[], int]  # a number for a tensor of its own

    def operand(self, place: int) -> RecordedTensor | None:
        """An input, if it is there."""
        return self.inputs[place] if place < len(self.inputs) else None

    def need(self, place: int) -> RecordedTensor:
        """An input that it cannot be without."""
        found = self.operand(place)
        if found is None:
            raise BadNode
        return found

    @property
    def made(self) -> RecordedTensor:
        """Its first result."""
        if not self.outputs or self.outputs[0] is None:
            raise BadNode
        return self.outputs[0]

    @property
    def given(self) -> list[RecordedTensor]:
        """All inputs that are there."""
        return [a for a in self.inputs if a is not None]

    @property
    def results(self) -> list[RecordedTensor]:
        """All results that somebody asked for."""
        return [a for a in self.outputs if a is not None]

    def numbers(self, place: int) -> list[float] | None:
        """The numbers of an input, where they are known."""
        data = self.data[place] if place < len(self.data) else None
        return None if data is None else [float(n) for n in data.reshape(-1)]

    def whole(self, name: str, default: int = 0) -> int:
        """An integer attribute."""
        return int(self.attributes.get(name, default))

    def wholes(self, name: str) -> list[int]:
        """A list of integers among its attributes; empty where it is not given."""
        return [int(n) for n in self.attributes.get(name, ())]

    def new(self, shape: Sequence[int], dtype: str) -> RecordedTensor:
        """A tensor between two calls of one node."""
        return RecordedTensor(self.storage(), tuple(shape), plain_strides(shape), dtype)


def viewed(array: RecordedTensor, shape: Sequence[int]) -> RecordedTensor:
    """The same numbers in another shape."""
    return array._replace(shape=tuple(shape), strides=plain_strides(shape))


def transposed(array: RecordedTensor) -> RecordedTensor:
    """The same matrix, read the other way."""
    return array._replace(shape=array.shape[::-1], strides=array.strides[::-1])
