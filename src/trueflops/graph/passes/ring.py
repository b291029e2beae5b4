"""What ring attention does beside its products: it merges the answers of its steps.

A rank multiplies its queries with the block of keys it holds, hands that block on, and does the
same with the next: `steps` kernels in place of one, whose answers are added up, each weighed by its
share of the softmax. The backward adds up the gradients of the queries, and of the keys and values
that travel on. TransformerEngine's context_parallel.py, AttnFuncWithCPAndKVP2P: a causal mask is
balanced by giving each rank an early and a late piece, so that of the blocks of others half the
keys meet all queries, or all keys the later half of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from trueflops.graph.ir import Graph, Node, Op
from trueflops.graph.kinds import Kind
from trueflops.sizes import Size

_PASSES: Final = 3.0  # over what is added up: the sum and the new part are read, the sum is written
_HALF: Final = 0.5  # of the keys and values of a block are under the mask


def merge_steps(graph: Graph) -> Graph:
    """The same graph with the merges of every attention that runs in steps."""
    if not any(isinstance(node, Op) and "steps" in node.facts for node in graph.forward):
        return graph
    forward, backward = tuple(_with_merges(graph.forward)), tuple(_with_merges(graph.backward))
    return replace(graph, forward=forward, backward=backward)


def _with_merges(nodes: Iterable[Node]) -> Iterator[Node]:
    for node in nodes:
        yield node
        if not isinstance(node, Op) or "steps" not in node.facts:
            continue
        if node.kind is Kind.ATTENTION:
            yield _merge(node, node.outputs[0].bytes)
        elif node.kind is Kind.ATTENTION_BACKWARD:
            queries, keys, values = (t.bytes for t in node.outputs)
            yield _merge(node, queries + _HALF * (keys + values))


def _merge(op: Op, added_bytes: Size) -> Op:
    """A pass over memory for each step, which leaves no tensor of its own behind."""
    steps = op.facts["steps"]
    facts = {"rows_bytes": steps * _PASSES * added_bytes, "steps": steps}
    return Op(f"{op.name}.merge", Kind.STREAM, part=op.part, facts=facts)
