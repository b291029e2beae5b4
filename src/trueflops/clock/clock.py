"""The clock: graphs in, seconds out, summed by phase and cause.

Ops of one class are stacked into arrays [op, plan] and priced in one call of that class's law, so
that a single plan costs few numpy calls and a million plans no more of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, cast
from weakref import WeakKeyDictionary

import numpy as np

from trueflops.catalog import Accelerator, Cluster
from trueflops.clock.algorithms import Algorithm
from trueflops.clock.collectives import Placement, collective_transfer, stage_links
from trueflops.clock.host import OF_A_COLLECTIVE, HostLaw
from trueflops.clock.power import PowerLaw
from trueflops.clock.silicon import Silicon
from trueflops.clock.streams import StreamWork
from trueflops.clock.transfer import Transfer
from trueflops.clock.ways import Host, Way, collective_ways
from trueflops.clock.works import (
    LAWS,
    MOVING,
    ONE_ROAD,
    Pricing,
    align,
    is_of_vocabulary,
    law_of,
    law_work,
    memory_key,
    peak_seconds,
    pricing_of,
    roads_of,
    stack,
    steps_of,
)
from trueflops.errors import MissingFact
from trueflops.graph.ir import Collective, Graph, Op, Tensor
from trueflops.graph.kinds import CollectiveKind, Kind, Role
from trueflops.graph.passes.beside import BESIDE
from trueflops.graph.rules import Work, model_flop, work
from trueflops.profile import Curve, CurveKey, Profile
from trueflops.profile.keys import BETWEEN
from trueflops.sizes import Array, Size
from trueflops.tables import on_rows

# Rows, columns and depth of the product whose rate is called achievable: that of the sustained
# loads of truth/h200/power.csv, whose tiles fill the units of any GPU several times.
LARGE_SIDE = 8192.0


class PricedOp(NamedTuple):
    """One op alone on the accelerator, its caches cold, and what its seconds were made of."""

    seconds: Size
    least: Size  # seconds at the peak of its dtype; 0 where no matrix engine runs it
    work: Work
    pricing: Pricing
    curve: Curve


@dataclass
class Priced:
    """One graph's seconds by (phase, cause), with the work behind them.

    Phases are forward, recompute, backward and backward_weight (which a schedule may postpone).
    Causes are matmul, experts, attention, memory, and the axes of communication: tp, cp, ep, etp.
    """

    seconds: dict[tuple[str, str], Size] = field(default_factory=lambda: defaultdict(float))
    model_flop: Size = 0.0  # of the forward: what the model needs, whatever the plan
    matrix_flop: dict[str, Size] = field(default_factory=lambda: defaultdict(float))
    peak_seconds: dict[str, Size] = field(default_factory=lambda: defaultdict(float))
    moved_bytes: dict[str, Size] = field(default_factory=lambda: defaultdict(float))
    streamed_bytes: dict[str, Size] = field(default_factory=lambda: defaultdict(float))
    """Weights and cached keys: what no cache on the chip holds until the next step."""
    joules: dict[str, Size] = field(default_factory=lambda: defaultdict(float))
    kernels: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    host: Mapping[str, Size] = field(default_factory=dict)
    """Seconds that the host needs to issue them."""
    host_of_pieces: Mapping[str, Size] = field(default_factory=dict)
    """The same where all between two attentions is a captured graph."""
    host_of_parts: Mapping[tuple[str, str], Size] = field(default_factory=dict)
    """Of these seconds, those of a phase and a part of a layer that may be a CUDA graph."""
    links: dict[tuple[str, int], Size] = field(default_factory=lambda: defaultdict(float))
    """Seconds for which a tier's links are busy, by (phase, tier), whatever runs beside."""


class Clock:
    """Prices ops on one cluster under one profile.

    >>> import trueflops as tf
    >>> where = tf.cluster("8xH100")
    >>> clock = tf.Clock(where, tf.profile_of(where.accelerator))
    >>> 600e12 < clock.matmul_rate("bf16") < 989.4e12  # a large product, flop per second
    True
    """

    def __init__(self, cluster: Cluster, profile: Profile) -> None:
        self.cluster, self.profile = cluster, profile
        self.chip = cluster.accelerator
        self.silicon = Silicon.of(self.chip)
        self.power = PowerLaw(self.chip, profile.curve("power"))
        self.host = HostLaw(profile, itself=self.chip.is_cpu)
        inside = [tier.reach for tier in cluster.tiers if not tier.network]
        self._node_reach = max(inside, default=1.0)
        self._pads = bool(profile.curve("framework")["pads_vocabulary"])

    def price(self, graphs: Sequence[Graph], placement: Placement) -> list[Priced]:
        """Price every node of these graphs once, then sum them per graph."""
        nodes = {id(node): node for graph in graphs for _, node in graph.phases()}.values()
        ops = [node for node in nodes if isinstance(node, Op)]
        sent = [node for node in nodes if isinstance(node, Collective)]
        priced = dict(zip(map(id, ops), self.price_ops(ops), strict=True))
        moved = dict(zip(map(id, sent), self.transfers(sent, placement), strict=True))
        return [self._sum(graph, priced, moved) for graph in graphs]

    def price_ops(self, ops: Sequence[Op]) -> list[PricedOp]:
        """Price each op, all of one class, curve and dtype in one call of their law."""
        done = list(map(work, ops))
        classes: dict[tuple[Pricing, str], list[tuple[int, Op, Work, Array | None]]]
        classes = defaultdict(list)
        for i, op in enumerate(ops):
            for taken, where in self._roads(op, done[i]).items():
                classes[pricing_of(op, taken), op.dtype].append((i, op, done[i], where))
        found: dict[int, PricedOp] = {}
        for (pricing, dtype), members in classes.items():
            at, alike, works, wheres = zip(*members, strict=True)
            kind, curve = pricing.kind, self.profile.curve(pricing.key)
            asked = law_work(pricing, alike, works)
            seconds: Array = law_of(pricing.key).seconds(asked, self.silicon, curve)
            if kind.startswith("attention"):
                times, seconds = align(stack([steps_of(op) for op in alike]), seconds)
                seconds = times * seconds
            least = np.zeros(())
            if kind not in MOVING:
                peak = self.chip.peak_flop_per_second(dtype)
                least, seconds = align(peak_seconds(works, peak), seconds)
                seconds = np.maximum(seconds, least)
            least = np.broadcast_to(least, seconds.shape)
            for row, (i, where) in enumerate(zip(at, wheres, strict=True)):
                taken = seconds[row]
                if BESIDE in ops[i].facts:
                    moved = works[row].bytes_read + works[row].bytes_written
                    taken = np.maximum(moved / self.silicon.bandwidth, least[row])
                priced = PricedOp(taken, least[row], works[row], pricing, curve)
                found[i] = priced if where is None else _choose(where, priced, found.get(i))
        return [found[i] for i in range(len(ops))]

    def _roads(self, op: Op, done: Work) -> Mapping[str, Array | None]:
        """Which roads a product takes; a framework may pad the vocabulary for the fast one."""
        return ONE_ROAD if self._pads and is_of_vocabulary(op) else roads_of(op, done)

    def matmul_rate(self, dtype: str) -> float:
        """Flop per second that a large, square product reaches for a moment: what is achievable."""
        rates = _RATES.setdefault(self.profile, {})
        if (self.chip, dtype) not in rates:
            rates[self.chip, dtype] = self._large_product(dtype)
        return rates[self.chip, dtype]

    def _large_product(self, dtype: str) -> float:
        side = Tensor("side", (("rows", LARGE_SIDE), ("inner", LARGE_SIDE)))
        weight = Tensor(
            "weight", (("columns", LARGE_SIDE), ("inner", LARGE_SIDE)), role=Role.WEIGHT
        )
        made = Tensor("made", (("rows", LARGE_SIDE), ("columns", LARGE_SIDE)))
        op = Op("large", Kind.MATMUL, (side,), (made,), weights=(weight,), dtype=dtype)
        (priced,) = self.price_ops([op])
        return float(priced.work.flop / priced.seconds)

    def transfers(self, sent: Sequence[Collective], placement: Placement) -> list[Transfer]:
        """What each collective takes, alone on its links."""
        kinds: dict[tuple[CollectiveKind, float, str], list[int]] = defaultdict(list)
        for i, node in enumerate(sent):
            kinds[node.kind, node.copies, node.library].append(i)
        found: list[Transfer] = [Transfer(0.0)] * len(sent)
        for (kind, copies, library), members in kinds.items():
            group = stack([sent[i].group for i in members])
            payload = stack([sent[i].payload.bytes for i in members])
            stride = stack([placement.stride[sent[i].axis] for i in members])
            group, payload, stride = align(group, payload, stride)
            priced = self.collective(kind, group, payload, stride, copies, library)
            seconds = np.asarray(priced.seconds)
            links = [np.broadcast_to(link, seconds.shape) for link in priced.links]
            for row, i in enumerate(members):
                found[i] = Transfer(seconds[row], tuple(link[row] for link in links))
        return found

    def collective(
        self, kind: CollectiveKind, group: Size, payload: Size, stride: Size, copies: float = 0.0,
        library: str = "",
    ) -> Transfer:  # fmt: skip
        """A collective among `group` ranks that stand `stride` apart.

        An engine's own all-reduce reads its peers' memory and serves one node; ranks on several
        run the vendor's (vLLM's and SGLang's device_communicators/custom_all_reduce.py:
        in_the_same_node_as).
        """
        usual = CurveKey("collective", operation=kind, kernel=library)
        far = CurveKey("collective", operation=kind, kernel=BETWEEN)
        tiers = self.cluster.tiers

        def by(key: CurveKey, group: Size, payload: Size, stride: Size) -> Transfer:
            law = self.profile.curve(key)
            return collective_transfer(kind, group, payload, stride, tiers, law, copies)

        def taken(group: Size, payload: Size, stride: Size) -> tuple[Size, tuple[Size, ...]]:
            sent = by(usual, group, payload, stride)
            leaves = np.greater(group * stride, self._node_reach)
            if library or far not in self.profile.curves or not np.any(leaves):
                return sent.seconds, sent.links
            other = by(far, group, payload, stride)
            pairs = zip(other.links, sent.links, strict=True)
            links = tuple(np.where(leaves, *pair)[()] for pair in pairs)
            return np.where(leaves, other.seconds, sent.seconds)[()], links

        return Transfer(*on_rows(taken, group, payload, stride))

    def collective_ways(
        self, kind: CollectiveKind, group: int, payload: float
    ) -> dict[Algorithm, Way]:
        """The same collective by every algorithm, those that the library chooses from among them.

        The fastest of those takes what `collective` says.
        """
        law = self.profile.curve(CurveKey("collective", operation=kind))
        host = None
        if self.cluster.host_bandwidth is not None:
            host = Host(float(self.host_copy(payload)), self.cluster.per_node)
        return collective_ways(kind, group, payload, self.cluster.tiers, law, host)

    def stage_links(
        self, stages: Size, pieces: Size, payload: Size, stride: Size
    ) -> tuple[Size, ...]:
        """Seconds for which the hand-overs of one micro-batch keep each tier busy."""

        def taken(stages: Size, pieces: Size, payload: Size, stride: Size) -> tuple[Size, ...]:
            return stage_links(stages, pieces, payload, stride, self.cluster.tiers)

        return cast("tuple[Size, ...]", on_rows(taken, stages, pieces, payload, stride))

    def host_copy(self, moved_bytes: Size, to_nvme: bool = False) -> Size:
        """Seconds to move bytes between the accelerator and host memory, or its drives."""
        bandwidth = self.cluster.host_bandwidth
        if bandwidth is None:
            raise MissingFact(
                f"how {self.chip.name} reaches host memory is not known; "
                'write a cluster TOML with [host] bandwidth = "32 GB/s"'
            )
        if to_nvme:
            node = self.cluster.node_nvme_bandwidth or _NVME_PER_NODE
            bandwidth = min(bandwidth, node / self.cluster.per_node)
        return moved_bytes / (bandwidth * self.profile.curve("host")["efficiency"])

    def host_update(self, moved_bytes: Size) -> Size:
        """Seconds in which the cores of a node read and write bytes of its own memory, for all of
        its accelerators at once.
        """
        node = self.cluster.node_memory_bandwidth or _MEMORY_PER_NODE
        reached = node * self.profile.curve("host_memory")["share"] / self.cluster.per_node
        return moved_bytes / reached

    def stream(self, moved_bytes: Size, kind: str, kernels: Size = 1.0) -> Size:
        """Seconds of memory-bound work that is not in a graph, such as the optimizer's step."""
        curve = self.profile.curve(memory_key(kind))

        def taken(moved: Size) -> Size:
            return LAWS["memory"].seconds(StreamWork(moved), self.silicon, curve)[()]

        return kernels * cast("Array", on_rows(taken, moved_bytes / kernels))

    def cycles(self, spent: Size) -> Size:
        """Seconds in which all units together spend so many cycles of the datasheet's clock."""
        return spent / (self.silicon.units * self.silicon.hertz)

    def _sum(
        self, graph: Graph, ops: dict[int, PricedOp], transfers: dict[int, Transfer]
    ) -> Priced:
        issued = self.host.issued(graph)
        priced = Priced(host=issued.whole, host_of_pieces=issued.pieces, host_of_parts=issued.parts)
        beside: dict[str, Size] = defaultdict(float)
        core: dict[str, Size] = defaultdict(float)
        for phase, node in graph.phases():
            if isinstance(node, Collective):
                sent = transfers[id(node)]
                priced.kernels[phase] += OF_A_COLLECTIVE
                for tier, link in enumerate(sent.links):
                    priced.links[phase, tier] = priced.links[phase, tier] + link
                if node.hides:
                    beside[phase] = beside[phase] + sent.seconds
                else:
                    axis = phase, node.axis
                    priced.seconds[axis] = priced.seconds[axis] + sent.seconds
                continue
            taken, at_peak, done, (kind, cause, _), _ = ops[id(node)]
            priced.kernels[phase] += BESIDE not in node.facts
            priced.seconds[phase, cause] = priced.seconds[phase, cause] + taken
            if node.part == "core":
                core[phase] = core[phase] + taken
            moved = done.bytes_read + done.bytes_written
            priced.moved_bytes[phase] = priced.moved_bytes[phase] + moved
            matrix = kind not in MOVING
            burnt = self.power.joules(done.flop, moved, node.dtype, matrix=matrix)
            priced.joules[phase] = priced.joules[phase] + burnt
            if matrix:
                priced.streamed_bytes[phase] = priced.streamed_bytes[phase] + done.streamed_bytes
                priced.matrix_flop[phase] = priced.matrix_flop[phase] + done.flop
                priced.peak_seconds[phase] = priced.peak_seconds[phase] + at_peak
                if phase == "forward":
                    priced.model_flop = priced.model_flop + model_flop(node, done)
        for (
            phase_,
            taken,
        ) in beside.items():  # ring attention: what outlasts the core
            priced.seconds[phase_, "cp"] = np.maximum(taken - core[phase_], 0.0)
        return priced


def _choose(where: Array, priced: PricedOp, other: PricedOp | None) -> PricedOp:
    """An op whose plans take several roads: its seconds on each plan's own."""
    if other is None:
        return priced
    return other._replace(seconds=np.where(where, priced.seconds, other.seconds))


# Bytes a second of a node's memory. Assumed: two sockets of eight channels of DDR4-3200, as servers
# with A100s have (a DGX A100's EPYC 7742); a DGX H100's have half as much again.
_MEMORY_PER_NODE = 2 * 204.8e9
# Bytes a second of a node's drives. Assumed: four data-centre drives on PCIe 4, striped, at 6 GB/s
# each. Of the catalog's nodes only Frontier's publishes a figure (two drives, 5.5 GB/s).
_NVME_PER_NODE = 24e9

_RATES: Final[WeakKeyDictionary[Profile, dict[tuple[Accelerator, str], float]]] = (
    WeakKeyDictionary()
)
"""Rates of large products by profile, chip and dtype: asked for twice in every answer."""
