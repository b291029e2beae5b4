"""Shapes of matrix ops: what a law or a count needs of their tensors, sharded or whole."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trueflops.graph.ir import Op, Tensor
from trueflops.graph.kinds import Kind
from trueflops.sizes import Size

_DGRAD, _WGRAD, _SCORES = Kind.DGRAD, Kind.WGRAD, Kind.SCORES  # bound once: see graph/kinds.py


class MatmulShape(NamedTuple):
    """`batch` independent products of [m,k]·[k,n]; the experts of a layer are a batch."""

    batch: Size
    m: Size
    n: Size
    k: Size


class AttentionShape(NamedTuple):
    """Queries of one rank and the keys they look at. `seen` is the mean number of keys a query
    sees (half of `keys` under a causal mask); keys and values of all `keys` are read once.
    """

    batch: Size
    queries: Size
    heads: Size
    kv_heads: Size
    keys: Size
    seen: Size
    head_dim: Size
    value_dim: Size


def matmul_shape(op: Op) -> MatmulShape:
    """[m,k]·[k,n] of a forward, input-gradient or weight-gradient product."""
    forward = op.of or op
    x, matrices = forward.inputs[0], matrices_of(forward)
    inner = {name for name, _ in matrices[0].dims}
    made = {name for name, _ in forward.outputs[0].dims}
    batch: Size = next((size for name, size in matrices[0].dims if name == "experts"), 1.0)
    k: Size = 1.0
    for name, size in x.dims:
        if name in inner and name in made:
            batch = batch * size  # one product per head: the absorbed projections of MLA
        elif name in inner:
            k = k * size
    m = x.elements / k / batch
    n: Size = 0.0
    for weight in matrices:
        n = n + weight.elements / k / batch
    if op.kind is _DGRAD:
        return MatmulShape(batch, m, k, n)
    if op.kind is _WGRAD:
        return MatmulShape(batch, n, k, m)
    return MatmulShape(batch, m, n, k)


def matrices_of(op: Op) -> list[Tensor]:
    """The weights that are multiplied with, biases left out."""
    inner = {name for name, _ in op.inputs[0].dims}
    weights = [w for w in op.weights if not w.name.endswith(".bias")]
    return [w for w in weights if not inner.isdisjoint(dict(w.dims))]


def products_of(op: Op) -> list[tuple[tuple[Tensor, ...], tuple[Tensor, ...]]]:
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


def laid_out_shape(op: Op) -> MatmulShape:
    """Scores = QKᵀ or context = PV of an unfused attention: a product per sequence and head.

    A backward is twice as many: a product has two gradients, each as large.
    """
    forward = op.of or op
    scores = forward.kind is _SCORES
    size = dict((forward.outputs[0] if scores else forward.inputs[0]).dims)
    batch = (2.0 if op.of else 1.0) * size["batch"] * size["heads"]
    if scores:
        return MatmulShape(batch, size["seq"], size["keys"], op.facts["inner"])
    return MatmulShape(batch, size["seq"], op.facts["inner"], size["keys"])


def touched_experts(op: Op) -> Size:
    """Which part of the experts a batch reaches when tokens fall evenly: 1 − (1 − k/E)^tokens.

    A token's k choices are distinct; a decode step of few tokens reads only the chosen ones.
    """
    size = dict(op.inputs[0].dims)
    if "routed" not in size or not op.weights:
        return 1.0
    experts = dict(matrices_of(op)[0].dims)["experts"]
    chosen = op.facts["chosen"]  # k/E: how likely one token is to choose one expert
    return reached(chosen, size["routed"] / experts / chosen)


def reached(chosen: Size, tokens: Size) -> Size:
    """The share of experts that at least one of so many tokens chooses."""
    return 1.0 - (1.0 - chosen) ** tokens


class ExpertShape(NamedTuple):
    """The experts of one rank and the tokens that reach them."""

    tokens: Size  # of all ranks that share the experts
    per_token: Size  # experts that a token chooses
    rows: Size  # copies of tokens that the experts of the fullest rank answer
    touched: Size  # experts of this rank with at least one row
    experts: Size  # of this rank
    ranks: Size  # that the experts are spread over
    hidden: Size
    width: Size
    up_ways: Size  # 2 where a gate is multiplied in


def expert_shape(op: Op) -> ExpertShape:
    """Shape of a fused layer of experts: weights are up (and gate), then down."""
    x, down = op.inputs[0], op.weights[-1]
    size, even = dict(down.dims), dict(x.dims)["routed"]
    rows = even * op.facts.get("fullest", 1.0)
    chosen, per_token, experts = op.facts["chosen"], op.facts["per_token"], size["experts"]
    up: Size = 0.0
    for weight in op.weights[:-1]:
        up = up + weight.elements
    return ExpertShape(
        tokens=op.facts.get("tokens", even / experts / chosen),
        per_token=per_token,
        rows=rows,
        touched=op.facts.get("touched", experts * reached(chosen, rows / experts / chosen)),
        experts=experts,
        ranks=per_token / chosen / experts,
        hidden=size["hidden"],
        width=size["expert_ffn"],
        up_ways=up / down.elements,
    )


def attention_shape(op: Op) -> AttentionShape:
    """Shape of a fused attention, forward, backward or decode."""
    q, k, v = (op.of or op).inputs[:3]
    size = dict(q.dims)
    return AttentionShape(
        batch=size["batch"],
        queries=size["seq"],
        heads=_run_heads(op, size["heads"]) if "heads" in size else _index_heads(size),
        kv_heads=dict(k.dims).get("kv_heads", 1.0),
        keys=op.facts["keys"],
        seen=op.facts["seen"],
        head_dim=size["head_dim"] if "head_dim" in size else size["index_dim"],
        value_dim=dict(v.dims)["value_dim"],
    )


def _index_heads(size: dict[str, Size]) -> Size:
    """Of an indexer: its own on every rank, or one for each head of keys."""
    return size["index_heads"] if "index_heads" in size else size["kv_heads"]


def _run_heads(op: Op, heads: Size) -> Size:
    """Query heads that the kernel runs: padded where it is built for multiples of some number."""
    tile = op.facts.get("head_tile", 1.0)
    return np.ceil(heads / tile) * tile if tile > 1.0 else heads
