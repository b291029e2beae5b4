"""Recomputation: drop what a region made, keep what it was made from, run it again in the backward.

selective  the attention core (Korthikanti 2022 §5)
products   all but attention and every second product, as torchtitan's selective policy does
           (torchtitan/distributed/activation_checkpoint.py: mm, attention and what was scattered
           or exchanged are in its list of ops to save, but every second mm is run again)
full       the whole block, keeping only its input (Chen 2016, arXiv 1604.06174)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Final, Literal

from trueflops.graph.ir import Collective, Graph, Kept, Node, Op
from trueflops.graph.kinds import CollectiveKind, Kind, Role
from trueflops.graph.shapes import products_of

Region = Literal["none", "selective", "products", "full"]
_ACTIVATION = Role.ACTIVATION  # bound once: see graph/kinds.py
_SAVED: Final = (CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_TO_ALL)


def recompute(graph: Graph, region: Region, *, stops_early: bool = False) -> Graph:
    """Apply one recomputation policy to a differentiated graph.

    `stops_early`: once the last tensor that a gradient reads is made again, as torch's
    checkpoint without re-entry does (torch/utils/checkpoint.py, early_stop).
    """
    if region == "none" or not graph.backward:  # of frozen layers nothing is needed again
        return graph
    if region == "products":
        inside = _needed(list(_unsaved(graph)), graph.kept)
    else:
        inside = [node for node in graph.forward if region == "full" or node.part == "core"]
    if stops_early and region == "full":
        inside = _until_needed(inside, graph.kept)
    made = {t.name for node in inside for t in node.outputs}
    ops = {node.name for node in inside if isinstance(node, Op)}
    entries = {
        t.name: t
        for node in inside
        for t in node.inputs
        if t.name not in made and t.role is _ACTIVATION
    }
    # What the region made is dropped, except what the gradient of an op outside reads. Under the
    # other policies such a gradient reads what is recomputed, so nothing of the region stays.
    stays = [
        k
        for k in graph.kept
        if k.tensor.name not in made or (region == "selective" and k.needed_by not in ops)
    ]
    stays += [Kept(t, "recompute") for t in entries.values()]
    return replace(graph, kept=tuple(stays), recompute=tuple(inside))


def _unsaved(graph: Graph) -> Iterator[Node]:
    """What the policy `products` recomputes: whole nodes, or some products of a node with several.

    Products of experts are one grouped kernel, which the policy does not count.
    """
    order = count(1)
    for node in graph.forward:
        if isinstance(node, Collective):
            if node.kind not in _SAVED:
                yield node
        elif node.kind is Kind.MATMUL and not node.inputs[0].has("routed"):
            again = [pair for pair in products_of(node) if next(order) % 2 == 0]
            if again:
                outputs = tuple(tensor for made, _ in again for tensor in made)
                weights = tuple(weight for _, held in again for weight in held)
                yield node.changed(outputs=outputs, weights=weights)
        elif node.kind is not Kind.ATTENTION:
            yield node


def _until_needed(nodes: list[Node], kept: tuple[Kept, ...]) -> list[Node]:
    """All up to the last that makes something a gradient reads."""
    wanted = {k.tensor.name for k in kept}
    while nodes and not any(t.name in wanted for t in nodes[-1].outputs):
        nodes = nodes[:-1]
    return nodes


def _needed(nodes: list[Node], kept: tuple[Kept, ...]) -> list[Node]:
    """The nodes among these whose results some gradient reads, directly or through others."""
    wanted = {k.tensor.name for k in kept}
    found: list[Node] = []
    for node in reversed(nodes):
        if any(t.name in wanted for t in node.outputs):
            found.append(node)
            wanted |= {t.name for t in node.inputs}
    return found[::-1]
