"""What a record says at a glance: the fastest product of each format, and whether all held still.

Standard library alone: reports read records where there is no torch.
"""

from __future__ import annotations

from itertools import takewhile
from statistics import median
from typing import Final, NamedTuple

from trueflops.records.measured import Record, Row

# Sections of the last phase, after which every product takes longer.
SLOWED: Final = ("attention", "decode", "fastest bf16_2:4")
SEVERAL: Final = 3
FROM_MEMORY: Final = 4.0  # times the cache: a buffer that surely comes from memory


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


def sustained(record: Record) -> dict[str, Winner]:
    """The fastest load of each format, once power and clock have settled."""
    loads = [
        (cell(row, "flop_per_second"), str(row["dtype"]), shape(row))
        for row in record.tables.get("power", ())
        if row.get("load") == "matmul" and not cell(row, "idle_share")
    ]
    return {dtype: Winner(product, reached, 1) for reached, dtype, product in sorted(loads)}


def drift(record: Record) -> float | None:
    """How much longer the same product took at worst than at best, as a share, before attention."""
    rows = takewhile(lambda row: row.get("after") not in SLOWED, record.tables.get("sentinel", ()))
    times = sorted(cell(row, "latency_us") for row in rows)
    if len(times) > SEVERAL:
        times.pop()  # a moment of another process's load is no drift
    return times[-1] / times[0] - 1.0 if times and all(times) else None


def from_memory(record: Record, op: str = "") -> list[tuple[float, float]]:
    """(bytes per second, bytes of a buffer) of streams that no cache can have held.

    Where the cache is not known, only the largest buffer counts.
    """
    rows = [row for row in record.tables.get("bandwidth", ()) if op in ("", row["op"])]
    cache = cell(record.device, "l2_bytes")
    least = FROM_MEMORY * cache or max((cell(row, "bytes") for row in rows), default=0.0)
    return [(cell(r, "bandwidth"), cell(r, "bytes")) for r in rows if cell(r, "bytes") >= least]
