"""What an accelerator-hour costs: rents by provider with their date, and purchase prices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from math import log
from statistics import median
from typing import Any, Final

from trueflops import units
from trueflops.catalog.accelerators import Accelerator, accelerator
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

    def times(self, share: float) -> Price:
        """The rent of a part of the accelerator: clouds sell slices by their share."""
        usd, low, high = (share * each for each in (self.usd_per_hour, self.low, self.high))
        return replace(self, usd_per_hour=usd, low=low, high=high)


@dataclass(frozen=True)
class Purchase:
    """What one accelerator is sold for; low and high span the offers on record."""

    usd: float
    low: float
    high: float
    date: str  # of the newest
    offers: int  # 0: as the user says
    machine: bool = False  # whether it is the price of a whole machine, not of a chip in a server

    @property
    def spread(self) -> float:
        """Standard deviation of its logarithm: of the offers, and no less than one offer's."""
        return max(log(self.high / self.low) / 2.0, ONE_OFFER) if self.offers else 0.0


# Assumed: "±20–40 %", as the estimate of aiinframap-tco says of itself.
ONE_OFFER: Final = 0.2


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
    if chip.cut_of and (share := chip.get("partition.share")):
        whole = price(accelerator(chip.cut_of), spot=spot)
        return whole and whole.times(share)
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


def mean_price(rents: list[Price | None]) -> Price | None:
    """What one of several unlike accelerators costs on average; None if one's rent is unknown."""
    known = [rent for rent in rents if rent is not None]
    if len(known) < len(rents):
        return None

    def mean(values: Iterable[float]) -> float:
        return sum(values) / len(known)

    return replace(
        known[0],
        usd_per_hour=mean(rent.usd_per_hour for rent in known),
        low=mean(rent.low for rent in known),
        high=mean(rent.high for rent in known),
        date=max(rent.date for rent in known),
    )


def purchase(chip: Accelerator) -> Purchase | None:
    """The median of purchase prices on record, for one device as software sees it."""
    rows = purchases(chip.name)
    if not rows:
        return None
    of = chip.devices_per_package

    def usd(row: dict[str, Any], key: str) -> float:
        return units.parse(row.get(key, row["price"]), "usd", what="prices.toml") / of

    return Purchase(
        median(usd(row, "price") for row in rows),
        min(usd(row, "price_low") for row in rows),
        max(usd(row, "price_high") for row in rows),
        max(row.get("date", "") for row in rows),
        len(rows),
        all(row.get("machine", False) for row in rows),
    )


def _providers(row: dict[str, Any]) -> int:
    """Rows that summarise say how many providers they asked: '8 providers: aws gcp …'."""
    words: Iterable[str] = row.get("note", "").split()
    return next((int(w) for w in words if w.isdigit()), 1)


def _usd(text: str) -> float:
    return units.parse(text, "usd_per_hour", what="prices.toml")
