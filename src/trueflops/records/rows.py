"""A measured row: what it is, whatever it took; which chip it ran on; its time as seconds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from trueflops.errors import BadInput, shorten
from trueflops.records.tables import Row, Table
from trueflops.units import MICRO, read_number

MEASURED: Final = "latency_us"
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
    said = [(k, row[k].strip()) for k in sorted(row) if k not in _ASIDE]
    return " ".join([f"{k}={v}" for k, v in said if (k, v) != _UNSAID])


def by_chip(table: Table) -> Iterator[tuple[str, Table]]:
    """The rows of each chip, as a table of its own."""
    rows: dict[str, list[int]] = defaultdict(list)
    for at, row in enumerate(table.distinct):
        rows[row["gpu"].strip()].append(at)
    for chip, members in rows.items():
        yield chip, table.take(members)


def measured_seconds(row: Row) -> float:
    """What a row took; BadInput where its cell is not a time."""
    try:
        seconds = read_number(row[MEASURED]) * MICRO
    except BadInput:
        seconds = 0.0
    if not seconds > 0.0:
        raise BadInput(f"{MEASURED} = {shorten(row[MEASURED], 30)!r} is not a time")
    return seconds
