"""Two streams: ops of one part run beside the others, which they do not wait for.

What they move still passes through the same memory, and what they multiply through the same units:
the clock takes that, and neither their starts nor their gaps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from trueflops.graph.ir import Graph, Node, Op

BESIDE: Final = "beside"  # the fact of such an op


def run_beside(graph: Graph, part: str) -> Graph:
    """The forward graph with every op of a part on a stream of its own."""

    def moved(node: Node) -> Node:
        if not isinstance(node, Op) or node.part != part:
            return node
        return node.changed(facts={**node.facts, BESIDE: 1.0})

    return replace(graph, forward=tuple(map(moved, graph.forward)))
