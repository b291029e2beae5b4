"""One thing to measure: what it is, and how its figures are got."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trueflops.records.measured import Row


@dataclass(frozen=True)
class Job:
    """A row of a table, before its figures are known. `measure` takes and frees its own memory."""

    table: str
    cells: Row  # what it is; figures join them
    measure: Callable[[], dict[str, float]]
    smaller: Callable[[], Job] | None = None  # what to try instead when memory runs out
