"""Plans for serving: how many accelerators a replica needs, and how to split it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trueflops.errors import TrueflopsError
from trueflops.plan import Plan, check_plan, serving_plan
from trueflops.predict import Server, ServingPoint
from trueflops.sizes import divisors


@dataclass(frozen=True)
class Limits:
    """What a user will wait at most; infinity where nothing was said."""

    ttft_seconds: float = np.inf
    tpot_seconds: float = np.inf

    def met(self, point: ServingPoint) -> bool:
        """Whether a point answers in time."""
        in_time = float(point.ttft.value) <= self.ttft_seconds
        return in_time and float(point.tpot.value) <= self.tpot_seconds


def serving_plans(server: Server) -> list[Plan]:
    """Every way to cut the cluster into equal replicas that breaks no rule.

    Experts may be spread over the ranks of one replica, or over replicas that share them while
    each has its own attention (as DeepSeek-V3 is deployed).
    """
    count, plans = server.cluster.count, []
    for tp in divisors(count):
        for pp in divisors(count // tp):
            replicas = count // (tp * pp)
            spans = divisors(tp * replicas) if server.model.is_moe else [1]
            for ep in spans:
                plan = serving_plan(
                    server.model, server.dtype, tp=tp, pp=pp, replicas=replicas, ep=ep
                )
                try:
                    check_plan(plan, server.model, count)
                except TrueflopsError:
                    continue
                plans.append(plan)
    return plans


def search_serving(server: Server, limits: Limits, most: int = 5) -> list[ServingPoint]:
    """Points that fit and answer in time, most tokens per second first; then the others.

    >>> import trueflops as tf
    >>> from trueflops.search import Limits
    >>> where, asked = tf.cluster("2xH100"), tf.Serving(1024, 256, concurrency=16)
    >>> profile = tf.profile_of(where.accelerator, "vllm")
    >>> server = tf.Server(tf.read_model("Llama-3.1-8B"), asked, where, profile)
    >>> [point.fits for point in tf.search_serving(server, Limits(tpot_seconds=0.05), most=2)]
    [True, True]
    """
    points = [server.predict(plan) for plan in serving_plans(server)]

    def order(point: ServingPoint) -> tuple[bool, bool, bool, float]:
        if not point.most_requests:  # not even one: the leanest is the nearest to fitting
            return (True, True, True, float(point.memory.value))
        rate = float(point.tokens_per_second.value)  # where requests wait it is of those that run
        return (False, not point.fits, not limits.met(point), -rate)

    return sorted(points, key=order)[:most]
