"""Collectives over the tiers of a cluster: the best of ring, tree and hierarchy, per protocol.

    ring  all-reduce      2(n−1)/n · bytes / bus + 2(n−1) hops
    ring  gather, scatter  (n−1)/n · bytes / bus +  (n−1) hops
    tree  all-reduce      2 · bytes / bus        + 2·log₂(nodes) hops between, plus those within
    hierarchy             scatter within, reduce between, gather within
NCCL and RCCL gather and scatter by rings alone (src/graph/tuning.cc: the others need a switch that
sums, or one rank a node); XLA, between the tori of pods, tier by tier.
The bus of a ring that leaves the node is what all of the node's members carry out together.
What they reach of a network is its own (catalog/data/links.toml), not that of a node's links.
Ring latencies and protocol rates are NCCL's own tuning constants (src/graph/tuning.cc).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from trueflops.catalog import PROTOCOLS, Tier
from trueflops.clock.algorithms import Algorithm
from trueflops.clock.law import log2, residual, stacked
from trueflops.clock.transfer import Transfer
from trueflops.graph.kinds import CollectiveKind
from trueflops.plan import Plan
from trueflops.profile import Curve
from trueflops.sizes import Array, Size


@dataclass(frozen=True)
class Placement:
    """How far apart the ranks of a group are, along each axis that a rank's graph uses.

    Tensor parallel ranks are neighbours, and so are those of them that share keys (vLLM's
    parallel_state.py); context parallel ones are a tp apart (Megatron's order); expert groups lie
    over tp, cp and dp together, expert-tensor ranks innermost.
    """

    stride: dict[str, Size]

    @classmethod
    def of(cls, plan: Plan) -> Placement:
        """Strides of a plan's axes."""
        expert = plan.etp if plan.sp else np.maximum(plan.tp, plan.etp)
        return cls({"tp": 1.0, "dcp": 1.0, "cp": plan.tp, "etp": 1.0, "ep": expert})


@dataclass(frozen=True)
class Levels:
    """A group seen tier by tier: how many of its members (or groups of them) each tier joins."""

    group: Size
    sizes: list[Size]
    bus: list[Size]  # one member's bandwidth at each tier
    detour: list[Size]  # how many links a message to a random member crosses there
    hops: list[Array]  # seconds per hop at each tier, by protocol along the first axis
    by_tiers: bool  # whether gathers and scatters may go tier by tier


def collective_transfer(
    kind: CollectiveKind,
    group: Size,
    payload: Size,
    stride: Size,
    tiers: tuple[Tier, ...],
    law: Curve,
    copies: float = 0.0,
) -> Transfer:
    """Seconds of one collective, and of its links. A group of one takes none.

    An all-to-all that sends each token to `copies` experts may send one copy to each node and
    forward it there (DeepEP); with 0 copies every one of them travels by itself.
    """
    if not tiers or kind is CollectiveKind.COPY or not np.any(group > 1.0):
        return Transfer(group * payload * 0.0, (0.0,) * len(tiers))
    at, base, rate = levels(group, payload, stride, tiers, law)
    ways = _library(kind, at, payload, rate, copies)
    seconds = fastest_protocol(base, ways.values(), at, payload, law)
    sent = _sent_by_tier(kind, group, at.sizes, payload, copies)
    # A library that sums in the switch sends less than its algorithm: no longer than it takes.
    links = tuple(
        np.minimum(bytes_ / bandwidth_of(tier, joined), seconds)
        for bytes_, tier, joined in zip(sent, tiers, at.sizes, strict=True)
    )
    return Transfer(seconds, links)


def library_seconds(
    kind: CollectiveKind,
    group: Size,
    payload: Size,
    stride: Size,
    tiers: tuple[Tier, ...],
    law: Curve,
) -> dict[Algorithm, Size]:
    """What each algorithm that the library chooses from takes: as if it had no other."""
    at, base, rate = levels(group, payload, stride, tiers, law)
    return {
        algorithm: fastest_protocol(base, [way], at, payload, law)
        for algorithm, way in _library(kind, at, payload, rate).items()
    }


def _library(
    kind: CollectiveKind, at: Levels, payload: Size, rate: Array, copies: float = 0.0
) -> dict[Algorithm, Size]:
    """Seconds after the start, by protocol, of each algorithm that the library has."""
    if kind is CollectiveKind.ALL_TO_ALL:
        return {Algorithm.DIRECT: exchange(at, payload, rate, copies)}
    return _ALGORITHMS[kind](at, payload, rate)


def fastest_protocol(
    base: Array, ways: Iterable[Size], at: Levels, payload: Size, law: Curve
) -> Size:
    """Seconds of the best way and protocol, as far from the formulas as measured rows lie there."""
    best, *others = ways
    for other in others:
        best = np.minimum(best, other)
    fastest = np.min(base + best, axis=0)
    if "blend" in law.values:  # near a switch of protocols the library's own guess is not the best
        blend = law["blend"]
        fastest = fastest * np.sum(((base + best) / fastest) ** -blend, axis=0) ** (-1.0 / blend)
    if law.landmarks is not None:  # of one node: nothing was seen beyond it
        fastest = np.array(fastest, dtype=np.float64)  # a copy to change
        group_, payload_, inner = np.broadcast_arrays(at.group, payload, at.sizes[0])
        inside = (inner >= group_) & (group_ > 1.0)
        if inside.any():
            features = collective_features(group_[inside], payload_[inside])
            fastest[inside] = fastest[inside] * np.exp(residual(features, law.landmarks))
    return np.where(np.asarray(at.group) > 1.0, fastest, 0.0)


def members_by_tier(group: Size, stride: Size, tiers: tuple[Tier, ...]) -> list[Size]:
    """How many of a group (or of the groups that inner tiers join) each tier joins."""
    found: list[Size] = []
    joined: Size = 1.0
    for tier in tiers:
        reach = np.clip(np.floor(tier.reach / stride), 1.0, group)
        members = np.maximum(reach / joined, 1.0)
        found.append(members)
        joined = joined * members
    return found


def _sent_by_tier(
    kind: CollectiveKind, group: Size, members: list[Size], payload: Size, copies: float
) -> list[Size]:
    """Bytes that the busiest member of a group must send at each tier.

    A gather or reduction tier by tier moves the least: (s−1)/s of what the inner tiers left over.
    """
    sent: list[Size] = []
    inner: Size = 1.0
    for i, size in enumerate(members):
        if kind is CollectiveKind.ALL_TO_ALL:
            share = inner * (size - 1.0) / group * _once_a_node(group, inner, copies if i else 0.0)
        elif kind is CollectiveKind.SEND_RECV:  # the last of a node hands over every block
            share = np.where(np.asarray(size) > 1.0, group - 1.0, 0.0)
        elif kind is CollectiveKind.BROADCAST:
            share = np.where(np.asarray(size) > 1.0, 1.0, 0.0) / inner
        else:
            passes = 2.0 if kind is CollectiveKind.ALL_REDUCE else 1.0
            share = passes * (size - 1.0) / size / inner
        sent.append(payload * share)
        inner = inner * size
    return sent


def stage_links(
    stages: Size, pieces: Size, payload: Size, stride: Size, tiers: tuple[Tier, ...]
) -> tuple[Size, ...]:
    """Seconds for which a micro-batch's way through a pipeline and back keeps each tier busy.

    Every piece of a stage sends its activation on and its gradient back. A stage between two others
    of the same tier sends both there, one at the edge of a node only one of them; of two stages
    each lacks one: nothing comes before the first piece, nothing after the last.
    """
    found: list[Size] = []
    inner: Size = 1.0
    members = members_by_tier(stages, stride, tiers)
    for size, tier in zip(members, tiers, strict=True):
        alone = np.asarray(inner) == 1.0
        sends = np.where(alone & (np.asarray(size) >= 3.0), 2.0 * pieces, pieces)
        pair = alone & (np.asarray(size) == 2.0) & (np.asarray(stages) == 2.0)
        sends = np.where(pair, 2.0 * pieces - 1.0, sends)
        sends = np.where(np.asarray(size) > 1.0, sends, 0.0)
        found.append(sends * payload / bandwidth_of(tier, size))
        inner = inner * size
    return tuple(found)


def collective_features(group: Size, payload: Size) -> Array:
    """Where a collective stands among the landmarks of a curve's error."""
    return stacked(log2(payload), log2(group))


REACH: Final = (
    3.0,
    1.5,
)  # of a landmark: three doublings of the bytes, one and a half of the ranks


_OF_SIMPLE: Final = {"ll": 0.5, "ll128": 0.92, "simple": 1.0}  # NCCL's own: src/graph/tuning.cc


def levels(
    group: Size, payload: Size, stride: Size, tiers: tuple[Tier, ...], law: Curve
) -> tuple[Levels, Array, Array]:
    """A group by tier; what a collective takes before it moves a byte; its share of the links.

    The last two by protocol along the first axis.
    """
    deep = (len(PROTOCOLS),) + (1,) * max(np.ndim(group), np.ndim(payload), np.ndim(stride))
    base = np.array([law[f"base_{p}"] for p in PROTOCOLS]).reshape(deep)
    rate = law["efficiency"] * np.array(
        [law.values.get(f"rate_{p}", 1.0) for p in PROTOCOLS]
    ).reshape(deep)
    sizes: list[Size] = []
    bus: list[Size] = []
    detour: list[Size] = []
    for tier, members in zip(tiers, members_by_tier(group, stride, tiers), strict=True):
        sizes.append(members)
        whole = bandwidth_of(tier, members)
        if tier.network:  # the law's rates are those of the links inside a node
            own = [tier.network.reached * _OF_SIMPLE[p] for p in PROTOCOLS]
            whole = whole * np.array(own).reshape(deep) / rate
        bus.append(whole)
        detour.append(_detour(tier, members))
    hops = [np.array([tier.latency[p] for p in PROTOCOLS]).reshape(deep) for tier in tiers]
    if "hop_ll" in law.values and tiers[0].origin != "assumed":  # measured inside the node
        hops[0] = np.array([law[f"hop_{p}"] for p in PROTOCOLS]).reshape(deep)
        bus[0] = bus[0] * np.maximum(sizes[0] / 2.0, 1.0) ** -law["crowding"]
    return Levels(group, sizes, bus, detour, hops, gathers_by_tiers(tiers)), base, rate


def gathers_by_tiers(tiers: tuple[Tier, ...]) -> bool:
    """Whether the library there does: XLA on TPUs, whose nodes are tori."""
    return any(tier.topology.startswith("torus") for tier in tiers)


def _torus(tier: Tier, members: Size) -> tuple[float, Size, float]:
    """Axes of a torus, how many a group of this size spans, and the length of one."""
    axes = float(tier.topology[-2])
    side = max(tier.reach ** (1.0 / axes), 2.0)
    spanned = np.ceil(np.log(np.maximum(members, 2.0)) / np.log(side) - 1e-9)
    return axes, np.clip(spanned, 1.0, axes), side


def _detour(tier: Tier, members: Size) -> Size:
    """Mean hops between two members: one through a switch, a quarter of each ring of a torus."""
    if not tier.topology.startswith("torus"):
        return 1.0
    _, spanned, side = _torus(tier, members)
    return np.maximum(spanned * np.minimum(members, side) / 4.0, 1.0)


def bandwidth_of(tier: Tier, members: Size) -> Size:
    """What one member can send at this tier, given who else takes part."""
    whole = tier.bandwidth
    if tier.topology in ("mesh", "cube-mesh"):  # links to peers: a group of two uses a seventh
        return whole * np.clip((members - 1.0) / max(tier.reach - 1.0, 1.0), 1e-3, 1.0)
    if tier.topology.startswith("torus"):  # a short group lies along one axis
        axes, spanned, _ = _torus(tier, members)
        return whole * spanned / axes
    if tier.topology == "pcie-host":  # written to host memory and read back
        return whole * 0.5
    return whole


def ring_bus(at: Levels) -> Size:
    """The slowest step of a ring through all tiers: inner members share the way out."""
    slowest: Size = np.inf
    inner: Size = 1.0
    for members, bandwidth in zip(at.sizes, at.bus, strict=True):
        slowest = np.where(members > 1.0, np.minimum(slowest, bandwidth * inner), slowest)
        inner = inner * members
    return slowest


def ring_hops(at: Levels) -> Size:
    """Latency of n−1 steps: each as long as its link; the outer ones are few."""
    total: Size = 0.0
    outer = at.group
    for members, hop in zip(at.sizes, at.hops, strict=True):
        groups = outer / members  # groups joined further out
        total = total + (outer - groups) * hop
        outer = groups
    return total


def _all_reduce(at: Levels, payload: Size, rate: Array) -> dict[Algorithm, Size]:
    n, bus = at.group, ring_bus(at) * rate
    ring = 2.0 * (n - 1.0) / n * payload / bus + 2.0 * ring_hops(at)
    # A chain of up to eight inside the node, trees beyond.
    inside = np.minimum(at.sizes[0] - 1.0, 7.0) + depth_of(at.sizes[0] / 8.0)
    depth = inside * at.hops[0]
    for members, hop in zip(at.sizes[1:], at.hops[1:], strict=True):
        depth = depth + depth_of(members) * hop
    tree = 2.0 * (payload / bus + depth)
    return {
        Algorithm.RING: ring,
        Algorithm.TREE: tree,
        Algorithm.HIERARCHY: 2.0 * hierarchy_pass(at, payload, rate),
    }


def depth_of(members: Size) -> Size:
    return np.ceil(np.log2(np.maximum(members, 1.0)))


def _gather(at: Levels, payload: Size, rate: Array) -> dict[Algorithm, Size]:
    n = at.group
    ring = (n - 1.0) / n * payload / (ring_bus(at) * rate) + ring_hops(at)
    tiered = {Algorithm.HIERARCHY: hierarchy_pass(at, payload, rate)} if at.by_tiers else {}
    return {Algorithm.RING: ring} | tiered


def hierarchy_pass(at: Levels, payload: Size, rate: Array) -> Size:
    """Scatter (or gather) tier by tier; each tier moves only what the inner ones left over."""
    total: Size = 0.0
    left = payload
    for members, bandwidth, hop in zip(at.sizes, at.bus, at.hops, strict=True):
        total = total + (members - 1.0) * (left / members / (bandwidth * rate) + hop)
        left = left / members
    return total


def exchange(at: Levels, payload: Size, rate: Array, copies: float = 0.0) -> Size:
    """Every pair exchanges payload/n at once; the tiers work side by side, the slowest decides."""
    slowest: Size = 0.0
    latency: Size = 0.0
    joined: Size = 1.0
    for i, (members, hop) in enumerate(zip(at.sizes, at.hops, strict=True)):
        reached = joined * members
        share = (reached - joined) / at.group
        share = share * _once_a_node(at.group, joined, copies if i else 0.0)
        moved = payload * share * at.detour[i] / (at.bus[i] * rate)
        slowest = np.maximum(slowest, moved)
        latency = latency + np.where(members > 1.0, hop, 0.0)
        joined = reached
    return slowest + latency


def _once_a_node(group: Size, inner: Size, copies: float) -> Size:
    """What is left of an all-to-all that sends one copy to each node that has a chosen expert."""
    if not copies:
        return 1.0
    nodes = np.maximum(group / inner, 1.0)
    return (1.0 - (1.0 - 1.0 / nodes) ** copies) * nodes / copies


def _send_recv(at: Levels, payload: Size, rate: Array) -> dict[Algorithm, Size]:
    """n−1 rounds of handing a block to the next rank; the widest gap sets the pace."""
    pace: Size = 0.0
    for members, bandwidth, hop in zip(at.sizes, at.bus, at.hops, strict=True):
        step = payload / (bandwidth * rate) + hop
        pace = np.where(members > 1.0, np.maximum(pace, step), pace)
    return {Algorithm.RING: (at.group - 1.0) * pace}


def _broadcast(at: Levels, payload: Size, rate: Array) -> dict[Algorithm, Size]:
    return {Algorithm.RING: payload / (ring_bus(at) * rate) + ring_hops(at)}


_ALGORITHMS = {
    CollectiveKind.ALL_REDUCE: _all_reduce,
    CollectiveKind.ALL_GATHER: _gather,
    CollectiveKind.REDUCE_SCATTER: _gather,
    CollectiveKind.SEND_RECV: _send_recv,
    CollectiveKind.BROADCAST: _broadcast,
}
