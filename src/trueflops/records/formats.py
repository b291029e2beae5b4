"""Number formats of products: how wide they are, whose peak bounds them. Standard library alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Format(NamedTuple):
    """One way to multiply."""

    operand: int  # bytes of an element of x and W
    result: int  # bytes of an element of y
    peaks: tuple[str, ...]  # of a datasheet, the first that is there
    zeros: bool = False  # two of four weights are zero, and counted as if they were not


FORMATS: Final[Mapping[str, Format]] = {
    "fp64": Format(8, 8, ("fp64_tensor", "fp64")),
    "fp32": Format(4, 4, ("fp32_tensor", "fp32")),
    "tf32": Format(4, 4, ("tf32",)),
    "bf16": Format(2, 2, ("bf16",)),
    "fp16": Format(2, 2, ("fp16",)),
    "fp8": Format(1, 2, ("fp8",)),
    "fp8_row": Format(1, 2, ("fp8",)),
    "fp8_fast": Format(1, 2, ("fp8",)),
    "int8": Format(1, 4, ("int8",)),
    "bf16_2:4": Format(2, 2, ("bf16",), zeros=True),
}


def peak(dtype: str, sheet: Mapping[str, float | None], sparse_factor: float = 2.0) -> float:
    """The datasheet's flop per second for a format; 0 where it says none."""
    known = FORMATS.get(dtype)
    if known is None:
        return 0.0
    found = next((sheet[p] for d in known.peaks if sheet.get(p := f"peak.{d}")), None) or 0.0
    return found * sparse_factor if known.zeros else found


def moved_bytes(dtype: str, m: int, n: int, k: int) -> float:
    """What a product must read and write at least."""
    form = FORMATS[dtype]
    return float(form.operand * (m + n) * k + form.result * m * n)
