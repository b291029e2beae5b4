"""Fusion: what a compiler or a hand-written kernel merges, and the traffic it thereby saves.

experts: what a served layer of experts does between two collectives becomes one kernel.
flash: scores, softmax, dropout and context become one attention that never writes the s×s matrix
(FlashAttention-2, arXiv 2307.08691). chains: neighbouring pointwise ops become one kernel that
reads its inputs and writes its outputs once. narrow_loss: nobody lifts the logits that PyTorch's
cross-entropy reads. loss: a compiled cross-entropy lifts the logits to
fp32 only in registers, and keeps them as they came beside each row's normaliser.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from trueflops.graph.ir import Collective, Graph, Node, Op, Tensor, unique
from trueflops.graph.kinds import CollectiveKind, Kind, Role
from trueflops.graph.routing import fullest_share
from trueflops.graph.rules import RULES, STATISTIC_BITS, work
from trueflops.graph.shapes import matrices_of
from trueflops.sizes import Size

_MATMUL, _CROSS_ENTROPY, _INDEX, _EXCHANGE = (
    Kind.MATMUL,
    Kind.CROSS_ENTROPY,
    Role.INDEX,
    CollectiveKind.ALL_TO_ALL,
)  # bound once: see graph/kinds.py


def fuse(
    graph: Graph,
    *,
    flash: bool,
    chains: bool,
    loss: bool = False,
    narrow_loss: bool = False,
    experts: bool = False,
    decoding: bool = False,
) -> Graph:
    """Merge what may be merged in the forward graph. Run before differentiating."""
    nodes = list(graph.forward)
    if experts:
        nodes = _fuse_experts(nodes)
    if flash:
        nodes = _fuse_attention(nodes, decoding)
    if loss:
        nodes = [_fused_loss(node) for node in nodes]
    if narrow_loss:
        nodes = [_narrow_loss(node) for node in nodes]
    if chains:
        nodes = _fuse_chains(nodes, graph.result)
    return replace(graph, forward=tuple(nodes))


def traffic_bytes(nodes: Iterable[Node]) -> Size:
    """Bytes that ops read and write: compare before and after to see what fusion saved."""
    total: Size = 0.0
    for node in nodes:
        if isinstance(node, Op):
            w = work(node)
            total = total + w.bytes_read + w.bytes_written
    return total


def _fuse_attention(nodes: list[Node], decoding: bool) -> list[Node]:
    core = [n for n in nodes if isinstance(n, Op) and n.part == "core"]
    if not core or core[0].kind is not Kind.SCORES:
        return nodes
    first, last = core[0], core[-1]
    q, k = first.inputs
    v, mixed = last.inputs[1], last.outputs[0]
    rows = tuple((n, s) for n, s in mixed.dims if n != "value_dim")
    normaliser = Tensor("mixed.logsumexp", rows, STATISTIC_BITS, role=Role.INDEX)
    facts = {name: first.facts[name] for name in ("keys", "seen", "key_bits")}
    if "steps" in first.facts:
        facts["steps"] = first.facts["steps"]
    if any(op.kind is Kind.DROPOUT for op in core):
        facts["drawn"] = 1.0  # a random number for each pair of query and key
    flash = Op(
        "attention.core",
        Kind.ATTENTION_DECODE if decoding else Kind.ATTENTION,
        (q, k, v),
        (mixed, normaliser),
        weights=tuple(w for op in core for w in op.weights),
        dtype=first.dtype,
        part="core",
        facts=facts,
        fused=tuple(core),
    )
    merged: list[Node] = []
    for node in nodes:
        if node is last:
            merged.append(flash)
        elif not (isinstance(node, Op) and node.part == "core"):
            merged.append(node)
    return merged


def _fused_loss(node: Node) -> Node:
    if not (isinstance(node, Op) and node.kind is _CROSS_ENTROPY):
        return node
    loss = node.outputs[0]
    normaliser = Tensor("loss.logsumexp", loss.dims, STATISTIC_BITS, role=Role.INDEX)
    return node.changed(kind=Kind.FUSED_CROSS_ENTROPY, outputs=(loss, normaliser))


def _narrow_loss(node: Node) -> Node:
    """What the cross-entropy keeps is as wide as its logits."""
    if not (isinstance(node, Op) and node.kind is _CROSS_ENTROPY):
        return node
    loss, softmax = node.outputs
    return node.changed(outputs=(loss, replace(softmax, bits=node.inputs[0].bits)))


_EXPERT_KINDS: Final = frozenset(
    {
        Kind.CAST,
        Kind.MATMUL,
        Kind.ACTIVATION,
        Kind.MULTIPLY,
        Kind.DISPATCH,
        Kind.COMBINE,
        Kind.STREAM,
    }
)


def _fuse_experts(nodes: list[Node]) -> list[Node]:
    """From the first product of the experts to the last, with the permutations that touch them.

    A dispatch or a combine with a collective in between stays a kernel of its own.
    """
    at = [
        i for i, node in enumerate(nodes)
        if isinstance(node, Op) and node.kind is _MATMUL and node.inputs[0].has("routed")
    ]  # fmt: skip
    if not at:
        return nodes
    first, last = at[0], at[-1]
    while first > 0 and _of_experts(nodes[first - 1]):
        first -= 1
    while last + 1 < len(nodes) and _of_experts(nodes[last + 1]):
        last += 1
    run = [node for node in nodes[first : last + 1] if isinstance(node, Op)]
    products = [op for op in run if op.kind is _MATMUL]
    rows = next(op.inputs[0] for op in products)
    facts = dict(products[0].facts)
    own, reach = dict(rows.dims)["routed"], facts["per_token"] / facts["chosen"]  # of all experts
    ranks = reach / dict(matrices_of(products[0])[0].dims)["experts"]
    # All ranks of a layer wait for the one that most tokens chose.
    facts["fullest"] = fullest_share(own, ranks, reach, facts["per_token"])
    if any(isinstance(n, Collective) and n.kind is _EXCHANGE and n.axis == "ep" for n in nodes):
        # Tokens were sent to their experts: a rank sees the copies for its own, and no others.
        facts["tokens"] = own / facts["per_token"]
    one = Op(
        "experts",
        Kind.EXPERTS,
        (rows,),
        products[-1].outputs,
        weights=tuple(w for op in products for w in op.weights if not w.name.endswith(".bias")),
        dtype=products[0].dtype,
        part="experts",
        facts=facts,
        fused=tuple(run),
        variant=products[0].variant,
    )
    return [*nodes[:first], one, *nodes[last + 1 :]]


def _of_experts(node: Node) -> bool:
    return isinstance(node, Op) and node.part == "experts" and node.kind in _EXPERT_KINDS


def _fuse_chains(nodes: list[Node], result: Tensor) -> list[Node]:
    """Grow runs of pointwise ops of which each reads something that the run has just made."""
    merged: list[Node] = []
    run: list[Op] = []

    def close() -> None:
        if len(run) > 1:
            merged.append(_as_one(run, nodes, result))
        else:
            merged.extend(run)
        run.clear()

    for node in nodes:
        if isinstance(node, Op) and RULES[node.kind].pointwise:
            made = {t.name for op in run for t in op.outputs}
            if run and not any(t.name in made for t in node.inputs):
                close()
            run.append(node)
        else:
            close()
            merged.append(node)
    close()
    return merged


def _as_one(run: list[Op], nodes: list[Node], result: Tensor) -> Op:
    made = {t.name for op in run for t in op.outputs}
    inside = set(map(id, run))
    read_outside = {t.name for n in nodes if id(n) not in inside for t in n.inputs} | {result.name}
    inputs = unique(t for op in run for t in op.inputs if t.name not in made)
    outputs = unique(
        t for op in run for t in op.outputs if t.name in read_outside or t.role is _INDEX
    )
    weights = tuple(w for op in run for w in op.weights)
    return Op(
        "+".join(op.name for op in run),
        Kind.FUSED,
        inputs,
        outputs,
        weights=weights,
        dtype=run[-1].dtype,
        part=run[-1].part,
        fused=tuple(run),
    )
