"""Reverse-mode differentiation: the backward ops, and which tensors the forward must keep for them.

Each forward op's rule says what its gradient reads; activation memory is the sum of that, derived
and not a second formula. A tensor gathered for sequence parallelism is not kept: its shard is,
and the gather runs again in the backward (Korthikanti 2022 §4.2.2).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Final

from trueflops.graph.ir import Collective, Graph, Kept, Node, Op, Tensor, unique
from trueflops.graph.kinds import CollectiveKind, Kind, Role
from trueflops.graph.rules import RULES
from trueflops.graph.variants import EagerKernel

DUAL: Final[dict[CollectiveKind, CollectiveKind]] = {
    CollectiveKind.ALL_GATHER: CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.REDUCE_SCATTER: CollectiveKind.ALL_GATHER,
    CollectiveKind.ALL_REDUCE: CollectiveKind.COPY,
    CollectiveKind.COPY: CollectiveKind.ALL_REDUCE,
    CollectiveKind.ALL_TO_ALL: CollectiveKind.ALL_TO_ALL,
    CollectiveKind.SEND_RECV: CollectiveKind.SEND_RECV,
    CollectiveKind.BROADCAST: CollectiveKind.ALL_REDUCE,
}
_GATHERS: Final = (CollectiveKind.ALL_GATHER, CollectiveKind.COPY)
_STREAM, _ACTIVATION = Kind.STREAM, Role.ACTIVATION  # bound once: see graph/kinds.py


def differentiate(graph: Graph, *, eager: bool = False) -> Graph:
    """Append the backward of a forward graph and list what must be kept for it.

    `eager`: as autograd does, with a kernel of PyTorch for every sum of gradients.
    """
    gathers = {
        node.outputs[0].name: node
        for node in graph.forward
        if isinstance(node, Collective) and node.axis == "tp" and node.kind in _GATHERS
    }
    kept: list[Kept] = []
    backward: list[Node] = []
    gathered_again: set[str] = set()
    readers = Counter(
        t.name for node in graph.forward for t in node.inputs if t.role is _ACTIVATION
    )
    for node in reversed(graph.forward):
        if isinstance(node, Collective):
            backward.append(_reverse(node))
        else:
            needed = RULES[node.kind].keeps(node)
            for tensor in needed:
                gather = gathers.get(tensor.name)
                kept.append(Kept(gather.inputs[0] if gather else tensor, node.name))
                if (
                    gather
                    and gather.kind is CollectiveKind.ALL_GATHER
                    and tensor.name not in gathered_again
                ):
                    gathered_again.add(tensor.name)
                    backward.append(gather)
            backward.extend(RULES[node.kind].backward(node))
        backward.extend(_sums(node.outputs, readers, eager))
    made = {t.name for node in graph.forward for t in node.outputs}
    read = unique(t for node in graph.forward for t in node.inputs)
    backward.extend(_sums(tuple(t for t in read if t.name not in made), readers, eager))
    kept.reverse()
    return replace(graph, backward=tuple(backward), kept=tuple(kept))


def _reverse(node: Collective) -> Collective:
    """The gradient of a collective is its dual, on what it made; a ring also returns dK and dV."""
    payload = node.payload
    if node.kind is CollectiveKind.SEND_RECV:
        payload = Tensor("kv.ring.back", (("ways", 2.0), *payload.dims), payload.bits)
    return replace(
        node,
        name=f"d_{node.name}",
        kind=DUAL[node.kind],
        payload=payload,
        source=node.outputs[0].gradient() if node.outputs else None,
        outputs=(node.source.gradient(),) if node.source is not None else (),
    )


def _sums(tensors: tuple[Tensor, ...], readers: Counter[str], eager: bool) -> list[Op]:
    """Where an activation was read twice its gradients are added, once its maker is reached."""
    sums = []
    for tensor in tensors:
        d, name = tensor.gradient(), f"{tensor.name}.sum_gradients"
        kind, kernel = (Kind.POINTWISE, EagerKernel.VECTOR) if eager else (_STREAM, None)
        add = Op(name, kind, (d, d), (d,), part="residual", variant=kernel)
        sums += [add] * (readers[tensor.name] - 1)
    return sums
