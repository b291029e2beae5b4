"""Whole pieces of a network: one layer, the embedding, the head and its loss."""

from __future__ import annotations

from dataclasses import replace

from trueflops.graph.build.adapters import TRAIN_ALL, Tuning
from trueflops.graph.build.attention import attend
from trueflops.graph.build.feed_forward import feed_forward, side_by_side
from trueflops.graph.build.layout import Layout, Pass
from trueflops.graph.build.own import add_own, make_own
from trueflops.graph.build.recurrent import recur
from trueflops.graph.build.streams import collapse, join_several, spread
from trueflops.graph.ir import Graph, Tensor
from trueflops.graph.kinds import Kind, Role
from trueflops.graph.rules import INDEX_BITS, STATISTIC_BITS
from trueflops.model import Block, Model


def build_block(
    model: Model, block: Block, run: Pass, name: str = "block", tuning: Tuning = TRAIN_ALL
) -> Graph:
    """One layer, from the residual stream to the residual stream."""
    tuning = tuning.of_frozen_layer() if block.frozen else tuning
    at = Layout(run, model.hidden, block.parameters(model.hidden), tuning, block.streams)
    x = _join(at) if block.joins else at.stream("block.in")
    if block.parallel:
        return at.graph(name, _side_by_side(at, block, x))
    out = x
    for part, end in zip(block.parts, _ends(block), strict=True):
        read, mixes = collapse(at, part, out) if block.streams > 1 else (out, None)
        normed = _normed(at, block, part, read)
        if part == "ffn" and block.ffn and block.experts:
            made = side_by_side(at, block, normed, read)
        else:
            made = _sublayer(at, block, part, normed)
        made = _close(at, block, part, made)
        out = spread(at, part, out, made, mixes, at.stream(end))
    if block.own:
        out = add_own(at, block.own, out)
    return at.graph(name, out)


def _ends(block: Block) -> tuple[str, ...]:
    """What the residual stream is called behind each part."""
    last = "block.wide" if block.own else "block.out"
    return ("block.mid", last)[-len(block.parts) :]


def _normed(at: Layout, block: Block, part: str, x: Tensor) -> Tensor:
    """What a part reads."""
    return x if block.norms == "post" else at.norm(f"{part}.norm", x)


def _sublayer(at: Layout, block: Block, part: str, x: Tensor) -> Tensor:
    """What a part adds: attention, a recurrence or the sum of both; else the feed-forward half."""
    if part == "ffn":
        return feed_forward(at, block, x)
    made = [attend(at, block, x)] if block.attention else []
    if block.recurrent:
        made.append(recur(at, block.recurrent, x))
    if len(made) == 1:
        return made[0]
    return at.op(Kind.ADD, "mixers.add", made, [at.branch("mixers.sum", x)])


def _side_by_side(at: Layout, block: Block, x: Tensor) -> Tensor:
    """Both parts read the stream as it came in."""
    first, second = block.parts
    normed = _normed(at, block, first, x)
    mixed = _close(at, block, first, _sublayer(at, block, first, normed))
    into = normed if block.shared_norm else at.norm(f"{second}.norm", x)
    widened = _close(at, block, second, feed_forward(at, block, into))
    both = at.op(Kind.ADD, "parallel.add", [mixed, widened], [at.branch("parallel.sum", normed)])
    return at.op(Kind.ADD, "residual.add", [x, both], [at.stream("block.out")])


def _join(at: Layout) -> Tensor:
    """The stream beside the embedding of the next tokens, normed and brought back to its width."""
    if at.streams > 1:
        return join_several(at)
    both = at.tensor("join.in", ("joined", 2.0 * at.hidden), bits=at.run.stream_bits)
    return at.linear(["join.project"], at.norm("join.norm", both), [at.stream("block.in")])


def _close(at: Layout, block: Block, name: str, y: Tensor) -> Tensor:
    """What stands between a sublayer and the residual: a post-norm, a dropout, or nothing."""
    if block.norms == "post":
        y = at.norm(f"{name}.norm", y)
    elif block.norms == "sandwich":
        y = at.norm(f"{name}.post_norm", y)
    return at.dropout(f"{name}.dropout", y, block.dropout)


def build_embedding(model: Model, run: Pass, tuning: Tuning = TRAIN_ALL) -> Graph:
    """Token ids to the residual stream: look up rows, add positions, norm where a family does."""
    if model.blocks[model.pattern[0]].frozen:  # what comes before a frozen layer is frozen too
        tuning = tuning.of_frozen_layer()
    at = Layout(run, model.hidden, model.embedding_parameters(), tuning.of_ends())
    ids = Tensor("ids", at.tokens, INDEX_BITS, role=Role.INDEX)
    narrow = "embedding.project" in at.parameters
    x = (
        at.tensor("embedded.narrow", ("embedding_dim", model.embedding_dim))
        if narrow
        else (at.stream("embedded"))
    )
    at.op(
        Kind.EMBEDDING,
        "embedding.tokens",
        [ids],
        [x],
        at.weights("embedding.tokens"),
        rows_bytes=x.bytes,
        tied=float(model.tied),
    )
    if narrow:
        x = at.linear(["embedding.project"], x, [at.stream("embedded")])
    if model.learned_positions:
        rows = run.seq * at.hidden * run.bits / 8.0
        x = at.op(
            Kind.ADD,
            "embedding.positions",
            [x],
            [at.stream("placed")],
            at.weights("embedding.positions"),
            rows_bytes=rows,
        )
    if model.embedding_norm:
        x = at.norm("embedding.norm", x)
    x = at.dropout("embedding.dropout", x, model.blocks[0].dropout)
    if model.own_rows:
        make_own(at, model, ids, x)
    if model.streams > 1:  # all begin alike
        at.streams = model.streams
        x = at.op(Kind.STREAM, "embedding.spread", [x], [at.stream("spread")])
    return at.graph("embedding", x)


def build_head(model: Model, run: Pass, tuning: Tuning = TRAIN_ALL) -> Graph:
    """The residual stream to the loss, or, when serving, to the next token of each sequence.

    Of a prompt only the last position is asked for; of drafted tokens that are verified, every one.
    """
    if not run.training and not run.decoding:
        run = replace(run, seq=1.0)
    parameters = [*model.head_parameters()]
    if model.tied:
        parameters += model.embedding_parameters()[:1]
    at = Layout(run, model.hidden, parameters, tuning.of_ends(), model.streams)
    x = at.stream("head.in")
    if model.streams > 1:
        x, _ = collapse(at, "head", x)
    if model.final_norm:
        x = at.norm("head.norm", x)
    if "head.project" in at.parameters:
        narrow = at.tensor("head.narrow", ("embedding_dim", model.embedding_dim))
        x = at.linear(["head.project"], x, [narrow])
    weight = "embedding.tokens" if model.tied else "head.logits"
    logits = at.tensor("head.scores", ("vocab", model.vocab))
    table = at.weights(weight)
    if model.tied and model.blocks[model.pattern[0]].frozen:  # the embedding's, which is frozen
        table = tuple(replace(w, role=Role.FROZEN) for w in table)
    at.op(Kind.MATMUL, "head.logits", [at.narrowed(x)], [logits], table)
    loss = Tensor("loss", at.tokens, STATISTIC_BITS, role=Role.INDEX)
    if not run.training:
        return at.graph("head", at.op(Kind.SAMPLE, "head.sample", [logits], [loss]))
    # Frameworks lift the logits to fp32 and keep the softmax for the backward.
    softmax = at.tensor("head.softmax", ("vocab", model.vocab), bits=STATISTIC_BITS)
    at.op(Kind.CROSS_ENTROPY, "head.loss", [logits], [loss, softmax], flop_per_element=5.0)
    return at.graph("head", loss)
