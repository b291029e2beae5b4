"""The one table of number types: what we, torch, its traces and users call each, and its bits.

Standard library alone. How the bits are split is the catalog's (data/formats.toml); formats with
scales, which narrow weights, are the graph's (graph/formats.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Dtype:
    """A type of numbers. Empty names: the other side does not know it."""

    name: str  # ours: as chips' peaks, plans and reports call it
    bits: int  # of one in memory
    _: KW_ONLY
    torch: str = ""
    scalar: str = ""  # c10::ScalarType, as traces write it of collectives
    cpp: tuple[str, ...] = ()  # as traces write it of arguments, and kernels in their names
    format: str = ""  # the catalog's number format, where not the name
    aliases: tuple[str, ...] = ()  # what else users and tables call it
    product: str = "fp32"  # the dtype in which products of it run

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every name that a user may write."""
        return tuple(filter(None, (self.name, self.torch, *self.aliases)))


DTYPES: Final = (
    Dtype(
        "fp64", 64, torch="float64", scalar="Double", cpp=("double",), aliases=("double",),
        product="fp64",
    ),
    Dtype("fp32", 32, torch="float32", scalar="Float", cpp=("float",), aliases=("single",)),
    Dtype("tf32", 32, product="tf32"),  # inside tensor cores only: memory holds fp32
    Dtype(
        "fp16", 16, torch="float16", scalar="Half", cpp=("c10::Half",), aliases=("half",),
        product="fp16",
    ),
    Dtype("bf16", 16, torch="bfloat16", scalar="BFloat16", cpp=("c10::BFloat16",), product="bf16"),
    # AMD's first fp8 (fnuz) has another bias and the same speed.
    Dtype(
        "fp8", 8, torch="float8_e4m3fn", scalar="Float8_e4m3fn",
        cpp=("c10::Float8_e4m3fn", "c10::Float8_e4m3fnuz"), format="fp8_e4m3", aliases=("e4m3",),
        product="fp8",
    ),
    Dtype(
        "fp8", 8, torch="float8_e5m2", scalar="Float8_e5m2",
        cpp=("c10::Float8_e5m2", "c10::Float8_e5m2fnuz"), format="fp8_e5m2", aliases=("e5m2",),
        product="fp8",
    ),
    Dtype("fp6", 6, format="fp6_e2m3"),
    Dtype("fp4", 4, format="fp4_e2m1", product="fp4"),
    Dtype("float4_e2m1fn_x2", 8, torch="float4_e2m1fn_x2"),  # two fp4 in a byte
    Dtype("float8_e8m0fnu", 8, torch="float8_e8m0fnu"),  # exponents: scales of blocks
    Dtype("int4", 4),
    Dtype("int8", 8, torch="int8", scalar="Char", cpp=("signed char",), product="int8"),
    Dtype("uint8", 8, torch="uint8", scalar="Byte", cpp=("unsigned char",)),
    Dtype("bool", 8, torch="bool", scalar="Bool", cpp=("bool",)),
    Dtype("int16", 16, torch="int16", scalar="Short", cpp=("short int", "short")),
    Dtype("uint16", 16, torch="uint16"),
    Dtype("int32", 32, torch="int32", scalar="Int", cpp=("int",)),
    Dtype("uint32", 32, torch="uint32"),
    Dtype(
        "int64", 64, torch="int64", scalar="Long", cpp=("long int", "long", "long long", "__int64")
    ),
    Dtype("uint64", 64, torch="uint64"),
    Dtype("complex64", 64, torch="complex64", cpp=("c10::complex<float>",)),
    Dtype("complex128", 128, torch="complex128", cpp=("c10::complex<double>",), product="fp64"),
)  # fmt: skip
# fp8 alone is e4m3, the first of the two.
BY_NAME: Final[Mapping[str, Dtype]] = {d.name: d for d in reversed(DTYPES)}
BY_CPP: Final[Mapping[str, Dtype]] = {name: d for d in DTYPES for name in d.cpp}
BY_SCALAR: Final[Mapping[str, Dtype]] = {d.scalar: d for d in DTYPES if d.scalar}
_BY_TORCH: Final[Mapping[str, Dtype]] = {d.torch: d for d in DTYPES if d.torch}


def of_torch(name: str) -> Dtype:
    """A type by torch's name, or by ours where torch stores none such (int4, fp4).

    One that this table lacks is taken for fp32.
    """
    return _BY_TORCH.get(name) or BY_NAME.get(name, BY_NAME["fp32"])


def is_of_torch(name: str) -> bool:
    """Whether this table has one of torch's types."""
    return name in _BY_TORCH


def short_name(torch: str) -> str:
    """What reports call one of torch's types."""
    return _BY_TORCH[torch].name if torch in _BY_TORCH else torch
