"""A number, or one number per plan: what lets one code serve one plan and a million."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Size: TypeAlias = float | Array
Rows: TypeAlias = NDArray[np.intp]

SMALL: Final = 65536  # whole numbers below are counted in place of being sorted


def distinct(columns: Sequence[Size]) -> tuple[Array, Rows]:
    """The distinct rows of some whole-number columns [row, column], and which one each plan has.

    What depends only on these columns is computed once per row and spread by indexing.
    """
    aligned = [np.asarray(c, np.float64) for c in np.broadcast_arrays(*columns)]
    if aligned[0].ndim == 0:
        return np.array([aligned]), np.zeros(1, np.intp)
    code = np.zeros(aligned[0].shape, np.int64)
    for column in aligned:
        code = code * (int(column.max()) + 1) + column.astype(np.int64)
    which, where = counted(code, int(code.max()) + 1)
    return np.stack([column[where] for column in aligned], axis=1), which


def counted(code: Rows, radix: int) -> tuple[Rows, Rows]:
    """Codes below `radix` as consecutive ones, and where each of those is found."""
    if radix > 2 * max(code.size, SMALL):
        _, example, which = np.unique(code, return_index=True, return_inverse=True)
        return which, example
    last = np.full(radix, -1, np.intp)
    last[code] = np.arange(code.size)
    there = np.flatnonzero(last >= 0)
    place = np.empty(radix, np.intp)
    place[there] = np.arange(there.size)
    return place.take(code), last.take(there)


def divisors(number: int) -> list[int]:
    """All divisors, smallest first."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def plain(size: Size) -> Size:
    """A number where it is one for all plans, in an array or not."""
    one = isinstance(size, np.ndarray) and size.size == 1
    return float(size.item()) if one else size  # type: ignore[union-attr]


def weighs(size: Size) -> bool:
    """Whether it is more than a plain zero, whose sums a million plans need not pay for."""
    return not isinstance(size, float | int) or size != 0.0
