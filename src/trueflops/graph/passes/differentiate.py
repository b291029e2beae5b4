"""Reverse-mode differentiation: the backward ops, and which tensors the forward must keep for them.

Each forward op's rule says what its gradient reads; activation memory is the sum of that, derived
and not a second formula. A tensor gathered for sequence parallelism is not kept: its shard is,
and the gather runs again in the backward (Korthikanti 2022 §4.2.2); autograd itself, which DTensor
leaves it to, keeps what was gathered. What a kernel marked `again` makes is not kept either: its
library runs it once more. Only what leads to a trained weight has a gradient: of a
frozen one none is computed, and nothing is kept for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from trueflops.graph.ir import Collective, Graph, Kept, Node, Op, Tensor, unique
from trueflops.graph.kinds import CollectiveKind, Kind, Role
from trueflops.graph.rules import RULES, trains
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
_STREAM, _MATMUL = Kind.STREAM, Kind.MATMUL  # bound once: see graph/kinds.py
_ACTIVATION, _WEIGHT = Role.ACTIVATION, Role.WEIGHT


def differentiate(graph: Graph, *, eager: bool = False, carries: bool = True) -> Graph:
    """Append the backward of a forward graph and list what must be kept for it.

    `eager`: as autograd does, with a kernel of PyTorch for every sum of gradients. `carries`:
    whether what enters the graph has a gradient, because something before it is trained.
    """
    gathers = {
        node.outputs[0].name: node
        for node in graph.forward
        if isinstance(node, Collective) and node.axis == "tp" and node.kind in _GATHERS
        if not (eager and node.kind is CollectiveKind.ALL_GATHER)
    }
    unpacked = {
        t.name: node
        for node in graph.forward
        if isinstance(node, Op) and node.kind is Kind.DEQUANTISE
        for t in node.outputs
    }
    makers = {
        t.name: node
        for node in graph.forward
        if isinstance(node, Op) and node.facts.get("again")
        for t in node.outputs
    }
    kept: list[Kept] = []
    backward: list[Node] = []
    made_again: set[str] = set()
    carried = _carried(graph, carries)
    gathered_again: set[str] = set()
    readers = Counter(
        t.name for node in graph.forward for t in node.inputs if t.role is _ACTIVATION
    )
    for node in reversed(graph.forward):
        if not _has_gradient(node, carried):
            continue
        if isinstance(node, Collective):
            backward.append(_reverse(node))
        else:
            needed, gradients = _gradients(node, carried)
            if node.kind is _MATMUL:
                again, stays = _weights_again(node, unpacked)
                backward.extend(again)
                kept.extend(Kept(tensor, node.name) for tensor in stays)
            backward.extend(_again(needed, makers, made_again))
            for tensor in needed:
                if tensor.name in makers:
                    continue
                gather = gathers.get(tensor.name)
                kept.append(Kept(gather.inputs[0] if gather else tensor, node.name))
                if (
                    gather
                    and gather.kind is CollectiveKind.ALL_GATHER
                    and tensor.name not in gathered_again
                ):
                    gathered_again.add(tensor.name)
                    backward.append(gather)
            backward.extend(gradients)
        backward.extend(_sums(node.outputs, readers, carried, eager))
    made = {t.name for node in graph.forward for t in node.outputs}
    read = unique(t for node in graph.forward for t in node.inputs)
    entered = tuple(t for t in read if t.name not in made)
    backward.extend(_sums(entered, readers, carried, eager))
    kept.reverse()
    return replace(graph, backward=tuple(backward), kept=tuple(kept))


def _carried(graph: Graph, carries: bool) -> set[str]:
    """Names of the activations that have a gradient: a trained weight comes before them."""
    found: set[str] = set()
    made: set[str] = set()
    for node in graph.forward:
        if carries:
            found |= {t.name for t in node.inputs if t.role is _ACTIVATION and t.name not in made}
        made |= {t.name for t in node.outputs}
        if _has_gradient(node, found):
            found |= {t.name for t in node.outputs if t.role is _ACTIVATION}
    return found


def _has_gradient(node: Node, carried: set[str]) -> bool:
    """Whether a node is differentiated at all."""
    if any(t.name in carried for t in node.inputs):
        return True
    return isinstance(node, Op) and trains(node)


def _gradients(op: Op, carried: set[str]) -> tuple[tuple[Tensor, ...], tuple[Op, ...]]:
    """What an op keeps, and its backward; where some of its gradients are not asked for, only
    what leads to the others.
    """
    rule = RULES[op.kind]
    whole = all(w.role is _WEIGHT for w in op.weights) and all(
        t.name in carried for t in op.inputs if t.role is _ACTIVATION
    )
    if whole:
        return rule.keeps(op), rule.backward(op)
    backward = rule.backward(op)
    inner = {t.name for b in backward for t in b.inputs}
    own = {t.gradient().name for t in (*op.inputs, *op.weights)}
    wanted = {t.gradient().name for t in op.inputs if t.name in carried}
    wanted |= {w.gradient().name for w in op.weights if w.role is _WEIGHT}
    live: list[Op] = []
    for b in reversed(backward):
        made = {t.name for t in b.outputs}
        aside = made.isdisjoint(own | inner)  # for the gradient of another op
        if aside or not made.isdisjoint(wanted):
            live.append(b)
            wanted |= {t.name for t in b.inputs}
    return tuple(t for t in rule.keeps(op) if t.name in wanted), tuple(live[::-1])


def _weights_again(op: Op, unpacked: dict[str, Op]) -> tuple[list[Op], list[Tensor]]:
    """Packed weights for the gradient by the input: written out once more, as bitsandbytes'
    MatMul4Bit and AutoGPTQ's Triton function do, or kept where PyTorch's own product saved them.
    """
    again: list[Op] = []
    stays: list[Tensor] = []
    for weight in op.weights:
        if maker := unpacked.get(weight.name):
            if maker.facts["saved"]:
                stays.append(weight)
            else:
                again.append(maker)
    return again, stays


def _again(needed: Iterable[Tensor], makers: dict[str, Op], done: set[str]) -> list[Op]:
    """The kernels that make what a gradient reads, and what they read themselves, once each."""
    found: list[Op] = []
    for tensor in needed:
        maker = makers.get(tensor.name)
        if maker is not None and maker.name not in done:
            done.add(maker.name)
            found += [*_again(maker.inputs, makers, done), maker]
    return found


def _reverse(node: Collective) -> Collective:
    """The gradient of a collective is its dual, on what it made; a ring also returns dK and dV."""
    payload = node.payload
    if node.kind is CollectiveKind.SEND_RECV:
        payload = Tensor("kv.ring.back", (("ways", 2.0), *payload.dims), payload.bits)
    return node.changed(
        name=f"d_{node.name}",
        kind=DUAL[node.kind],
        payload=payload,
        source=node.outputs[0].gradient() if node.outputs else None,
        outputs=(node.source.gradient(),) if node.source is not None else (),
    )


def _sums(
    tensors: tuple[Tensor, ...], readers: Counter[str], carried: set[str], eager: bool
) -> list[Op]:
    """Where an activation was read twice its gradients are added, once its maker is reached."""
    sums = []
    for tensor in tensors:
        if tensor.name not in carried:
            continue
        d, name = tensor.gradient(), f"{tensor.name}.sum_gradients"
        kind, kernel = (Kind.POINTWISE, EagerKernel.VECTOR) if eager else (_STREAM, None)
        add = Op(name, kind, (d, d), (d,), part="residual", variant=kernel)
        sums += [add] * (readers[tensor.name] - 1)
    return sums
