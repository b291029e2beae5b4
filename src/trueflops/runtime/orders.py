"""Pipeline schedules as orders: what every rank runs, one slot after another.

In: a schedule, p ranks, vpp pieces of each, m micro-batches. Out: an order of slots for each rank;
tasks that share a slot run beside one another. Pieces of the model are stages, in layer order.
    gpipe         Huang 2019
    1f1b          Narayanan 2021 §2.2; interleaved as Megatron-LM does (core/pipeline_parallel)
    zb-h1, zb-h2  Qi 2024, arXiv 2401.10241 §2: rank r starts with p−r or 2(p−r)−1 forwards and
                  computes weight gradients r or 2r micro-batches late, so that the others go on
    zb-v          the same, §6: rank r holds stages r and 2p−1−r
    dualpipe      DeepSeek-V3, arXiv 2412.19437 §3.2.1; the eight steps of the public repository
                  (deepseek-ai/DualPipe): rank r holds stages r and p−1−r, half of the micro-batches
                  enter at either end
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import NamedTuple

from trueflops.plan import Schedule


class Part(StrEnum):
    """What is done with a micro-batch on a stage. The whole backward is both gradients at once."""

    FORWARD = "F"
    INPUT = "B"  # gradient of the input, with what is recomputed for it
    WEIGHT = "W"
    WHOLE = "BW"


class Task(NamedTuple):
    """A part of the work on one micro-batch, on one stage."""

    part: Part
    stage: int
    batch: int


Slot = tuple[Task, ...]
Order = list[Slot]


def order_of(schedule: Schedule, pp: int, vpp: int, micro_batches: int) -> list[Order]:
    """The order of every rank."""
    ranks = [_Rank(micro_batches) for _ in range(pp)]
    for r, rank in enumerate(ranks):
        match schedule:
            case "gpipe":
                _gpipe(rank, r)
            case "1f1b" if vpp > 1:
                _interleaved(rank, r, pp, vpp)
            case "1f1b":
                _one_by_one(rank, r, first=pp - r)
            case "zb-h1":
                _zero_bubble(rank, r, first=pp - r, late=r)
            case "zb-h2":
                _zero_bubble(rank, r, first=2 * (pp - r) - 1, late=2 * r)
            case "zb-v":
                _zero_bubble_v(rank, r, pp)
            case "dualpipe":
                _dualpipe(rank, r, pp)
    return [rank.order for rank in ranks]


class _Rank:
    """An order as it is written: each part takes the next micro-batch of its stage."""

    def __init__(self, micro_batches: int) -> None:
        self.m = micro_batches
        self.order: Order = []
        self.first: dict[int, int] = {}  # micro-batch with which a stage begins, if not 0
        self.late: list[Task] = []  # weight gradients yet to be computed
        self._done: Counter[tuple[bool, int]] = Counter()  # forwards and backwards of a stage

    def run(self, part: Part, stage: int, *, times: int = 1) -> None:
        """So many of these, one after another."""
        for _ in range(times):
            self._add(self._next(part, stage))

    def forward(self, stage: int, *, times: int = 1) -> None:
        """Forwards of a stage."""
        self.run(Part.FORWARD, stage, times=times)

    def backward(self, stage: int, *, late: bool) -> None:
        """A backward, whole, or with the weight gradient left for later."""
        if not late:
            self.run(Part.WHOLE, stage)
            return
        task = self._next(Part.INPUT, stage)
        self._add(task)
        self.late.append(task._replace(part=Part.WEIGHT))

    def weight(self, stage: int | None = None) -> None:
        """The weight gradient that has waited longest, of one stage or of all."""
        at = next(i for i, task in enumerate(self.late) if stage in (None, task.stage))
        self._add(self.late.pop(at))

    def beside(self, forward: int, backward: int) -> None:
        """A forward of one stage beside a whole backward of another."""
        self._add(self._next(Part.FORWARD, forward), self._next(Part.WHOLE, backward))

    def _next(self, part: Part, stage: int) -> Task:
        counted = part is Part.FORWARD, stage
        batch = self._done[counted] + self.first.get(stage, 0)
        self._done[counted] += 1
        return Task(part, stage, batch)

    def _add(self, *tasks: Task) -> None:
        """Schedules are written for enough micro-batches; of fewer the rest is left out."""
        there = tuple(task for task in tasks if task.batch < self.m)
        if there:
            self.order.append(there)


def _gpipe(rank: _Rank, stage: int) -> None:
    rank.forward(stage, times=rank.m)
    rank.run(Part.WHOLE, stage, times=rank.m)


def _one_by_one(rank: _Rank, stage: int, first: int) -> None:
    first = min(first, rank.m)
    rank.forward(stage, times=first - 1)
    for _ in range(rank.m - first + 1):
        rank.forward(stage)
        rank.backward(stage, late=False)
    for _ in range(first - 1):
        rank.backward(stage, late=False)


def _interleaved(rank: _Rank, r: int, pp: int, vpp: int) -> None:
    """Groups of p micro-batches through one piece after another; forwards ahead as in Megatron-LM
    (schedules.py, get_pp_rank_microbatches).
    """
    group, pieces = pp * vpp, rank.m * vpp
    ahead = min((pp - r - 1) * 2 + (vpp - 1) * pp, pieces)

    def forward(at: int) -> None:
        rank.forward(at % group // pp * pp + r)

    def backward(at: int) -> None:
        rank.backward((vpp - 1 - at % group // pp) * pp + r, late=False)

    for at in range(ahead):
        forward(at)
    for at in range(pieces - ahead):
        forward(ahead + at)
        backward(at)
    for at in range(pieces - ahead, pieces):
        backward(at)


def _zero_bubble(rank: _Rank, stage: int, first: int, late: int) -> None:
    first = min(first, rank.m)
    rank.forward(stage, times=first)
    for done in range(rank.m):
        rank.backward(stage, late=True)
        if len(rank.late) > late:
            rank.weight()
        if first + done < rank.m:
            rank.forward(stage)
    while rank.late:
        rank.weight()


def _zero_bubble_v(rank: _Rank, r: int, pp: int) -> None:
    near, far = r, 2 * pp - 1 - r
    m = max(2 * pp - 1, rank.m)
    rank.forward(near, times=2 * (pp - r) - 1)
    for _ in range(r):
        rank.forward(far)
        rank.forward(near)
    for _ in range(pp - r):
        _forward_and_back(rank, far)
    for done in range(m - pp):
        if 2 * pp - r - 1 + done < m:
            rank.forward(near)
        rank.backward(near, late=True)
        rank.weight()
        _forward_and_back(rank, far)
    for _ in range(r):
        rank.backward(near, late=True)
        rank.backward(far, late=True)
    for _ in range(pp - r):
        rank.backward(near, late=True)
        rank.weight(near)
    for stage in (far, near):
        for _ in range(r):
            rank.weight(stage)


def _forward_and_back(rank: _Rank, stage: int) -> None:
    rank.forward(stage)
    rank.backward(stage, late=True)
    rank.weight()


def _dualpipe(rank: _Rank, r: int, pp: int) -> None:
    half, h = pp // 2, min(r, pp - 1 - r)
    near, far = h, pp - 1 - h  # the stages of the end that is nearer to this rank, and of the other
    rank.first[near if r >= half else far] = rank.m // 2
    outer = half - h - 1
    rank.forward(near, times=2 * outer)
    for _ in range(h + 1):
        rank.forward(near)
        rank.forward(far)
    for _ in range(outer):
        rank.backward(far, late=True)
        rank.weight()
        rank.forward(far)
    for i in range(rank.m // 2 - pp + h + 1):
        if i == 0 and outer == 0:  # apart, which lets the neighbours begin earlier
            rank.forward(near)
            rank.backward(far, late=False)
        else:
            rank.beside(near, far)
        rank.beside(far, near)
    for _ in range(outer):
        rank.backward(far, late=False)
        rank.beside(far, near)
    for i in range(2 * (h + 1)):  # of these the later half leaves weight gradients for the end
        rank.backward(near if i % 2 else far, late=i > h)
    for _ in range(outer):
        rank.weight()
        rank.backward(near, late=True)
    for _ in range(h + 1):
        rank.weight()
