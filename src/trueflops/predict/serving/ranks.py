"""Ranks that step together: those that share experts wait for the fullest of them.

cache    Replicas of attention have requests that wrote anything from nothing to all of their
         output, so that the context of one deviates by output/√12 and the sum over a rank's n by √n
         times that. The fullest of all ranks reads as much cache as its requests have together.
experts  At best tokens choose at random (graph/routing.py); that is in the time of a pass. Some
         experts are chosen more often: a rank's E/n of them deviate by √(n/E), which lengthens
         passes as was published for 32 and 72 ranks, and widens the interval alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from trueflops.graph.routing import above_mean, fullest_share
from trueflops.model import Model
from trueflops.plan import Plan
from trueflops.sizes import Size
from trueflops.workload import Serving

_READ, _WRITTEN = (32.0, 256.0), (72.0, 256.0)  # ranks and experts of the published experiments
PUBLISHED: Final[Mapping[tuple[bool, bool], tuple[float, tuple[float, float]]]] = {
    (True, False): (1.49, _READ),
    (False, False): (2.54, _WRITTEN),
    (True, True): (59337.0 / 50302.0, _READ),
    (False, True): (59337.0 / 50302.0, _READ),
}
"""By whether prompts are read, and whether copies of popular experts keep ranks even (EPLB): how
much slower DeepSeek-V3 is, and where that was seen (lmsys.org/blog/2025-05-05-large-scale-ep). With
copies: prompts against experts that are chosen at random; of tokens that is not published, and
taken to be as much."""


def fullest_rank(plan: Plan, running: int, asked: Serving) -> float:
    """Tokens in the cache of the fullest rank over those of the mean one."""
    together = float(plan.ep * plan.etp / plan.tp)
    if together <= 1.0:
        return 1.0
    middle = asked.input + asked.output / 2.0
    deviation = asked.output / 12.0**0.5 / middle / max(running, 1) ** 0.5
    return 1.0 + float(above_mean(together)) * deviation


def fullest_experts(model: Model, plan: Plan, running: int) -> float:
    """Tokens of the rank whose experts most of them choose over the mean rank's, in a decode step
    of so many requests in each replica, chosen at random.
    """
    found = [block.experts for block in model.blocks if block.experts]
    if not found or plan.ep == 1:
        return 1.0
    each = found[0]
    rows = running * float(plan.etp / plan.tp) * each.per_token
    return float(fullest_share(rows, float(plan.ep), each.count, each.per_token))


def uneven_experts(model: Model, plan: Plan, *, reads: bool) -> Size:
    """How much slower, as a logarithm, a pass may be because some experts are chosen more often."""
    found = [block.experts for block in model.blocks if block.experts]
    if not found:
        return 0.0
    slower, at = PUBLISHED[reads, bool(found[0].copies)]
    seen = _deviating(*at)
    return np.log1p((slower - 1.0) * _deviating(plan.ep, found[0].count) / seen)


def _deviating(ranks: Size, experts: float) -> Size:
    """By how many of an expert's deviations the load of the fullest rank exceeds the mean one's."""
    return above_mean(ranks) * np.sqrt(ranks / experts)
