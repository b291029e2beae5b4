"""What a communication takes, and for how long it keeps the links of each tier busy.

A Transfer adds up and scales like a number, and broadcasts like one: those of a step can be summed,
and no step is shorter than its busiest link.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from trueflops.sizes import Size


@dataclass(frozen=True)
class Transfer:
    """Seconds of one or more communications of a rank."""

    seconds: Size  # each alone on its links
    links: tuple[Size, ...] = ()  # by tier: bytes sent there over its bandwidth, whatever overlaps

    __array_ufunc__ = None  # an array times a Transfer is a Transfer, not an array of them

    def __add__(self, other: Transfer) -> Transfer:
        both = zip_longest(self.links, other.links, fillvalue=0.0)
        return Transfer(self.seconds + other.seconds, tuple(a + b for a, b in both))

    def __mul__(self, by: Size) -> Transfer:
        return Transfer(self.seconds * by, tuple(link * by for link in self.links))

    __rmul__ = __mul__


NOTHING = Transfer(0.0)


def either(condition: Any, yes: Transfer, no: Transfer) -> Transfer:
    """One where the condition holds, else the other, plan by plan."""
    both = zip_longest(yes.links, no.links, fillvalue=0.0)
    links = tuple(np.where(condition, a, b) for a, b in both)
    return Transfer(np.where(condition, yes.seconds, no.seconds), links)
