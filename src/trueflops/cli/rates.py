"""trueflops infer --rates: one deployment under several loads, simulated request by request."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from trueflops import units
from trueflops.cli.loading import percentile_of, requests_of, settled, simulate
from trueflops.cli.question import question_of
from trueflops.errors import BadInput, printable
from trueflops.language import say
from trueflops.predict import Server, ServingPoint
from trueflops.report import encode
from trueflops.report.progress import Waiting
from trueflops.report.serving.loads import Loaded, encode_loads, print_loads
from trueflops.report.tables import console
from trueflops.search import Limits

AUTO: Final = "auto"
SHARES: Final = (
    0.1,
    0.25,
    0.5,
    0.7,
    0.85,
    0.95,
    1.05,
)  # of what can be served, where none is given
MOST_RATES: Final = 32
SETTLING: Final = 3  # rounds until as many requests are under way as a rate brings


def settle(server: Server, point: ServingPoint, rate: float) -> Server:
    """The server with as many requests under way as a rate brings to this cut of the cluster."""
    for _ in range(SETTLING):
        server = settled(server, point, rate)
        point = server.predict(point.plan)
    return server


def most_served(server: Server, point: ServingPoint) -> float:
    """Requests a second that the closed form serves where all that there is room for are there."""
    room = max(point.most_requests * point.replicas, 1)
    full = server.asked(replace(server.workload, concurrency=room)).predict(point.plan)
    return float(full.tokens_per_second.value) / server.workload.output


def run_rates(
    server: Server,
    point: ServingPoint,
    limits: Limits,
    options: argparse.Namespace,
    more: dict[str, Any],
) -> int:
    """The same cut of the cluster at every rate; exit 1 if it keeps its limits at none."""
    most = most_served(server, point)
    percentile = percentile_of(options)
    found = []
    with Waiting(say("simulating")) as wait:
        for rate in rates_of(options, most):
            wait.say(say("{rate} requests a second", rate=units.digits(rate)))
            there = settle(server, point, rate) if options.concurrency is None else server
            asked = argparse.Namespace(**{**vars(options), "rate": repr(rate)})
            requests = requests_of(asked, there)
            seen = simulate(there, [there.predict(point.plan)], requests, limits, percentile)
            found.append(Loaded(rate, seen.seen, seen.point, seen.in_time))
    if options.json:
        answer = encode.serving(question_of(options), point) | more
        answer |= encode_loads(found, most, percentile)
        print(encode.to_json(answer))
    else:
        print_loads(console(), point, found, most, limits, percentile, more["notes"])
    return 0 if any(each.in_time for each in found) else 1


def rates_of(options: argparse.Namespace, most: float) -> Sequence[float]:
    """Those that the flag names, from small to large, or shares of what can be served."""
    for other in ("rate", "requests_from", "think", "trace"):
        if getattr(options, other) is not None:
            flag = other.replace("_", "-")
            raise BadInput(
                say("--rates runs several loads of its own: leave --{flag} away", flag=flag)
            )
    if options.rates == AUTO:
        return [float(f"{share * most:.2g}") for share in SHARES]
    texts = options.rates.split(",")
    rates = {units.read_number(text.strip().removesuffix("/s"), what="--rates") for text in texts}
    if min(rates) <= 0 or len(rates) > MOST_RATES:
        raise BadInput(
            say(
                "--rates {rates}: write at most {most} numbers above 0, as 1,2,4,8",
                rates=printable(options.rates, 40),
                most=MOST_RATES,
            )
        )
    return sorted(rates)
