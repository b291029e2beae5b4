"""Inputs that layers are given of their own: Gemma 4's per-layer embeddings.

A second table has a row for each token with some numbers for every layer; a product of the first
embedding is normed and added to it. Behind its FFN a layer multiplies its part by a narrow product
of the stream, and adds what a second product makes of that (transformers' Gemma4TextModel and
Gemma4TextDecoderLayer; vLLM's models/gemma4.py). The gradient of the second table is a scatter of
few rows, and not counted.
"""

from __future__ import annotations

from trueflops.graph.build.layout import Layout
from trueflops.graph.ir import Tensor
from trueflops.graph.kinds import Kind, Role
from trueflops.model import Model


def make_own(at: Layout, model: Model, ids: Tensor, x: Tensor) -> Tensor:
    """Of all layers, as the embedding makes them."""
    wide = ("own", float(model.blocks[0].own * model.layers))
    rows, made = at.tensor("own.rows", wide), at.tensor("own.made", wide)
    at.op(Kind.EMBEDDING, "embedding.own", [ids], [rows], at.weights("embedding.own"),
          rows_bytes=rows.bytes, tied=0.0)  # fmt: skip
    at.linear(["embedding.own_project"], x, [made])
    normed = Tensor("own.normed", made.dims, made.bits)
    at.op(Kind.NORM, "embedding.own_norm", [made], [normed], at.weights("embedding.own_norm"),
          part="norm", flop_per_element=5.0)  # fmt: skip
    return at.op(Kind.ADD, "embedding.own_add", [rows, normed], [at.tensor("own.all", wide)])


def add_own(at: Layout, width: int, stream: Tensor) -> Tensor:
    """What a layer makes of its own input and of the stream, added to the stream."""
    narrow = ("own", float(width))
    given = Tensor("own.given", (*at.tokens, narrow), at.run.bits, role=Role.INDEX)
    gate = at.linear(["own.gate"], stream, [at.tensor("own.gate_out", narrow)])
    acted = at.op(
        Kind.ACTIVATION, "own.act", [gate], [at.tensor("own.acted", narrow)], flop_per_element=5.0
    )
    both = at.op(Kind.MULTIPLY, "own.multiply", [acted, given], [at.tensor("own.gated", narrow)])
    made = at.norm("own.norm", at.linear(["own.out"], both, [at.branch("own.y", both)]))
    return at.op(Kind.ADD, "own.residual", [stream, made], [at.stream("block.out")])
