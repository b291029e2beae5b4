"""A measured row: what it is, whatever it took; which chip it ran on; its time as seconds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from trueflops.errors import BadInput, shorten
from trueflops.records.measured import MEASURED
from trueflops.records.tables import Row, Table, number_in
from trueflops.units import MICRO

_TIMING: Final = (
    "p10_us", "p90_us", "p99_us", "lap", "slowest_rank", "slowest_us", "algbw", "busbw",
)  # fmt: skip
_ASIDE: Final = (
    MEASURED, *_TIMING, "backend", "version", "kernel", "library", "layout", "copies", "cast",
)  # fmt: skip


_UNSAID: Final = ("causal", "1")  # what rows of a table without that column are


def identity(row: Row) -> str:
    """What a measured kernel is, whatever it took, whichever release ran it, and however fully
    its table says so: a column of what goes without saying makes it no other one.
    """
    said = [(k, str(v).strip()) for k, v in sorted(row.items()) if k not in _ASIDE]
    return " ".join([f"{k}={v}" for k, v in said if (k, v) != _UNSAID])


def by_chip(table: Table) -> Iterator[tuple[str, Table]]:
    """The rows of each chip, as a table of its own."""
    rows: dict[str, list[int]] = defaultdict(list)
    for at, (chip,) in enumerate(table.cells("gpu")):
        rows[str(chip).strip()].append(at)
    return zip(rows, map(table.take, rows.values()), strict=True)


def measured_seconds(row: Row) -> float:
    """What a row took; BadInput where its cell is not a time."""
    try:
        seconds = number_in(row[MEASURED]) * MICRO
    except BadInput:
        seconds = 0.0
    if not seconds > 0.0:
        raise BadInput(f"{MEASURED} = {shorten(str(row[MEASURED]), 30)!r} is not a time")
    return seconds
