"""Pairs of pools: which workers read, which write, and how many of each.

In: a Server of the whole cluster. Out: pairs of kinds of workers, each with the ratio that writes
most within the limits. Every pair and ratio is weighed by the closed loop of its pools
(predict/serving/flow.py), as arrays; those that come out best are then predicted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trueflops.catalog.partitions import is_slice
from trueflops.errors import TrueflopsError
from trueflops.plan import Plan, check_plan, serving_plan
from trueflops.predict import Pool, PooledPoint, Pools, Server
from trueflops.predict.serving.flow import JOINING, Stations, flow_at, steady_flow
from trueflops.predict.serving.pools import Reading, batches_up_to
from trueflops.search.serving import Limits
from trueflops.sizes import Array, divisors

PREDICTED: Final = 8  # pairs that are predicted of those that were weighed
MOST_NODES: Final = 16  # of a cluster whose workers may span any number of them
# Of a worker: each must find another prompt to read, and the closed loop takes it that it does.
MOST_STAGES: Final = 8
_LESS: Final = (1.0, 0.95, 0.9, 0.8)


@dataclass(frozen=True)
class Weighed:
    """Two kinds of workers with their best ratio: what the closed loop says of it."""

    prefill: Pool
    decode: Pool
    concurrency: int
    rate: float  # requests a second


@dataclass(frozen=True)
class _Reader:
    plan: Plan
    read: Reading
    overhead: float

    @property
    def accelerators(self) -> int:
        return int(self.plan.world)


@dataclass(frozen=True)
class _Writer:
    plan: Plan
    batches: list[int]
    seconds: list[float]
    room: int

    @property
    def accelerators(self) -> int:
        return int(self.plan.world)

    def step(self, batch: Array) -> Array:
        return np.interp(batch, self.batches, self.seconds)


@dataclass(frozen=True)
class _Ratios:
    """Every reader in every number that leaves room for one worker that writes, as columns."""

    which: NDArray[np.intp]  # reader
    reading: Array  # its workers
    writing: Array  # workers that the rest of the cluster has room for


class PoolSearch:
    """Workers of one server's cluster, priced once for any limits.

    At the server's load; with `any_load`, at whatever load is the largest in time.
    """

    def __init__(self, server: Server, *, any_load: bool) -> None:
        self.server, self.any_load = server, any_load
        self.pools = Pools(server)
        plans = worker_plans(server)
        read = float(server.workload.input)
        server.passes.prepare((plan, 1.0, read, 0.0) for plan in plans)
        room = {plan: self.pools.room(plan) for plan in plans}
        able = [plan for plan in plans if room[plan][0]]
        self.too_large = len(plans) - len(able)
        self.tried = 0  # pairs and ratios
        self.readers = _readers(self.pools, able)
        self.writers = _writers(self.pools, able, room, any_load)

    def best(
        self, limits: Limits, refused: Counter[str], most: int = PREDICTED
    ) -> list[PooledPoint]:
        """So many pairs that keep the limits and write most, each with its best ratio."""
        found: list[Weighed] = []
        self.tried = 0
        for writer in self.writers:
            ratios = _ratios(self.readers, writer, self.server.cluster.count)
            self.tried += len(ratios.which)
            if len(ratios.which):
                found += self._weigh(writer, ratios, limits, refused)
        found.sort(key=lambda each: -each.rate)
        points: list[PooledPoint] = []
        for each in found[: 2 * most]:
            point = _predicted(self.server, each, limits, self.any_load)
            if point is not None:
                points.append(point)
            if len(points) == most:
                break
        return points

    def _weigh(
        self, writer: _Writer, ratios: _Ratios, limits: Limits, refused: Counter[str]
    ) -> list[Weighed]:
        """For each kind of readers the ratio that writes most in time, if there is one."""
        asked, readers = self.server.workload, self.readers
        sent = [self.pools.transfer(reader.plan, writer.plan) for reader in readers]

        def column(values: list[float]) -> Array:
            return np.array(values, np.float64)[ratios.which]

        apart = column(
            [
                reader.overhead + float(reader.read.alone.value) + float(term.value)
                for reader, (term, _) in zip(readers, sent, strict=True)
            ]
        )
        reading = ratios.reading * column([float(reader.plan.dp) for reader in readers])
        writing = ratios.writing * float(writer.plan.dp)
        at = Stations(
            concurrency=float(asked.concurrency),
            output=float(asked.output),
            apart=apart,
            prefill=column([reader.read.busy(reader.plan) for reader in readers]),
            readers=reading,
            link=column([link for _, link in sent]) / np.minimum(reading, writing),
            writers=writing,
            room=float(writer.room),
        )
        if self.any_load:  # whatever load keeps each batch in the decode replicas
            batches = _finely(writer.batches)[:, None]
            at = replace(at, concurrency=np.maximum(flow_at(at, batches, writer.step)[1], 1.0))
            flow, held = flow_at(at, batches, writer.step)
            at = replace(at, concurrency=np.maximum(np.floor(held), 1.0))
            able = (flow.busy <= 1.0) & (flow.sending <= 1.0)
        else:
            flow = steady_flow(at, writer.step)
            able = np.ones(flow.rate.shape, np.bool_)
        steps = writer.step(np.maximum(flow.batch, 1.0))
        first = apart + flow.queue(at, asked.waves) + (1.0 + JOINING) * steps
        too_late, too_slow = first > limits.ttft_seconds, steps > limits.tpot_seconds
        rates = np.where(able & ~too_late & ~too_slow, flow.rate, 0.0)
        loads = np.broadcast_to(at.concurrency, rates.shape)
        if rates.ndim > 1:  # the best load of each ratio; a ratio is refused where none is in time
            best = np.argmax(rates, axis=0), np.arange(rates.shape[1])
            rates, loads = rates[best], loads[best]
            too_late = np.all(np.broadcast_to(too_late, able.shape), axis=0)
            too_slow = np.all(np.broadcast_to(too_slow, able.shape), axis=0)
        refused["time to first token"] += int(too_late.sum())
        refused["time per token"] += int(too_slow.sum())
        found = []
        for row, reader in enumerate(readers):
            own = np.where(ratios.which == row, rates, 0.0)
            best_row = int(np.argmax(own))
            if own[best_row] > 0.0:
                pair = (
                    Pool(reader.plan, int(ratios.reading[best_row])),
                    Pool(writer.plan, int(ratios.writing[best_row])),
                )
                found.append(Weighed(*pair, int(loads[best_row]), float(own[best_row])))
        return found


def _predicted(server: Server, each: Weighed, limits: Limits, any_load: bool) -> PooledPoint | None:
    """The point itself; where the load is free, a little less of it may keep what was just missed.

    Steps between two priced batches were taken as if on a straight line.
    """
    for less in _LESS if any_load else _LESS[:1]:
        load = replace(server.workload, concurrency=max(int(each.concurrency * less), 1))
        point = Pools(server.asked(load)).predict(each.prefill, each.decode)
        if not point.fits:
            return None
        if limits.met(point):
            return point
    return None


def worker_plans(server: Server) -> list[Plan]:
    """Every way to lay one worker on accelerators, of which the other pool needs some, too.

    Sizes are powers of two up to half of the cluster and, of some nodes, every number of nodes.
    Replicas of a worker share experts; without experts they would be workers of their own.
    """
    model, count = server.model, server.cluster.count
    found = []
    sizes = {2**i for i in range(int(np.log2(max(count // 2, 1))) + 1)}
    if server.cluster.nodes <= MOST_NODES:
        sizes |= set(range(server.cluster.per_node, count, server.cluster.per_node))
    if is_slice(server.cluster.accelerator.name):  # which NCCL does not join
        sizes = {1}
    for size in sorted(sizes):
        for tp in divisors(size):
            for pp in (stages for stages in divisors(size // tp) if stages <= MOST_STAGES):
                replicas = size // (tp * pp)
                if replicas > 1 and not model.is_moe:
                    continue
                spans = {1, tp} if replicas == 1 and model.is_moe else {tp * replicas}
                for ep in sorted(spans if model.is_moe else {1}):
                    plan = serving_plan(model, server.dtype, tp=tp, pp=pp, replicas=replicas, ep=ep)
                    try:
                        check_plan(plan, model, size)
                    except TrueflopsError:
                        continue
                    if server.why_not_run(plan) is None:
                        found.append(plan)
    return found


def _readers(pools: Pools, plans: list[Plan]) -> list[_Reader]:
    """Prefill workers; of those as large, only such as no other beats both alone and packed."""
    asked, engine = pools.server.workload, pools.server.engine
    together = max(1, int(engine.step_tokens // asked.input))
    read = float(asked.input)
    pools.server.passes.prepare((plan, float(together), read, 0.0) for plan in plans)
    overhead = float(pools.server.profile.curve("framework")["request"])
    each = [_Reader(plan, pools.reading(plan, together), overhead) for plan in plans]

    def beaten(one: _Reader) -> bool:
        alone, busy = float(one.read.alone.value), _busy(one)
        return any(
            other is not one
            and other.accelerators == one.accelerators
            and float(other.read.alone.value) <= alone
            and _busy(other) < busy
            for other in each
        )

    return [one for one in each if not beaten(one)]


def _busy(reader: _Reader) -> float:
    """Seconds of the whole worker for a prompt."""
    return reader.read.busy(reader.plan) / float(reader.plan.dp)


def _writers(
    pools: Pools, plans: list[Plan], room: dict[Plan, tuple[int, int]], any_load: bool
) -> list[_Writer]:
    """Decode workers and what their steps take at growing batches."""
    asked = pools.server.workload
    held = {
        plan: room[plan][0] if any_load else min(room[plan][1], asked.concurrency) for plan in plans
    }
    grid = {plan: batches_up_to(held[plan]) for plan in plans}
    pools.prepare(plans, sorted({n for batches in grid.values() for n in batches}))
    found = []
    for plan in plans:
        seconds = [float(pools.step(plan, batch).value) for batch in grid[plan]]
        found.append(_Writer(plan, grid[plan], seconds, held[plan] if any_load else room[plan][1]))
    return found


def _ratios(readers: list[_Reader], writer: _Writer, count: int) -> _Ratios:
    left = count - writer.accelerators
    numbers = [np.arange(1.0, left // reader.accelerators + 1.0) for reader in readers]
    which = np.repeat(np.arange(len(readers)), [len(each) for each in numbers])
    reading = np.concatenate(numbers) if numbers else np.zeros(0)
    sizes = np.array([reader.accelerators for reader in readers], np.float64)[which]
    return _Ratios(which, reading, (count - reading * sizes) // writer.accelerators)


def _finely(batches: list[int]) -> Array:
    """Batches between those that were priced: eight to every doubling."""
    most = batches[-1]
    return np.unique(np.floor(2.0 ** np.arange(0.0, np.log2(most) + 0.125, 0.125))).clip(1.0, most)
