"""What the names and blocks of torch's kernels tell of lists of tensors.

A trace does not write the types of a list, nor the shapes of one longer than 30. But a kernel of
torch's multi_tensor_apply names its types, how many lists it takes and how many it reads, and each
of its blocks handles 65,536 elements (ATen/native/cuda/MultiTensorApply.cuh).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from trueflops.dtypes import BY_CPP

ELEMENTS_OF_A_BLOCK: Final = 65536
_DEPTH: Final = re.compile(r"TensorList(?:ScalarList)?Metadata<(?:[\w:]+,\s*)?(\d{1,2})>")
_FUNCTOR: Final = re.compile(r"(\w+)Functor<([\w:]+)")
_READS: Final = re.compile(r",\s*\d{1,2},\s*(\d{1,2}),\s*\d{1,2}>")  # depth, lists read, result
_WIDTH: Final = re.compile(r"OpaqueType<(\d{1,2})u?>")


class ListedWork(NamedTuple):
    """What kernels over lists of tensors do: elements of one list, lists read, their type."""

    elements: int
    reads: int
    dtype: str


def listed_work(kernels: Sequence[tuple[str, int]]) -> ListedWork | None:
    """Of the kernels of one op; an upper bound of the elements: a tensor ends within a block."""
    listed = [(name, blocks) for name, blocks in kernels if "multi_tensor_apply" in name]
    if not listed:
        return None
    name = listed[0][0]
    depth, functor = _DEPTH.search(name), _FUNCTOR.search(name)
    named = BY_CPP.get(functor[2]) if functor else None
    dtype = named.torch if named else "float32"
    reads = int(depth[1]) if depth else 1
    if (found := _READS.search(name)) and "Fused" not in name:
        reads = int(found[1])
    elements = ELEMENTS_OF_A_BLOCK * sum(blocks for _, blocks in listed)
    return ListedWork(max(elements, 1), min(max(reads, 1), 8), dtype)


def element_bits(kernels: Sequence[tuple[str, int]]) -> int:
    """Of what a kernel moves without looking at it (`OpaqueType<2u>`); 16 where none says so."""
    for name, _ in kernels:
        if found := _WIDTH.search(name):
            return 8 * int(found[1])
    return 16
