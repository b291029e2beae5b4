"""A call of an ATen op as cells of a table: `op`, `inputs`, `outputs`, `numbers`.

A tensor is written as its type, shape and strides, `bfloat16[8192,768]@768,1`; strides are left out
where elements lie in the order of the dimensions. Tensors are separated by blanks, `12*float32[64]`
is twelve alike; numbers are JSON. Free of everything else: a bare node that measures writes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final, NamedTuple

_TENSOR: Final = re.compile(
    r"(?:([1-9]\d{0,4})\*)?([a-z][a-z0-9_]{1,20})\[([\d,]*)\](?:@([\d,]*))?\Z"
)
LONGEST: Final = 100_000  # characters of a cell: a list of some thousand tensors


class Layout(NamedTuple):
    """Type, shape and strides of a tensor."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def plain_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of elements that lie in the order of the dimensions."""
    found, step = [], 1
    for size in reversed(shape):
        found.append(step)
        step *= max(size, 1)
    return tuple(reversed(found))


def write_layouts(layouts: Iterable[Layout]) -> str:
    """Tensors as one cell."""
    alike = ((word, len(list(same))) for word, same in groupby(map(_write, layouts)))
    return " ".join(f"{count}*{word}" if count > 1 else word for word, count in alike)


def _write(layout: Layout) -> str:
    dtype, shape, strides = layout
    sizes = f"{dtype}[{','.join(map(str, shape))}]"
    plain = tuple(strides) == plain_strides(shape)
    return sizes if plain else f"{sizes}@{','.join(map(str, strides))}"


def read_layouts(cell: str) -> list[Layout]:
    """The tensors of a cell; ValueError says which word is none."""
    if len(cell) > LONGEST:
        raise ValueError(f"a cell of {len(cell)} characters")
    return [layout for word in cell.split() for layout in _read(word)]


def _read(word: str) -> list[Layout]:
    found = _TENSOR.match(word)
    if found is None:
        raise ValueError(f"{word[:40]!r} is no tensor: write bfloat16[8192,768]")
    count, dtype, sizes, steps = found.groups()
    shape = _whole(sizes)
    strides = _whole(steps) if steps is not None else plain_strides(shape)
    if len(strides) != len(shape):
        raise ValueError(f"{word[:40]!r} has {len(shape)} sizes and {len(strides)} strides")
    return [Layout(dtype, shape, strides)] * int(count or 1)


def _whole(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.split(",") if n)


def write_numbers(numbers: Iterable[object]) -> str:
    """Other arguments as one cell."""
    return json.dumps(list(numbers), separators=(",", ":"))


def read_numbers(cell: str) -> tuple[object, ...]:
    """The numbers of a cell; ValueError where they are no JSON list."""
    found = json.loads(cell) if cell.strip() else []
    if not isinstance(found, list):
        raise ValueError("numbers are written as a JSON list")
    return tuple(found)
