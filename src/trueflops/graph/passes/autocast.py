"""Autocast over wide weights: the residual stream stays fp32, and every product casts its input.

`torch.autocast` narrows what enters a product and nothing else (aten/src/ATen/autocast_mode.h):
rows that fp32 weights look up or scale are fp32, and so are sums with them. Each product keeps a
narrow copy of its own, for only leaves are cached. Run before the ops are written out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from trueflops.graph.functions import call
from trueflops.graph.ir import Collective, Graph, Node, Op, Tensor
from trueflops.graph.kinds import Function, Kind, Role
from trueflops.graph.rules import STATISTIC_BITS
from trueflops.graph.shapes import products_of
from trueflops.graph.variants import EagerKernel

_WIDE: Final = frozenset({Kind.EMBEDDING, Kind.NORM, Kind.ADD})


def autocast(graph: Graph, *, apart: bool) -> Graph:
    """The forward graph with fp32 streams and a cast before every product.

    `apart`: queries, keys and values are products of their own, and so are gate and up.
    """
    made = {t.name for node in graph.forward for t in node.outputs}
    wide = {
        t.name
        for node in graph.forward
        for t in node.inputs
        if t.name not in made and t.role is Role.ACTIVATION
    }
    nodes: list[Node] = []
    for node in graph.forward:
        if isinstance(node, Collective):
            if node.source is not None and node.source.name in wide:
                wide |= {t.name for t in node.outputs}
                node = node.changed(payload=_widened(node.payload))
            source = None if node.source is None else _as_is(node.source, wide)
            outputs = tuple(_as_is(t, wide) for t in node.outputs)
            nodes.append(node.changed(source=source, outputs=outputs))
            continue
        if node.kind in _WIDE:
            wide |= {t.name for t in node.outputs if t.role is Role.ACTIVATION}
        inputs = tuple(_as_is(t, wide) for t in node.inputs)
        outputs = tuple(_as_is(t, wide) for t in node.outputs)
        node = node.changed(inputs=inputs, outputs=outputs)
        nodes += _narrowed(node, apart) if node.kind is Kind.MATMUL and node.weights else [node]
    return replace(graph, forward=tuple(nodes), result=_as_is(graph.result, wide))


def _as_is(tensor: Tensor, wide: set[str]) -> Tensor:
    return _widened(tensor) if tensor.name in wide else tensor


def _widened(tensor: Tensor) -> Tensor:
    return Tensor(tensor.name, tensor.dims, STATISTIC_BITS, tensor.role)


def _narrowed(op: Op, apart: bool) -> list[Op]:
    """Each product with a copy of what it reads."""
    x = op.inputs[0]
    if x.bits < STATISTIC_BITS:
        return [op]
    found = []
    for outputs, weights in products_of(op) if apart else [(op.outputs, op.weights)]:
        name = weights[0].name
        narrow = Tensor(f"{x.name}.for.{name}", x.dims, weights[0].bits)
        found.append(
            call(
                f"{name}.cast", EagerKernel.VECTOR, (x,), (narrow,), function=Function.CAST, like=op
            )
        )
        found.append(op.changed(name=name, inputs=(narrow,), outputs=outputs, weights=weights))
    return found
