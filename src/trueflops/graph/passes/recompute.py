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

from trueflops.graph.ir import Collective, Graph, Kept, Node, Op, Tensor
from trueflops.graph.kinds import CollectiveKind, Kind, Role

Region = Literal["none", "selective", "products", "full"]
_ACTIVATION = Role.ACTIVATION  # bound once: see graph/kinds.py
_SAVED: Final = (CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_TO_ALL)


def recompute(graph: Graph, region: Region) -> Graph:
    """Apply one recomputation policy to a differentiated graph."""
    if region == "none":
        return graph
    if region == "products":
        inside = _needed(list(_unsaved(graph)), graph.kept)
    else:
        inside = [node for node in graph.forward if region == "full" or node.part == "core"]
    made = {t.name for node in inside for t in node.outputs}
    ops = {node.name for node in inside if isinstance(node, Op)}
    entries = {
        t.name: t
        for node in inside
        for t in node.inputs
        if t.name not in made and t.role is _ACTIVATION
    }
    # What the region made is dropped; what an op outside needs of it stays, unless that op only has
    # its own result saved and is differentiated from what is made again.
    stays = [
        k
        for k in graph.kept
        if k.tensor.name not in made or (region != "products" and k.needed_by not in ops)
    ]
    stays += [Kept(t, "recompute") for t in entries.values()]
    return replace(graph, kept=tuple(stays), recompute=tuple(inside))


def _unsaved(graph: Graph) -> Iterator[Node]:
    """What the policy of products runs again: nodes whole, or some of several products at once.

    Products of experts are one grouped kernel, which the policy does not count.
    """
    order = count(1)
    for node in graph.forward:
        if isinstance(node, Collective):
            if node.kind not in _SAVED:
                yield node
        elif node.kind is Kind.MATMUL and not node.inputs[0].has("routed"):
            again = [pair for pair in _products(node) if next(order) % 2 == 0]
            if again:
                outputs = tuple(tensor for made, _ in again for tensor in made)
                weights = tuple(weight for _, held in again for weight in held)
                yield replace(node, outputs=outputs, weights=weights)
        elif node.kind is not Kind.ATTENTION:
            yield node


def _needed(nodes: list[Node], kept: tuple[Kept, ...]) -> list[Node]:
    """Of these nodes those that lead to something a gradient reads."""
    wanted = {k.tensor.name for k in kept}
    found: list[Node] = []
    for node in reversed(nodes):
        if any(t.name in wanted for t in node.outputs):
            found.append(node)
            wanted |= {t.name for t in node.inputs}
    return found[::-1]


def _products(op: Op) -> list[tuple[tuple[Tensor, ...], tuple[Tensor, ...]]]:
    """What each of several weights side by side makes, with the weight and its bias."""
    held: list[tuple[Tensor, ...]] = []
    for weight in op.weights:
        if weight.name.endswith(".bias") and held:
            held[-1] = (*held[-1], weight)
        else:
            held.append((weight,))
    if len(held) != len(op.outputs):  # one weight, cut into several results
        return [(op.outputs, op.weights)]
    return [((made,), own) for made, own in zip(op.outputs, held, strict=True)]
