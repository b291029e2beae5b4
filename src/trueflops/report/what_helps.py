"""What would help, as tables and JSON: elasticities of a step, and why one chip beats another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from trueflops.language import mark, say, word
from trueflops.plan.words import describe_plan
from trueflops.report.encode import plan as encode_plan
from trueflops.report.grid import Grid, grid
from trueflops.search.hardware import Resource
from trueflops.search.what_helps import TWICE, Help

SHORT: Final = {
    Resource.BANDWIDTH: "bandwidth",
    Resource.LINKS: "links",
    Resource.POWER: "power",
    Resource.HOST: "host",
}
WITH_FLOPS: Final = mark("FLOP/s, kernels, power")
MEANS: Final = mark("rates doubled at the same power; latencies stay")
ORDERS: Final = mark("mean over all orders of exchanging one's for the other's (Shapley value)")


def print_helps(out: Console, helps: Sequence[Help]) -> None:
    """The gain from twice as much of each resource, for one step."""
    sought = any(each.best_plan is not None for each in helps)
    more = ((say("best plan"), "right"), "") if sought else ()
    table = grid("", ("same plan", "right"), *more, title="What would help")
    for each in helps:
        cells = [f"{TWICE:g} × {word(each.resource.value)}", times(each.same_plan)]
        if sought:
            gain = each.best_plan or each.same_plan
            other = times(gain) != times(each.same_plan)
            plan = describe_plan(each.best.plan) if other and each.best else ""
            table.add_row(*cells, times(gain), Text(plan, style="dim"))
        else:
            table.add_row(*cells)
    out.print(table)
    alone = "" if sought else say("; leave the plan out to have the best one on each searched, too")
    out.print(Text(say("times as fast; {means}{alone}", means=MEANS, alone=alone), style="dim"))


def print_chip_helps(out: Console, helps: Mapping[str, Sequence[Help]]) -> None:
    """The same for several chips, of the best plan on each."""
    there = [r for r in Resource if any(h.resource is r for each in helps.values() for h in each)]
    columns = [(SHORT.get(r, r.value), "right") for r in there]
    table = grid("chip", *columns, title="What twice as much of each would help training")  # type: ignore[arg-type]
    for chip, each in helps.items():
        gains = {h.resource: h.best_plan or h.same_plan for h in each}
        table.add_row(chip, *(times(gains[r]) if r in gains else "–" for r in there))
    out.print(table)
    out.print(
        Text(say("times as fast with the best plan there; {means}", means=MEANS), style="dim")
    )


def print_why(out: Console, fast: str, slow: str, factors: Mapping[Resource, float]) -> None:
    """Which resources make one chip faster than another."""
    ratio = ratio_of(factors)
    table = _why_table(
        say("Why {fast} trains {ratio} as fast as {slow}", fast=fast, ratio=times(ratio), slow=slow)
    )
    for resource, factor in factors.items():
        name = WITH_FLOPS if resource is Resource.FLOPS else resource.value
        share = f"{100 * log(factor) / log(ratio):.0f} %" if ratio > 1.0 else ""
        table.add_row(name, times(factor), share)
    table.add_row("[bold]product[/]", f"[bold]{times(ratio)}[/]", "")
    out.print(table)
    out.print(Text(say("{orders}; share: of the logarithm", orders=ORDERS), style="dim"))


def _why_table(title: str) -> Grid:
    return grid("", ("factor", "right"), ("share", "right"), title=title)


def ratio_of(factors: Mapping[Resource, float]) -> float:
    """What the factors multiply to."""
    ratio = 1.0
    for factor in factors.values():
        ratio *= factor
    return ratio


def times(factor: float) -> str:
    """'1.35 ×'."""
    return f"{factor:.2f} ×"


def encode_helps(helps: Sequence[Help]) -> list[dict[str, Any]]:
    """For JSON."""
    return [
        {
            "resource": each.resource.value,
            "factor": TWICE,
            "speed_up_same_plan": each.same_plan,
            "speed_up_best_plan": each.best_plan,
            "best_plan": encode_plan(each.best.plan) if each.best else None,
        }
        for each in helps
    ]


def encode_why(fast: str, slow: str, factors: Mapping[Resource, float]) -> dict[str, Any]:
    """For JSON."""
    return {
        "faster": fast,
        "slower": slow,
        "speed_up": ratio_of(factors),
        "factors": {resource.value: factor for resource, factor in factors.items()},
    }
