"""Cells of a table of measured results: numbers that may be absent, but never nonsense."""

from __future__ import annotations

from math import isfinite

from trueflops.errors import BadInput, shorten
from trueflops.interop.tables import Row


def text(row: Row, column: str) -> str:
    """What the cell says; empty where there is no such column."""
    return row.get(column, "").strip()


def number(row: Row, column: str) -> float | None:
    """The cell as a number of at least zero; None where it is empty."""
    said = text(row, column)
    if not said:
        return None
    try:
        value = float(said.replace(",", ""))
    except ValueError:
        value = -1.0
    if not isfinite(value) or value < 0:
        raise BadInput(f"{column} is {shorten(said, 30)!r}, which is not a number of at least 0")
    return value


def count(row: Row, column: str, usual: int) -> int:
    """The cell as a whole number of at least one; `usual` where it is empty or zero."""
    value = number(row, column)
    return max(round(value), 1) if value else usual


def measured(row: Row, column: str) -> float | None:
    """A measured value: above zero, or None where nothing was measured."""
    value = number(row, column)
    if value == 0:
        raise BadInput(f"{column} is 0, which nothing can take or give")
    return value


def require(row: Row, column: str) -> float:
    """A number without which nothing can be predicted."""
    value = number(row, column)
    if value is None:
        raise BadInput(f"{column} is empty")
    return value
