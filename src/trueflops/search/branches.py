"""Families with what their keys cost and take at least: the branches of a search.

In: a Trainer and families. Out: branches, keys in the order of their bounds, near misses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np

from trueflops.clock import Clock
from trueflops.graph.program import SHAPING, STRUCTURE
from trueflops.model import Model
from trueflops.plan import Plan
from trueflops.predict import Trainer
from trueflops.predict.costs import KeyedCosts
from trueflops.search.bounds import Bounds, bounds_of, outline_of
from trueflops.search.choices import Rows
from trueflops.search.families import Family
from trueflops.sizes import Array, Size

CHUNK: Final = 16384  # plans at a time: forty arrays of this length stay in a core's cache
KEYS: Final = 1024  # taken at a time
FEW: Final = 1024  # of those that just do not fit, predicted first; then four times as many


@dataclass(frozen=True)
class Branch:
    """A family with what its keys cost, and what they take at least."""

    family: Family
    keyed: KeyedCosts
    bounds: Bounds

    @classmethod
    def of(
        cls,
        family: Family,
        keyed: KeyedCosts,
        trainer: Trainer,
        bounds: Callable[[Model, Family, KeyedCosts, Clock, Size], Bounds],
    ) -> Branch:
        """With such bounds."""
        m = family.keys.micro_batches(trainer.workload.global_batch)
        model = trainer.as_trained(family.keys)
        return cls(family, keyed, bounds(model, family, keyed, trainer.clock, m))

    def narrowed(self, rows: Rows, trainer: Trainer) -> Branch:
        """Some of its keys, with tight bounds."""
        which = None if self.keyed.which is None else self.keyed.which[rows]
        keyed = KeyedCosts(self.keyed.costs, which)
        return self.of(self.family.only(rows), keyed, trainer, bounds_of)

    def only(self, rows: Rows) -> Branch:
        """Some of its keys, with the bounds that they have."""
        if rows.size == self.family.keys.count:
            return self
        which = None if self.keyed.which is None else self.keyed.which[rows]
        keyed = KeyedCosts(self.keyed.costs, which)
        return Branch(self.family.only(rows), keyed, self.bounds.only(rows))

    @cached_property
    def seconds(self) -> Array:
        """That each key takes at least: where nothing runs again."""
        rows = np.arange(self.family.keys.count)
        return self.bounds.seconds(rows, np.zeros(rows.size))

    @cached_property
    def least(self) -> float:
        """That any of them takes at least."""
        return float(self.seconds.min())

    def legal_again(self, rows: Rows, wanted: Array) -> Array:
        """The next legal number of recomputed layers that is not below the wanted one."""
        only = self.family.only_again
        if only:
            legal = np.append(np.sort(np.array(only)), max(only))
            return legal[np.searchsorted(legal[:-1], wanted)]
        return np.where(wanted < self.family.most_again[rows], np.maximum(wanted, 1.0), np.inf)

    def leanest(self) -> tuple[float, Plan]:
        """The plan of the family that needs least memory by its bound."""
        rows = np.arange(self.family.keys.count)
        again = self.legal_again(rows, np.full(rows.size, np.inf))
        at, columns = self.family.with_choices(rows)
        least = self.bounds.bytes(rows, again, at, columns)
        one = [int(np.argmin(least))]
        plan = self.family.plans(at[one], again[at[one]], columns[one])
        return float(least[one[0]]), plan.pick(0)


@dataclass(frozen=True)
class Misses:
    """Plans of a branch that only just do not fit, and what they take and need."""

    ARRAYS: ClassVar = ("rows", "again", "columns", "seconds", "needed")
    branch: Branch
    rows: Rows
    again: Array
    columns: Rows
    seconds: Array  # at least
    needed: Array  # bytes

    @classmethod
    def by_branch(cls, misses: Sequence[Misses]) -> list[Misses]:
        """Those of a branch together."""
        together: dict[int, list[Misses]] = {}
        for some in misses:
            together.setdefault(id(some.branch), []).append(some)
        return [
            cls(
                alike[0].branch,
                *(np.concatenate([getattr(each, name) for each in alike]) for name in cls.ARRAYS),
            )
            for alike in together.values()
        ]

    def leanest_first(self, within: float) -> Iterator[Misses]:
        """A few at a time, those that may take less than so many seconds."""
        order = np.argsort(self.needed, kind="stable")
        order = order[self.seconds[order] < within]
        start, many = 0, FEW
        while start < order.size:
            yield self.only(order[start : start + many])
            start, many = start + many, min(4 * many, CHUNK)

    def only(self, some: Any) -> Misses:
        """Some of them."""
        return Misses(self.branch, *(getattr(self, name)[some] for name in self.ARRAYS))


def in_order(branches: list[Branch], capacity: float) -> Iterator[tuple[Branch, Rows]]:
    """Keys of all families, a handful at a time, those that may be fastest first."""
    handfuls: list[tuple[float, int, Branch, Rows]] = []
    for branch in branches:
        again = branch.bounds.fewest_again(capacity)
        rows = np.arange(again.size)
        least = np.where(np.isfinite(again), branch.bounds.seconds(rows, again), np.inf)
        order = np.argsort(least)
        for start in range(0, order.size, KEYS):
            some = order[start : start + KEYS]
            handfuls.append((float(least[some[0]]), len(handfuls), branch, some))
    for _, _, branch, rows in sorted(handfuls, key=lambda handful: handful[:2]):
        yield branch, rows


def outlines_of(trainer: Trainer, families: tuple[Family, ...]) -> Iterator[Branch]:
    """Families of one structure are priced together, once for each distinct shape of work."""
    together: dict[tuple[object, ...], list[Family]] = {}
    for family in families:
        key = tuple(getattr(family.keys, name) for name in STRUCTURE)
        together.setdefault(key, []).append(family)
    for alike in together.values():
        columns = {
            name: np.concatenate(
                [np.broadcast_to(getattr(f.keys, name), np.shape(f.keys.pp)) for f in alike]
            )
            for name in SHAPING
        }
        keyed = trainer.keyed_costs(alike[0].keys.but(**columns))
        start = 0
        for family in alike:
            end = start + family.keys.count
            which = None if keyed.which is None else keyed.which[start:end]
            yield Branch.of(family, KeyedCosts(keyed.costs, which), trainer, outline_of)
            start = end
