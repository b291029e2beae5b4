"""One collective by every algorithm: seconds, bandwidths, steps, bytes, and what binds each.

In: a clock, a collective, its bytes and ranks. Out: CollectiveCompared. The answer is the clock's;
algorithms that the library chooses from are the clock's own, others are laws beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from trueflops.catalog import Cluster, Origin, Tier
from trueflops.clock import Algorithm, Clock, Way
from trueflops.clock.collectives import gathers_by_tiers, members_by_tier
from trueflops.errors import BadInput
from trueflops.graph.kinds import CollectiveKind
from trueflops.language import say
from trueflops.profile import Curve, CurveKey
from trueflops.runtime.terms import Estimate
from trueflops.sizes import Size

LIBRARY: Final[Mapping[CollectiveKind, tuple[Algorithm, ...]]] = {
    CollectiveKind.ALL_REDUCE: (Algorithm.RING, Algorithm.TREE, Algorithm.HIERARCHY),
    CollectiveKind.ALL_GATHER: (Algorithm.RING, Algorithm.HIERARCHY),  # on tori alone
    CollectiveKind.REDUCE_SCATTER: (Algorithm.RING, Algorithm.HIERARCHY),
    CollectiveKind.ALL_TO_ALL: (Algorithm.DIRECT,),
    CollectiveKind.BROADCAST: (Algorithm.RING,),
}
"""What the clock chooses from."""
_GATHERS: Final = frozenset((CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER))
FLOORS: Final = frozenset({Algorithm.HOST_SERVER})
"""Whose time is only the least that it can be: what a CPU takes to add is not known."""
NUDGE: Final = 1e-4  # by which a link is made faster to see what hangs on it: before another binds
LATENCY: Final = "latency"
HOST_LINK: Final = "host link"


@dataclass(frozen=True)
class Compared:
    """One algorithm, and the share of its time that hangs on each tier's bandwidth."""

    way: Way
    of_library: bool
    shares: Mapping[str, float]

    @property
    def bound(self) -> str:
        """What most of the time hangs on: a tier, the host link, or latency."""
        return max(self.shares, key=lambda name: self.shares[name])

    @property
    def is_floor(self) -> bool:
        """Whether the time is only the least that it can be."""
        return self.way.algorithm in FLOORS


@dataclass(frozen=True)
class CollectiveCompared:
    """A collective of so many bytes among so many ranks."""

    kind: CollectiveKind
    payload_bytes: float
    ranks: int
    cluster: Cluster
    sizes: tuple[int, ...]  # how many ranks, or groups of them, each tier joins
    seconds: Estimate  # the clock's answer
    found: tuple[Compared, ...]  # fastest first; what is only a floor comes last
    counts: tuple[int, ...]
    by_count: Mapping[Algorithm, tuple[float | None, ...]]  # seconds, where the algorithm can run

    @property
    def best(self) -> Compared:
        """The fastest of all."""
        return self.found[0]

    @property
    def chosen(self) -> Compared:
        """The fastest that the library has: the clock's."""
        return next(each for each in self.found if each.of_library)

    def algorithm_bandwidth(self, seconds: float) -> float:
        """Bytes of the collective a second: algbw of nccl-tests."""
        return self.payload_bytes / seconds

    def bus_bandwidth(self, seconds: float) -> float:
        """The same times what a ring would send: busbw of nccl-tests (doc/PERFORMANCE.md)."""
        return bus_factor(self.kind, self.ranks) * self.payload_bytes / seconds


def bus_factor(kind: CollectiveKind, ranks: int) -> float:
    """From algorithm bandwidth to bus bandwidth."""
    if kind is CollectiveKind.BROADCAST:
        return 1.0
    return (2.0 if kind is CollectiveKind.ALL_REDUCE else 1.0) * (ranks - 1.0) / ranks


def compare_collective(
    clock: Clock, kind: CollectiveKind, payload: float, ranks: int
) -> CollectiveCompared:
    """Price one collective by every algorithm, and by the number of ranks."""
    check_ranks(clock.cluster, ranks)
    ways = clock.collective_ways(kind, ranks, payload)
    faster = _with_faster_links(clock)
    nudged = {name: each.collective_ways(kind, ranks, payload) for name, each in faster.items()}
    compared = [
        Compared(
            way,
            algorithm in library_of(kind, clock.cluster.tiers),
            _shares(way, {name: other[algorithm] for name, other in nudged.items()}),
        )
        for algorithm, way in ways.items()
    ]
    law = clock.profile.curve(CurveKey("collective", operation=kind))
    seconds = clock.collective(kind, float(ranks), payload, 1.0).seconds
    counts = counts_up_to(clock.cluster, ranks)
    each = [clock.collective_ways(kind, count, payload) for count in counts]
    return CollectiveCompared(
        kind=kind,
        payload_bytes=payload,
        ranks=ranks,
        cluster=clock.cluster,
        sizes=tuple(int(size) for size in _joined(clock.cluster, ranks)),
        seconds=_estimated(clock, law, ranks, seconds),
        found=tuple(sorted(compared, key=lambda c: (c.is_floor, c.way.seconds))),
        counts=counts,
        by_count={
            algorithm: tuple(
                _if_it_can(at.get(algorithm) or _of_one_tier(kind, algorithm, at), clock.cluster, n)
                for at, n in zip(each, counts, strict=True)
            )
            for algorithm in ways
        },
    )


def library_of(kind: CollectiveKind, tiers: tuple[Tier, ...]) -> frozenset[Algorithm]:
    """What the library chooses from over these tiers."""
    lacks = kind in _GATHERS and not gathers_by_tiers(tiers)
    return frozenset(LIBRARY[kind]) - ({Algorithm.HIERARCHY} if lacks else set())


def _estimated(clock: Clock, law: Curve, ranks: int, seconds: Size) -> Estimate:
    """With the error of the law, or the network's where ranks are on several nodes."""
    inside = max((tier.reach for tier in clock.cluster.tiers if not tier.network), default=1.0)
    networks = [tier.network.error for tier in clock.cluster.tiers if tier.network]
    if ranks <= inside or not networks:
        return Estimate(seconds, {"collective": law.error}, law.origin)
    # What was measured inside a node says nothing of the network between nodes.
    origin: Origin = "derived" if law.origin == "measured" else law.origin
    return Estimate(seconds, {"collective": max(law.error, *networks)}, origin)


def check_ranks(where: Cluster, ranks: int) -> None:
    """So many ranks as fill whole nodes, or part of one."""
    if where.count < 2:
        raise BadInput(
            say(
                "a collective needs two ranks or more: write --on 8x{chip}, not {asked}",
                chip=where.accelerator.name,
                asked=where.name,
            )
        )
    if not 2 <= ranks <= where.count:
        raise BadInput(
            say(
                "--ranks {ranks}: write 2 to {count}, as many as {name} has",
                ranks=ranks,
                count=where.count,
                name=where.name,
            )
        )
    if not _fills_nodes(where, ranks):
        raise BadInput(
            say(
                "--ranks {ranks} do not fill nodes of {per_node}; write up to {per_node}, or "
                "a multiple of it",
                ranks=ranks,
                per_node=where.per_node,
            )
        )


def _joined(where: Cluster, ranks: int) -> list[float]:
    return [float(size) for size in members_by_tier(float(ranks), 1.0, where.tiers)]


def _fills_nodes(where: Cluster, ranks: int) -> bool:
    return all(size.is_integer() for size in _joined(where, ranks))


def counts_up_to(where: Cluster, ranks: int) -> tuple[int, ...]:
    """2, 4, 8 … as far as they fill nodes, and the number asked for."""
    doubled = (2**i for i in range(1, ranks.bit_length()))
    return tuple(sorted({*(n for n in doubled if _fills_nodes(where, n)), ranks}))


def _of_one_tier(
    kind: CollectiveKind, algorithm: Algorithm, ways: Mapping[Algorithm, Way]
) -> Way | None:
    """What a hierarchy is where there is only one tier."""
    if algorithm is not Algorithm.HIERARCHY:
        return None
    return ways[Algorithm.DIRECT if kind is CollectiveKind.ALL_TO_ALL else Algorithm.RING]


def _if_it_can(way: Way | None, where: Cluster, ranks: int) -> float | None:
    """Seconds; None where the algorithm cannot run: DataParallel is one process, of one node."""
    if way is None or (way.algorithm is Algorithm.RANK_SERVER and ranks > where.per_node):
        return None
    return way.seconds


def _with_faster_links(clock: Clock) -> dict[str, Clock]:
    """The same clock where one link is a little faster, for each of them."""
    where = clock.cluster
    found: dict[str, Clock] = {}
    for i, tier in enumerate(where.tiers):
        faster = replace(tier, bandwidth=tier.bandwidth * (1.0 + NUDGE))
        tiers = (*where.tiers[:i], faster, *where.tiers[i + 1 :])
        found[tier.name] = Clock(replace(where, tiers=tiers), clock.profile)
    if where.host_bandwidth is not None:
        host = where.host_bandwidth * (1.0 + NUDGE)
        found[HOST_LINK] = Clock(replace(where, host_bandwidth=host), clock.profile)
    return found


def _shares(way: Way, faster: Mapping[str, Way]) -> dict[str, float]:
    """−∂ln t / ∂ln bandwidth of each link; what hangs on none of them is latency."""
    shares = {
        name: (1.0 - other.seconds / way.seconds) * (1.0 + NUDGE) / NUDGE
        for name, other in faster.items()
    }
    return {**shares, LATENCY: 1.0 - sum(shares.values())}
