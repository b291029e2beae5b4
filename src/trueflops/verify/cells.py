"""Cells of a table of runs: empty ones are None, texts that should be numbers a clear reason."""

from __future__ import annotations

import re
from typing import Final

from trueflops.errors import BadInput, shorten
from trueflops.records.tables import Row
from trueflops.units import read_number, read_whole

LARGEST_COUNT: Final = 10**9
LARGEST: Final = 10**13  # no length, time or rate in a table of results is larger
EMPTY: Final = frozenset(("nan", "n/a", "na", "null", "unknown", "?", "-", "–", "—"))
"""What tables write into a cell of which nothing is known."""
ABOUT: Final = re.compile(r"^[~≈]\s*")
UNITS: Final = {
    **dict.fromkeys(("memory_gb", "peak_mem_gb_measured"), r"GB|GiB|G"),
    **dict.fromkeys(("params_b", "active_params_b"), r"B"),
    **dict.fromkeys(("step_time_s", "step_time_derived_s"), r"s|sec|seconds"),
    "n_devices": r"x|GPUs?|devices?|chips?|cards?",
    "seq_len": r"tokens?",
}
"""Units that a cell may repeat after its number: those that its column is in."""


class Missing(BadInput):
    """A row lacks an input that no prediction can do without; the message names the column."""


def text(row: Row, column: str) -> str:
    """A cell without the spaces around it; empty where the column does not exist, or says so."""
    cell = str(row.get(column, "")).strip()
    return "" if cell.casefold() in EMPTY else cell


def number(row: Row, column: str) -> float | None:
    """A finite number above zero; None where the cell is empty or a zero."""
    cell = text(row, column)
    if not cell or cell.casefold() == "none":
        return None
    bare = ABOUT.sub("", cell.replace(",", ""))
    if column in UNITS:
        bare = re.sub(rf"(?<=[\d.])\s*(?:{UNITS[column]})$", "", bare, flags=re.IGNORECASE)
    try:
        value = read_number(bare)
    except BadInput:
        raise Missing(f"{column} is not a number: {shorten(cell, 30)!r}") from None
    if value > LARGEST:
        raise Missing(f"{column} is larger than anything: {shorten(cell, 30)!r}")
    if value < 0:
        raise Missing(f"{column} is not a number of at least 0: {shorten(cell, 30)!r}")
    return value or None


def whole(row: Row, column: str) -> int | None:
    """A count; None where the cell is empty."""
    value = number(row, column)
    if value is None:
        return None
    if value != int(value) or value > LARGEST_COUNT:
        raise Missing(f"{column} is not a whole number up to {LARGEST_COUNT:,}: {value:g}")
    return int(value)


def share(row: Row, column: str) -> float | None:
    """A part of a whole; None where the cell is empty."""
    value = number(row, column)
    if value is not None and value > 1.0:
        raise Missing(f"{column} is not a share of at most 1: {value:g}")
    return value


def degree(row: Row, column: str) -> int:
    """A parallel degree: 1 where nothing is said."""
    return whole(row, column) or 1


def needed(row: Row, column: str) -> int:
    """A count that no prediction can do without."""
    value = whole(row, column)
    if value is None:
        raise Missing(f"{column} is empty")
    return value


def noted(row: Row, pattern: str) -> int | None:
    """A whole number that the free text of `notes` gives, found by a pattern with one group."""
    match = re.search(pattern, text(row, "notes"), re.IGNORECASE)
    return read_whole(match[1], what="notes") if match else None


def count(row: Row, column: str, usual: int) -> int:
    """A count of at least one; `usual` where the cell is empty or zero."""
    value = number(row, column)
    return max(round(value), 1) if value else usual


def require(row: Row, column: str) -> float:
    """A number without which nothing can be predicted."""
    value = number(row, column)
    if value is None and text(row, column):
        return 0.0
    if value is None:
        raise Missing(f"{column} is empty")
    return value


def measured(row: Row, column: str) -> float | None:
    """A measured value: above zero, or None where nothing was measured."""
    value = number(row, column)
    if value is None and text(row, column):
        raise Missing(f"{column} is 0, which nothing can take or give")
    return value
