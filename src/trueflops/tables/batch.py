"""Plans by number, the columns in which they differ, and tables of their distinct combinations.

In: arrays with a value for every plan. Out: for any of these columns a Table whose rows are the
distinct combinations. Tables are looked for by counting, not by sorting, and few are made: what
reads fewer columns than a small one that is there shares it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np

from trueflops.sizes import SMALL, Array, Rows, counted

FULL: Final = 0.5  # of the plans: a table with more rows is no longer worth its indexing
LARGE: Final = 0.25  # of the plans: with one column more it would be full
NEAR: Final = 1 / 8  # of the plans: a table so small is taken for any that reads fewer columns


class Table:
    """Distinct combinations of some columns: a plan that has each, and which one each plan has."""

    def __init__(
        self,
        names: frozenset[str],
        example: Rows,
        which: Rows,
        inside: Table | None = None,
    ) -> None:
        self.names, self.example = names, example
        self.determines = names  # and what follows from these
        self.rows = example.size
        self._own, self._inside = which, inside  # which row each plan has, or each row of another
        self._which = which if inside is None else None

    @property
    def which(self) -> Rows:
        """The row of every plan."""
        if self._which is None:
            assert self._inside is not None
            self._which = self._own.take(self._inside.which)
        return self._which

    def which_of(self, plans: Rows) -> Rows:
        """The rows of some plans."""
        if self._which is None:
            assert self._inside is not None
            return self._own.take(self._inside.which_of(plans))
        return self._which.take(plans)


class Batch:
    """Plans by number, and the columns in which they differ."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._values: dict[str, Array] = {}  # the distinct ones of each column
        self._given: frozenset[str] = frozenset()  # columns that tell plans apart
        self._sources: dict[str, frozenset[str]] = {}  # of columns that follow from others
        self._tables: dict[frozenset[str], Table | None] = {}
        self._known: list[Table] = []
        self._wide: list[Table] = []  # that are shared by all that reads fewer columns
        self._rows: dict[tuple[Table, Table], Rows] = {}
        self._unions: dict[tuple[frozenset[str], frozenset[str]], frozenset[str]] = {}

    @classmethod
    def of(cls, arrays: Mapping[str, Array], count: int) -> Batch:
        """Columns of equal length by name."""
        batch = cls(count)
        for name, values in arrays.items():
            batch._add(name, values, *_coded(values))
        batch._given = frozenset().union(*batch._tables)
        return batch

    def _add(
        self, name: str, values: Array, which: Rows, example: Rows, inside: Table | None = None
    ) -> None:
        """A column with a value for each plan, or for each row of a table."""
        self._values[name] = values.take(example)
        if example.size > 1:
            self._keep(Table(frozenset((name,)), _in(inside, example), which, inside))

    def _keep(self, table: Table) -> Table:
        table.determines = self._determined_by(table.names)
        self._tables[table.names] = table
        self._known.append(table)
        return table

    def _determined_by(self, names: frozenset[str]) -> frozenset[str]:
        """These columns, and those that follow from them."""
        found = names
        for name, sources in self._sources.items():
            if sources <= found:
                found |= {name}
        return found

    def has(self, name: str) -> bool:
        """Whether there is such a column."""
        return name in self._values

    def column(self, name: str) -> tuple[Array, Table | None]:
        """The distinct values of a column, and their table, if there are several."""
        return self._values[name], self._tables.get(frozenset((name,)))

    def part(self, plans: Rows) -> Batch:
        """Some of the plans, with the columns and the shared tables that all have."""
        found = Batch(plans.size)
        found._sources = dict(self._sources)
        shared = []
        for table in self._wide:
            which, example = counted(table.which.take(plans), table.rows)
            shared.append(Table(table.names, example, which))
        smallest_first = sorted(shared, key=lambda table: table.rows)
        for name, values in self._values.items():
            alone = self._tables.get(frozenset((name,)))
            if alone is None:
                found._values[name] = values
                continue
            inside = next((table for table in smallest_first if name in table.names), None)
            those = alone.which_of(plans if inside is None else plans.take(inside.example))
            found._add(name, values.take(those), *counted(those, alone.rows), inside)
        found._given = frozenset().union(*found._tables) & self._given
        for table in shared:
            table.names = frozenset(name for name in table.names if found._values[name].size > 1)
            found._wide.append(found._keep(table))
        return found

    def parts(self, names: Iterable[str], at_once: int) -> Iterator[Rows]:
        """So many plans at a time, those that agree in these columns one after another."""
        table = self.among(names)
        order = np.arange(self.count)
        if table is not None:
            coarse = table.which if table.rows <= SMALL else table.which * SMALL // table.rows
            order = np.argsort(coarse.astype(np.uint16), kind="stable")  # by counting: linear
        for start in range(0, self.count, at_once):
            yield order[start : start + at_once]

    def among(self, names: Iterable[str]) -> Table | None:
        """The table of those of some columns in which plans differ."""
        differ = frozenset(name for name in names if frozenset((name,)) in self._tables)
        return self.exactly(differ) if differ else None

    def share(self, names: Iterable[str]) -> None:
        """Let that table serve for all that reads fewer columns."""
        table = self.among(names)
        if table is not None and table not in self._wide:
            self._wide.append(table)
            self._wide.sort(key=lambda wide: -wide.rows)

    def derive(self, name: str, values: Array, names: frozenset[str], inside: Table | None) -> None:
        """One more column: of a size that depends on others, with a value for each row of a table,
        or of none for each plan.
        """
        if inside is not None:
            self._sources[name] = names
            for table in self._known:
                if names <= table.determines:
                    table.determines |= {name}
        self._add(name, values, *_coded(values), inside)

    def union(self, names: frozenset[str], others: frozenset[str]) -> frozenset[str]:
        """Of both: equal ones are one object, which is fast to compare."""
        found = self._unions.get((names, others))
        if found is None:
            found = names | others
            found = self._unions.setdefault((found, found), found)
            self._unions[names, others] = found
        return found

    def rows_in(self, table: Table, other: Table) -> Rows:
        """Which row of another table each of one has, for sizes that read columns of both."""
        found = self._rows.get((table, other))
        if found is None:
            found = self._rows[table, other] = other.which_of(table.example)
        return found

    def table(self, names: frozenset[str]) -> Table | None:
        """The distinct combinations of some columns, or of more where these are few anyway; None
        where they are nearly as many as the plans.
        """
        if names not in self._tables:
            found = self._near(names) or self._with_one_more(names) or self._joined(names)
            self._tables[names] = found
        return self._tables[names]

    def exactly(self, names: frozenset[str]) -> Table | None:
        """The same, of these columns alone."""
        known = self._tables.get(names)
        if known is None or known.names != names:
            self._tables[names] = self._joined(names)
        return self._tables[names]

    def _near(self, names: frozenset[str]) -> Table | None:
        """The smallest table that these columns follow from, if it is small or has no others."""
        few = NEAR * self.count
        return _smallest(
            table
            for table in self._known
            if names <= table.determines and (table.rows <= few or table.names <= names)
        )

    def _with_one_more(self, names: frozenset[str]) -> Table | None:
        """A small shared table with the one column that none has: others will ask for it, too."""
        for wide in self._wide:
            lacks = names - wide.determines
            new = not any(lacks <= other.determines for other in self._wide)
            if len(lacks) == 1 and new and wide.rows <= NEAR * self.count:
                return self._joined(lacks | wide.names)
        return None

    def _joined(self, names: frozenset[str]) -> Table | None:
        """A table of these columns alone, counted on the rows of one from which they follow."""
        if len(names) > 1 and self._given <= names:
            return None  # a row for every plan: who asks for one twice gets it computed twice
        parts = [table for table in self._known if table.names <= names]
        if max(part.rows for part in parts) > LARGE * self.count:
            return None
        if any(table is None and known <= names for known, table in self._tables.items()):
            return None
        inside = _smallest(table for table in self._known if names <= table.determines)
        code, radix = np.zeros(1, np.intp), 1
        left = names
        while left:
            best = max(parts, key=lambda t: (len(t.determines & left), -t.rows))
            own = best.which if inside is None else self.rows_in(inside, best)
            if radix * best.rows > 2 * max(own.size, SMALL):
                code, example = counted(code, radix)
                radix = example.size
            code = own if radix == 1 else code * best.rows + own
            radix *= best.rows
            left -= best.determines
        which, example = counted(code, radix)
        if example.size > FULL * self.count:
            return None
        return self._keep(Table(names, _in(inside, example), which, inside))


def _smallest(tables: Iterable[Table]) -> Table | None:
    return min(tables, key=lambda table: table.rows, default=None)


def _in(inside: Table | None, rows: Rows) -> Rows:
    """Plans that have some rows of a table; of none, those are plans themselves."""
    return rows if inside is None else inside.example.take(rows)


def _coded(values: Array) -> tuple[Rows, Rows]:
    """Which of the distinct values each one is, and where these are found: counted where they are
    small whole numbers, or infinite.
    """
    low, high = values.min(), values.max()
    if low == high:
        return np.zeros(values.size, np.intp), np.zeros(1, np.intp)
    if values.dtype == np.uint8:
        return counted(values.astype(np.intp), int(high) + 1)
    if low >= 0.0:
        small = np.minimum(values, float(SMALL)) if high >= SMALL else values
        whole = small.astype(np.intp)
        again = np.where(whole == SMALL, np.inf, whole) if high >= SMALL else whole
        if np.array_equal(again, values):
            return counted(whole, int(min(high, SMALL)) + 1)
    _, example, which = np.unique(values, return_index=True, return_inverse=True)
    return which.ravel(), example
