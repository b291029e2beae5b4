"""On which road a product runs: loads of 16 bytes feed the fast instructions, narrower ones do not.

Tensor cores are fed by copies of 16 bytes (TMA; cp.async): every row of every operand must start at
a multiple of 16 bytes, which it does where the side that lies next to each other in memory is a
multiple of 8 numbers of 16 bits, or of 4 of tf32. Else a library takes kernels of the portable
mma.sync: with cp.async of 4 or 8 bytes (`narrow`), and where even that does not fit, because a
side of 16-bit numbers is odd, with plain loads (`odd`). Seen on an H200: 750, 240 and 120 TFLOP/s
of large bf16 products, 400 and 118 of tf32 (truth/h200/matmul_odd.csv). Plain fp32 has one road.
NVIDIA's guide says the same of sizes: "Matrix Multiplication Background User's Guide", section 4.2.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from trueflops.graph.ir import Op
from trueflops.graph.kinds import Kind
from trueflops.graph.shapes import MatmulShape
from trueflops.sizes import Array, Size
from trueflops.units import BITS_PER_BYTE

ROADS: Final = ("", "narrow", "odd")
FULL: Final = 16.0  # bytes of the widest load
_NARROWEST: Final = 4.0  # bytes that cp.async copies at least
ITEM_BYTES: Final = {"bf16": 2.0, "fp16": 2.0, "tf32": 4.0}
"""Of a number, by the dtypes that have several roads."""
_MATMUL, _WGRAD = Kind.MATMUL, Kind.WGRAD  # bound once: see graph/kinds.py


class Lying(NamedTuple):
    """Bytes at whose multiples rows start: of the operands, and of the result."""

    loads: Size
    stores: Size


def lying(op: Op, shape: MatmulShape) -> Lying:
    """How the rows of a product lie: as its facts say, else as a linear layer's do."""
    if "loads" in op.facts:
        return Lying(op.facts["loads"], op.facts["stores"])
    _, m, n, k = shape
    side = op.inputs[0].bits / BITS_PER_BYTE
    first = m if op.kind is _WGRAD else k
    made = alignment(n, side)
    loads = alignment(first, side)
    return Lying(loads if op.kind is _MATMUL else np.minimum(loads, made), made)


def road(op: Op, shape: MatmulShape) -> Size:
    """Which of ROADS each product takes: a number, or one a plan."""
    if op.variant is not None or op.dtype not in ITEM_BYTES:
        return 0.0  # narrow formats are padded by whoever stores them
    _, m, n, k = shape
    if "loads" not in op.facts:
        sides = (m, n) if op.kind is _WGRAD else (n, k)
        if all(isinstance(size, float) and size % 8.0 == 0.0 for size in sides):
            return 0.0  # the usual, told quickly
    return road_of(np.minimum(*lying(op, shape)), op.dtype)


def road_of(aligned: Size, dtype: str) -> Size:
    """Which of ROADS a product takes whose rows start at multiples of so many bytes."""
    if dtype not in ITEM_BYTES:
        return 0.0
    roads = np.where(aligned >= FULL, 0.0, np.where(aligned >= _NARROWEST, 1.0, 2.0))
    return roads if np.ndim(roads) else float(roads)


def alignment(size: Size, item_bytes: float) -> Array:
    """Bytes at whose multiples rows of so many numbers start.

    A size that is no whole number is an average, or is padded where ranks share it: aligned. So is
    a single number a row, which a library reads as one stretch.
    """
    count = np.asarray(size, float)
    whole = np.where((count == np.floor(count)) & (count > 1.0), count, 0.0)
    lowest: Array = np.full(count.shape, 1.0)
    for power in (2.0, 4.0, 8.0, 16.0):
        lowest = np.where(whole % power == 0.0, power, lowest)
    return np.minimum(lowest * item_bytes, FULL)
