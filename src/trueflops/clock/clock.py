"""The clock: graphs in, seconds out, summed by phase and cause.

Ops of one class are stacked into arrays [op, plan] and priced in one call of that class's law, so
that a single plan costs few numpy calls and a million plans no more of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from trueflops.catalog import Cluster
from trueflops.clock.collectives import Placement, collective_seconds
from trueflops.clock.roofline import roofline
from trueflops.errors import MissingFact, TrueflopsError
from trueflops.graph.ir import Collective, Graph, Op
from trueflops.graph.rules import RULES, Work, model_flop, work
from trueflops.profile import Profile
from trueflops.sizes import Array, Size

PHYSICS = 1.02  # nothing may run faster than this times a physical limit


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
    kernels: dict[str, float] = field(default_factory=lambda: defaultdict(float))


class Clock:
    """Prices ops on one cluster under one profile."""

    def __init__(self, cluster: Cluster, profile: Profile) -> None:
        self.cluster, self.profile = cluster, profile
        self.chip = cluster.accelerator
        self.bandwidth = self.chip.need("memory.bandwidth")

    def price(self, graphs: Sequence[Graph], placement: Placement) -> list[Priced]:
        """Price every node of these graphs once, then sum them per graph."""
        nodes = {id(node): node for graph in graphs for node in graph}.values()
        ops = [node for node in nodes if isinstance(node, Op)]
        sent = [node for node in nodes if isinstance(node, Collective)]
        works = [work(op) for op in ops]
        seconds = dict(zip(map(id, ops), self.op_seconds(ops, works), strict=True))
        seconds |= zip(map(id, sent), self.collective_seconds(sent, placement), strict=True)
        done = dict(zip(map(id, ops), works, strict=True))
        return [self._sum(graph, seconds, done) for graph in graphs]

    def op_seconds(self, ops: Sequence[Op], works: Sequence[Work]) -> list[Size]:
        """Seconds of each op, alone on the accelerator and its caches cold."""
        classes: dict[tuple[str, str], list[int]] = defaultdict(list)
        for i, op in enumerate(ops):
            kind = op_class(op)
            classes[kind, op.dtype if kind in ("matmul", "experts") else ""].append(i)
        seconds: list[Size] = [0.0] * len(ops)
        for (kind, dtype), members in classes.items():
            law = self.profile.curve(f"{kind}.{dtype}" if dtype else kind)
            moved = _stack([works[i].bytes_read + works[i].bytes_written for i in members])
            if kind == "memory":
                priced = law["start"] + moved / (law["bandwidth"] * self.bandwidth)
            else:
                peak = self.chip.peak_flop_per_second(dtype or ops[members[0]].dtype)
                flop = _stack([works[i].flop for i in members])
                priced = np.asarray(roofline(flop, moved, peak, self.bandwidth, law))
                _guard(flop, priced, peak, f"{self.chip.name}'s {dtype or 'dense'} peak")
            for row, i in enumerate(members):
                seconds[i] = priced[row]
        return seconds

    def collective_seconds(self, sent: Sequence[Collective], placement: Placement) -> list[Size]:
        """Seconds of each collective, alone on its links."""
        kinds: dict[tuple[str, float], list[int]] = defaultdict(list)
        for i, node in enumerate(sent):
            kinds[node.kind, node.copies].append(i)
        seconds: list[Size] = [0.0] * len(sent)
        for (kind, copies), members in kinds.items():
            group = _stack([sent[i].group for i in members])
            payload = _stack([sent[i].payload.bytes for i in members])
            stride = _stack([placement.stride[sent[i].axis] for i in members])
            group, payload, stride = _align(group, payload, stride)
            priced = np.asarray(self.collective(kind, group, payload, stride, copies))
            for row, i in enumerate(members):
                seconds[i] = priced[row]
        return seconds

    def collective(
        self, kind: str, group: Size, payload: Size, stride: Size, copies: float = 0.0
    ) -> Size:
        """Seconds of a collective among `group` ranks that stand `stride` apart."""
        law = self.profile.curve("collective")
        return collective_seconds(kind, group, payload, stride, self.cluster.tiers, law, copies)

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

    def stream(self, moved_bytes: Size, kernels: float = 1.0) -> Size:
        """Seconds of memory-bound work that is not in a graph, such as the optimizer's step."""
        law = self.profile.curve("memory")
        return kernels * law["start"] + moved_bytes / (law["bandwidth"] * self.bandwidth)

    def _sum(self, graph: Graph, seconds: dict[int, Size], works: dict[int, Work]) -> Priced:
        priced = Priced()
        beside: dict[str, Size] = defaultdict(float)
        core: dict[str, Size] = defaultdict(float)
        for phase, node in graph.phases():
            taken = seconds[id(node)]
            if isinstance(node, Collective):
                if node.hides:
                    beside[phase] = beside[phase] + taken
                else:
                    priced.seconds[phase, node.axis] = priced.seconds[phase, node.axis] + taken
                continue
            done, kind = works[id(node)], op_class(node)
            cause = "attention" if kind.startswith("attention") else kind
            priced.seconds[phase, cause] = priced.seconds[phase, cause] + taken
            if node.part == "core":
                core[phase] = core[phase] + taken
            moved = done.bytes_read + done.bytes_written
            priced.moved_bytes[phase] = priced.moved_bytes[phase] + moved
            priced.kernels[phase] += 1.0
            if RULES[node.kind].matrix:
                priced.matrix_flop[phase] = priced.matrix_flop[phase] + done.flop
                at_peak = done.flop / self.chip.peak_flop_per_second(node.dtype)
                priced.peak_seconds[phase] = priced.peak_seconds[phase] + at_peak
                if phase == "forward":
                    priced.model_flop = priced.model_flop + model_flop(node)
        for phase_, taken in beside.items():  # ring attention: only what outlasts the core shows
            priced.seconds[phase_, "cp"] = np.maximum(taken - core[phase_], 0.0)
        return priced


# No node of the catalog publishes more; a striped set of four data-centre drives (assumed).
_NVME_PER_NODE = 24e9


def op_class(op: Op) -> str:
    """Which law prices an op."""
    if op.kind in ("matmul", "dgrad", "wgrad"):
        return "experts" if (op.of or op).inputs[0].has("routed") else "matmul"
    if op.kind in ("scores", "context", "product_backward"):
        return "matmul"
    return op.kind if op.kind.startswith("attention") else "memory"


def _stack(sizes: Sequence[Size]) -> Array:
    """Numbers or equal-length arrays as one array [op, plan]."""
    if not any(isinstance(s, np.ndarray) for s in sizes):
        return np.array(sizes, dtype=np.float64)
    return np.stack([np.asarray(a, np.float64) for a in np.broadcast_arrays(*sizes)])


def _align(*arrays: Array) -> tuple[Array, ...]:
    """Give arrays of [op] a second axis where others are [op, plan]."""
    deepest = max(a.ndim for a in arrays)
    return tuple(a if a.ndim == deepest else a[:, None] for a in arrays)


def _guard(flop: Array, seconds: Size, peak: float, limit: str) -> None:
    """Rule 9: a rate above a physical limit is an error of ours and is never shown."""
    if np.any(flop > PHYSICS * peak * np.asarray(seconds)):
        raise TrueflopsError(f"a predicted rate exceeds {limit}; the profile must be wrong")
