"""One deployment under several loads, for readers and as JSON: latency against load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rich.console import Console
from rich.text import Text

from trueflops import units
from trueflops.language import say
from trueflops.plan.words import serving_words
from trueflops.predict import ServingPoint
from trueflops.report.grid import Column, grid
from trueflops.report.serving.load import encode_load
from trueflops.report.training import describe_cluster, print_plan
from trueflops.search import Limits
from trueflops.serve.outcome import PERCENTILES, Outcome


class Loaded(NamedTuple):
    """What users saw at one rate."""

    rate: float  # requests a second
    seen: Outcome
    point: ServingPoint  # the same load in closed form
    in_time: bool


def print_loads(
    out: Console,
    point: ServingPoint,
    found: Sequence[Loaded],
    most: float,
    limits: Limits,
    percentile: float,
    notes: Sequence[str],
) -> None:
    """A row a rate."""
    shown = sorted({*PERCENTILES, percentile})
    heads: list[Column] = [
        (f"{what} p{value:g}", "right") for what in ("TTFT", "TPOT") for value in shown
    ]
    table = grid(("sent/s", "right"), ("served/s", "right"), *heads, title="Latency against load")
    for rate, seen, _, in_time in found:
        cells = [spread.at(value) for spread in (seen.ttft, seen.tpot) for value in shown]
        late = "" if in_time else "✗ "  # without colours, too
        table.add_row(
            Text(f"{late}{units.digits(rate)}", style="red" if late else ""),
            units.digits(seen.requests_per_second),
            *(units.show(cell, "seconds") for cell in cells),
        )
    cut = " · ".join(serving_words(point.plan))
    if point.replicas > 1:
        cut = f"{cut}, {say('{replicas} replicas', replicas=point.replicas)}"
    title = say(
        " ({parameter_count} parameters) on ",
        parameter_count=units.show(point.model.parameter_count, "count"),
    )
    out.print(Text.assemble((point.model.name, "bold"), title, describe_cluster(point.cluster)))
    print_plan(out, cut, notes)
    out.print()
    out.print(table)
    said = say(
        "served at most, by the closed form: {most} requests/s",
        most=units.digits(most),
    )
    if limits != Limits():
        said += say("; ✗: not within the limits at p{percentile:g}", percentile=percentile)
    out.print(Text(said, style="dim"))


def encode_loads(found: Sequence[Loaded], most: float, percentile: float) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "most_requests_per_second": most,
        "loads": [
            {"rate_requests_per_second": rate, **encode_load(seen, point, percentile, in_time)}
            for rate, seen, point, in_time in found
        ],
    }
