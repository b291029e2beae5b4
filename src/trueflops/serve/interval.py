"""How far a simulated latency can be trusted: the intervals of what it is made of.

In: seconds that a simulation gave, the point of the same deployment in closed form, the share of
the first token's time that was spent waiting. Out: an Estimate.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import hypot
from typing import Final

from trueflops.predict import ServingPoint
from trueflops.predict.serving.server import BATCHING_ERROR
from trueflops.runtime import Estimate, total
from trueflops.serve.outcome import Outcome

CROWD_ERROR: Final = 0.45
"""Of a time per token among requests that all wait: as many are let in as nobody tunes an engine
for, past its captured graphs, and its front streams to all of them at once. So that 90 % of the
bursts of serving_latency.csv lie inside; with each of six models left out in turn 0.30 to 0.52, and
each by the others' error 88 % (of medians 87, of p99 89)."""


def first_token(seconds: float, point: ServingPoint) -> Estimate:
    """As well known as that of the closed form: a queue, a prompt, a step."""
    return point.ttft.times(seconds / float(point.ttft.value))


def each_token(seconds: float, point: ServingPoint, waited: float) -> Estimate:
    """What a token takes beyond a decode step is others' prompts, and how many of them a scheduler
    reads in between is known as well as how full it keeps its batch; where requests `waited` for
    that share of their first token, less well.
    """
    writing = min(float(point.decode.value), seconds)
    reading = seconds - writing
    return total(
        "tpot",
        point.decode.scaled(writing / float(point.decode.value)),
        point.prefill.scaled(reading / float(point.prefill.value)),
        cause="batching",
        spread=hypot(BATCHING_ERROR * reading / seconds, CROWD_ERROR * waited),
    ).estimate


def of_means(seen: Outcome, point: ServingPoint) -> Mapping[str, Estimate]:
    """Of what users see on average; nothing of a time per token where one alone was written.

    A whole request is its first token and those after it, each as well known as by itself.
    """
    first = first_token(seen.ttft.mean, point)
    if not seen.tpot.mean > 0.0:
        return {"ttft": first, "e2e": first}
    each = each_token(seen.tpot.mean, point, seen.waited)
    writing = each.times((seen.e2e.mean - seen.ttft.mean) / seen.tpot.mean)
    return {"ttft": first, "tpot": each, "e2e": first.plus(writing)}
