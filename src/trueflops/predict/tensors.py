"""The weights of a piece as an optimizer sees them that goes through them one by one.

In: the weights of a graph that are trained, as one rank holds them. Out: sizes by name. A matrix
[r,c] has r + c elements on its sides, a vector all of its own; experts are one tensor of a matrix
each, as transformers packs them.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from trueflops.graph import Tensor
from trueflops.model.parameters import sides_of
from trueflops.sizes import Size

TENSORS, MATRICES = "tensors", "matrices"  # how many
SIDES, EXPERT_SIDES = "sides", "sides of experts"  # elements of rows and columns, and of vectors
LARGEST = "largest"  # elements of the largest tensor
NEIGHBOURS = "neighbours"  # of the two matrices, one after the other, that are the largest


def tensor_sizes(weights: Iterable[Tensor]) -> dict[str, Size]:
    """All of these sizes."""
    sizes: dict[str, Size] = dict.fromkeys(
        (TENSORS, MATRICES, SIDES, EXPERT_SIDES, LARGEST, NEIGHBOURS), 0.0
    )
    before: Size = 0.0
    for weight in weights:
        sizes[TENSORS] = sizes[TENSORS] + 1.0
        sizes[LARGEST] = _larger(sizes[LARGEST], weight.elements)
        sides = sides_of(weight.name, weight.dims)
        kind = EXPERT_SIDES if weight.has("experts") else SIDES
        if sides is None:
            sizes[kind] = sizes[kind] + weight.elements
            continue
        sizes[MATRICES] = sizes[MATRICES] + 1.0
        sizes[kind] = sizes[kind] + sides.matrices * (sides.one + sides.other)
        sizes[NEIGHBOURS] = _larger(sizes[NEIGHBOURS], before + weight.elements)
        before = weight.elements
    return sizes


def _larger(one: Size, other: Size) -> Size:
    if isinstance(one, float) and isinstance(other, float):
        return max(one, other)  # many times faster, and asked of every weight
    return np.maximum(one, other)
