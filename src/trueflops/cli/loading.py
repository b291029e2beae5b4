"""The load and the engine's settings that the flags of `infer` spell out."""

from __future__ import annotations

import argparse
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from trueflops import units
from trueflops.cli.counts import count_of
from trueflops.errors import BadInput
from trueflops.language import say
from trueflops.model import Model
from trueflops.predict import Server, ServingPoint
from trueflops.search import Limits
from trueflops.serve.interval import queueing
from trueflops.serve.load import Lengths, Requests, draw_requests
from trueflops.serve.outcome import Outcome, outcome
from trueflops.serve.scheduler import Served
from trueflops.serve.simulated import Deployed
from trueflops.serve.trace_file import read_requests
from trueflops.workload import Serving

USUAL: Final = {"input": 1024, "output": 256, "concurrency": 64}
USUAL_REQUESTS: Final = 1000
MOST_REQUESTS: Final = 1_000_000
USUAL_PERCENTILE: Final = 99.0
BURSTS: Final = 0.25  # shape of the gaps of --arrival bursts, where --burstiness says nothing
CONVERSATIONS: Final = 1.0  # of --lengths lognormal: ShareGPT's lengths as vLLM samples them
SIMULATED: Final = (
    "rate", "requests", "arrival", "burstiness", "think", "lengths", "requests_from", "percentile",
    "trace", "prefix_hits", "rates",
)  # fmt: skip


def simulates(options: argparse.Namespace) -> bool:
    """Whether the flags ask for a simulation."""
    return any(getattr(options, name, None) is not None for name in SIMULATED)


def load_of(options: argparse.Namespace, model: Model) -> Serving:
    """The load; a prompt that nobody gave leaves room for the output in the model's own length."""
    output = _said(options, "output", USUAL["output"])
    room = max(model.max_positions - output, 1)
    read = _said(options, "input", min(USUAL["input"], room))
    asked_by = "concurrency" if options.users is None else "users"
    return Serving(read, output, _said(options, asked_by, USUAL["concurrency"]))


def says_load(options: argparse.Namespace) -> bool:
    """Whether the flags say how many requests are in flight."""
    said = (options.concurrency, options.rate, options.rates, options.requests_from)
    return any(each is not None for each in said)


def without_waiting(server: Server, point: ServingPoint) -> Server:
    """The server under a load that its best cut has room for."""
    if not point.waiting:
        return server
    at_once = min(point.most_requests, point.engine.most_sequences) * point.replicas
    return server.asked(replace(server.workload, concurrency=at_once))


def why_so_many(server: Server, point: ServingPoint) -> list[str]:
    """Why fewer requests are in flight than usual, where nobody says how many."""
    asked = server.workload.concurrency
    if asked >= USUAL["concurrency"]:
        return []
    if asked < point.engine.most_sequences * point.replicas:
        return [say("concurrency {asked}: as many as there is room for", asked=asked)]
    name = server.engine.name
    return [say("concurrency {asked}: as many as {engine} runs at once", asked=asked, engine=name)]


def rate_of(options: argparse.Namespace) -> float:
    """Requests a second; infinite where none is given."""
    if options.rate is None:
        return np.inf
    rate = units.read_number(options.rate.removesuffix("/s").strip(), what="--rate")
    if rate <= 0:
        raise BadInput(
            say("--rate: {rate!r} must be above 0; write for example 10/s", rate=options.rate)
        )
    return rate


def settled(server: Server, point: ServingPoint, rate: float) -> Server:
    """The server at as many requests as are under way at that rate (Little's law)."""
    inside = float(point.ttft.value) + server.workload.output * float(point.tpot.value)
    # Of a server that cannot keep up no more are under way than there is room for; others wait.
    room = max(point.most_requests * point.replicas, 1)
    under_way = int(np.clip(ceil(rate * inside), 1, room))
    return server.asked(replace(server.workload, concurrency=under_way))


def requests_of(options: argparse.Namespace, server: Server) -> Requests:
    """What the flags say is sent."""
    if options.requests_from is not None:
        for other in ("rate", "requests", "arrival", "burstiness", "think", "lengths"):
            if getattr(options, other) is not None:
                raise BadInput(
                    say("--requests-from says all of the load: leave --{other} away", other=other)
                )
        requests = read_requests(Path(options.requests_from))
        return replace(requests, users=_users(options)) if options.concurrency else requests
    arrival = options.arrival or ("poisson" if options.rate is not None else "closed-loop")
    if arrival in ("poisson", "bursts") and options.rate is None:
        raise BadInput(say("--arrival {arrival} needs --rate, as --rate 10/s", arrival=arrival))
    if arrival in ("closed-loop", "at-once") and options.rate is not None:
        raise BadInput(
            say("--arrival {arrival} has no --rate: leave one of them away", arrival=arrival)
        )
    if options.think is not None and arrival != "closed-loop":
        raise BadInput(say("--think is of users in a loop: leave --rate and --arrival away"))
    asked = server.workload
    return draw_requests(
        _count(options),
        _lengths(options, asked.input),
        _lengths(options, asked.output),
        rate=rate_of(options),
        burstiness=_burstiness(options, arrival),
        users=asked.concurrency if arrival == "closed-loop" else _users(options),
        think=0.0
        if options.think is None
        else units.parse(options.think, "seconds", what="--think"),
        prefix_hits=_share(options),
    )


def prefix_notes(options: argparse.Namespace) -> list[str]:
    """What a share of prompts that is cached changes, and what it does not."""
    if not (share := _share(options)):
        return []
    return [
        say(
            "prefix hits: {share:.0%} of each prompt is not read again; its memory is not shared, "
            "each request has a whole cache of its own",
            share=share,
        )
    ]


def percentile_of(options: argparse.Namespace) -> float:
    """At which limits must hold."""
    if options.percentile is None:
        return USUAL_PERCENTILE
    said = options.percentile.lstrip("pP")
    value = units.read_number(said, what="--percentile")
    if not 0 < value <= 100:
        raise BadInput(
            say(
                "--percentile: {percentile!r} must be above 0 and at most 100",
                percentile=options.percentile,
            )
        )
    return value


class Simulation(NamedTuple):
    """One cut of a cluster under a load."""

    point: ServingPoint
    served: list[Served]
    seen: Outcome
    in_time: bool  # whether it keeps the limits at the percentile asked for


def simulate(
    server: Server,
    points: list[ServingPoint],
    requests: Requests,
    limits: Limits,
    percentile: float,
) -> Simulation:
    """The first of these cuts that keeps its limits, else the first."""
    first: tuple[Simulation, Deployed] | None = None
    for point in points:
        if not point.most_requests:
            continue
        deployed = Deployed(server, point.plan)
        served = deployed.serve(requests)
        seen = outcome(served)
        in_time = seen.keeps(limits.ttft_seconds, limits.tpot_seconds, percentile)
        found = Simulation(point, served, seen, in_time)
        if in_time:
            return _ranged(found, deployed, requests)
        first = first or (found, deployed)
    assert first is not None, "a cut without room for a request was to be simulated"
    return _ranged(*first, requests)


def _ranged(found: Simulation, deployed: Deployed, requests: Requests) -> Simulation:
    """With how far its queues may be off."""

    def at_pace(pace: float) -> Outcome:
        return outcome(deployed.serve(requests, pace))

    return found._replace(seen=queueing(found.seen, requests, found.point, at_pace))


def _said(options: argparse.Namespace, name: str, usual: int) -> int:
    value = getattr(options, name)
    return usual if value is None else count_of(value, f"--{name}")


def _count(options: argparse.Namespace) -> int:
    if options.requests is None:
        return USUAL_REQUESTS
    many = units.parse_count(options.requests, what="--requests")
    if many > MOST_REQUESTS:
        raise BadInput(
            say("--requests: at most {most_requests:,} are simulated", most_requests=MOST_REQUESTS)
        )
    return many


def _users(options: argparse.Namespace) -> int | None:
    """At most so many are under way, where --concurrency says so."""
    if options.concurrency is None:
        return None
    return count_of(options.concurrency, "--concurrency")


def _lengths(options: argparse.Namespace, mean: int) -> Lengths:
    said = options.lengths
    if said is None:
        return Lengths(mean)
    if said == "fixed":
        return Lengths(mean, 1.0, 1.0)
    if said == "lognormal":
        return Lengths(mean, sigma=CONVERSATIONS)
    try:
        spread = units.read_number(said)
    except BadInput:
        spread = -1.0
    if not 0 <= spread < 1:
        raise BadInput(
            say(
                "--lengths: {said!r} is none; write fixed, lognormal, or a share below 1 as 0.2",
                said=said,
            )
        )
    return Lengths(mean, 1.0 - spread, 1.0 + spread)


def _burstiness(options: argparse.Namespace, arrival: str) -> float:
    if options.burstiness is None:
        return BURSTS if arrival == "bursts" else 1.0
    if options.rate is None:
        raise BadInput(say("--burstiness is of requests at a rate: give --rate, as --rate 10/s"))
    shape = units.read_number(options.burstiness, what="--burstiness")
    if shape <= 0:
        raise BadInput(
            say(
                "--burstiness: {burstiness!r} must be above 0; 1 is poisson",
                burstiness=options.burstiness,
            )
        )
    return shape


def _share(options: argparse.Namespace) -> float:
    if options.prefix_hits is None:
        return 0.0
    share = units.read_number(options.prefix_hits, what="--prefix-hits")
    if not 0 <= share < 1:
        raise BadInput(
            say(
                "--prefix-hits: {prefix_hits!r} must be from 0 to below 1",
                prefix_hits=options.prefix_hits,
            )
        )
    return share
