"""A size of many plans with one value for each distinct combination of the columns it depends on.

It adds, multiplies and compares like an array over plans, and NumPy's functions take it for one.
Those that work plan by plan give another of its kind; others see the array that it stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from trueflops.sizes import Array
from trueflops.tables.batch import Batch, Table


def _both(ufunc: np.ufunc) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    """An operator of a size and another, in either order."""

    def forth(self: Tabled, other: Any) -> Any:
        if isinstance(other, float | int):
            return self.alike(ufunc(self.values, other))
        return _pair(ufunc, self, other)

    def back(self: Tabled, other: Any) -> Any:
        if isinstance(other, float | int):
            return self.alike(ufunc(other, self.values))
        return _pair(ufunc, other, self)

    return forth, back


class Tabled:
    """A size with one value for each row of a table; the last axis is that of the rows.

    `names` are the columns that it depends on: the table may have more.
    """

    __slots__ = ("_over", "batch", "names", "table", "values")

    def __init__(self, values: Array, batch: Batch, table: Table, names: frozenset[str]) -> None:
        self.values, self.batch, self.table, self.names = values, batch, table, names
        self._over: dict[Table | None, Array] = {}

    def over(self, table: Table | None) -> Array:
        """For every row of a table that has these columns; of none for every plan."""
        if table is self.table:
            return self.values
        found = self._over.get(table)
        if found is None:
            rows = self.table.which if table is None else self.batch.rows_in(table, self.table)
            found = self._over[table] = self.values.take(rows, axis=-1)
        return found

    def alike(self, values: Array) -> Tabled:
        """Other values that depend on the same columns."""
        return Tabled(values, self.batch, self.table, self.names)

    def at(self, plan: int) -> Any:
        """Of one plan."""
        return self.values[..., self.table.which[plan]]

    @property
    def ndim(self) -> int:
        """Axes, that of the plans included."""
        return self.values.ndim

    @property
    def size(self) -> int:
        """How many numbers it stands for."""
        return self.values.size // self.table.rows * self.batch.count

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array it stands for."""
        return (*self.values.shape[:-1], self.batch.count)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """One value for every plan: what does not know tables still computes rightly."""
        return np.asarray(self.over(None), dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return _apply(getattr(ufunc, method), inputs, options, along=method == "__call__")

    def __array_function__(
        self, function: Callable[..., Any], _: Any, inputs: Sequence[Any], options: Any
    ) -> Any:
        if function in _SHAPES:
            return _SHAPES[function](*inputs)
        if function in _STAGES and options.get("axis", len(inputs) > 1 and inputs[1]) == 0:
            return _of_stages(function, inputs[0])
        return _apply(function, inputs, options, along=function in _ALONG)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        """Along the axes before that of the plans, or of some plans."""
        if key == ():
            return self
        if key is None or (self.ndim > 1 and isinstance(key, int)):
            return self.alike(self.values[key])
        return self.at(key) if isinstance(key, int) else self.over(None)[..., key]

    __add__, __radd__ = _both(np.add)
    __sub__, __rsub__ = _both(np.subtract)
    __mul__, __rmul__ = _both(np.multiply)
    __truediv__, __rtruediv__ = _both(np.true_divide)
    __floordiv__, __rfloordiv__ = _both(np.floor_divide)
    __pow__, __rpow__ = _both(np.power)
    __and__, __rand__ = _both(np.logical_and)
    __or__, __ror__ = _both(np.logical_or)
    __gt__, __lt__ = _both(np.greater)[0], _both(np.less)[0]
    __ge__, __le__ = _both(np.greater_equal)[0], _both(np.less_equal)[0]
    __eq__, __ne__ = _both(np.equal)[0], _both(np.not_equal)[0]
    __hash__ = None  # type: ignore[assignment]

    def __neg__(self) -> Tabled:
        return self.alike(-self.values)

    def __bool__(self) -> bool:
        raise ValueError("a size of many plans is neither true nor false: ask np.any or np.all")


def _pair(ufunc: np.ufunc, a: Any, b: Any) -> Any:
    """A ufunc of two sizes, neither of them a plain number."""
    if isinstance(a, Tabled) and isinstance(b, Tabled):
        if a.names is b.names and a.table is b.table:
            return a.alike(ufunc(a.values, b.values))
        names, table = joint((a, b))
        found = ufunc(a.over(table), b.over(table))
        return found if table is None else Tabled(found, a.batch, table, names)
    if getattr(a, "__array_ufunc__", None) is None or getattr(b, "__array_ufunc__", None) is None:
        return NotImplemented  # such as a Transfer, which says itself what a multiple of it is
    return _apply(ufunc, (a, b), {})


def _apply(
    function: Callable[..., Any], inputs: Sequence[Any], options: Any, *, along: bool = True
) -> Any:
    """A function of sizes, plan by plan: once for every row of the table that all of them share."""
    tabled = [size for size in inputs if isinstance(size, Tabled)]
    names: frozenset[str] = frozenset()
    table = None
    if along and not any(map(is_long, inputs)):
        names, table = joint(tabled)
    over = [size.over(table) if isinstance(size, Tabled) else size for size in inputs]
    if not tabled:  # inside a list
        over = [_plain(size) for size in inputs]
    found = function(*over, **{name: _plain(size) for name, size in options.items()})
    return found if table is None else Tabled(found, tabled[0].batch, table, names)


def _plain(size: Any) -> Any:
    if isinstance(size, list | tuple):
        return type(size)(map(_plain, size))
    return np.asarray(size) if isinstance(size, Tabled) else size


def is_long(size: Any) -> bool:
    """Whether it is a plain array with an element for every plan."""
    return isinstance(size, np.ndarray) and size.ndim > 0 and size.shape[-1] > 1


def joint(sizes: Iterable[Tabled], *, exact: bool = False) -> tuple[frozenset[str], Table | None]:
    """The columns that they depend on, and a table of these; `exact`: of no others."""
    first, *others = sizes
    names, batch = first.names, first.batch
    for other in others:
        if other.names is not names:
            names = batch.union(names, other.names)
    return names, batch.exactly(names) if exact else batch.table(names)


def _of_stages(function: Callable[..., Any], size: Tabled) -> Any:
    """Of a size [stage, plan] one by plan."""
    return size.alike(function(size.values, axis=0))


def _broadcast_to(size: Tabled, shape: tuple[int, ...]) -> Tabled:
    values = np.broadcast_to(size.values, (*shape[:-1], size.table.rows))
    return size.alike(values)


_SHAPES: Final[Mapping[Any, Callable[..., Any]]] = {
    np.ndim: lambda size: size.ndim,
    np.size: lambda size: size.size,
    np.shape: lambda size: size.shape,
    np.any: lambda size: bool(size.values.any()),
    np.all: lambda size: bool(size.values.all()),
    np.zeros_like: lambda size: size.alike(np.zeros_like(size.values)),
    np.broadcast_to: lambda size, shape: (
        _broadcast_to(size, shape) if isinstance(size, Tabled) else np.broadcast_to(size, shape)
    ),
}
_STAGES: Final = (np.max, np.min, np.sum, np.argmax)
_ALONG: Final = (np.where, np.clip)
