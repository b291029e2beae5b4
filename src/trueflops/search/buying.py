"""Inverse questions: which chips, and how many, for a run or for users, at the least of something.

In: a Model, what is to be done, chips, a Wish. Out: Offers, the best first, and why other chips are
not among them. Counts are powers of two. A count is left out only where a bound says that it cannot
be an answer (no chip is faster than its peak, none costs less than its rent for that long, and all
memories together must hold weights and optimizer states), or where half as many already did better:
chips wait longer for each other the more they are, so that beyond the best count all are assumed to
be worse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, inf, log2
from typing import Final, Generic, Literal, TypeVar

from trueflops.catalog import Accelerator, Price, cluster_of, price
from trueflops.errors import TrueflopsError
from trueflops.language import mark
from trueflops.model import Model
from trueflops.plan import BYTES, Plan
from trueflops.predict import Server, ServingPoint, TrainingStep, WholeBill, whole_bill
from trueflops.profile import profile_of
from trueflops.profile.frameworks import USUAL
from trueflops.search.chips import MOST_CHIPS, best_plan, narrowest
from trueflops.search.hardware import Hardware
from trueflops.search.serving import Limits, search_serving
from trueflops.units import JOULES_PER_KWH, SECONDS_PER_HOUR
from trueflops.workload import Training

Goal = Literal["time", "usd", "kwh", "chips"]
NO_PRICE: Final = "no price known"
DEARER: Final = mark("dearer than those above even at its peak")
TOO_SLOW: Final = mark("too slow, or too dear, on any count")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Wish:
    """What must hold, and what is to be least."""

    within: float = inf  # seconds
    budget: float = inf  # dollars
    minimise: Goal = "usd"

    def in_time(self, bill: WholeBill) -> bool:
        """Whether a run ends soon enough."""
        return float(bill.seconds.value) <= self.within

    def affordable(self, bill: WholeBill) -> bool:
        """Whether a run costs no more than there is; without a price only where nobody asks."""
        usd = float(bill.usd.value) if bill.usd else inf
        return self.budget == inf or usd <= self.budget


@dataclass(frozen=True)
class Offer(Generic[Result]):
    """So many of a chip, and what they do."""

    chip: Accelerator
    count: int
    result: Result
    rent: Price | None
    value: float  # of what is to be least


@dataclass
class Market(Generic[Result]):
    """The best offer of each chip, best first, and chips without one."""

    offers: list[Offer[Result]] = field(default_factory=list)
    without: dict[str, str] = field(default_factory=dict)  # why, by chip


@dataclass(frozen=True)
class Run:
    """A training step and the bill of the whole run."""

    step: TrainingStep
    bill: WholeBill


def chips_for_training(
    model: Model,
    training: Callable[[int], Training],
    chips: Sequence[Accelerator],
    wish: Wish,
    most: int = 5,
    say: Callable[[str], None] = lambda text: None,
    *,
    rent_of: Callable[[Accelerator], Price | None] = price,
    bill_of: Callable[[TrainingStep], WholeBill] = whole_bill,
) -> Market[Run]:
    """The best count of every chip that may be among so many best ones, for a workload that may
    suit the count.
    """
    market: Market[Run] = Market()
    able = []
    for chip in chips:
        try:
            rent = rent_of(chip)
            if rent is None and (wish.minimise == "usd" or wish.budget < inf):
                market.without[chip.name] = NO_PRICE
                continue
            able.append(_Runs(model, training, chip, rent, bill_of))
        except TrueflopsError as error:
            market.without[chip.name] = str(error)
    able.sort(key=lambda runs: runs.least_usd(1))
    for at, runs in enumerate(able, 1):
        say(f"{runs.chip.name}, {at} of {len(able)}; {len(market.offers)} can so far")
        worst = market.offers[most - 1].value if len(market.offers) >= most else inf
        if wish.minimise == "usd" and runs.least_usd(1) > worst:
            market.without[runs.chip.name] = DEARER
            continue
        try:
            found = _best_count(runs, wish)
        except TrueflopsError as error:
            market.without[runs.chip.name] = str(error)
            continue
        if found is None:
            market.without[runs.chip.name] = TOO_SLOW
        else:
            market.offers.append(found)
            market.offers.sort(key=lambda offer: (offer.value, _dollars(offer)))
    return market


def _dollars(offer: Offer[Run]) -> float:
    """What decides between offers that are alike in what is to be least; no price comes last."""
    paid = offer.result.bill.usd
    return float(paid.value) if paid else inf


class _Runs:
    """One chip: what a run takes on so many of it, at least and really."""

    def __init__(
        self,
        model: Model,
        training: Callable[[int], Training],
        chip: Accelerator,
        rent: Price | None,
        bill_of: Callable[[TrainingStep], WholeBill],
    ) -> None:
        self.model, self.training, self.chip = model, training, chip
        self.rent, self.bill_of = rent, bill_of
        self.dtype = narrowest(chip)
        each = BYTES[self.dtype] + Plan(parameter_dtype=self.dtype).state_bytes
        self.fewest = ceil(model.parameter_count * each / chip.need("memory.capacity"))

    def counts(self) -> Iterator[int]:
        """Powers of two that could hold the model."""
        first = max(ceil(log2(max(self.fewest, 1))), 0)
        yield from (2**i for i in range(first, int(log2(MOST_CHIPS)) + 1))

    def least_seconds(self, count: int) -> float:
        """At the chip's peak: 6 flop a token for each parameter that is multiplied (Kaplan 2020,
        arXiv 2001.08361); a table of embeddings that is no head as well is only looked up.
        """
        model = self.model
        table = 0.0 if model.tied else float(model.vocab * model.hidden)
        flop = 6.0 * (model.active_parameter_count - table) * self.training(count).tokens
        return flop / (count * self.chip.peak_flop_per_second(self.dtype))

    def least_usd(self, count: int) -> float:
        """That long, at the going rent."""
        hours = self.least_seconds(count) * count / SECONDS_PER_HOUR
        return hours * self.rent.usd_per_hour if self.rent else 0.0

    def at(self, count: int) -> Run | None:
        """The best plan's run, or none."""
        on = Hardware(cluster_of(self.chip, count), profile_of(self.chip, USUAL))
        step = best_plan(self.model, self.training(count), on)
        return Run(step, self.bill_of(step)) if step is not None else None


def _best_count(runs: _Runs, wish: Wish) -> Offer[Run] | None:
    """Of all counts that meet the wish, that with least of what is to be least."""
    best: Offer[Run] | None = None
    for count in runs.counts():
        if runs.least_seconds(count) > wish.within or runs.least_usd(count) > wish.budget:
            continue
        most = best.value if best else inf
        if wish.minimise == "usd" and runs.least_usd(count) >= most:
            continue
        found = runs.at(count)
        if found is None:
            continue
        bill = found.bill
        value = _value(bill, count, wish.minimise)
        if wish.in_time(bill) and wish.affordable(bill) and value < most:
            best = Offer(runs.chip, count, found, runs.rent, value)
        elif best is not None and wish.minimise != "time":
            break
    return best


def _value(bill: WholeBill, count: int, goal: Goal) -> float:
    if goal == "usd":
        return float(bill.usd.value) if bill.usd else inf
    if goal == "kwh":
        return float(bill.kwh.value) if bill.kwh else inf
    return float(bill.seconds.value) if goal == "time" else float(count)


def chips_for_serving(
    serve: Callable[[Accelerator, int], Sequence[Server]],
    limits: Limits,
    chips: Sequence[Accelerator],
    goal: Goal,
    say: Callable[[str], None] = lambda text: None,
    *,
    rent_of: Callable[[Accelerator], Price | None] = price,
) -> Market[ServingPoint]:
    """The fewest of every chip that answer in time; `serve` gives the servers on so many of one, a
    server for each format that may be tried.
    """
    market: Market[ServingPoint] = Market()
    for chip in chips:
        say(f"{chip.name}; {len(market.offers)} chips can so far")
        try:
            if goal == "usd" and rent_of(chip) is None:
                market.without[chip.name] = NO_PRICE
                continue
            found = _fewest_serving(serve, limits, chip)
        except TrueflopsError as error:
            market.without[chip.name] = str(error)
            continue
        if found is None:
            market.without[chip.name] = mark("not in time on any count")
            continue
        count, point = found
        watts = float(point.watts.value) if point.watts else inf
        by = {
            "usd": count * point.price.usd_per_hour if point.price else inf,
            "kwh": watts * SECONDS_PER_HOUR / JOULES_PER_KWH,
            "chips": float(count),
            "time": float(point.ttft.value),
        }
        market.offers.append(Offer(chip, count, point, point.price, by[goal]))
    market.offers.sort(key=lambda offer: offer.value)
    return market


def _fewest_serving(
    serve: Callable[[Accelerator, int], Sequence[Server]], limits: Limits, chip: Accelerator
) -> tuple[int, ServingPoint] | None:
    for exponent in range(int(log2(MOST_CHIPS)) + 1):
        points = [
            point
            for server in serve(chip, 2**exponent)
            for point in search_serving(server, limits, most=1)
            if point.fits and limits.met(point)
        ]
        if points:
            best = max(points, key=lambda point: float(point.tokens_per_second.value))
            return 2**exponent, best
    return None
