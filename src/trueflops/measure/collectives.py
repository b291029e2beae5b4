"""Collectives under torchrun: NCCL, RCCL, gloo, xccl or hccl, on one node or many.

`bytes`, algbw and busbw are those of nccl-tests (doc/PERFORMANCE.md): the whole buffer of a rank,
bytes / time, and what a link carries whatever the number of ranks. An iteration lasts as long as
its slowest rank. Groups are the first 2, 4, 8 … ranks, and all of them.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from trueflops.errors import BadInput
from trueflops.measure.device import Device
from trueflops.measure.timing import BATCH_SECONDS, MICRO, seconds_of
from trueflops.records.measured import Record, Row

TABLE: Final = "collective"
BACKENDS: Final = {"cuda": "nccl", "cpu": "gloo", "xpu": "xccl", "hpu": "hccl"}
BUS: Final[dict[str, Callable[[int], float]]] = {  # busbw / algbw in a group of n
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "broadcast": lambda _: 1.0,
    "send_recv": lambda _: 1.0,
}
SIZES: Final = tuple(4**power for power in range(5, 16))  # 1 KiB to 1 GiB
PATIENCE: Final = timedelta(seconds=120)  # for a rank that died; no row takes so long
LEAST, MOST = 3, 100  # timed iterations of a row
LEAST_SECONDS, MOST_SECONDS = 0.02, 0.3  # that they may take
MOST_LAUNCHES: Final = 100  # in a batch
DOUBLINGS: Final = 100.0  # that a float32 near one can take
GRAPH_BELOW: Final = 100e-6  # seconds; there the launches would be timed: 25 to 45 µs each
BUFFERS: Final = 4  # of a message's size at once, torch's own included
STOP, SKIP = -1.0, 0.0
# Torch 2.13 renamed both.
_gather: Final = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_scatter: Final = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


@dataclass(frozen=True)
class World:
    """All ranks of this run, seen from one of them."""

    rank: int
    size: int
    local_size: int
    backend: str


class _Team(NamedTuple):
    """The first ranks of the world as a group."""

    ranks: int
    nodes: int
    group: Any  # a dist.ProcessGroup; outside of it torch's mark for that


def join_world(device: Device) -> World:
    """Meet the other ranks that torchrun started."""
    size = int(os.environ.get("WORLD_SIZE", 0))
    if size < 2 or "RANK" not in os.environ:
        raise BadInput(
            "collectives need at least two ranks; run under torchrun --nproc-per-node N "
            "-m trueflops.measure --collectives"
        )
    backend = BACKENDS.get(device.kind, "")
    if not backend or not dist.is_backend_available(backend):
        raise BadInput(f"torch {torch.__version__} has no collectives for {device.kind}")
    try:
        if not device.is_cpu:
            getattr(torch, device.kind).set_device(device.index)
        dist.init_process_group(backend, timeout=PATIENCE)
    except (RuntimeError, ValueError) as error:
        raise BadInput(f"the {size} ranks did not meet ({_brief(error)})") from None
    if torch.version.hip and backend == "nccl":
        backend = "rccl"  # torch has one name for both
    local = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    return World(int(os.environ["RANK"]), size, local, backend)


def leave_world() -> None:
    """Undo join_world."""
    if dist.is_initialized():
        dist.destroy_process_group()


def measure_collectives(
    device: Device,
    world: World,
    record: Record | None,
    budget_seconds: float,
    say: Callable[[str], None],
) -> None:
    """Time every collective, small messages first. All ranks call it; rank 0 has the record."""
    try:
        _Run(device, world, record, time.monotonic() + budget_seconds, say).measure()
    except RuntimeError as error:  # also of a rank that died: the others hear of it
        raise BadInput(f"collectives: rank {world.rank} gave up ({_brief(error)})") from None
    finally:
        if record is not None:
            record.save()


@dataclass(frozen=True)
class _Run:
    """One pass over sizes, groups and collectives, in step with the other ranks."""

    device: Device
    world: World
    record: Record | None
    ends: float
    say: Callable[[str], None]

    def measure(self) -> None:
        # To kernel tables a send_recv of n ranks is n−1 rounds, to nccl-tests one: a pair is both.
        pairs = [(t, op) for t in self._teams() for op in BUS if op != "send_recv" or t.ranks == 2]
        tasks = [(team, op) for team, op in pairs if self._works(team, op)]
        sharing = self.world.local_size if self.device.is_cpu else 1
        room = -self._most(-self.device.free_bytes / sharing / BUFFERS)
        sizes = [size for size in SIZES if size <= room]
        left = len(sizes) * len(tasks)
        expected = dict.fromkeys(tasks, 0.0)  # microseconds
        for size in sizes:
            numbers = max(size // 4, self.world.size)
            source = self.device.normal(numbers, dtype=torch.float32)
            target = torch.empty_like(source)
            for team, op in tasks:
                numbers = max(size // 4 // team.ranks, 1) * team.ranks
                row: Row = {"op": op, "gpus": team.ranks, "bytes": 4 * numbers}
                row |= {"nodes": team.nodes, "backend": self.world.backend}
                known = self.record.find(TABLE, row) if self.record else None
                seconds = self._decided(known is not None, left, expected[team, op] * MICRO)
                left -= 1
                if seconds == STOP:
                    return
                if seconds != SKIP and self.world.rank < team.ranks:
                    times = self._times(team, op, source[:numbers], target[:numbers], seconds)
                    known = row | _summary(times, 4 * numbers, BUS[op](team.ranks))
                    self._keep(known)
                now = float(known["latency_us"]) if known else expected[team, op]
                expected[team, op] = 4 * now  # of the next message, four times as large
            del source, target
            self.device.release()

    def _teams(self) -> list[_Team]:
        world, local = self.world.size, self.world.local_size
        powers = [2**power for power in range(1, world.bit_length()) if 2**power < world]
        return [
            _Team(ranks, math.ceil(ranks / local), dist.new_group(list(range(ranks)), PATIENCE))
            for ranks in [*powers, world]
        ]

    def _decided(self, known: bool, left: int, expected: float) -> float:
        """Seconds for a row's iterations, or SKIP, or STOP: what rank 0 says."""
        remaining = self.ends - time.monotonic()
        word = min(max(remaining / left, LEAST_SECONDS), MOST_SECONDS)
        if known or expected * (LEAST + 2) > remaining:  # two come before the timed ones
            word = SKIP
        said = torch.tensor([STOP if remaining <= 0 else word], device=self.device.at)
        dist.broadcast(said, src=0)
        return float(said.item())

    def _keep(self, row: Row) -> None:
        if self.record is not None:
            self.record.add(TABLE, row)
            self.say(
                f"{row['op']} of {row['gpus']} ranks, {row['bytes']} B: {row['latency_us']} µs"
            )

    def _works(self, team: _Team, op: str) -> bool:
        """Whether a collective is there and right: rank r sends r + 1."""
        why, n, rank = "", team.ranks, self.world.rank
        if rank < n:
            source = torch.full((n,), rank + 1.0, device=self.device.at)
            target = torch.zeros_like(source)
            each = torch.arange(1.0, n + 1.0, device=self.device.at)
            whole = torch.full_like(source, n * (n + 1) / 2)
            seen, right = {
                "all_reduce": (source, whole),
                "all_gather": (target, each),
                "reduce_scatter": (target[:1], whole[:1]),
                "all_to_all": (target, each),
                "broadcast": (source, torch.ones_like(source)),
                "send_recv": (target, torch.full_like(source, 2.0 - rank)),
            }[op]
            try:
                self._launch(team, op, source, target)()
                why = "" if torch.equal(seen, right) else "gives a wrong result"
            except (RuntimeError, ValueError, AttributeError) as error:
                why = f"cannot ({_brief(error)})"
        failed = self._most(float(bool(why))) > 0.0
        if failed and self.record is not None:
            why = why or "fails on another rank"
            self.record.warn(f"{op} of {n} ranks is left out: {self.world.backend} {why}")
        return not failed

    def _launch(
        self, team: _Team, op: str, source: torch.Tensor, target: torch.Tensor
    ) -> Callable[[], Any]:
        group, part = team.group, len(source) // team.ranks

        def exchange() -> None:
            both = ((dist.isend, source), (dist.irecv, target))
            peer = 1 - self.world.rank
            asked = [dist.P2POp(call, buffer, peer, group) for call, buffer in both]
            for work in dist.batch_isend_irecv(asked):
                work.wait()

        launches: dict[str, Callable[[], Any]] = {
            "all_reduce": lambda: dist.all_reduce(source, group=group),
            "all_gather": lambda: _gather(target, source[:part], group=group),
            "reduce_scatter": lambda: _scatter(target[:part], source, group=group),
            "all_to_all": lambda: dist.all_to_all_single(target, source, group=group),
            "broadcast": lambda: dist.broadcast(source, 0, group),
            "send_recv": exchange,
        }
        return launches[op]

    def _times(
        self, team: _Team, op: str, source: torch.Tensor, target: torch.Tensor, allowed: float
    ) -> np.ndarray:
        """Seconds of one launch, [rank, iteration]."""
        launch = self._launch(team, op, source, target)
        launch()
        guess = self._most(self._timed(team, launch), team.group)
        count = 1  # on a CPU a launch is over when it returns; elsewhere waiting costs too much
        if not self.device.is_cpu:
            most = min(MOST_LAUNCHES, int(DOUBLINGS / math.log2(team.ranks)))
            count = max(1, min(most, round(BATCH_SECONDS / guess)))
        run = self._batch(launch, count, captured=self.device.has_graphs and guess < GRAPH_BELOW)
        times = []
        for _ in range(max(LEAST, min(MOST, round(allowed / (guess * count))))):
            if op == "all_reduce":  # sums of sums: as large as before again
                source *= float(team.ranks) ** -count
            times.append(self._timed(team, run) / count)
        mine = torch.tensor(times, device=self.device.at)
        every = [torch.empty_like(mine) for _ in range(team.ranks)]
        dist.all_gather(every, mine, group=team.group)
        return torch.stack(every).cpu().numpy().astype(np.float64)

    def _batch(self, launch: Callable[[], Any], count: int, *, captured: bool) -> Callable[[], Any]:
        """Several launches as one; a rank that cannot capture launches as many as those that can.

        Long ones are not captured: NCCL registers the buffers of graphs, and so is faster there.
        """
        if captured:
            graph = torch.cuda.CUDAGraph()
            try:
                with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                    for _ in range(count):
                        launch()
                return graph.replay
            except RuntimeError:
                self.device.synchronize()
        return lambda: [launch() for _ in range(count)]

    def _timed(self, team: _Team, run: Callable[[], Any]) -> float:
        """Seconds of what all ranks of a team begin together, by the device's own clock."""
        dist.all_reduce(torch.zeros(1, device=self.device.at), group=team.group)
        self.device.synchronize()
        return seconds_of(self.device, run)

    def _most(self, value: float, group: Any = None) -> float:
        """The largest of all ranks' values."""
        held = torch.tensor([value], device=self.device.at)
        dist.all_reduce(held, dist.ReduceOp.MAX, group)
        return float(held.item())


def _summary(times: np.ndarray, moved: int, factor: float) -> Row:
    """What is kept of [rank, iteration] seconds; five digits are more than the timer knows."""
    slowest = int(np.bincount(times.argmax(axis=0)).argmax())
    found = [*np.quantile(times.max(axis=0), [0.5, 0.1, 0.99]), np.median(times[slowest])]
    middle, low, high, own = (float(f"{seconds / MICRO:.5g}") for seconds in found)
    algbw = moved / (middle * MICRO)
    return {
        "latency_us": middle, "p10_us": low, "p99_us": high,
        "slowest_rank": slowest, "slowest_us": own, "algbw": algbw, "busbw": algbw * factor,
    }  # fmt: skip


def _brief(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:160]
