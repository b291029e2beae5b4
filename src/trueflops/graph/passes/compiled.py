"""What a compiler like TorchInductor makes one kernel of: a model of it, not the thing itself.

Pointwise ops and reductions join the kernel that makes what they read, unless a product, an
attention or another kernel they cannot join lies in between. Row sums stay inside (a row is held
until it is summed); sums over rows end a kernel. A kernel reads what others made, writes what
others read, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from trueflops.graph.ir import Node, Op
from trueflops.graph.kinds import Kind
from trueflops.graph.rules import RULES
from trueflops.graph.variants import EagerKernel

_JOINING: Final = (Kind.REDUCTION, Kind.MOVEMENT)
_CLOSING: Final = (EagerKernel.REDUCE_COLUMNS,)  # whoever reads the result needs all of it
_APART: Final = (
    EagerKernel.FOREACH, EagerKernel.FUSED_OPTIMIZER, EagerKernel.RANDOM, EagerKernel.SCATTER,
)  # fmt: skip


def joins(node: Node) -> bool:
    """Whether a node may be part of a generated kernel."""
    if not isinstance(node, Op) or node.variant in _APART:
        return False
    return RULES[node.kind].pointwise or node.kind in _JOINING


def compiled_groups(nodes: Sequence[Node]) -> list[list[int]]:
    """Nodes by the kernel they end up in, in the order in which the kernels can run."""
    level: dict[str, int] = {}  # of a tensor: how many kernel boundaries lie before it
    maker: dict[str, int] = {}  # the group that makes a tensor
    groups: list[list[int]] = []
    depth: list[int] = []
    merged: dict[int, int] = {}

    def root(group: int) -> int:
        while group in merged:
            group = merged[group]
        return group

    for i, node in enumerate(nodes):
        reads = [t.name for t in (*node.inputs, *getattr(node, "weights", ()))]
        here = max((level.get(name, 0) for name in reads), default=0)
        if not joins(node):
            _place(node, here + 1, level)
            groups.append([i])
            depth.append(here)
            for name in _made(node):
                maker[name] = len(groups) - 1
            continue
        near = {root(maker[n]) for n in reads if n in maker and level.get(n, 0) == here}
        near = {g for g in near if joins(nodes[groups[g][0]]) and depth[g] == here}
        if near:
            first, *others = sorted(near)
            for other in others:
                groups[first] += groups[other]
                groups[other] = []
                merged[other] = first
            groups[first].append(i)
        else:
            first = len(groups)
            groups.append([i])
            depth.append(here)
        closing = isinstance(node, Op) and node.variant in _CLOSING
        _place(node, here + 1 if closing else here, level)
        for name in _made(node):
            maker[name] = first
    kept = [sorted(group) for group in groups if group]
    return sorted(kept, key=lambda group: group[-1])


def _made(node: Node) -> Iterable[str]:
    return [tensor.name for tensor in node.outputs]


def _place(node: Node, at: int, level: dict[str, int]) -> None:
    for name in _made(node):
        level[name] = at
