"""Which chips to take: the best count of each, best first, and those that fell out."""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import Any

from rich.console import Console
from rich.text import Text

from trueflops import units
from trueflops.catalog import Accelerator, Price
from trueflops.language import mark, say
from trueflops.model import Model
from trueflops.plan.words import describe_plan, serving_words
from trueflops.predict import Estimate, ServingPoint, WholeBill
from trueflops.report import encode
from trueflops.report.grid import grid
from trueflops.report.tables import plural, ranged
from trueflops.search import Limits
from trueflops.search.buying import Market, Offer, Run, Wish
from trueflops.workload import Serving

GOAL_WORDS = {
    "usd": "cheapest",
    "time": "fastest",
    "kwh": mark("least energy"),
    "chips": mark("fewest chips"),
}


def print_runs(
    out: Console, model: Model, tokens: float, wish: Wish, market: Market[Run], most: int
) -> None:
    """Runs of one model on several chips."""
    limits = []
    if wish.within < inf:
        limits.append(say("within {within}", within=units.show(wish.within, "seconds")))
    if wish.budget < inf:
        limits.append(say("for at most {budget}", budget=units.show(wish.budget, "usd")))
    said = "".join(f" {limit}" for limit in limits)
    out.print(
        say(
            "[bold]{name}[/] on {tokens} tokens{said}: {goal_words} first, the whole bill",
            name=model.name,
            tokens=units.show(tokens, "count"),
            said=said,
            goal_words=GOAL_WORDS[wish.minimise],
        )
    )
    table = grid(
        "",
        ("time", "right"),
        ("cost", "right"),
        ("90 % interval", "right"),
        ("energy", "right"),
        "plan",
    )
    for offer in market.offers[:most]:
        bill = offer.result.bill
        cost, interval = ranged(bill.usd, "usd") if bill.usd else (say("no price known"), "")
        table.add_row(
            f"{offer.count}x{offer.chip.name}{_mark(offer)}",
            units.show(float(bill.seconds.value), "seconds"),
            cost,
            Text(interval, style="dim"),
            units.show(float(bill.kwh.value) * units.JOULES_PER_KWH, "joules") if bill.kwh else "?",
            describe_plan(offer.result.step.plan),
        )
    out.print(table)
    if any(_mark(offer) for offer in market.offers[:most]):
        out.print(Text(say("* no network between such nodes is known: it is assumed"), style="dim"))
    _print_rest(out, market)
    best = market.offers[0]
    out.print(
        say("\nMore of the first: --on {count}x{name}", count=best.count, name=best.chip.typed),
        highlight=False,
    )


def print_served(
    out: Console,
    model: Model,
    asked: Serving,
    limits: Limits,
    market: Market[ServingPoint],
    most: int,
) -> None:
    """Chips that serve so many users in time."""
    words = [
        say(
            "{concurrency:,} requests at a time, {input:,} tokens in",
            concurrency=asked.concurrency,
            input=asked.input,
        )
    ]
    words.append(say("{output:,} out", output=asked.output))
    if limits.ttft_seconds < inf:
        words.append(
            say(
                "first token within {ttft_seconds}",
                ttft_seconds=units.show(limits.ttft_seconds, "seconds"),
            )
        )
    if limits.tpot_seconds < inf:
        words.append(
            say("{tpot_seconds:.0f} tokens/s each", tpot_seconds=1.0 / limits.tpot_seconds)
        )
    out.print(f"[bold]{model.name}[/], {', '.join(words)}")
    table = grid("", ("$/h", "right"), ("first token", "right"), ("tokens/s each", "right"), "plan")
    for offer in market.offers[:most]:
        point = offer.result
        table.add_row(
            f"{offer.count}x{offer.chip.name}",
            f"{offer.count * offer.rent.usd_per_hour:,.2f}" if offer.rent else "no price known",
            units.show(float(point.ttft.value), "seconds"),
            f"{1.0 / float(point.tpot.value):.0f}",
            _cut(point),
        )
    out.print(table)
    _print_rest(out, market)


def print_missed(out: Console, wish: Wish, bill: WholeBill, chip: Accelerator) -> None:
    """Which limits the run of a given cluster does not keep, and what finds one that does."""
    missed = []
    if not wish.in_time(bill):
        times = (float(bill.seconds.value), wish.within)
        takes, within = (units.show(seconds, "seconds") for seconds in times)
        late = say("[red]Not in time[/]: {takes}, not {within}.", takes=takes, within=within)
        missed.append(late)
    if not wish.affordable(bill):
        costs = units.show(float(bill.usd.value), "usd") if bill.usd else say("no price known")
        budget = units.show(wish.budget, "usd")
        missed.append(say("[red]Too dear[/]: {costs}, not {budget}.", costs=costs, budget=budget))
    if missed:
        missed.append(
            say("What would do: --on any, or --on {chip} without a number.", chip=chip.typed)
        )
        out.print("\n" + " ".join(missed), highlight=False)


def _cut(point: ServingPoint) -> str:
    said = [word for word in serving_words(point.plan) if word != "tp 1"]
    return " · ".join([*said, plural(point.replicas, "replica")])


def _mark(offer: Offer[Run]) -> str:
    cluster = offer.result.step.cluster
    assumed = any(tier.origin == "assumed" for tier in cluster.tiers[1:])
    return "*" if cluster.nodes > 1 and assumed else ""


def _print_rest(out: Console, market: Market[Any]) -> None:
    out.print()
    for why, number in Counter(market.without.values()).most_common(5):
        some = [name for name, text in market.without.items() if text == why]
        names = ", ".join(some[:4]) + (" …" if number > 4 else "")
        out.print(
            Text(
                say("{number} without: {why} ({names})", number=number, why=why, names=names),
                style="dim",
            )
        )


def encode_market(market: Market[Any]) -> dict[str, Any]:
    """Offers as JSON."""
    return {
        "offers": [_encode(offer) for offer in market.offers],
        "without": market.without,
    }


def _encode(offer: Offer[Any]) -> dict[str, Any]:
    result = offer.result
    common = {"chip": offer.chip.name, "count": offer.count, "rent_usd_per_hour": _rent(offer.rent)}
    if isinstance(result, Run):
        bill = result.bill
        return common | {
            "plan": encode.plan(result.step.plan),
            "seconds": bill.seconds.value,
            "usd": _value(bill.usd),
            "kwh": _value(bill.kwh),
        }
    return common | {
        "plan": encode.plan(result.plan),
        "ttft_seconds": result.ttft.value,
        "tpot_seconds": result.tpot.value,
    }


def _rent(rent: Price | None) -> float | None:
    return rent.usd_per_hour if rent else None


def _value(estimate: Estimate | None) -> Any:
    return estimate.value if estimate else None
