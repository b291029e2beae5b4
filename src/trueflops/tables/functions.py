"""What is asked of sizes that may be tabled, plain arrays or numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from operator import add
from typing import Any, cast

import numpy as np

from trueflops.sizes import Array, Rows, Size, distinct, plain
from trueflops.tables.batch import Batch, Table
from trueflops.tables.tabled import Tabled, is_long, joint


def on_rows(function: Callable[..., Any], *sizes: Size) -> Any:
    """A function of plain arrays, called with one element for every distinct row of its sizes; of
    what it gives, arrays or a tuple of them, each is a size again.
    """
    tabled: list[Any] = [size for size in sizes if isinstance(size, Tabled)]
    if not tabled:
        return function(*sizes)
    names, table = joint(tabled)
    if any(map(is_long, sizes)):
        table = None
    plain = [size.over(table) if isinstance(size, Tabled) else size for size in sizes]
    found = function(*plain)
    if table is None:
        return found
    like = Tabled(np.empty(0), tabled[0].batch, table, names)
    return _sized(found, like)


def _sized(found: Any, like: Tabled) -> Any:
    if isinstance(found, tuple):
        return tuple(_sized(one, like) for one in found)
    return like.alike(found) if is_long(found) else found


def by_row(columns: Sequence[Size]) -> tuple[Array, Callable[[Array], Array]]:
    """The distinct rows of some columns [row, column], and what makes a size of values by row."""
    table = _table_of(columns)
    if table is None:
        keys, which = rows_of(columns)
        return keys, lambda values: values.take(which, axis=-1)
    sizes: Sequence[Any] = columns
    batch = next(size.batch for size in sizes if isinstance(size, Tabled))
    keys = _keys(columns, table)
    return keys, lambda values: cast("Array", Tabled(values, batch, table, table.names))


def rows_of(columns: Sequence[Size]) -> tuple[Array, Rows]:
    """The same rows, and which one each plan has."""
    table = _table_of(columns)
    if table is None:
        return distinct([np.asarray(size) for size in columns])
    return _keys(columns, table), table.which


def _table_of(columns: Sequence[Size]) -> Table | None:
    """Of exactly these columns, if all of them are tabled or the same for all plans."""
    tabled: list[Any] = [size for size in columns if isinstance(size, Tabled)]
    if not tabled or any(map(is_long, columns)):
        return None
    return joint(tabled, exact=True)[1]


def _keys(columns: Sequence[Size], table: Table) -> Array:
    each = [size.over(table) if isinstance(size, Tabled) else size for size in columns]
    return np.stack([np.broadcast_to(size, table.rows) for size in each], axis=1)


def summed(sizes: Iterable[Size]) -> Size:
    """All of them together: first numbers, then those of one table, then each with one that
    depends on more columns, so that few are added up plan by plan.
    """
    number: float = 0.0
    arrays: list[Any] = []
    tabled: dict[Table, Any] = {}
    for size in sizes:
        if isinstance(size, Tabled):
            tabled[size.table] = size + tabled[size.table] if size.table in tabled else size
        elif isinstance(size, float | int):
            number = number + size
        else:
            arrays.append(size)
    groups = sorted(tabled.values(), key=lambda group: (group.table.rows, len(group.names)))
    if number and (groups or arrays):
        where = groups or arrays
        where[0] = where[0] + number
    apart: list[Tabled] = []
    while groups:
        size = groups.pop(0)
        at = next((i for i, more in enumerate(groups) if size.names <= more.names), None)
        if at is None:
            apart.append(size)
        else:
            groups[at] = groups[at] + size
    if len(apart) > 1:
        names, table = joint(apart)
        whole = reduce(add, (size.over(table) for size in apart))
        apart = [] if table is None else [Tabled(whole, apart[0].batch, table, names)]
        arrays = [*arrays, whole] if table is None else arrays
    return reduce(add, (*arrays, *apart)) if arrays or apart else number


def where_largest(size: Size, what: str) -> Callable[[Size], Size]:
    """Of sizes [stage, plan] those of the stage where this one is largest, the first of several.

    Which stage that is, plan by plan, is a column `what` of their batch.
    """
    rows = cast("Array", size)
    most: Any = rows[0]
    index: Any = np.uint8(0)
    for stage in range(1, len(rows)):
        index = np.where(rows[stage] > most, np.uint8(stage), index)
        most = np.maximum(most, rows[stage])
    if np.size(index) == 1:
        index = float(np.ravel(index)[0])
    places: dict[Table, Rows] = {}

    def chosen(of: Size) -> Size:
        if of is size:
            return plain(most)
        if np.ndim(of) < 2:
            return of
        each = cast("Array", of)
        at = by_value(index, what, each)
        if len(each) == 1 or isinstance(at, float):
            return plain(each[int(at) % len(each)])
        if isinstance(at, Tabled) and isinstance(each, Tabled) and joint((at, each))[1] is None:
            # A value for every plan: taken from where it stands.
            if each.table not in places:
                stages = at.over(None).astype(np.intp)
                places[each.table] = stages * each.table.rows + each.table.which
            return cast("Array", each.values.ravel().take(places[each.table]))
        found = each[0]
        for stage in range(1, len(each)):
            found = np.where(at == float(stage), each[stage], found)
        return found

    return chosen


def by_value(size: Size, name: str, beside: Size = 0.0) -> Size:
    """A size of few values as a column of its own: what reads it depends on these, and no longer on
    all that it was computed from. A plain array is of the batch that `beside` is of.
    """
    if isinstance(size, Tabled):
        batch, values, names, inside = size.batch, size.values, size.names, size.table
    elif isinstance(beside, Tabled) and is_long(size):
        batch, values, names, inside = beside.batch, size, frozenset(), None
    else:
        return size
    if not batch.has(name):
        batch.derive(name, values, names, inside)
    return column(batch, name)


def column(batch: Batch, name: str) -> Size:
    """A column as a size: a number where all plans agree."""
    values, table = batch.column(name)
    if table is None:
        return float(values[0])
    return cast("Array", Tabled(values, batch, table, table.names))
