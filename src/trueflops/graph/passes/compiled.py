"""Which ops a compiler like TorchInductor would merge into one kernel: a model of it.

Pointwise ops and reductions join the kernel that makes what they read, unless a product, an
attention or another kernel they cannot join lies in between. Row sums stay inside (a row is held
until it is summed); sums over rows end a kernel. A kernel reads what others made, writes what
others read, and nothing else. Random numbers are drawn inside. Forward and backward are compiled
apart: what only the backward reads and no kernel of the forward writes is computed again inside the
kernel that needs it, from what was written, and so is what it can have from tensors that are there
anyway; what was drawn is kept. The rule of torch's partitioner, in short.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from trueflops.graph.alignment import FULL
from trueflops.graph.ir import Node, Op, Tensor
from trueflops.graph.kinds import PRODUCTS, Kind
from trueflops.graph.rules import RULES
from trueflops.graph.variants import EagerKernel

_JOINING: Final = (Kind.REDUCTION, Kind.MOVEMENT)
# Sums over more than a row: a reader of the result needs all of it.
_CLOSING: Final = (EagerKernel.REDUCE_COLUMNS, EagerKernel.REDUCE_PLACES)
# Kernels that a compiler calls as they are.
_APART: Final = frozenset({
    EagerKernel.FOREACH, EagerKernel.FOREACH_APART, EagerKernel.FUSED_OPTIMIZER,
    EagerKernel.LIST_NORM, EagerKernel.SCATTER,
    EagerKernel.ATOMIC, EagerKernel.TABLE_GRADIENT, EagerKernel.SORTED_ADD, EagerKernel.SORT,
    EagerKernel.TOP, EagerKernel.FOURIER, EagerKernel.BAG, EagerKernel.ADAPTIVE_POOL_BACKWARD,
    *(each for each in EagerKernel if each.startswith("depthwise")),
})  # fmt: skip
# Elements that are still indexed one by one.
_TURNING: Final = (EagerKernel.CAT, EagerKernel.JOIN, EagerKernel.GATHER)
SMALL: Final = 8.0  # a result this many times smaller than what it was made from is kept
DEEPEST: Final = 40  # calls that are followed back to what lies in memory


def joins(node: Node) -> bool:
    """Whether a node may be part of a generated kernel."""
    if not isinstance(node, Op) or node.variant in _APART:
        return False
    return RULES[node.kind].pointwise or node.kind in _JOINING


def generated(parts: Sequence[Op], reads: tuple[Tensor, ...], writes: tuple[Tensor, ...]) -> Op:
    """One kernel instead of several ops: each operand is moved once."""
    drawn = [op.facts.get("indexed", 0.0) for op in parts if op.variant is EagerKernel.RANDOM]
    turned = [op.facts.get("indexed", 0.0) for op in parts if op.variant in _TURNING]
    indexed = max(drawn or turned, key=np.max, default=0.0)
    variant = EagerKernel.STRIDED if turned else EagerKernel.VECTOR
    return Op(
        "+".join(dict.fromkeys(op.name for op in parts)),
        Kind.POINTWISE,
        reads,
        writes,
        dtype=parts[-1].dtype,
        part=parts[-1].part,
        facts={"indexed": indexed},
        fused=tuple(parts),
        variant=EagerKernel.RANDOM if drawn else variant,
    )


def padded(op: Op) -> Op:
    """An op as Inductor runs it: odd sides of plain products are padded (config.shape_padding)."""
    if op.kind not in PRODUCTS or op.variant is not None:
        return op
    return op.changed(facts={**op.facts, "loads": FULL, "stores": FULL})


class GeneratedKernel(NamedTuple):
    """Nodes of a region, by their places, that run as one."""

    members: list[int]
    reads: dict[str, Tensor]
    writes: dict[str, Tensor]


class CompiledRegion:
    """Nodes that are compiled together.

    `outside` says of a tensor whether somebody beyond the region reads it; `outlives` of one that
    no other kernel reads whether it is a result.
    """

    def __init__(
        self,
        nodes: Mapping[int, Node],
        outside: Callable[[str], bool],
        outlives: Callable[[str], bool],
    ) -> None:
        self.nodes, self.outside, self.outlives = nodes, outside, outlives
        self.readers: dict[str, list[int]] = defaultdict(list)
        self.makers: dict[str, int] = {}
        self.written: set[str] = set()
        for i, node in nodes.items():
            for tensor in node.inputs:
                self.readers[tensor.name].append(i)
            for tensor in node.outputs:
                self.makers.setdefault(tensor.name, i)

    def kernels(self, direction: Sequence[int]) -> list[GeneratedKernel]:
        """The kernels of one direction, after those of the directions before."""
        nodes = [self.nodes[i] for i in direction]
        part, found = set(direction), []
        for group in compiled_groups(nodes):
            members = [direction[n] for n in group]
            kernel = self._kernel(members, part, alone=not joins(nodes[group[0]]))
            self.written.update(kernel.writes)
            found.append(kernel)
        return found

    def _kernel(self, members: list[int], part: set[int], *, alone: bool) -> GeneratedKernel:
        own = set(members)
        made = {t.name: t for i in members for t in self.nodes[i].outputs}
        reads: dict[str, Tensor] = {}
        for i in members:
            for tensor in self.nodes[i].inputs:
                if tensor.name not in made or self.makers.get(tensor.name) not in own:
                    again = not alone and self._made_again(tensor, part)
                    for source in self._sources(tensor, again=again):
                        reads.setdefault(source.name, source)
        writes = {
            name: tensor
            for name, tensor in made.items()
            if alone or self._must_be_written(name, own, part)
        }
        return GeneratedKernel(members, reads, writes)

    def _must_be_written(self, name: str, own: set[int], part: set[int]) -> bool:
        """Whether another kernel of this direction, or somebody outside, reads it."""
        readers = [i for i in self.readers[name] if i not in own]
        if self.outside(name) or any(i in part for i in readers):
            return True
        if not readers:
            return self.outlives(name)
        # Only the backward reads it: small results of reductions are kept, others made again.
        maker = self.nodes[self.makers[name]]
        if _draws(maker):
            return name == maker.outputs[-1].name
        largest = max((np.max(t.elements) for t in maker.inputs), default=0.0)
        small = SMALL * np.max(maker.outputs[0].elements) < largest
        return bool(small) or maker.kind is Kind.MOVEMENT

    def _made_again(self, tensor: Tensor, part: set[int]) -> bool:
        """Whether a tensor of the direction before is made again, though it was written.

        So it is where what it follows from is there anyway, or is one smaller tensor, as of a cast.
        A product that reads it has it in memory, and so it stays.
        """
        maker = self.makers.get(tensor.name)
        if maker is None or maker in part or not joins(self.nodes[maker]):
            return False
        if any(not joins(self.nodes[i]) for i in self.readers[tensor.name] if i in part):
            return False
        origins = [t for t in _origins(self.nodes[maker]) if t.name != tensor.name]
        if origins and all(any(i in part for i in self.readers[t.name]) for t in origins):
            return True
        sources = self._sources(tensor, again=True)
        return len(sources) == 1 and bool(np.max(sources[0].bytes) < np.max(tensor.bytes))

    def _sources(self, tensor: Tensor, deep: int = 0, *, again: bool = False) -> list[Tensor]:
        """The tensor itself if it lies in memory, else what it is made again from."""
        maker = self.makers.get(tensor.name)
        if maker is None or (tensor.name in self.written and not again) or deep > DEEPEST:
            return [tensor]
        found: dict[str, Tensor] = {}
        for source in _origins(self.nodes[maker]):
            if source.name != tensor.name:
                for each in self._sources(source, deep + 1):
                    found.setdefault(each.name, each)
        return list(found.values())


def _draws(node: Node) -> bool:
    return isinstance(node, Op) and node.variant is EagerKernel.RANDOM


def _origins(node: Node) -> tuple[Tensor, ...]:
    """What a node's result follows from: what it reads and, of dropout, the mask that it drew."""
    return (*node.inputs, *node.outputs[-1:]) if _draws(node) else node.inputs


def compiled_groups(nodes: Sequence[Node]) -> list[list[int]]:
    """Nodes by the kernel they end up in, in the order in which the kernels can run."""
    level: dict[str, int] = {}  # of a tensor: how many kernel boundaries lie before it
    maker: dict[str, int] = {}  # the group that makes a tensor
    groups: list[list[int]] = []
    depth: list[int] = []
    constant: set[int] = set()  # groups that read nothing: they join whoever needs them
    merged: dict[int, int] = {}

    def root(group: int) -> int:
        while group in merged:
            group = merged[group]
        return group

    for i, node in enumerate(nodes):
        reads = [t.name for t in (*node.inputs, *getattr(node, "weights", ()))]
        reads += [name for name in _made(node) if name in maker]  # a part of it is written anew
        here = max((level.get(name, 0) for name in reads), default=0)
        if not joins(node):
            _place(node, here + 1, level)
            groups.append([i])
            depth.append(here)
            for name in _made(node):
                maker[name] = len(groups) - 1
            continue
        made = {root(maker[n]) for n in reads if n in maker and level.get(n, 0) == here}
        near = {g for g in made if joins(nodes[groups[g][0]]) and depth[g] == here}
        near |= {g for g in map(root, (maker[n] for n in reads if n in maker)) if g in constant}
        if near:
            first, *others = sorted(near)
            depth[first] = here
            constant.discard(first)
            for other in others:
                groups[first] += groups[other]
                groups[other] = []
                merged[other] = first
            groups[first].append(i)
        else:
            first = len(groups)
            groups.append([i])
            depth.append(here)
            if not reads:
                constant.add(first)
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
