"""Number formats: bits, range and epsilon, and what rounding to them loses.

In: data/formats.toml (how the bits are split). Out: NumberFormat, whose figures follow from that
and are checked against ml_dtypes (a test).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Literal

from trueflops.catalog.facts import DATA, read_toml
from trueflops.catalog.names import fold
from trueflops.dtypes import DTYPES
from trueflops.errors import UnknownName


@dataclass(frozen=True)
class NumberFormat:
    """A sign, an exponent and a mantissa; integers have no exponent."""

    name: str
    bits: int
    exponent: int
    mantissa: int
    special: Literal["ieee", "nan", "none"]
    source: str
    about: str
    stored: int = 0

    @property
    def bytes(self) -> float:
        """Bytes in memory."""
        return (self.stored or self.bits) / 8

    @property
    def is_integer(self) -> bool:
        """Whether it is a two's-complement integer."""
        return self.exponent == 0

    @property
    def bias(self) -> int:
        """What is subtracted from the stored exponent."""
        return int(2 ** (self.exponent - 1) - 1)

    @property
    def maximum(self) -> float:
        """The largest finite number."""
        if self.is_integer:
            return 2.0**self.mantissa - 1
        top = 2**self.exponent - 1 - self.bias - (1 if self.special == "ieee" else 0)
        # E4M3 gives up only its last code to NaN: 1.75 · 2⁸ = 448 and not 1.875 · 2⁸.
        last = 2 - 2.0**-self.mantissa * (2 if self.special == "nan" else 1)
        return last * 2.0**top

    @property
    def smallest_normal(self) -> float:
        """The smallest number with full precision."""
        return 1.0 if self.is_integer else 2.0 ** (1 - self.bias)

    @property
    def smallest(self) -> float:
        """The smallest number above zero."""
        return 1.0 if self.is_integer else 2.0 ** (1 - self.bias - self.mantissa)

    @property
    def epsilon(self) -> float:
        """The gap between 1 and the next number."""
        return 1.0 if self.is_integer else 2.0**-self.mantissa

    def round(self, value: float) -> float:
        """The nearest number of the format, ties to even, out of range to the largest."""
        if value == 0 or not math.isfinite(value):
            return value
        if self.is_integer:
            return max(-self.maximum - 1, min(self.maximum, float(round(value))))
        exponent = max(math.frexp(value)[1] - 1, 1 - self.bias)
        step = 2.0 ** (exponent - self.mantissa)
        return math.copysign(min(abs(round(value / step) * step), self.maximum), value)


@cache
def formats() -> dict[str, NumberFormat]:
    """Every format, widest first."""
    return {
        name: NumberFormat(name=name, **raw)
        for name, raw in read_toml(DATA / "formats.toml").items()
    }


@cache
def _spellings() -> dict[str, str]:
    """Every common name of a format -> ours; fp8 alone is the one of weights, e4m3."""
    found: dict[str, str] = {}
    for dtype in DTYPES:
        for name in dtype.spellings:
            if (dtype.format or dtype.name) in formats():
                found.setdefault(name, dtype.format or dtype.name)
    return found


def find_format(name: str) -> NumberFormat | None:
    """Look a format up by any of its common names."""
    known = {**_spellings(), **{each: each for each in formats()}}
    key = {fold(each): ours for each, ours in known.items()}.get(fold(name))
    return formats()[key] if key else None


def number_format(name: str) -> NumberFormat:
    """Look a format up; an unknown one is an error that offers the near ones."""
    found = find_format(name)
    if found is None:
        raise UnknownName("number format", name, [*formats(), *_spellings()])
    return found
