"""What a record says at a glance: the fastest product of each format, and whether all held still.

Standard library alone: reports read records where there is no torch.
"""

from __future__ import annotations

from statistics import median
from typing import Final, NamedTuple

from trueflops.measure.record import Record, Row

SLOWED: Final = ("attention", "decode")  # sections after which every product takes longer


class Winner(NamedTuple):
    """The fastest product of a format, and by how many laps of its race that is confirmed."""

    shape: tuple[int, int, int]
    flop_per_second: float
    laps: int  # 0: the best of single timings


def cell(row: Row, name: str) -> float:
    """A number of a row; 0 where there is none."""
    return float(row.get(name) or 0.0)


def rate(row: Row) -> float:
    """Flop per second of a product's row."""
    m, n, k = shape(row)
    return 2.0 * m * n * k / (cell(row, "latency_us") * 1e-6)


def shape(row: Row) -> tuple[int, int, int]:
    """m, n, k."""
    return int(row["m"]), int(row["n"]), int(row["k"])


def winners(record: Record) -> dict[str, Winner]:
    """Of every race, the product whose laps have the best median."""
    laps: dict[tuple[str, tuple[int, int, int]], list[float]] = {}
    for row in record.tables.get("race", ()):
        laps.setdefault((str(row["dtype"]), shape(row)), []).append(rate(row))
    ordered = sorted((median(rates), len(rates), key) for key, rates in laps.items())
    return {dtype: Winner(product, best, count) for best, count, (dtype, product) in ordered}


def sustained(record: Record) -> dict[str, float]:
    """Format -> flop per second once power and clock have settled, of the fastest load."""
    loads = [
        (cell(row, "flop_per_second"), str(row["dtype"]))
        for row in record.tables.get("power", ())
        if row.get("load") == "matmul" and not cell(row, "idle_share")
    ]
    return {dtype: reached for reached, dtype in sorted(loads)}


def drift(record: Record) -> float | None:
    """How much longer the same product took at worst than at best, as a share."""
    rows = [row for row in record.tables.get("sentinel", ()) if row.get("after") not in SLOWED]
    times = [cell(row, "latency_us") for row in rows]
    return max(times) / min(times) - 1.0 if times and all(times) else None
