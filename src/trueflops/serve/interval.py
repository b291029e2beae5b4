"""How far a simulated latency can be trusted: the intervals of what it is made of.

In: seconds that a simulation gave, the point of the same deployment in closed form, the share of
the first token's time that was spent waiting; for queues the requests, and the simulation at any
other pace. Out: an Estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import exp, hypot, log
from typing import Final

from trueflops.predict import ServingPoint
from trueflops.predict.serving.server import BATCHING_ERROR
from trueflops.runtime import Estimate, reaching, total
from trueflops.serve.load import Requests
from trueflops.serve.outcome import Outcome

CROWD_ERROR: Final = 0.6
"""Of a time per token among requests that all wait, which may be longer than told: as many are let
in as nobody tunes an engine for, past its captured graphs, and its front streams to all of them at
once. So that nine loads in ten take no longer than the interval reaches, every model on an engine
counted once (benchmarks/load_errors.py)."""


def queueing(
    seen: Outcome, requests: Requests, point: ServingPoint, at_pace: Callable[[float], Outcome]
) -> Outcome:
    """The same outcome, with how far its queues may be off: simulated again `at_pace`, at both ends
    of a decode step's interval, prompts along with it. What the mean then moves by is taken for
    the median and for p99, too.

    Only where requests come at a rate of their own. Users who wait for an answer, or a burst, make
    no longer queue for a slower server: what they wait is as long as its steps.
    """
    if not requests.arrival.any():
        return seen
    step = point.decode.estimate
    reach = (log(float(step.value / step.low)), log(float(step.high / step.value)))
    first = [at_pace(exp(pace)).ttft.mean for pace in (-reach[0], reach[1])]
    sooner, later = log(seen.ttft.mean / first[0]), log(first[1] / seen.ttft.mean)
    return replace(seen, queueing=(max(sooner - reach[0], 0.0), max(later - reach[1], 0.0)))


def first_token(seconds: float, point: ServingPoint, seen: Outcome) -> Estimate:
    """As well known as that of the closed form, a queue, a prompt, a step; but for queues that
    grow.
    """
    known = point.ttft.times(seconds / float(point.ttft.value))
    if not any(seen.queueing):
        return known
    (low, high), (sooner, later) = known.unstated, seen.queueing
    return replace(known, unstated=(hypot(float(low), sooner), hypot(float(high), later)))


def each_token(seconds: float, point: ServingPoint, waited: float) -> Estimate:
    """What a token takes beyond a decode step is others' prompts, and how many of them a scheduler
    reads in between is known as well as how full it keeps its batch; where requests `waited` for
    that share of their first token, less well.
    """
    writing = min(float(point.decode.value), seconds)
    reading = seconds - writing
    each = total(
        "tpot",
        point.decode.scaled(writing / float(point.decode.value)),
        point.prefill.scaled(reading / float(point.prefill.value)),
        cause="batching",
        spread=BATCHING_ERROR * reading / seconds,
    )
    return reaching(each, CROWD_ERROR * waited).estimate


def of_means(seen: Outcome, point: ServingPoint) -> Mapping[str, Estimate]:
    """Of what users see on average; nothing of a time per token where one alone was written.

    A whole request is its first token and those after it, each as well known as by itself.
    """
    first = first_token(seen.ttft.mean, point, seen)
    if not seen.tpot.mean > 0.0:
        return {"ttft": first, "e2e": first}
    each = each_token(seen.tpot.mean, point, seen.waited)
    writing = each.times((seen.e2e.mean - seen.ttft.mean) / seen.tpot.mean)
    return {"ttft": first, "tpot": each, "e2e": first.plus(writing)}
