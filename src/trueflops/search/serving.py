"""Plans for serving: how many accelerators a replica needs, and how to split it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from trueflops.catalog.partitions import is_slice
from trueflops.errors import BadInput, TrueflopsError
from trueflops.language import say
from trueflops.plan import Plan, check_plan, serving_plan
from trueflops.predict import Point, Server, ServingPoint
from trueflops.predict.serving.passes import Shape
from trueflops.predict.serving.pools import batches_up_to
from trueflops.predict.serving.splitting import pipeline_plan
from trueflops.sizes import divisors


@dataclass(frozen=True)
class Limits:
    """What a user will wait at most; infinity where nothing was said."""

    ttft_seconds: float = np.inf
    tpot_seconds: float = np.inf
    at_once: bool = False  # whether all requests have to run; else some may wait for room

    @property
    def given(self) -> bool:
        """Whether anything was said."""
        return bool(min(self.ttft_seconds, self.tpot_seconds) < np.inf)

    def met(self, point: Point) -> bool:
        """Whether a point answers in time."""
        return not self.missed(point)

    def missed(self, point: Point) -> tuple[str, ...]:
        """Which of the limits a point does not keep."""
        late = []
        if float(point.ttft.value) > self.ttft_seconds:
            late.append("time to first token")
        if float(point.tpot.value) > self.tpot_seconds:
            late.append("time per token")
        if self.at_once and point.crowding > 1.0:
            late.append("room for all requests at once")
        return tuple(late)

    def by_how_much(self, point: Point) -> float:
        """The worst of both times over its limit, and of requests over those that run where all
        have to: above 1 it is missed.
        """
        first = float(point.ttft.value) / self.ttft_seconds
        crowding = point.crowding if self.at_once else 0.0
        return max(first, float(point.tpot.value) / self.tpot_seconds, crowding)


def cuts(server: Server) -> Iterator[tuple[Plan, str]]:
    """Every way to cut the cluster into equal replicas, and which rule it breaks, or "".

    Experts may be spread over the ranks of one replica, or over replicas that share them while
    each has its own attention (as DeepSeek-V3 is deployed). What the engine cannot run is left out.
    """
    count = server.cluster.count
    if server.stages:  # a stage on every card
        yield pipeline_plan(server), ""
        return
    sliced = is_slice(server.cluster.accelerator.name)
    for tp in divisors(count):
        for pp in divisors(count // tp):
            replicas = count // (tp * pp)
            moe = server.model.is_moe
            spans: list[tuple[int, int | None]] = [(1, None)]
            if moe:
                spans = [(ep, None) for ep in divisors(tp * replicas)]
            if moe and replicas > 1:
                spans.append((1, tp * replicas))  # every expert is split over all replicas
            for ep, etp in spans:
                plan = serving_plan(
                    server.model, server.dtype, tp=tp, pp=pp, replicas=replicas, ep=ep, etp=etp
                )
                if sliced and (tp, pp, ep) != (1, 1, 1):
                    yield plan, say("NCCL does not join slices of one GPU")
                    continue
                try:
                    check_plan(plan, server.model, count)
                except TrueflopsError as error:
                    yield plan, str(error)
                else:
                    if server.why_not_run(plan) is None:
                        yield plan, ""


def serving_plans(server: Server) -> list[Plan]:
    """Every way to cut the cluster into equal replicas that breaks no rule; there is one."""
    if plans := [plan for plan, broken in cuts(server) if not broken]:
        return plans
    # What not even single accelerators run stands in the engine's way whatever the cut.
    alone = serving_plan(server.model, server.dtype, replicas=server.cluster.count)
    raise server.why_not_run(alone) or BadInput(say("no cut of this cluster is a plan"))


def prepare_plans(server: Server, plans: list[Plan], batches: Iterable[int] | None = None) -> None:
    """Price the passes of many plans at once: of each its prompts, alone and packed, and its steps.

    Steps are of the server's load, or of every one of these batches in a replica.
    """
    asked, passes = server.workload, server.passes
    read = float(asked.input)
    passes.prepare((plan, 1.0, read, 0.0) for plan in plans)
    shapes: list[Shape] = []
    for plan in plans:
        replicas = max(int(server.cluster.count // (plan.tp * plan.pp)), 1)
        loads = [ceil(asked.concurrency / replicas)] if batches is None else batches
        shapes += _shapes(server, plan, loads)
    passes.prepare(shapes)


def _shapes(server: Server, plan: Plan, loads: Iterable[int]) -> Iterator[Shape]:
    """Passes of a plan with so many requests in every replica, of which some may wait."""
    server = server.on(plan)
    reading = server.passes.costs(plan, 1.0, float(server.workload.input), 0.0)
    most, room = server.memory.of(plan, reading, 1)[2:]
    for batch in loads:
        running = min(batch, room, server.engine.most_sequences) if most else batch
        yield from server.mix.shapes(plan, running)


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
    plans = serving_plans(server)
    prepare_plans(server, plans)
    points = [server.predict(plan) for plan in plans]
    points += [server.predict(plan) for plan in spread_plans(server, points)]
    best = sorted(points, key=lambda point: rank(point, limits))[:most]
    # Arrays round otherwise than numbers: what is answered is what the plan alone would be.
    server.passes.forget()
    return [server.predict(point.plan) for point in best]


def spread_plans(server: Server, points: Iterable[ServingPoint]) -> list[Plan]:
    """Plans of points without room for all their requests, with keys spread that ranks would all
    hold: as far as these requests need, or as can be.
    """
    full = [(p.plan, p.spread_for(p.batch)) for p in points if not p.fits]
    plans = [plan.but(dcp=dcp) for plan, dcp in full if dcp > plan.dcp]
    prepare_plans(server, plans)
    return plans


def rank(point: ServingPoint, limits: Limits) -> tuple[bool, bool, bool, float]:
    """The better a point, the smaller: it fits, is in time, and writes more tokens a second."""
    if not point.most_requests:  # not even one: the leanest is the nearest to fitting
        return (True, True, True, float(point.memory.value))
    rate = float(point.tokens_per_second.value)  # where requests wait it is of those that run
    return (False, not point.fits, not limits.met(point), -rate)


def loaded_points(server: Server, plans: list[Plan], limits: Limits) -> Iterator[ServingPoint]:
    """Each plan at 1, 2, 4 … requests in every replica, as many as it has room for.

    Both times grow with the load: the first that is late is the last.
    """
    batches = _batches(server, plans)
    prepare_plans(server, list(batches), sorted({n for each in batches.values() for n in each}))
    for plan in batches:
        for batch in batches[plan]:
            point = at_batch(server, plan, batch)
            yield point
            if not limits.met(point):
                break


def around_limits(
    server: Server, plans: list[Plan], limits: Limits
) -> dict[Plan, list[ServingPoint]]:
    """Each plan that has room at some of those loads, lowest first: the largest of them that keeps
    the limits and the first that is late are among them, where there are such.
    """
    batches = _batches(server, plans)
    found: dict[Plan, list[ServingPoint]] = {plan: [] for plan in batches}
    open_ = {plan: (0, len(each)) for plan, each in batches.items()}  # the first late one is in it
    while open_ := {plan: (low, high) for plan, (low, high) in open_.items() if low < high}:
        tried = {plan: (low + high) // 2 for plan, (low, high) in open_.items()}
        shapes = (_shapes(server, plan, [batches[plan][at]]) for plan, at in tried.items())
        server.passes.prepare(shape for each in shapes for shape in each)
        for plan, at in tried.items():
            point = at_batch(server, plan, batches[plan][at])
            found[plan].append(point)
            low, high = open_[plan]
            open_[plan] = (at + 1, high) if limits.met(point) else (low, at)
    return {plan: sorted(points, key=lambda point: point.batch) for plan, points in found.items()}


def _batches(server: Server, plans: list[Plan]) -> dict[Plan, list[int]]:
    """1, 2, 4 … requests of a replica, up to those that each plan has room for; none: left out."""
    read = float(server.workload.input)
    server.passes.prepare((plan, 1.0, read, 0.0) for plan in plans)
    room = {plan: server.most_requests(plan) for plan in plans}
    held = {p: min(most, server.on(p).engine.most_sequences) for p, most in room.items() if most}
    return {plan: batches_up_to(most) for plan, most in held.items()}


def at_batch(server: Server, plan: Plan, batch: int) -> ServingPoint:
    """A plan with so many requests in every replica."""
    replicas = max(int(server.cluster.count // (plan.tp * plan.pp)), 1)
    load = replace(server.workload, concurrency=batch * replicas)
    return server.asked(load).predict(plan)


@dataclass
class _Bracket:
    """A plan's largest load that was seen to keep the limits, and a load that may not."""

    best: ServingPoint
    beyond: int

    @property
    def middle(self) -> int | None:
        """The next load to try; None where both are as close as a sixteenth."""
        low, high = self.best.batch, self.beyond
        return (low + high) // 2 if high - low > max(low // 16, 1) else None


def busiest(
    server: Server, limits: Limits, every: list[list[ServingPoint]]
) -> list[ServingPoint | None]:
    """Of each plan at growing loads, the largest load that keeps the limits; None if none does.

    Both times grow with the load, so that it lies between the last that keeps them and the next.
    All plans take a step at once, so that their passes are priced together.
    """
    found: list[_Bracket | None] = []
    for points in every:
        kept = [point for point in points if limits.met(point)]
        best = max(kept, key=lambda point: point.batch, default=None)
        beyond = [point.batch for point in points if best and point.batch > best.batch]
        found.append(_Bracket(best, min(beyond, default=best.batch)) if best else None)
    open_ = [each for each in found if each]
    while loads := [(each, load) for each in open_ if (load := each.middle) is not None]:
        passes = (_shapes(server, each.best.plan, [load]) for each, load in loads)
        server.passes.prepare(shape for shapes in passes for shape in shapes)
        for each, load in loads:
            point = at_batch(server, each.best.plan, load)
            if limits.met(point):
                each.best = point
            else:
                each.beyond = load
    return [each.best if each else None for each in found]
