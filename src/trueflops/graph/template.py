"""A program whose sizes are formulas, and the same with numbers filled in.

In: graphs lowered with the unknowns of a Sheet, and numbers for these. Out: the graphs at these
sizes, in the time that it takes to copy some hundred tensors and ops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from trueflops.graph.formulas import Formula, Sheet
from trueflops.graph.ir import Collective, Graph, Kept, Node, Op, Tensor
from trueflops.graph.liveness import Live, Walked, fullest, liveness, walk
from trueflops.graph.passes.compile import compile_graph
from trueflops.sizes import Size

Places = tuple[int, ...]  # of tensors, or of nodes, in the order in which they are filled in


class _Shape(NamedTuple):
    """A tensor: its dims, elements and bytes as entries of the sheet."""

    like: Tensor
    dims: int  # tensors of equal dims share them
    elements: int
    bytes: int


class _OpShape(NamedTuple):
    like: Op
    inputs: Places
    outputs: Places
    weights: Places
    facts: tuple[tuple[str, int], ...] | None  # None: nothing unknown in them
    fused: Places
    of: int | None


class _CollectiveShape(NamedTuple):
    like: Collective
    group: int
    payload: int
    source: int | None
    outputs: Places


class _GraphShape(NamedTuple):
    like: Graph
    forward: Places
    backward: Places
    recompute: Places
    kept: tuple[tuple[int, str], ...]
    result: int


class Template:
    """Some graphs; `compiles`: a compiler fuses them once their sizes are known."""

    def __init__(self, sheet: Sheet, graphs: Sequence[Graph], *, compiles: bool) -> None:
        self._sheet, self._compiles = sheet, compiles
        self._dims: dict[tuple[tuple[str, int], ...], int] = {}
        self._tensors: list[_Shape] = []
        self._nodes: list[_OpShape | _CollectiveShape] = []
        self._places: dict[int, int] = {}  # of tensors and nodes by id: what is shared stays so
        self._graphs = [self._graph(graph) for graph in graphs]
        walks = [] if compiles else [walk(graph) for graph in graphs]
        self._walks = [[tuple(map(sheet.entry, column)) for column in each] for each in walks]
        self._computation = sheet.needed_for(self._needed())

    def fill(self, given: Mapping[str, Size]) -> tuple[list[Graph], list[Live]]:
        """The graphs at these sizes, and what is alive while they run."""
        sizes = self._computation.work_out(given)
        dims = [tuple([(name, sizes[at]) for name, at in each]) for each in self._dims]
        tensors = [
            like.resized(dims[own], sizes[elements], sizes[count])
            for like, own, elements, count in self._tensors
        ]
        nodes: list[Any] = []
        for shape in self._nodes:
            if isinstance(shape, _OpShape):
                nodes.append(_op(shape, sizes, tensors, nodes))
            else:
                nodes.append(_collective(shape, sizes, tensors))
        graphs = [_graph(shape, tensors, nodes) for shape in self._graphs]
        if self._compiles:
            graphs = list(map(compile_graph, graphs))
            return graphs, list(map(liveness, graphs))
        return graphs, [
            fullest(Walked(*([sizes[at] for at in column] for column in each)))
            for each in self._walks
        ]

    def _needed(self) -> set[int]:
        """Entries that something reads."""
        needed = {at for dims in self._dims for _, at in dims}
        needed |= {at for shape in self._tensors for at in (shape.elements, shape.bytes)}
        needed |= {at for walked in self._walks for column in walked for at in column}
        for shape in self._nodes:
            if isinstance(shape, _CollectiveShape):
                needed.add(shape.group)
            elif shape.facts is not None:
                needed |= {at for _, at in shape.facts}
        return needed

    def _graph(self, graph: Graph) -> _GraphShape:
        parts = graph.forward, graph.backward, graph.recompute
        forward, backward, again = (tuple(map(self._node, nodes)) for nodes in parts)
        kept = tuple((self._tensor(each.tensor), each.needed_by) for each in graph.kept)
        return _GraphShape(graph, forward, backward, again, kept, self._tensor(graph.result))

    def _tensor(self, tensor: Tensor) -> int:
        if id(tensor) not in self._places:
            entry = self._sheet.entry
            dims = tuple((name, entry(size)) for name, size in tensor.dims)
            own = self._dims.setdefault(dims, len(self._dims))
            self._tensors.append(_Shape(tensor, own, entry(tensor.elements), entry(tensor.bytes)))
            self._places[id(tensor)] = len(self._tensors) - 1
        return self._places[id(tensor)]

    def _node(self, node: Node) -> int:
        if id(node) not in self._places:
            shape = self._op(node) if isinstance(node, Op) else self._collective(node)
            self._nodes.append(shape)
            self._places[id(node)] = len(self._nodes) - 1
        return self._places[id(node)]

    def _op(self, op: Op) -> _OpShape:
        unknown = any(isinstance(size, Formula) for size in op.facts.values())
        facts = tuple((name, self._sheet.entry(size)) for name, size in op.facts.items())
        return _OpShape(
            op,
            tuple(map(self._tensor, op.inputs)),
            tuple(map(self._tensor, op.outputs)),
            tuple(map(self._tensor, op.weights)),
            facts if unknown else None,
            tuple(map(self._node, op.fused)),
            None if op.of is None else self._node(op.of),
        )

    def _collective(self, node: Collective) -> _CollectiveShape:
        return _CollectiveShape(
            node,
            self._sheet.entry(node.group),
            self._tensor(node.payload),
            None if node.source is None else self._tensor(node.source),
            tuple(map(self._tensor, node.outputs)),
        )


def _op(shape: _OpShape, sizes: list[Any], tensors: list[Tensor], nodes: list[Any]) -> Op:
    like, inputs, outputs, weights, facts, fused, of = shape
    return like.resized(
        tuple([tensors[at] for at in inputs]),
        tuple([tensors[at] for at in outputs]),
        tuple([tensors[at] for at in weights]),
        like.facts if facts is None else {name: sizes[at] for name, at in facts},
        tuple([nodes[at] for at in fused]) if fused else (),
        None if of is None else nodes[of],
    )


def _collective(shape: _CollectiveShape, sizes: list[Any], tensors: list[Tensor]) -> Collective:
    return shape.like.changed(
        group=sizes[shape.group],
        payload=tensors[shape.payload],
        source=None if shape.source is None else tensors[shape.source],
        outputs=tuple([tensors[at] for at in shape.outputs]),
    )


def _graph(shape: _GraphShape, tensors: list[Tensor], nodes: list[Any]) -> Graph:
    forward, backward, again = (
        tuple([nodes[at] for at in places])
        for places in (shape.forward, shape.backward, shape.recompute)
    )
    return Graph(
        shape.like.name,
        forward,
        tensors[shape.result],
        backward=backward,
        recompute=again,
        kept=tuple([Kept(tensors[at], by) for at, by in shape.kept]),
    )
