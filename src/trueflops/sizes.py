"""A number, or one number per plan: what lets one code serve one plan and a million."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Size: TypeAlias = float | Array


def distinct(columns: Sequence[Size]) -> tuple[Array, NDArray[np.intp]]:
    """The distinct rows of some whole-number columns [row, column], and which one each plan has.

    What depends only on these columns is computed once per row and spread by indexing.
    """
    aligned = [np.asarray(c, np.float64) for c in np.broadcast_arrays(*columns)]
    if aligned[0].ndim == 0:
        return np.array([aligned]), np.zeros(1, np.intp)
    code = np.zeros(aligned[0].shape, np.int64)
    for column in aligned:
        code = code * (int(column.max()) + 1) + column.astype(np.int64)
    _, where, which = np.unique(code, return_index=True, return_inverse=True)
    return np.stack([column[where] for column in aligned], axis=1), which.ravel()


def divisors(number: int) -> list[int]:
    """All divisors, smallest first."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def summed(sizes: Iterable[Size]) -> Size:
    """All of them together."""
    total: Size = 0.0
    for size in sizes:
        total = total + size
    return total
