"""Recomputation: drop what a region made, keep what it was made from, run it again in the backward.

selective: the attention core (Korthikanti 2022 §5); full: the whole block, keeping only its input
(Chen 2016, arXiv 1604.06174).
"""

from __future__ import annotations

from typing import Literal

from trueflops.graph.ir import Graph, Kept, Op

Region = Literal["none", "selective", "full"]


def recompute(graph: Graph, region: Region) -> Graph:
    """Apply one recomputation policy to a differentiated graph."""
    if region == "none":
        return graph
    inside = [node for node in graph.forward if region == "full" or node.part == "core"]
    made = {t.name for node in inside for t in node.outputs}
    ops = {node.name for node in inside if isinstance(node, Op)}
    entries = {
        t.name: t
        for node in inside
        for t in node.inputs
        if t.name not in made and t.role == "activation"
    }
    # What the region made for itself is dropped; what an op outside needs of it stays.
    stays = [k for k in graph.kept if k.tensor.name not in made or k.needed_by not in ops]
    stays += [Kept(t, "recompute") for t in entries.values()]
    return graph.having(kept=tuple(stays), recompute=tuple(inside))
