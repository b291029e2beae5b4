"""Sizes that are not known yet, so that a program is lowered once for all numbers it is asked for.

A Formula takes part in arithmetic as a number does. Every result is an entry of its Sheet, equal
ones a single entry, and a Computation works them out for given numbers, or arrays, by the
same operations in the same order: to the last digit what lowering with the numbers would give.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import numpy as np

from trueflops.sizes import Size

Operation = Callable[[Any, Any], Any]


def _both(of: Operation) -> tuple[Callable[..., Formula], Callable[..., Formula]]:
    """An operator of a formula and another size, in either order."""

    def forth(self: Formula, other: object) -> Formula:
        return self.sheet.enter(of, self, other)

    def back(self: Formula, other: object) -> Formula:
        return self.sheet.enter(of, other, self)

    return forth, back


class Formula:
    """One entry of a sheet. Equal to nothing but itself: what it will be is not known."""

    __slots__ = ("at", "sheet")

    def __init__(self, sheet: Sheet, at: int) -> None:
        self.sheet, self.at = sheet, at

    __add__, __radd__ = _both(operator.add)
    __sub__, __rsub__ = _both(operator.sub)
    __mul__, __rmul__ = _both(operator.mul)
    __truediv__, __rtruediv__ = _both(operator.truediv)

    def __array_ufunc__(self, of: np.ufunc, method: str, *given: object, **how: object) -> Formula:
        """What numpy does with it: np.sqrt, np.maximum, a product with one of numpy's numbers."""
        if method != "__call__" or how or len(given) > 2:
            return NotImplemented
        if len(given) == 1:
            return self.sheet.enter(_of_one(of), self, 0)
        return self.sheet.enter(of, *given)

    def __bool__(self) -> bool:
        """Refused: a pass that asks would lower for one size what is used for all."""
        raise TypeError("a size that is not known yet decides nothing")


@cache
def _of_one(of: np.ufunc) -> Operation:
    """A function of one size as an operation, whose second size counts for nothing."""
    return lambda size, _: of(size)


class Sheet:
    """Entries in the order in which they are computed."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._entries: dict[tuple[Operation, int, int], Formula] = {}
        self._constants: dict[tuple[type, object], int] = {}
        self._steps: list[tuple[int, Operation, int, int]] = []
        self._blank: list[Any] = []  # the constants, where they stand

    def unknown(self, name: str) -> Size:
        """A size that `work_out` will be given. To all who compute with it, a size like others."""
        self._names[name] = self._place(None)
        return cast(Size, Formula(self, self._names[name]))

    def enter(self, of: Operation, first: object, second: object) -> Formula:
        """The entry of an operation on two sizes."""
        key = of, self.entry(first), self.entry(second)
        found = self._entries.get(key)
        if found is None:
            found = self._entries[key] = Formula(self, self._place(None))
            self._steps.append((found.at, *key))
        return found

    def entry(self, size: object) -> int:
        """Where a size stands, known or not."""
        if type(size) is Formula:
            return size.at
        key = type(size), size  # 1 and 1.0 are equal, but not printed alike
        found = self._constants.get(key)
        if found is None:
            found = self._constants[key] = self._place(size)
        return found

    def needed_for(self, entries: Iterable[int]) -> Computation:
        """What computes these entries, and nothing else."""
        left = set(entries)
        steps = []
        for step in reversed(self._steps):
            if step[0] in left:
                left.update(step[2:])
                steps.append(step)
        return Computation(dict(self._names), self._blank.copy(), steps[::-1])

    def _place(self, constant: object) -> int:
        self._blank.append(constant)
        return len(self._blank) - 1


def computed(of: Callable[[Size, float], Size], size: Size, by: float) -> Size:
    """A function of a size that looks at its digits: now, or once they are known."""
    if isinstance(size, Formula):
        return cast(Size, size.sheet.enter(of, size, by))
    return of(size, by)


@dataclass(frozen=True)
class Computation:
    """Steps that were chosen out of a sheet."""

    names: dict[str, int]
    blank: list[Any]
    steps: list[tuple[int, Operation, int, int]]

    def work_out(self, given: Mapping[str, Size]) -> list[Any]:
        """Every entry for these numbers, or arrays of them."""
        found = self.blank.copy()
        for name, at in self.names.items():
            found[at] = given[name]
        for at, of, first, second in self.steps:
            found[at] = of(found[first], found[second])
        return found
