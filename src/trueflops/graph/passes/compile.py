"""torch.compile for a differentiated graph: eager kernels become those that a compiler generates.

Forward, and what runs again with the backward, are compiled apart (`compiled.py`); what the second
reads of the first is what must be kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from trueflops.graph.ir import Collective, Graph, Kept, Node, Op, Tensor
from trueflops.graph.kinds import WEIGHTS, Function, Kind, Role
from trueflops.graph.passes.compiled import (
    CompiledRegion,
    GeneratedKernel,
    generated,
    joins,
    padded,
)
from trueflops.tables import summed


def compile_graph(graph: Graph) -> Graph:
    """The same graph with generated kernels."""
    again, backward = named_anew(graph)
    nodes = dict(enumerate((*graph.forward, *again, *backward)))
    turn, late = len(graph.forward), len(graph.forward) + len(again)
    made = {t.name for node in graph.forward for t in node.outputs}

    def outside(name: str) -> bool:
        return name == graph.result.name

    region = CompiledRegion(nodes, outside, lambda name: not region.readers[name])
    first = region.kernels(range(turn))
    second = region.kernels(range(turn, len(nodes)))
    read = {t.name: t for kernel in second for t in kernel.reads.values()}
    entering = {t.name for node in graph.forward for t in node.inputs} - made
    kept = [
        Kept(tensor, "compiled backward")
        for name, tensor in read.items()
        if name in region.written & made or (name in entering and tensor.role not in WEIGHTS)
    ]
    return replace(
        graph,
        forward=tuple(_node(nodes, kernel) for kernel in first),
        recompute=tuple(_node(nodes, k) for k in second if k.members[-1] < late),
        backward=tuple(_node(nodes, k) for k in second if k.members[-1] >= late),
        kept=tuple(kept),
    )


def _node(nodes: dict[int, Node], kernel: GeneratedKernel) -> Node:
    own = [nodes[i] for i in kernel.members]
    if not joins(own[0]):
        return padded(own[0]) if isinstance(own[0], Op) else own[0]
    parts = [node for node in own if isinstance(node, Op)]
    made = generated(parts, tuple(kernel.reads.values()), tuple(kernel.writes.values()))
    weights = tuple({w.name: w for op in parts for w in op.weights}.values())
    looked_up = [op.facts["rows_bytes"] for op in parts if "rows_bytes" in op.facts]
    facts = {**made.facts, "rows_bytes": summed(looked_up)} if looked_up else made.facts
    return made.changed(weights=weights, facts=facts)


def named_anew(graph: Graph) -> tuple[list[Node], list[Node]]:
    """Recomputation and backward with a name for every value, as a compiler sees them.

    What runs again makes values of its own, and the backward reads these. The gradient of a tensor
    that several read is made by each of them and then summed; that of a sum is passed on.
    """
    later = _once_more(graph)
    again = [_renamed(node, later) for node in graph.recompute]
    passed = _passed_on(graph)
    versions: dict[str, list[Tensor]] = defaultdict(list)

    def now(tensor: Tensor) -> Tensor:
        if versions[tensor.name]:
            return tensor.renamed(versions[tensor.name][-1].name)
        handed = passed.get(tensor.name)
        if handed is not None:
            return now(handed)
        return tensor.renamed(later.get(tensor.name, tensor.name))

    def make(tensor: Tensor) -> Tensor:
        count = len(versions[tensor.name])
        name = f"{tensor.name}~{count}" if count else tensor.name
        versions[tensor.name].append(tensor.renamed(name))
        return versions[tensor.name][-1]

    backward: list[Node] = []
    before = set(map(id, graph.forward))
    for node in graph.backward:
        if isinstance(node, Collective):
            source = None if node.source is None else now(node.source)
            if id(node) in before:  # what was gathered for the forward is gathered once more
                outputs = tuple(t.renamed(f"{t.name}~again") for t in node.outputs)
                for was, made in zip(node.outputs, outputs, strict=True):
                    versions[was.name].append(made)
            else:
                outputs = tuple(make(t) for t in node.outputs)
            backward.append(node.changed(source=source, outputs=outputs))
        elif node.name.endswith(".sum_gradients") and len({t.name for t in node.inputs}) == 1:
            d = node.outputs[0]
            mine = versions[d.name]
            left = mine.pop() if mine else now(d)
            right = mine.pop() if mine else now(passed.get(d.name, d))
            summed = d.renamed(f"{d.name}~sum{len(backward)}")
            versions[d.name] = [*mine, summed]
            backward.append(node.changed(inputs=(left, right), outputs=(summed,)))
        else:
            inputs = tuple(now(t) for t in node.inputs)
            in_place = {t.name for t in node.inputs} & {t.name for t in node.outputs}
            outputs = tuple(
                now(t) if t.name in in_place or _filled(t, versions) else make(t)
                for t in node.outputs
            )
            backward.append(node.changed(inputs=inputs, outputs=outputs))
    return again, backward


def _passed_on(graph: Graph) -> dict[str, Tensor]:
    """Gradients that are another one, handed on: those of a sum's terms.

    A fused kernel writes that of the first term alone (graph/rules.py).
    """
    passed: dict[str, Tensor] = {}
    for node in graph.forward:
        if not isinstance(node, Op):
            continue
        for part in node.fused if node.kind is Kind.FUSED else ():
            if part.kind is Kind.ADD:
                first, *others = part.inputs
                passed |= {f"d_{t.name}": first.gradient() for t in others}
        if node.function is Function.ADD or node.kind in (Kind.ADD, Kind.CAST):
            passed |= {f"d_{t.name}": node.outputs[0].gradient() for t in node.inputs}
    return passed


def _filled(tensor: Tensor, versions: dict[str, list[Tensor]]) -> bool:
    """Whether a part of something made before is written: a slice into zeros."""
    return tensor.role is Role.INDEX and bool(versions[tensor.name])


def _once_more(graph: Graph) -> dict[str, str]:
    """New names of what recomputation makes."""
    made: Iterable[Tensor] = (t for node in graph.recompute for t in node.outputs)
    return {t.name: f"{t.name}~again" for t in made}


def _renamed(node: Node, names: dict[str, str]) -> Node:
    def each(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(t.renamed(names.get(t.name, t.name)) for t in tensors)

    if isinstance(node, Collective):
        (source,) = each(node.inputs) or (None,)
        return node.changed(source=source, outputs=each(node.outputs))
    return node.changed(inputs=each(node.inputs), outputs=each(node.outputs))
