"""Who sends which chunk to whom at which step, by algorithm.

In: a collective, an algorithm, and how many ranks each tier joins, innermost first. Out: phases of
steps of messages; messages of one step travel at the same time. A message adds to what the receiver
has, or replaces it. Chunks are equal parts of the bytes; of an all-to-all, chunk n·s + d is what
rank s has for rank d.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueflops.clock import Algorithm
from trueflops.clock.ways import CHAIN
from trueflops.graph.kinds import CollectiveKind
from trueflops.language import say
from trueflops.predict.collective.trees import Parents, chained, depths, heights, two_trees


class Message(NamedTuple):
    """Chunks that go from one rank to another."""

    source: int
    destination: int
    chunks: tuple[int, ...]
    adds: bool


Step = tuple[Message, ...]


class Phase(NamedTuple):
    """Steps with one purpose, such as scatter-reduce."""

    name: str
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Schedule:
    """All messages of a collective."""

    kind: CollectiveKind
    algorithm: Algorithm
    ranks: int
    chunks: int
    phases: tuple[Phase, ...]

    @property
    def steps(self) -> int:
        """Steps of all phases."""
        return sum(len(phase.steps) for phase in self.phases)

    def sent_shares(self) -> NDArray[np.float64]:
        """What each rank sends, over the bytes of the collective."""
        sent = np.zeros(self.ranks)
        per_payload = self.chunks / (self.ranks if self.kind is CollectiveKind.ALL_TO_ALL else 1)
        for phase in self.phases:
            for step in phase.steps:
                for message in step:
                    sent[message.source] += len(message.chunks) / per_payload
        return sent


def schedule(kind: CollectiveKind, algorithm: Algorithm, sizes: Sequence[int]) -> Schedule | None:
    """The messages; None where ranks send none to one another (a switch), or nobody wrote them."""
    n = prod(sizes)
    found = _phases(kind, algorithm, [size for size in sizes if size > 1] or [1])
    if found is None:
        return None
    chunks, phases = found
    return Schedule(kind, algorithm, n, chunks, tuple(phases))


def contributions(of: Schedule, phases: int) -> NDArray[np.int64]:
    """Of how many ranks each [rank, chunk] holds the sum after so many phases; 0: not there yet."""
    n = of.ranks
    held = np.zeros((n, of.chunks, n), dtype=np.int64)
    for rank in range(n):
        held[rank, _at_start(of, rank), rank] = 1
    for phase in of.phases[:phases]:
        for step in phase.steps:
            before = held.copy()
            for message in step:
                at = list(message.chunks)
                arrives = before[message.source, at]
                kept = held[message.destination, at] if message.adds else 0
                held[message.destination, at] = kept + arrives
    return np.asarray(held.sum(axis=2))


def _at_start(of: Schedule, rank: int) -> list[int]:
    """Chunks that a rank has before the first step."""
    match of.kind:
        case CollectiveKind.ALL_GATHER:
            return [rank]
        case CollectiveKind.BROADCAST:
            return list(range(of.chunks)) if rank == 0 else []
        case CollectiveKind.ALL_TO_ALL:
            return [of.ranks * rank + to for to in range(of.ranks)]
        case _:
            return list(range(of.chunks))


def _phases(
    kind: CollectiveKind, algorithm: Algorithm, sizes: list[int]
) -> tuple[int, list[Phase]] | None:
    """How many chunks, and what is done with them."""
    n = prod(sizes)
    k, a = CollectiveKind, Algorithm
    match kind, algorithm:
        case k.ALL_REDUCE, a.RING:
            gather = _ring_gather(n, first=1)
            return n, [Phase("scatter-reduce", _ring_reduce(n, 0)), Phase("all-gather", gather)]
        case k.REDUCE_SCATTER, a.RING:
            return n, [Phase("scatter-reduce", _ring_reduce(n, -1))]
        case k.ALL_GATHER, a.RING:
            return n, [Phase("all-gather", _ring_gather(n, first=0))]
        case k.BROADCAST, a.RING:
            return n, [Phase("pipelined chain", _chain(n))]
        case k.ALL_REDUCE, a.TREE:
            return 2, _two_trees(n, sizes[0])
        case k.ALL_REDUCE | k.REDUCE_SCATTER | k.ALL_GATHER, a.HIERARCHY:
            return n, _hierarchy(kind, sizes)
        case k.ALL_REDUCE | k.REDUCE_SCATTER | k.ALL_GATHER, a.HALVING:
            if n & (n - 1):
                return None
            return n, _one_or_both(kind, ("halving", "doubling"), _halving(n))
        case (k.ALL_REDUCE, a.SHARDED_SERVER) | (k.REDUCE_SCATTER | k.ALL_GATHER, a.DIRECT):
            names = ("push, and sum", "pull") if kind is k.ALL_REDUCE else ("push, and sum", "send")
            return n, _one_or_both(kind, names, (_push(n),))
        case k.ALL_REDUCE, a.RANK_SERVER:
            push = tuple(Message(r, 0, (0,), True) for r in range(1, n))
            return 1, [Phase("push, and sum", (push,)), Phase("pull", (_from_root(n),))]
        case k.BROADCAST, a.RANK_SERVER:
            return 1, [Phase("send", (_from_root(n),))]
        case k.BROADCAST, a.BINOMIAL:
            return 1, [Phase("binomial tree", _binomial(n))]
        case k.ALL_TO_ALL, a.DIRECT:
            return n * n, [Phase("pairwise, all at once", _pairwise(n))]
    return None


def _one_or_both(
    kind: CollectiveKind, names: tuple[str, str], reducing: tuple[Step, ...]
) -> list[Phase]:
    """Reduce, gather, or the one after the other: a gather is a reduction run backwards."""
    reduce = Phase(names[0], reducing)
    gather = Phase(names[1], _reversed(reducing))
    match kind:
        case CollectiveKind.REDUCE_SCATTER:
            return [reduce]
        case CollectiveKind.ALL_GATHER:
            return [gather]
        case _:
            return [reduce, gather]


def _reversed(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    return tuple(
        tuple(Message(m.destination, m.source, m.chunks, False) for m in step)
        for step in reversed(steps)
    )


def _ring_reduce(n: int, first: int) -> tuple[Step, ...]:
    """Each chunk goes round once and is added to; rank r ends with the sum of chunk r + 1 + first.

    Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", 2009.
    """
    return tuple(
        tuple(Message(r, (r + 1) % n, ((r + first - k) % n,), True) for r in range(n))
        for k in range(n - 1)
    )


def _ring_gather(n: int, first: int) -> tuple[Step, ...]:
    """Each chunk goes round once more as it is; rank r begins with chunk r + first."""
    return tuple(
        tuple(Message(r, (r + 1) % n, ((r + first - k) % n,), False) for r in range(n))
        for k in range(n - 1)
    )


def _chain(n: int) -> tuple[Step, ...]:
    """Rank 0 sends a chunk a step; each rank hands on what it got the step before."""
    return tuple(
        tuple(Message(r, r + 1, (k - r,), False) for r in range(n - 1) if 0 <= k - r < n)
        for k in range(2 * n - 2)
    )


def _two_trees(n: int, node: int) -> list[Phase]:
    chain = next((c for c in (min(node, CHAIN),) if n % c == 0), 1)
    first, second = two_trees(n // chain)
    trees = chained(first, chain, last_first=False), chained(second, chain, last_first=True)
    up = _merged([_upwards(tree, half) for half, tree in enumerate(trees)])
    down = _merged([_downwards(tree, half) for half, tree in enumerate(trees)])
    return [Phase("reduce, up two trees", up), Phase("broadcast, down", down)]


def _upwards(parents: Parents, chunk: int) -> list[Step]:
    height = heights(parents)
    return [
        tuple(Message(r, p, (chunk,), True) for r, p in parents.items() if height[r] == level)
        for level in range(max(height.values()))
    ]


def _downwards(parents: Parents, chunk: int) -> list[Step]:
    depth = depths(parents)
    return [
        tuple(Message(p, r, (chunk,), False) for r, p in parents.items() if depth[r] == level)
        for level in range(1, max(depth.values()) + 1)
    ]


def _merged(trees: list[list[Step]]) -> tuple[Step, ...]:
    """Both at once."""
    most = max(len(steps) for steps in trees)
    return tuple(
        tuple(m for steps in trees if k < len(steps) for m in steps[k]) for k in range(most)
    )


def _hierarchy(kind: CollectiveKind, sizes: list[int]) -> list[Phase]:
    """Rings of reduction tier by tier outwards, rings of gathering back inwards."""
    n = prod(sizes)
    outward: list[tuple[Step, ...]] = []
    stride = 1
    for size in sizes:
        outward.append(_ring_of_tier(n, stride, size))
        stride *= size
    words = ["within the node", *["between nodes" for _ in sizes[1:]]]
    reduce = [Phase(say("scatter-reduce {w}", w=w), s) for w, s in zip(words, outward, strict=True)]
    gather = [
        Phase(say("all-gather {w}", w=w), _reversed(s))
        for w, s in zip(reversed(words), reversed(outward), strict=True)
    ]
    match kind:
        case CollectiveKind.REDUCE_SCATTER:
            return reduce
        case CollectiveKind.ALL_GATHER:
            return gather
        case _:
            return [*reduce, *gather]


def _ring_of_tier(n: int, stride: int, size: int) -> tuple[Step, ...]:
    """A ring's scatter-reduce among ranks `stride` apart, of the chunks that inner tiers left them.

    Rank and chunk have the same digits, one a tier; a rank keeps chunks whose inner digits are its.
    """

    def digit(number: int) -> int:
        return number // stride % size

    steps = []
    for k in range(size - 1):
        messages = []
        for rank in range(n):
            to = rank + ((digit(rank) + 1) % size - digit(rank)) * stride
            wanted = (digit(rank) - 1 - k) % size
            mine = (c for c in range(rank % stride, n, stride) if digit(c) == wanted)
            messages.append(Message(rank, to, tuple(mine), True))
        steps.append(tuple(messages))
    return tuple(steps)


def _halving(n: int) -> tuple[Step, ...]:
    """With the rank 1, 2, 4 … away: half of what is left, that half in which the other one is.

    Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH",
    2005, sections 4.4 and 4.5.
    """
    steps = []
    distance = 1
    while distance < n:
        messages = []
        for rank in range(n):
            other = rank ^ distance
            chunks = range(other % (2 * distance), n, 2 * distance)
            messages.append(Message(rank, other, tuple(chunks), True))
        steps.append(tuple(messages))
        distance *= 2
    return tuple(steps)


def _push(n: int) -> Step:
    """Each rank's part of every chunk to the rank that sums it."""
    return tuple(
        Message(r, (r + k) % n, ((r + k) % n,), True) for r in range(n) for k in range(1, n)
    )


def _from_root(n: int) -> Step:
    return tuple(Message(0, r, (0,), False) for r in range(1, n))


def _binomial(n: int) -> tuple[Step, ...]:
    """Who has it sends it to the rank 1, 2, 4 … further on."""
    steps = []
    distance = 1
    while distance < n:
        senders = range(min(distance, n - distance))
        steps.append(tuple(Message(r, r + distance, (0,), False) for r in senders))
        distance *= 2
    return tuple(steps)


def _pairwise(n: int) -> tuple[Step, ...]:
    return tuple(
        tuple(Message(r, (r + k) % n, (n * r + (r + k) % n,), False) for r in range(n))
        for k in range(1, n)
    )
