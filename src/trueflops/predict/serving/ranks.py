"""Ranks that step together: replicas that exchange tokens with shared experts wait for the fullest.

Requests under way have written anything from nothing to all of their output, so that the context of
one deviates by output/√12 and the sum over a rank's n by √n times that. The fullest of all ranks
reads as much cache as its requests have together.
"""

from __future__ import annotations

from trueflops.graph.routing import above_mean
from trueflops.plan import Plan
from trueflops.workload import Serving


def fullest_rank(plan: Plan, running: int, asked: Serving) -> float:
    """Tokens in the cache of the fullest rank over those of the mean one."""
    together = float(plan.ep * plan.etp / plan.tp)
    if together <= 1.0:
        return 1.0
    middle = asked.input + asked.output / 2.0
    deviation = asked.output / 12.0**0.5 / middle / max(running, 1) ** 0.5
    return 1.0 + above_mean(together) * deviation
