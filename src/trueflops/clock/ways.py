"""Ways of a collective side by side: the library's own, as the clock prices them, and others.

    halving-doubling   2·(n−1)/n · bytes, in 2·log₂ n steps        Thakur et al. 2005, section 4.5
    server-everywhere  2·(n−1)/n · bytes, each to its own rank     Li et al. 2014
    server-rank0       2·(n−1) · bytes through the links of rank 0
    in-switch          (m+1)/m · bytes on a scale-up link, once the bytes of its share on a network
In: a group on the tiers of a cluster, and the curve of the library's collective, whose rates and
latencies hold for every way but in-switch. Out: seconds, steps and bytes by algorithm.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2, prod
from typing import Final

import numpy as np

from trueflops import units
from trueflops.catalog import Tier
from trueflops.clock.algorithms import Algorithm
from trueflops.clock.collectives import (
    Levels,
    bandwidth_of,
    collective_transfer,
    exchange,
    fastest_protocol,
    hierarchy_pass,
    levels,
    library_seconds,
    members_by_tier,
    ring_bus,
    ring_hops,
)
from trueflops.graph.kinds import CollectiveKind
from trueflops.profile import Curve
from trueflops.sizes import Array, Size

NVLINK_SHARP_SHARE: Final = 0.685
"""Of the link, by NVLink SHARP: 258, 265, 270 and 273 GB/s were reduced by 5, 6, 7 and 8 H100
(github.com/NVIDIA/nccl/issues/1455), which moves (n+1)/n of that over links of 450 GB/s: 307 to 310
GB/s each time. On NVLink 5 the same share is assumed."""
NVLINK_SHARP: Final = "NVLink SHARP"
SHARP_SECONDS: Final = {NVLINK_SHARP: 25.0 * units.MICRO, "SHARP": 18.0 * units.MICRO}
"""What a sum in the switch takes before it moves a byte: NCCL's hwLatencies of NVLS (tuning.cc)."""
CHAIN: Final = 8  # ranks of a node that a tree joins as a chain


@dataclass(frozen=True)
class Way:
    """One algorithm: what it takes, and what whoever is busiest sends."""

    algorithm: Algorithm
    seconds: float
    steps: int  # hops that follow one another
    sent_bytes: float  # by the busiest rank, or by the server


@dataclass(frozen=True)
class Host:
    """Where a parameter server in host memory is reached: seconds for all bytes over one link."""

    seconds: float  # of one accelerator's bytes to its own host
    per_node: int


def collective_ways(
    kind: CollectiveKind,
    group: int,
    payload: float,
    tiers: tuple[Tier, ...],
    law: Curve,
    host: Host | None,
) -> dict[Algorithm, Way]:
    """Every way that this collective has among neighbours of this cluster."""
    n = float(group)
    at, base, rate = levels(n, payload, 1.0, tiers, law)
    found = library_seconds(kind, n, payload, 1.0, tiers, law)
    if sum(float(size) > 1.0 for size in at.sizes) == 1:
        found.pop(Algorithm.HIERARCHY, None)  # of one tier it is a ring
    # The clock blends protocols, of which each may have its own fastest algorithm: that of the
    # whole has the clock's number, not what it would take without the others.
    fastest = min(found, key=lambda algorithm: float(found[algorithm]))
    found[fastest] = collective_transfer(kind, n, payload, 1.0, tiers, law).seconds
    for algorithm, way in _others(kind, at, payload, rate, tiers).items():
        found[algorithm] = fastest_protocol(base, [way], at, payload, law)
    if kind is CollectiveKind.ALL_REDUCE:
        if sums_in_switch(group, tiers):
            found[Algorithm.IN_SWITCH] = _in_switch(at, payload, tiers, law)
        if host is not None:
            server = base + _host_server(at, payload, rate, tiers, host)
            found[Algorithm.HOST_SERVER] = np.min(server, axis=0)
    sizes = [float(size) for size in at.sizes]
    return {
        algorithm: Way(
            algorithm,
            float(seconds),
            steps_of(kind, algorithm, sizes),
            payload * sent_share(kind, algorithm, sizes, tiers),
        )
        for algorithm, seconds in found.items()
    }


def sums_in_switch(group: int, tiers: tuple[Tier, ...]) -> bool:
    """Whether a switch between these ranks can add."""
    joined = members_by_tier(float(group), 1.0, tiers)
    return any(tier.in_switch and size > 1.0 for tier, size in zip(tiers, joined, strict=True))


def _others(
    kind: CollectiveKind, at: Levels, payload: float, rate: Array, tiers: tuple[Tier, ...]
) -> dict[Algorithm, Size]:
    """Seconds after the start, by protocol, of what the library does not choose from."""
    n = float(at.group)
    # Partners far apart on a torus would share its links, and nobody lays a tree over one so.
    apart = not any(tier.topology.startswith("torus") for tier in tiers)
    found: dict[Algorithm, Size] = {}
    match kind:
        case CollectiveKind.ALL_REDUCE:
            if apart and log2(n).is_integer():
                found[Algorithm.HALVING] = 2.0 * _halving(at, payload, rate, tiers)
            found[Algorithm.SHARDED_SERVER] = 2.0 * exchange(at, payload, rate)
            found[Algorithm.RANK_SERVER] = 2.0 * _star(at, payload, rate)
        case CollectiveKind.ALL_GATHER | CollectiveKind.REDUCE_SCATTER:
            if apart and log2(n).is_integer():
                found[Algorithm.HALVING] = _halving(at, payload, rate, tiers)
            found[Algorithm.DIRECT] = exchange(at, payload, rate)
            if not at.by_tiers and sum(float(size) > 1.0 for size in at.sizes) > 1:
                found[Algorithm.HIERARCHY] = hierarchy_pass(at, payload, rate)
        case CollectiveKind.BROADCAST:
            if apart:
                found[Algorithm.BINOMIAL] = _binomial(at, payload, rate, tiers)
            found[Algorithm.HIERARCHY] = 2.0 * hierarchy_pass(at, payload, rate)
            found[Algorithm.RANK_SERVER] = _star(at, payload, rate)
        case CollectiveKind.ALL_TO_ALL:
            # A ring hands every block on until it has arrived: n/2 links on average.
            carried = (n - 1.0) / 2.0 * payload
            found[Algorithm.RING] = carried / (ring_bus(at) * rate) + ring_hops(at)
            if sum(float(size) > 1.0 for size in at.sizes) > 1:
                found[Algorithm.HIERARCHY] = _tier_by_tier(at, payload, rate)
            if apart:
                found[Algorithm.BRUCK] = _bruck(at, payload, rate, tiers)
    return found


def _pair_bus(at: Levels, tiers: tuple[Tier, ...], i: int) -> Size:
    """What a rank sends to one other at a tier: of a mesh or a torus only the links between."""
    return at.bus[i] * bandwidth_of(tiers[i], 2.0) / bandwidth_of(tiers[i], at.sizes[i])


def _halving(at: Levels, payload: float, rate: Array, tiers: tuple[Tier, ...]) -> Size:
    """Recursive halving, or doubling: neighbours first, so that far ranks exchange the least."""
    total: Size = 0.0
    left: Size = payload
    for i, (members, hop) in enumerate(zip(at.sizes, at.hops, strict=True)):
        moved = (members - 1.0) / members * left
        total = total + moved / (_pair_bus(at, tiers, i) * rate) + np.log2(members) * hop
        left = left / members
    return total


def _star(at: Levels, payload: float, rate: Array) -> Size:
    """All others to rank 0 or back: at each tier through the links of that one rank."""
    slowest: Size = 0.0
    latency: Size = 0.0
    joined: Size = 1.0
    for members, bus, hop in zip(at.sizes, at.bus, at.hops, strict=True):
        reached = joined * members
        slowest = np.maximum(slowest, (reached - joined) * payload / (bus * rate))
        latency = np.where(np.asarray(members) > 1.0, hop, latency)
        joined = reached
    return slowest + latency


def _host_server(
    at: Levels, payload: float, rate: Array, tiers: tuple[Tier, ...], host: Host
) -> Size:
    """One node's host memory holds the parameters; others reach it by that node's network.

    Each of the node's accelerators has its own link to the host. What the CPU takes to add is not
    known and left out: this is the least that it can be.
    """
    near = min(float(at.group), float(host.per_node))
    far = float(at.group) - near
    spanned = max(i for i, size in enumerate(at.sizes) if float(size) > 1.0)
    outside = far * payload / (near * bandwidth_of(tiers[spanned], at.sizes[spanned]) * rate)
    return 2.0 * (np.maximum(outside, host.seconds) + at.hops[spanned])


def _binomial(at: Levels, payload: float, rate: Array, tiers: tuple[Tier, ...]) -> Size:
    """Each step everyone who has all the bytes sends all of them to one who has not."""
    total: Size = 0.0
    for i, (members, hop) in enumerate(zip(at.sizes, at.hops, strict=True)):
        step = payload / (_pair_bus(at, tiers, i) * rate) + hop
        total = total + ceil(log2(float(members))) * step
    return total


def _tier_by_tier(at: Levels, payload: float, rate: Array) -> Size:
    """An all-to-all that first collects inside a node what goes to one rank of another."""
    total: Size = 0.0
    for members, bus, detour, hop in zip(at.sizes, at.bus, at.detour, at.hops, strict=True):
        moved = (members - 1.0) / members * payload * detour / (bus * rate)
        total = total + moved + np.where(np.asarray(members) > 1.0, hop, 0.0)
    return total


def _bruck(at: Levels, payload: float, rate: Array, tiers: tuple[Tier, ...]) -> Size:
    """Half of all bytes each step, to the rank 1, 2, 4 … further: some always leave the node."""
    pace: Size = 0.0
    for i, (members, hop) in enumerate(zip(at.sizes, at.hops, strict=True)):
        step = payload / 2.0 / (_pair_bus(at, tiers, i) * rate) + hop
        pace = np.where(np.asarray(members) > 1.0, np.maximum(pace, step), pace)
    return ceil(log2(float(at.group))) * pace


def _in_switch(at: Levels, payload: float, tiers: tuple[Tier, ...], law: Curve) -> float:
    """All tiers as one pipeline, as NCCL takes the least bandwidth of them.

    NVLink SHARP reads every rank's part of a chunk and writes the sum to all: a rank sends what it
    holds once and the 1/m that it asked to be summed once more. A network's switch gets a share
    once and returns its sum. A tier without such a switch scatters and gathers as ever.
    """
    slowest, latency, left = 0.0, 0.0, payload
    usual = law["efficiency"] * law.values.get("rate_simple", 1.0)
    for tier, size, bus, hop in zip(tiers, at.sizes, at.bus, at.hops, strict=True):
        m = float(size)
        if m == 1.0:
            continue
        if not tier.in_switch:
            rate = float(np.ravel(bus)[0]) * usual
            taken, waits = 2.0 * (m - 1.0) / m * left / rate, 2.0 * (m - 1.0) * float(hop[-1])
        else:
            inside = tier.in_switch == NVLINK_SHARP
            rate = tier.bandwidth * (NVLINK_SHARP_SHARE if inside else usual)
            taken, waits = _switch_share(tier, m) * left / rate, SHARP_SECONDS[tier.in_switch]
        slowest, latency = max(slowest, taken), latency + waits
        left = left / m
    return slowest + latency


def steps_of(kind: CollectiveKind, algorithm: Algorithm, sizes: list[float]) -> int:
    """Hops that follow one another, given how many ranks each tier joins."""
    n = prod(sizes)
    passes = 2 if kind is CollectiveKind.ALL_REDUCE else 1
    match algorithm:
        case Algorithm.RING:
            steps = n - 1.0
        case Algorithm.TREE:
            inside = min(sizes[0] - 1.0, CHAIN - 1.0) + ceil(log2(max(sizes[0] / CHAIN, 1.0)))
            steps = inside + sum(ceil(log2(size)) for size in sizes[1:])
        case Algorithm.HIERARCHY if kind is CollectiveKind.ALL_TO_ALL:
            steps = float(sum(size > 1.0 for size in sizes))
        case Algorithm.HIERARCHY:
            passes = 1 if kind in (CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER) else 2
            steps = sum(size - 1.0 for size in sizes)
        case Algorithm.HALVING | Algorithm.BINOMIAL | Algorithm.BRUCK:
            steps = float(sum(ceil(log2(size)) for size in sizes))
        case Algorithm.IN_SWITCH:
            steps = float(sum(size > 1.0 for size in sizes))
        case _:  # to all at once, or to the server
            steps = 1.0
    return int(passes * steps)


def sent_share(
    kind: CollectiveKind, algorithm: Algorithm, sizes: list[float], tiers: tuple[Tier, ...]
) -> float:
    """Bytes that the busiest party sends, over the bytes of the collective."""
    n = prod(sizes)
    reduces = kind is CollectiveKind.ALL_REDUCE
    match algorithm:
        case Algorithm.TREE:
            return _tree_share(n, min(sizes[0], CHAIN))
        case Algorithm.BINOMIAL:
            return float(sum(ceil(log2(size)) for size in sizes))
        case Algorithm.BRUCK:
            return ceil(log2(n)) / 2.0
        case Algorithm.RANK_SERVER:
            return n - 1.0
        case Algorithm.HOST_SERVER:
            return n
        case Algorithm.IN_SWITCH:
            return _in_switch_share(sizes, tiers)
        case Algorithm.RING if kind is CollectiveKind.BROADCAST:
            return 1.0
        case Algorithm.RING if kind is CollectiveKind.ALL_TO_ALL:
            return (n - 1.0) / 2.0
        case Algorithm.HIERARCHY if kind is CollectiveKind.ALL_TO_ALL:
            return sum((size - 1.0) / size for size in sizes)
        case Algorithm.HIERARCHY if kind is CollectiveKind.BROADCAST:  # the root scatters
            return 2.0 * (n - 1.0) / n
        case _:
            return (2.0 if reduces else 1.0) * (n - 1.0) / n


def _tree_share(n: float, chain: float) -> float:
    """Two trees of half the bytes each: up to a parent, down to those below, once in either.

    The head of a node's chain has up to two nodes below it, but heads only one of the trees.
    """
    chain = chain if (n / chain).is_integer() else 1.0
    head = (1.0 if chain > 1.0 else 0.5) + (0.0, 0.5, 1.0, 1.5)[int(min(n / chain, 4.0)) - 1]
    return max(head, 2.0 if chain > 2.0 else 0.0)


def _in_switch_share(sizes: list[float], tiers: tuple[Tier, ...]) -> float:
    total, left = 0.0, 1.0
    for tier, m in zip(tiers, sizes, strict=True):
        if m > 1.0 and not tier.in_switch:
            total += 2.0 * (m - 1.0) / m * left
        elif m > 1.0:
            total += _switch_share(tier, m) * left
        left /= m
    return total


def _switch_share(tier: Tier, m: float) -> float:
    """What a rank sends to a switch that sums for m of them, over the bytes that it has."""
    return (m + 1.0) / m if tier.in_switch == NVLINK_SHARP else 1.0
