"""How to serve a model on a cluster: every cut into replicas, and every pair of pools.

In: a Server and Limits. Out: Configurations: those that fit and keep the limits, most tokens per
second first; how many others were refused, and why; the one that misses least. And the front of
speed for one user against tokens per accelerator (`pareto`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from trueflops.plan import Plan
from trueflops.plan.spread import ways_to_spread
from trueflops.predict import Point, PooledPoint, Server, ServingPoint
from trueflops.search.pooled import PoolSearch
from trueflops.search.serving import (
    Limits,
    around_limits,
    busiest,
    cuts,
    loaded_points,
    prepare_plans,
    spread_plans,
)

REFINED: Final = 12  # plans whose largest load is sought more closely than by doubling


@dataclass
class Configurations:
    """What was found."""

    points: list[Point] = field(default_factory=list)  # fit and in time, best first
    refused: Counter[str] = field(default_factory=Counter)  # how many, by reason
    tried: int = 0
    nearest: Point | None = None  # of those that are late, or else too large, the nearest

    def add(self, other: Configurations, limits: Limits) -> None:
        """Take in what was found with other formats."""
        self.points = sorted([*self.points, *other.points], key=lambda each: -_rate(each))
        self.refused.update(other.refused)
        self.tried += other.tried
        near = [each for each in (self.nearest, other.nearest) if each is not None]
        self.nearest = min(near, key=limits.by_how_much, default=None)

    def kinds(self, most: int) -> list[Point]:
        """The best of every kind, best first; where kinds are few, the next best that differ."""
        chosen: list[Point] = []
        for key_of in (kind_of, cut_of):
            seen = {key_of(point) for point in chosen}
            for point in self.points:
                if len(chosen) < most and key_of(point) not in seen:
                    seen.add(key_of(point))
                    chosen.append(point)
        return sorted(chosen, key=lambda point: -_rate(point))


def kind_of(point: Point) -> tuple[object, ...]:
    """What tells kinds of configurations apart: pools or not, and which axes they use."""
    weights = point.weights.name, point.cache_bits
    if isinstance(point, PooledPoint):
        return ("pools", weights, _axes(point.decode_pool.plan))
    return ("replicas", weights, _axes(point.plan))


def cut_of(point: Point) -> tuple[object, ...]:
    """What tells those of one kind apart: how the model is cut where tokens are written."""
    pooled = isinstance(point, PooledPoint)
    plan = point.decode_pool.plan if isinstance(point, PooledPoint) else point.plan
    return (pooled, point.weights.name, point.cache_bits, plan.tp, plan.dcp, plan.pp, plan.ep)


def _axes(plan: Plan) -> tuple[bool, ...]:
    return (bool(plan.tp > 1), bool(plan.pp > 1), bool(plan.ep > 1), bool(plan.ep > plan.tp))


def search_configurations(
    server: Server, limits: Limits, *, any_load: bool = False, pools: bool = True
) -> Configurations:
    """Every configuration at the server's load; with `any_load`, each at its largest in time."""
    found = Configurations()
    plans = []
    for plan, broken in cuts(server):
        found.tried += 1
        if broken:
            found.refused["a rule of plans (divisibility)"] += 1
        else:
            plans.append(plan)
    late: list[Point] = []
    large: list[Point] = []
    if any_load:
        found.points += _at_any_load(server, limits, plans, found, late)
    else:
        prepare_plans(server, plans)
        points = [server.predict(plan) for plan in plans]
        spread = [server.predict(plan) for plan in spread_plans(server, points)]
        found.tried += len(spread)
        for point in [*points, *spread]:
            if not point.fits:
                found.refused["memory"] += 1
                large.append(point)
            elif missed := limits.missed(point):
                found.refused.update(missed)
                late.append(point)
            else:
                found.points.append(point)
    if pools and server.has_pools:
        pairs = PoolSearch(server, any_load=any_load)
        found.points += pairs.best(limits, found.refused)
        found.tried += pairs.tried + pairs.too_large
        found.refused["memory"] += pairs.too_large
    found.points.sort(key=lambda point: -float(point.tokens_per_second.value))
    if late:
        found.nearest = min(late, key=limits.by_how_much)
    elif large:
        found.nearest = min(large, key=_excess)
    return found


def _excess(point: Point) -> tuple[bool, float]:
    """The fewest bytes too many; without room for one request the leanest is the nearest."""
    alone = isinstance(point, ServingPoint) and point.most_requests > 0
    rate = float(point.tokens_per_second.value)
    return (not alone, -rate if alone else float(point.memory.value))


def _at_any_load(
    server: Server,
    limits: Limits,
    plans: list[Plan],
    tally: Configurations,
    late: list[Point],
) -> list[Point]:
    """Each plan at the largest load that it answers in time; what is refused is counted."""
    refused = tally.refused
    by_plan = around_limits(server, plans, limits)
    roomier = _roomier(server, limits, plans, by_plan)
    by_plan |= around_limits(server, roomier, limits)
    tally.tried += len(roomier)
    refused["memory"] += len(plans) + len(roomier) - len(by_plan)
    found: list[tuple[Plan, Point]] = []
    for plan, points in by_plan.items():
        kept = [point for point in points if limits.met(point)]
        if kept:
            found.append((plan, max(kept, key=_rate)))
        else:
            nearest = min(points, key=limits.by_how_much)
            refused.update(limits.missed(nearest))
            late.append(nearest)
    found.sort(key=lambda each: -_rate(each[1]))
    first = found[:REFINED]
    refined = busiest(server, limits, [by_plan[plan] for plan, _ in first])
    best = (loaded or point for loaded, (_, point) in zip(refined, first, strict=True))
    return [*best, *(point for _, point in found[REFINED:])]


def _roomier(
    server: Server, limits: Limits, plans: Iterable[Plan], seen: Mapping[Plan, list[ServingPoint]]
) -> list[Plan]:
    """Plans without room for a request, or in time as long as they have room, with keys spread as
    far as can be.
    """
    found = []
    for plan in plans:
        if ways_to_spread(server.model, int(plan.tp)) == [plan.dcp]:
            continue
        end = seen[plan][-1] if plan in seen else server.predict(plan)
        if not end.most_requests or (end.batch == end.most_requests and limits.met(end)):
            dcp = end.spread_for(end.engine.most_sequences)
            found += [plan.but(dcp=dcp)] if dcp > plan.dcp else []
    return found


def _rate(point: Point) -> float:
    return float(point.tokens_per_second.value)


FRONT_STEPS: Final = 8  # of time per token, at which pairs of pools are sought for a front


def pareto(server: Server, limits: Limits, *, pools: bool = True) -> list[Point]:
    """The front of tokens/s for one user against tokens/s per accelerator, fastest user first.

    Every cut at 1, 2, 4 … requests in each replica, and the best pair of pools at some times per
    token between; a limit on the time to first token holds for all of them.
    """
    only_first = Limits(ttft_seconds=limits.ttft_seconds)
    plans = [plan for plan, broken in cuts(server) if not broken]
    points: list[Point] = [
        point for point in loaded_points(server, plans, only_first) if only_first.met(point)
    ]
    if pools and points and server.has_pools:
        times = [float(point.tpot.value) for point in points]
        pairs = PoolSearch(server, any_load=True)
        for tpot in np.geomspace(min(times), max(times), FRONT_STEPS):
            wanted = Limits(limits.ttft_seconds, float(tpot))
            points += pairs.best(wanted, Counter(), most=1)
    front: list[Point] = []
    for point in sorted(points, key=lambda each: (float(each.tpot.value), -_rate(each))):
        if not front or _rate(point) > _rate(front[-1]):
            front.append(point)
    return front
