"""A pipeline's step, event by event: when every rank runs what, waits, and how much it holds.

In: the orders of a schedule (orders.py), the seconds of every stage, those of a send. Out: a
Stepped step: the timeline, idle time, activations over time. A task starts when its rank is free
and what it needs has arrived: a forward the stage before, a backward the one after. Sends take
links, not ranks. The closed form of the same is predict/training/schedule.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from trueflops.errors import TrueflopsError
from trueflops.runtime.orders import Order, Part, Slot, Task


@dataclass(frozen=True, kw_only=True)
class StageSeconds:
    """One micro-batch on one stage: what is computed, and sent between ranks of the same stage
    (`_sent`), which another micro-batch's compute can hide.
    """

    forward: float
    input: float  # with recomputation
    weight: float
    forward_sent: float = 0.0
    input_sent: float = 0.0

    def computed(self, part: Part) -> float:
        """Seconds of compute of a part."""
        match part:
            case Part.FORWARD:
                return self.forward
            case Part.INPUT:
                return self.input
            case Part.WEIGHT:
                return self.weight
            case Part.WHOLE:
                return self.input + self.weight

    def sent(self, part: Part) -> float:
        """Seconds of communication in it."""
        if part is Part.FORWARD:
            return self.forward_sent
        return 0.0 if part is Part.WEIGHT else self.input_sent


class Span(NamedTuple):
    """A slot with its place in time."""

    slot: Slot
    start: float
    end: float


class Result(NamedTuple):
    """What a stage makes for its neighbour: its output, or the gradient of its input."""

    part: Part  # FORWARD or INPUT
    stage: int
    batch: int


class Sent(NamedTuple):
    """A message from one rank to another."""

    what: Result
    source: int
    target: int
    start: float
    end: float


@dataclass(frozen=True)
class Stepped:
    """A step as every rank ran it."""

    ranks: tuple[tuple[Span, ...], ...]
    sends: tuple[Sent, ...]

    @property
    def seconds(self) -> float:
        """From the first task to the end of the last."""
        return max(rank[-1].end for rank in self.ranks)

    @property
    def longest(self) -> float:
        """Of the rank that takes longest from its own first task to its last: what a step takes
        where ranks go on to the next without waiting for one another (Qi 2024 §4).
        """
        return max(rank[-1].end - rank[0].start for rank in self.ranks)

    def busy(self, rank: int) -> float:
        """Seconds in which a rank runs something."""
        return sum(ran.end - ran.start for ran in self.ranks[rank])

    def held(self, rank: int, kept: Sequence[float]) -> list[tuple[float, float]]:
        """What a rank holds from each moment on, if stage s keeps kept[s] of a micro-batch, from
        the start of its forward until its weight gradient is there.
        """
        changes: list[tuple[float, float]] = []
        for ran in self.ranks[rank]:
            for task in ran.slot:
                if task.part is Part.FORWARD:
                    changes.append((ran.start, kept[task.stage]))
                elif task.part is not Part.INPUT:
                    changes.append((ran.end, -kept[task.stage]))
        now, over_time = 0.0, []
        for when, change in sorted(changes, key=lambda each: (each[0], each[1])):
            now += change
            over_time.append((when, now))
        return over_time

    def most_held(self, rank: int, kept: Sequence[float]) -> float:
        """At its fullest moment."""
        return max(size for _, size in self.held(rank, kept))


def run_orders(
    orders: Sequence[Order], stages: Sequence[StageSeconds], send: float = 0.0
) -> Stepped:
    """Run all ranks together, each as far as it gets before it needs what another has not made."""
    made: dict[Result, tuple[float, int]] = {}  # when it was there, and on which rank
    ranks: list[list[Span]] = [[] for _ in orders]
    sends: list[Sent] = []
    taken = _Taken(stages)
    waiting = list(range(len(orders)))
    while waiting:
        before = len(made)
        for rank in waiting:
            order, spans = orders[rank], ranks[rank]
            now = spans[-1].end if spans else 0.0
            while len(spans) < len(order):
                slot = order[len(spans)]
                needed = [n for task in slot if (n := _needed(task, len(stages)))]
                found = [made[result] for result in needed if result in made]
                if len(found) < len(needed):
                    break
                for result, (when, source) in zip(needed, found, strict=True):
                    if source != rank:
                        sends.append(Sent(result, source, rank, when, when + send))
                        when += send
                    now = max(now, when)
                spans.append(Span(slot, now, now := now + taken(slot)))
                for task in slot:
                    made[_made(task)] = now, rank
        waiting = [rank for rank in waiting if len(ranks[rank]) < len(orders[rank])]
        if waiting and len(made) == before:
            raise TrueflopsError("the ranks of a pipeline wait for one another for ever")
    return Stepped(tuple(map(tuple, ranks)), tuple(sends))


def _needed(task: Task, stages: int) -> Result | None:
    """What another stage makes for this task; what its own made before is there by its order."""
    part, stage, batch = task
    if part is Part.FORWARD:
        return Result(part, stage - 1, batch) if stage else None
    if part is Part.WEIGHT or stage == stages - 1:
        return None
    return Result(Part.INPUT, stage + 1, batch)


def _made(task: Task) -> Result:
    part, stage, batch = task
    return Result(Part.INPUT if part is Part.WHOLE else part, stage, batch)


class _Taken:
    """Seconds of a slot: they are the same for every micro-batch."""

    def __init__(self, stages: Sequence[StageSeconds]) -> None:
        self.stages = stages
        self.known: dict[tuple[str | int, ...], float] = {}

    def __call__(self, slot: Slot) -> float:
        """One task computes and sends; of two beside one another each hides what both send."""
        key = tuple(of for part, stage, _ in slot for of in (part, stage))
        if key not in self.known:
            computed = sum(self.stages[task.stage].computed(task.part) for task in slot)
            sent = sum(self.stages[task.stage].sent(task.part) for task in slot)
            self.known[key] = computed + sent if len(slot) == 1 else max(computed, sent)
        return self.known[key]
