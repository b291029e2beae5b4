"""A prediction is a tree: every total is the sum (or the largest) of its parts.

A leaf carries its cause and the error of that cause's law; a whole may carry one more, for what no
part accounts for (a framework's release, a node's state). Errors of one cause move together,
errors of different causes do not: σ² = Σ_cause (Σ leaves)². Low and high are the 90 % interval,
computed only when asked for, so that a million plans pay nothing for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import sqrt
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from trueflops.catalog import Origin, weakest
from trueflops.profile import Curve
from trueflops.sizes import Size, weighs
from trueflops.tables import Tabled, summed

Z90: Final = 1.6449  # standard deviations either side of a 90 % interval
Sides = tuple[Size, Size]
NOTHING_UNSTATED: Final[Sides] = (0.0, 0.0)
"""How far to either side, as logarithms, an answer may be off beside errors of laws: because a plan
was guessed, or because what nobody has seen lies to one side."""

COMPUTE: Final = {
    "matmul": "matmul",
    "experts": "expert matmul",
    "attention": "attention",
    "memory": "memory-bound ops",
}
COMMUNICATION: Final = {
    "tp": "tensor parallel",
    "cp": "context parallel",
    "dcp": "decode context parallel",
    "ep": "expert all-to-all",
    "etp": "expert tensor parallel",
}
"""What a part is called, by the cause of its seconds: the same in every answer."""


@dataclass(frozen=True)
class Term:
    """One named part of a prediction, in SI units; `value` is a number or one per plan."""

    name: str
    value: Size
    unit: str = "seconds"
    cause: str = ""
    spread: float = 0.0
    origin: Origin = "derived"
    parts: tuple[Term, ...] = ()
    combine: Literal["sum", "max"] = "sum"
    note: str = ""
    least: Size = 0.0  # what physics allows at least: no interval reaches below
    unstated: Sides = NOTHING_UNSTATED  # of a whole: beside the errors of laws

    def deviations(self) -> dict[str, Size]:
        """One standard deviation, in the term's unit, by cause."""
        if not self.parts:
            return {self.cause: self.value * self.spread} if self.spread else {}
        if self.combine == "max":
            return max(self.parts, key=lambda part: float(np.mean(part.value))).deviations()
        found: dict[str, list[Size]] = defaultdict(list)
        if self.spread:
            found[self.cause].append(self.value * self.spread)
        for part in self.parts:
            for cause, deviation in part.deviations().items():
                found[cause].append(deviation)
        return {cause: summed(each) for cause, each in found.items()}

    @property
    def estimate(self) -> Estimate:
        """Value and error, ready to be multiplied and divided."""
        safe = np.maximum(self.value, 1e-300)
        spreads = {cause: d / safe for cause, d in self.deviations().items()}
        least = np.minimum(self.least, self.value)
        return Estimate(self.value, spreads, self.claim, least, unstated=self.unstated)

    @property
    def claim(self) -> Origin:
        """The weakest origin among the leaves that are not zero."""
        leaves = [leaf.origin for leaf in self.leaves() if _of_any_plan(leaf.value)]
        return weakest(leaves) if leaves else self.origin

    def leaves(self) -> Iterator[Term]:
        """All parts that have no parts."""
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.leaves()

    def pick(self, index: int) -> Term:
        """The tree of one plan out of many."""
        parts = tuple([part.pick(index) for part in self.parts])
        return self._with(at(self.value, index), at(self.least, index), parts)

    def where(self, chosen: Callable[[Size], Size]) -> Term:
        """Of a tree [stage, plan] that of a chosen stage, plan by plan."""
        parts = tuple(part._with(chosen(part.value), part.least, ()) for part in self.parts)
        return self._with(chosen(self.value), self.least, parts)

    def scaled(self, by: float) -> Term:
        """The same tree, every part multiplied."""
        parts = tuple([part.scaled(by) for part in self.parts])
        return self._with(self.value * by, self.least * by, parts)

    def _with(self, value: Size, least: Size, parts: tuple[Term, ...]) -> Term:
        """The same with other sizes; dataclasses.replace would take twice as long."""
        return Term(
            self.name, value, self.unit, self.cause, self.spread, self.origin, parts,
            self.combine, self.note, least, self.unstated,
        )  # fmt: skip

    def __getitem__(self, name: str) -> Term:
        """A part by name."""
        return next(part for part in self.parts if part.name == name)


@dataclass(frozen=True)
class Estimate:
    """A value with relative standard deviations by cause; products and quotients keep them."""

    value: Size
    spreads: Mapping[str, Size]
    origin: Origin
    least: Size = 0.0  # what physics allows at least, and at most: no interval reaches beyond
    most: Size = np.inf
    unstated: Sides = NOTHING_UNSTATED

    @property
    def spread(self) -> Size:
        """All causes together, relative."""
        total: Size = 0.0
        for spread in self.spreads.values():
            total = total + np.square(spread)
        return np.sqrt(total)

    @property
    def low(self) -> Size:
        """Lower end of the 90 % interval."""
        return np.maximum(self.value * np.exp(-self.reach(0)), self.least)

    @property
    def high(self) -> Size:
        """Upper end of the 90 % interval."""
        return np.minimum(self.value * np.exp(self.reach(1)), self.most)

    def reach(self, side: int) -> Size:
        """How far the interval reaches to one side, as a logarithm: errors of laws, and guesses."""
        unstated = self.unstated[side]
        return np.hypot(Z90 * self.spread, unstated) if weighs(unstated) else Z90 * self.spread

    def plus(self, other: Estimate) -> Estimate:
        """A sum; errors of the same cause add, those of different causes do not."""
        value = self.value + other.value
        own, others = self.value / value, other.value / value
        spreads = {cause: own * spread for cause, spread in self.spreads.items()}
        for cause, spread in other.spreads.items():
            spreads[cause] = spreads.get(cause, 0.0) + others * spread
        (low, high), (below, above) = self.unstated, other.unstated
        unstated = (own * low + others * below, own * high + others * above)
        origin = weakest((self.origin, other.origin))
        least, most = self.least + other.least, self.most + other.most
        return Estimate(value, spreads, origin, least, most, unstated)

    def times(self, other: Estimate | Size) -> Estimate:
        """A product; errors of the same cause add, and limits hold for it too."""
        if isinstance(other, Estimate):
            return self._with(other, 1.0, self.least * other.least, self.most * other.most)
        return self._by(other)

    def over(self, other: Estimate | Size) -> Estimate:
        """A quotient; errors of the same cause cancel."""
        if isinstance(other, Estimate):
            most = self.most / np.maximum(other.least, 1e-300)
            return self._with(other, -1.0, self.least / other.most, most)
        return self._by(1.0 / other)

    def under(self, numerator: Size) -> Estimate:
        """A number divided by this one: tokens over seconds."""
        safe = np.maximum(self.value, 1e-300)
        spreads = {c: -s for c, s in self.spreads.items()}
        most = numerator / np.maximum(self.least, 1e-300) if np.any(self.least) else np.inf
        turned = (self.unstated[1], self.unstated[0])
        return Estimate(numerator / safe, spreads, self.origin, most=most, unstated=turned)

    def _by(self, factor: Size) -> Estimate:
        return replace(
            self,
            value=self.value * factor,
            least=self.least * factor,
            most=self.most * factor,
        )

    def _with(self, other: Estimate, sign: float, least: Size, most: Size) -> Estimate:
        spreads = dict(self.spreads)
        for cause, spread in other.spreads.items():
            spreads[cause] = spreads.get(cause, 0.0) + sign * spread
        value = self.value * other.value**sign
        own, others = self.unstated, other.unstated if sign > 0.0 else other.unstated[::-1]
        unstated = (np.hypot(own[0], others[0]), np.hypot(own[1], others[1]))
        origin = weakest((self.origin, other.origin))
        return Estimate(value, spreads, origin, least, most, unstated)

    def take(self, rows: NDArray[np.intp]) -> Estimate:
        """The estimates of some plans out of many."""

        def at(size: Size) -> Size:
            return size if np.ndim(size) == 0 else np.ravel(size)[rows % np.size(size)]

        spreads = {c: at(s) for c, s in self.spreads.items()}
        return Estimate(
            at(self.value), spreads, self.origin, at(self.least), at(self.most), self.unstated
        )

    def pick(self, index: int) -> Estimate:
        """The estimate of one plan out of many."""
        spreads = {c: at(s, index) for c, s in self.spreads.items()}
        least, most = at(self.least, index), at(self.most, index)
        return Estimate(at(self.value, index), spreads, self.origin, least, most, self.unstated)


def at(size: Size, index: int) -> float:
    """The size of one plan out of many."""
    if isinstance(size, float):
        return float(size)
    if isinstance(size, Tabled):
        return float(size.at(index))
    return float(size if np.ndim(size) == 0 else np.ravel(size)[index % np.size(size)])


def _of_any_plan(size: Size) -> bool:
    """Whether one of them has more than nothing of it."""
    return size != 0.0 if isinstance(size, float) else bool(np.any(size))


def leaf(name: str, value: Size, law: Curve, cause: str, unit: str = "seconds") -> Term:
    """A part priced by one curve of the profile."""
    return Term(name, value, unit, cause, law.error, law.origin)


def exact(name: str, value: Size, unit: str, note: str = "") -> Term:
    """A part that follows from the model and the plan alone."""
    return Term(name, value, unit, note=note)


def total(
    name: str,
    *parts: Term,
    unit: str = "seconds",
    cause: str = "",
    spread: float = 0.0,
    least: Size = 0.0,
    value: Size | None = None,
) -> Term:
    """The sum of its parts, with an error of its own where the whole is known less well; `value`
    where it was summed before.

    `least` is what physics allows: the limits of parts that wait for one another do not add up.
    """
    if value is None:
        value = summed(part.value for part in parts)
    unstated = NOTHING_UNSTATED
    if any(part.unstated is not NOTHING_UNSTATED for part in parts):
        unstated = _unstated(parts, value)
    return Term(name, value, unit, cause, spread, parts=parts, least=least, unstated=unstated)


def lopsided(below: float, above: float) -> tuple[float, Sides]:
    """Standard deviations to two sides: what they share, and what an interval reaches further."""
    shared = min(below, above)
    return shared, (Z90 * sqrt(below**2 - shared**2), Z90 * sqrt(above**2 - shared**2))


def reaching(whole: Term, above: Size) -> Term:
    """The same term, which may also be greater than told, by so many standard deviations."""
    if not np.any(above):
        return whole
    low, high = whole.unstated
    return replace(whole, unstated=(low, np.hypot(high, Z90 * above)))


def _unstated(parts: tuple[Term, ...], whole: Size) -> Sides:
    """How far a sum may be off to either side, where each part has its own."""
    safe = np.maximum(whole, 1e-300)
    below = summed(part.value * np.expm1(-part.unstated[0]) / safe for part in parts)
    above = summed(part.value * np.expm1(part.unstated[1]) / safe for part in parts)
    return -np.log1p(below), np.log1p(above)
