"""A simulated load for readers: percentiles as a table and as JSON, a trace of requests over time.

The trace is for Perfetto and chrome://tracing: a process for every replica, in it lanes of requests
(waiting, reading, writing), the steps, and counters of requests and cache.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console, RenderableType
from rich.text import Text

from trueflops import units
from trueflops.files import write_file
from trueflops.language import ENGLISH, say, speaking
from trueflops.plan.words import serving_words
from trueflops.predict import ServingPoint
from trueflops.report import encode
from trueflops.report.grid import Column, grid
from trueflops.report.tables import count, plural, ranged
from trueflops.report.training import describe_cluster, print_plan
from trueflops.search import Limits
from trueflops.serve.interval import of_means
from trueflops.serve.load import Requests
from trueflops.serve.outcome import PERCENTILES, Outcome, Spread
from trueflops.serve.scheduler import Served

MICRO: Final = 1e-6
MOST_TRACED: Final = 20_000  # requests that a browser still opens
BEHIND: Final = 0.25  # of a request's time: where more of it is waiting, the queue grows


def _rows(seen: Outcome) -> list[tuple[str, str, Spread]]:
    return [
        ("waiting", "queue", seen.queue),
        (say("time to first token"), "ttft", seen.ttft),
        (say("time per output token"), "tpot", seen.tpot),
        ("between two tokens", "itl", seen.itl),
        ("whole request", "e2e", seen.e2e),
    ]


def print_deployment(
    out: Console, point: ServingPoint, requests: Requests, rate: float, notes: Sequence[str]
) -> None:
    """What serves, and what it is sent."""
    model = point.model
    out.print(
        Text.assemble(
            (model.name, "bold"),
            say(
                " ({parameter_count} parameters, {name}) on ",
                parameter_count=units.show(model.parameter_count, "count"),
                name=point.weights.name,
            ),
            describe_cluster(point.cluster),
        )
    )
    out.print(describe_load(requests, rate))
    replicas = say(", {replicas} replicas", replicas=point.replicas) if point.replicas > 1 else ""
    engine = point.engine
    settings = say(
        "{policy}, {step_tokens} tokens a step, at most {most_sequences} requests",
        policy=engine.policy,
        step_tokens=count(engine.step_tokens),
        most_sequences=count(engine.most_sequences),
    )
    print_plan(out, f"{' · '.join(serving_words(point.plan))}{replicas}", [settings, *notes])


def describe_load(requests: Requests, rate: float) -> str:
    """'1,000 requests at 5/s, 1,022 tokens in and 256 out on average'."""
    if np.isfinite(rate):
        how = say("at {rate}/s", rate=units.digits(rate))
    elif requests.users:
        how = say("of {users}", users=plural(requests.users, "user"))
        how += (
            say(" who think {think}", think=units.show(requests.think, "seconds"))
            if requests.think
            else ""
        )
    elif requests.arrival.any():
        how = say("within {arrival}", arrival=units.show(float(requests.arrival[-1]), "seconds"))
    else:
        how = say("at once")
    read, written = (count(round(float(x.mean()))) for x in (requests.input, requests.output))
    return say(
        "{count} {how}, {read} tokens in and {written} out on average",
        count=plural(requests.count, "request"),
        how=how,
        read=read,
        written=written,
    )


def outcome_table(seen: Outcome, point: ServingPoint, percentile: float) -> RenderableType:
    """Mean, its interval, and percentiles of what users see."""
    shown = sorted({*PERCENTILES, percentile})
    heads: list[Column] = [(f"p{value:g}", "right") for value in shown]
    middle: tuple[Column, Column] = ("mean", "right"), ("90 % interval", "right")
    table = grid("", *middle, *heads, title="What users see")
    means = of_means(seen, point)
    for name, key, spread in _rows(seen):
        within = ranged(means[key], "seconds")[1] if key in means else ""
        percentiles = (units.show(spread.at(value), "seconds") for value in shown)
        table.add_row(name, units.show(spread.mean, "seconds"), within, *percentiles)
    return table


def print_load(
    out: Console, seen: Outcome, point: ServingPoint, requests: Requests, rate: float,
    limits: Limits, percentile: float,
) -> None:  # fmt: skip
    """The whole answer under a load."""
    out.print(outcome_table(seen, point, percentile))
    out.print()
    out.print(
        say(
            "{requests} in {seconds}: {requests_per_second} requests/s, "
            "{tokens_per_second} tokens/s written; at most {most_writing} at once in a "
            "replica",
            requests=plural(seen.requests, "request"),
            seconds=units.show(seen.seconds, "seconds"),
            requests_per_second=units.digits(seen.requests_per_second),
            tokens_per_second=count(seen.tokens_per_second),
            most_writing=count(seen.most_writing),
        )
    )
    if requests.cached.any():
        share = float(requests.cached.sum() / requests.input.sum())
        out.print(say("{share:.0%} of all prompts' tokens were in the cache already", share=share))
    if seen.preempted:
        out.print(
            say(
                "{preempted}: the KV cache was full", preempted=plural(seen.preempted, "preemption")
            )
        )
    if np.isfinite(rate) and seen.queue.mean > BEHIND * seen.e2e.mean:
        out.print(
            say(
                "Requests come faster ({rate}/s) than they are served: the queue grows as "
                "long as they do",
                rate=units.digits(rate),
            )
        )
    if np.isfinite(limits.ttft_seconds) or np.isfinite(limits.tpot_seconds):
        share = seen.in_time(limits.ttft_seconds, limits.tpot_seconds)
        good = share * seen.requests_per_second
        out.print(
            say(
                "{share:.1%} within the limits: a goodput of {good} requests/s",
                share=share,
                good=units.digits(good),
            )
        )


def encode_load(
    seen: Outcome, point: ServingPoint, percentile: float, in_time: bool
) -> dict[str, Any]:
    """The same as JSON."""
    shown = sorted({*PERCENTILES, percentile})
    means: dict[str, Any] = {}
    for name, mean in of_means(seen, point).items():
        means |= encode.estimate(f"mean_{name}_seconds", mean)
    spreads = {
        f"{name}_seconds": {"mean": spread.mean}
        | {f"p{value:g}": spread.at(value) for value in shown}
        for _, name, spread in _rows(seen)
    }
    return {
        **spreads,
        **means,
        "requests": seen.requests,
        "seconds": seen.seconds,
        "requests_per_second": seen.requests_per_second,
        "tokens_per_second": seen.tokens_per_second,
        "preemptions": seen.preempted,
        "most_at_once": seen.most_writing,
        "percentile": percentile,
        "in_time": in_time,
    }


@speaking(ENGLISH)  # a file
def write_load_trace(served: Sequence[Served], path: Path) -> None:
    """Write requests and steps over time in the Trace Event Format."""
    events: list[dict[str, Any]] = []
    left = MOST_TRACED
    for replica, one in enumerate(served):
        events += _replica_events(replica, one, min(left, one.requests.count))
        left -= one.requests.count
        if left <= 0:
            break
    write_file(path, json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))


def _replica_events(replica: int, one: Served, most: int) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": replica, "args": {"name": f"replica {replica}"}}
    ]
    until = float(one.ended[:most].max())
    free: list[tuple[float, int]] = []  # lanes, by when their last request ended
    lanes = 0
    for request in np.argsort(one.sent[:most], kind="stable").tolist():
        sent, ended = float(one.sent[request]), float(one.ended[request])
        if free and free[0][0] <= sent:
            lane = heappop(free)[1]
        else:
            lanes += 1
            lane = lanes
        heappush(free, (ended, lane))
        edges = [sent, float(one.started[request]), float(one.first[request]), ended]
        sizes = {
            "input": int(one.requests.input[request]),
            "output": int(one.requests.output[request]),
        }
        for name, start, end in zip(
            ("waiting", "reading", "writing"), edges[:-1], edges[1:], strict=True
        ):
            if end > start:
                events.append(
                    {"ph": "X", "name": f"{name} {request}", "cat": name, "pid": replica,
                     "tid": lane, "ts": start / MICRO, "dur": (end - start) / MICRO, "args": sizes}
                )  # fmt: skip
    steps = one.steps
    for start, writing, waiting, cached in zip(
        steps.start.tolist(),
        steps.writing.tolist(),
        steps.waiting.tolist(),
        steps.cached.tolist(),
        strict=True,
    ):
        if start > until:
            break
        events += [
            {"ph": "C", "name": name, "pid": replica, "ts": start / MICRO, "args": {unit: value}}
            for name, unit, value in (
                ("requests", "writing", writing),
                ("queue", "waiting", waiting),
                ("KV cache", "tokens", cached),
            )
        ]
    return events
