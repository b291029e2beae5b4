"""What running and owning a cluster takes: failures, spot, storage, power, hosting, years of use.

In: data/operation.toml. Out: mean times until a failure or a reclaim, each with the spread of what
was published, and the usual values that stand in where a user gives none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import exp, log, log1p, sqrt
from typing import Any, Final

from trueflops import units
from trueflops.catalog.accelerators import Accelerator
from trueflops.catalog.facts import DATA, Fact, read_toml, sources
from trueflops.errors import BadCatalog
from trueflops.language import say

MONTH: Final = 365.0 / 12.0 * units.SECONDS_PER_DAY
# Assumed. Shares are of instances within a month, most of which ran for less: a factor of e.
SPOT_ERROR: Final = 1.0
_DIMENSIONS: Final = {
    "restart": "seconds",
    "stall": "seconds",
    "storage": "bytes_per_second",
    "electricity": "usd_per_kwh",
    "hosting": "usd",
}


@dataclass(frozen=True)
class Log:
    """A published count of interruptions that nobody had planned."""

    name: str
    accelerators: float
    interruptions: float
    seconds: float
    source: str
    note: str

    @property
    def mtbf_seconds(self) -> float:
        """Mean time between failures of one accelerator and what belongs to it."""
        return self.accelerators * self.seconds / self.interruptions


@dataclass(frozen=True)
class Lasting:
    """A mean time until something happens, and the standard deviation of its logarithm."""

    seconds: float
    spread: float
    why: str


@cache
def _table() -> dict[str, Any]:
    table = read_toml(DATA / "operation.toml")
    for row in (*table["logs"], *table["spot"]):
        if row.get("source") not in sources():
            raise BadCatalog(f"operation.toml: {row} names no source of sources.toml")
    return table


@cache
def failure_logs() -> tuple[Log, ...]:
    """Every published log."""
    return tuple(
        Log(
            row["name"],
            float(row["accelerators"]),
            float(row["interruptions"]),
            units.parse(row["duration"], "seconds", what="operation.toml"),
            row["source"],
            row["note"],
        )
        for row in _table()["logs"]
    )


def accelerator_mtbf() -> Lasting:
    """Mean time between failures of one accelerator: what published logs agree on, and how well.

    >>> from trueflops.catalog.operation import accelerator_mtbf
    >>> 2 < accelerator_mtbf().seconds / (365 * 86400) < 8  # years
    True
    """
    found = [each.mtbf_seconds for each in failure_logs()]
    return _mean(found, say("{number} published logs", number=len(found)))


def spot_lifetime(chip: Accelerator) -> Lasting:
    """Mean time until a cloud takes a spot instance back; of other chips where none is published.

    A share p of instances within a month means month / −ln(1 − p) each.
    """
    rows = [row for row in _table()["spot"] if chip.name in row["accelerators"]]
    all_rows = rows or _table()["spot"]
    found = [MONTH / -log1p(-row[key]) for row in all_rows for key in ("share_low", "share_high")]
    of = "AWS Spot Instance Advisor, " + all_rows[0]["date"]
    mean = _mean(found, of if rows else say("of other chips: {of}", of=of))
    return replace(mean, spread=max(mean.spread, SPOT_ERROR))


def usual(name: str) -> float:
    """A usual value in SI units (dollars and kWh as they are)."""
    text = usual_fact(name).text
    if name not in _DIMENSIONS:
        return units.read_number(text, what=f"operation.toml: {name}")
    return units.parse(text, _DIMENSIONS[name], what=f"operation.toml: {name}")


@cache
def usual_fact(name: str) -> Fact:
    """The same with its source."""
    return Fact.decode(_table()["usual"][name], f"operation.toml: {name}")


def _mean(found: Sequence[float], why: str) -> Lasting:
    """Geometric mean; the spread is that of single figures, as the next cluster is one of them."""
    logs = [log(each) for each in found]
    mean = sum(logs) / len(logs)
    spread = sqrt(sum((each - mean) ** 2 for each in logs) / max(len(logs) - 1, 1))
    return Lasting(exp(mean), spread, why)
