"""Rent or buy: what an accelerator-hour costs whoever owns the accelerator.

    owned = (purchase·server·network / years + hosting) / used hours + electricity
    break-even use = (purchase·server·network / years + hosting) / (hours·(rent − electricity))
In: a purchase price, a draw, what power, place and time cost. Out: Ownership. Interest, staff and
what a chip can be sold for afterwards are left out: the first two make owning dearer, the last
cheaper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trueflops.catalog.operation import MONTH
from trueflops.predict.money.operation import Operation
from trueflops.runtime.terms import Estimate
from trueflops.units import SECONDS_PER_DAY, SECONDS_PER_HOUR

HOURS_PER_YEAR: Final = 365.0 * SECONDS_PER_DAY / SECONDS_PER_HOUR
HOURS_PER_MONTH: Final = MONTH / SECONDS_PER_HOUR
WATTS_PER_KW: Final = 1000.0


@dataclass(frozen=True)
class Ownership:
    """What owning one accelerator costs, in dollars."""

    purchase_usd: float  # its share of server and network included
    fixed_usd_per_hour: Estimate  # of every hour that passes, used or not
    power_usd_per_hour: float  # of every hour of use

    @property
    def usd_per_hour(self) -> Estimate:
        """An hour of use where every hour is used."""
        fixed = self.fixed_usd_per_hour
        whole = float(fixed.value) + self.power_usd_per_hour
        share = float(fixed.value) / whole
        return Estimate(whole, {c: share * s for c, s in fixed.spreads.items()}, fixed.origin)

    def break_even(self, rent_usd_per_hour: float) -> float | None:
        """The share of hours above which owning is cheaper than renting; None where never."""
        saved = rent_usd_per_hour - self.power_usd_per_hour
        if saved <= 0.0 or float(self.fixed_usd_per_hour.value) >= saved:
            return None
        return float(self.fixed_usd_per_hour.value) / saved


def ownership(operation: Operation, installed_watts: float, drawn_watts: float) -> Ownership | None:
    """What one accelerator costs its owner; None where no purchase price is known.

    `installed_watts`: what its share of a node may draw at most, which is what hosting is paid for.
    """
    bought = operation.purchase
    if bought is None:
        return None
    around = 1.0 if bought.machine else operation.server * operation.network
    capital = bought.usd * around
    hosting = operation.hosting_usd_per_kw_month * installed_watts / WATTS_PER_KW / HOURS_PER_MONTH
    fixed = capital / (operation.years * HOURS_PER_YEAR) + hosting
    spread = bought.spread * (fixed - hosting) / fixed
    drawn = drawn_watts / WATTS_PER_KW * operation.pue
    return Ownership(
        capital,
        Estimate(fixed, {"purchase": spread}, "assumed"),
        drawn * operation.usd_per_kwh,
    )
