"""What an accelerator-hour costs: rents by provider with their date, and purchase prices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from trueflops import units
from trueflops.catalog.accelerators import Accelerator
from trueflops.catalog.facts import DATA, read_toml, sources
from trueflops.errors import BadCatalog


@dataclass(frozen=True)
class Price:
    """Dollars per accelerator-hour; low and high span the providers asked."""

    usd_per_hour: float
    low: float
    high: float
    date: str
    source: str
    kind: str  # "on demand", "spot", "given"


@cache
def _table() -> dict[str, list[dict[str, Any]]]:
    table = read_toml(DATA / "prices.toml")
    for kind in ("rent", "purchase"):
        for row in table[kind]:
            if row.get("source") not in sources():
                raise BadCatalog(f"prices.toml: {row} names no source of sources.toml")
    return table


def rents(chip: str) -> list[dict[str, Any]]:
    """Every rent on record for a chip."""
    return [row for row in _table()["rent"] if chip in row["accelerators"]]


def purchases(chip: str) -> list[dict[str, Any]]:
    """Every purchase price on record for a chip."""
    return [row for row in _table()["purchase"] if chip in row["accelerators"]]


def price(chip: Accelerator, *, spot: bool = False) -> Price | None:
    """The going rent: the median over providers with fresh prices, else over all; None if unknown.

    A row for exactly this chip wins over one for a mixture of its variants, unless the mixture
    asks more providers.

    >>> import trueflops as tf
    >>> rent = tf.price(tf.accelerator("H100"))
    >>> rent.kind, rent.low < rent.usd_per_hour < rent.high
    ('on demand', True)
    """
    middle, low = ("spot", "spot_low") if spot else ("on_demand", "on_demand_low")
    for provider in ("fresh", "all"):
        rows = [r for r in rents(chip.name) if r["provider"] == provider and middle in r]
        if rows:
            row = max(rows, key=_providers)
            text = row[middle]
            return Price(
                _usd(text),
                _usd(row.get(low, text)),
                _usd(text if spot else row.get("on_demand_high", text)),
                row["date"],
                row["source"],
                "spot" if spot else "on demand",
            )
    return None


def _providers(row: dict[str, Any]) -> int:
    """Rows that summarise say how many providers they asked: '8 providers: aws gcp …'."""
    words: Iterable[str] = row.get("note", "").split()
    return next((int(w) for w in words if w.isdigit()), 1)


def _usd(text: str) -> float:
    return units.parse(text, "usd_per_hour", what="prices.toml")
