"""The arguments of an op as a trace writes them: shapes, C++ types, strides and scalars as text.

All of it comes from a file that may say anything: what is not a shape, a type or a number is None.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Any, Final, NamedTuple

from trueflops.dtypes import BY_CPP
from trueflops.records.call_text import plain_strides
from trueflops.records.recording import RecordedTensor

LARGEST: Final = 2**44  # elements of a tensor: beyond the memory of any device
MOST_DIMENSIONS: Final = 16


class TracedOp(NamedTuple):
    """An op of a trace: its arguments side by side, and the kernels that it launched."""

    name: str
    dims: tuple[Any, ...]
    types: tuple[str, ...]
    strides: tuple[Any, ...]
    values: tuple[str, ...]
    kernels: tuple[tuple[str, int], ...]  # name and blocks

    @property
    def bare(self) -> str:
        """`aten::mul_` -> `mul`; triton kernels keep their name."""
        name = self.name.rpartition("::")[2]
        return name if name.startswith("__") else name.rstrip("_")

    @property
    def in_place(self) -> bool:
        """Whether its first argument is also its result."""
        return self.name.endswith("_") and not self.name.endswith("__")


_NUMBER: Final = re.compile(r"-?\d{1,18}(\.\d*)?(e-?\d{1,3})?")


class Made(NamedTuple):
    """Arguments and results of a call; `name` where it is not the op's own."""

    inputs: Sequence[RecordedTensor]
    outputs: Sequence[RecordedTensor]
    numbers: tuple[object, ...] = ()
    name: str = ""


class Arguments:
    """The arguments of an op, by their place in its schema."""

    def __init__(self, op: TracedOp) -> None:
        self.op = op

    def __len__(self) -> int:
        return min(len(self.op.dims), len(self.op.types))

    def array(self, place: int) -> RecordedTensor | None:
        """A tensor, or None."""
        if place >= len(self):
            return None
        dtype = BY_CPP.get(self.op.types[place])
        strides = self.op.strides[place] if place < len(self.op.strides) else ()
        return _array(self.op.dims[place], strides, dtype.torch, place + 1) if dtype else None

    def need(self, *places: int) -> list[RecordedTensor]:
        """Tensors that the op cannot be without; a rule that lacks one gives up."""
        found = [self.array(place) for place in places]
        if any(a is None for a in found):
            raise MissingArgument
        return [a for a in found if a is not None]

    def arrays(self) -> list[RecordedTensor]:
        """All tensors."""
        return [a for i in range(len(self)) if (a := self.array(i)) is not None]

    def many(self, place: int, dtype: str) -> list[RecordedTensor]:
        """A list of tensors; a trace does not tell their type, nor anything of long lists."""
        if place >= len(self) or self.op.types[place] != "TensorList":
            return []
        dims = self.op.dims[place]
        strides = self.op.strides[place] if place < len(self.op.strides) else ()
        if not isinstance(dims, tuple) or not all(isinstance(d, tuple) for d in dims):
            return []
        fine = isinstance(strides, tuple) and len(strides) == len(dims)
        laid = strides if fine else ((),) * len(dims)
        found = [_array(d, s, dtype, 64 * (place + 1) + i)
                 for i, (d, s) in enumerate(zip(dims, laid, strict=True))]  # fmt: skip
        return [a for a in found if a is not None]

    def value(self, place: int) -> Any:
        """A number, a bool, a list of them, or None."""
        text = self.op.values[place].strip() if place < len(self.op.values) else ""
        if text.startswith("[") and text.endswith("]"):
            return [_literal(part.strip()) for part in text[1:-1].split(",") if part.strip()]
        return _literal(text)


class MissingArgument(Exception):
    """An argument that a family needs is not there."""


def _literal(text: str) -> bool | int | float | None:
    if text in ("True", "False"):
        return text == "True"
    if not _NUMBER.fullmatch(text):
        return None
    return int(text) if text.lstrip("-").isdigit() else float(text)


def _array(dims: Any, strides: Any, dtype: str, number: int) -> RecordedTensor | None:
    """A tensor of these sizes, if they are sizes."""
    if not isinstance(dims, tuple) or len(dims) > MOST_DIMENSIONS:
        return None
    if not all(isinstance(n, int) and 0 <= n <= LARGEST for n in dims) or prod(dims) > LARGEST:
        return None
    fine = isinstance(strides, tuple) and len(strides) == len(dims)
    if not fine or not all(isinstance(s, int) and 0 <= s <= LARGEST for s in strides):
        strides = plain_strides(dims)
    return RecordedTensor(number, dims, strides, dtype)


def new_array(shape: Sequence[int], dtype: str) -> RecordedTensor:
    return RecordedTensor(0, tuple(shape), plain_strides(shape), dtype)
