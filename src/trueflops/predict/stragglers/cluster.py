"""Stragglers of a cluster: one slow rank, one slow link, or jitter of all, under every mode.

In: a clock, how many ranks, and what is slow. Out: Straggled. Communication is the clock's: an
all-reduce after synchronous steps, parameter servers on every rank otherwise, at the pace of the
slow link where all wait for it. Nothing overlaps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Final

import numpy as np

from trueflops.catalog import Cluster
from trueflops.clock import Algorithm, Clock
from trueflops.clock.collectives import members_by_tier
from trueflops.errors import BadInput
from trueflops.graph.kinds import CollectiveKind
from trueflops.language import say
from trueflops.predict.collective.compare import check_ranks
from trueflops.predict.stragglers.simulate import Mode, Progress, Workers, draw_workers, simulate

MOST_WORKERS: Final = 8192
EVENTS: Final = 200_000  # steps of all workers together, if nobody says how many
FEWEST_STEPS, USUAL_STEPS = 40, 1000


@dataclass(frozen=True)
class Straggling:
    """What is asked: how slow the slow one is, and how much of that each mode tolerates."""

    step_seconds: float  # of a healthy worker, without communication
    gradient_bytes: float = 0.0
    slow_rank: float = 1.0  # rank 0 takes so many times as long to compute
    slow_link: float = 1.0  # and its link has this share of its bandwidth
    jitter: float = 0.0
    staleness: int = 3
    drop: int = 1
    steps: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class Straggled:
    """Every mode beside a cluster without stragglers."""

    asked: Straggling
    workers: Workers
    healthy_all_reduce_seconds: float
    steps: int
    found: tuple[Progress, ...]

    @property
    def ideal_per_second(self) -> float:
        """Gradients a second of healthy workers that never wait, synchronous all the same."""
        step = self.asked.step_seconds + self.healthy_all_reduce_seconds
        return self.workers.count / step

    @property
    def head_start_steps(self) -> float:
        """Steps until a bound stops those that are faster: each gains 1 − t/t_slow of one."""
        healthy = self.asked.step_seconds + float(self.workers.server_seconds[-1])
        slow = self.asked.step_seconds * self.asked.slow_rank + float(
            self.workers.server_seconds[0]
        )
        return inf if slow <= healthy else self.asked.staleness / (1.0 - healthy / slow)


def predict_straggling(clock: Clock, ranks: int, asked: Straggling) -> Straggled:
    """Simulate each mode on neighbours of a cluster, of which rank 0 is the slow one."""
    check_ranks(clock.cluster, ranks)
    if ranks > MOST_WORKERS:
        raise BadInput(
            say(
                "--ranks {ranks}: at most {most_workers:,} workers are simulated",
                ranks=ranks,
                most_workers=MOST_WORKERS,
            )
        )
    if asked.drop >= ranks:
        raise BadInput(
            say(
                "--drop {drop}: of {ranks} workers at most {most} can be left out",
                drop=asked.drop,
                ranks=ranks,
                most=ranks - 1,
            )
        )
    steps = asked.steps or max(FEWEST_STEPS, min(USUAL_STEPS, EVENTS // ranks))
    slower = Clock(slow_links(clock.cluster, ranks, asked.slow_link), clock.profile)
    healthy, hindered = (_communication(c, ranks, asked.gradient_bytes) for c in (clock, slower))
    serving = np.full(ranks, healthy[1])
    serving[0] = hindered[1]
    compute = draw_workers(
        ranks, steps, asked.step_seconds, asked.slow_rank, asked.jitter, asked.seed
    )
    workers = Workers(compute, hindered[0], serving)
    found = tuple(simulate(mode, workers, asked.staleness, asked.drop) for mode in Mode)
    return Straggled(asked, workers, healthy[0], steps, found)


def slow_links(where: Cluster, ranks: int, share: float) -> Cluster:
    """The cluster at the pace of a slow link: the outermost that the ranks cross.

    A ring runs as fast as its slowest link, and so does a library that spreads its bytes evenly
    over the ports of a node.
    """
    crossed = members_by_tier(float(ranks), 1.0, where.tiers)
    last = max(i for i, size in enumerate(crossed) if float(size) > 1.0)
    tiers = list(where.tiers)
    tiers[last] = replace(tiers[last], bandwidth=tiers[last].bandwidth * share)
    return replace(where, tiers=tuple(tiers))


def _communication(clock: Clock, ranks: int, payload: float) -> tuple[float, float]:
    """Seconds of an all-reduce, and of a worker with parameter servers on every rank."""
    if payload == 0.0:
        return 0.0, 0.0
    kind = CollectiveKind.ALL_REDUCE
    ways = clock.collective_ways(kind, ranks, payload)
    together = float(clock.collective(kind, float(ranks), payload, 1.0).seconds)
    return together, ways[Algorithm.SHARDED_SERVER].seconds
