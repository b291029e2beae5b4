"""What one rank's blocks, embedding and head cost, computed once per distinct shape of work.

Of a million plans only a few hundred differ in what a rank computes (tp, cp, ep, etp and the
micro-batch); all others combine the same costs differently. In: a Program and a Clock.
Out: Costs, whose arrays have one element per distinct shape, and where each plan finds its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, cast

import numpy as np

from trueflops.clock import CLOCKED_CAUSES, Clock, Placement, Priced
from trueflops.graph import Graph, Op, Pass, Program, compile_program
from trueflops.graph.kinds import Kind, Role
from trueflops.graph.liveness import Live
from trueflops.graph.program import AXES, SHAPING
from trueflops.graph.rules import total_bytes
from trueflops.model import Model
from trueflops.plan import BYTES, Plan
from trueflops.predict.tensors import tensor_sizes
from trueflops.sizes import Array, Rows, Size
from trueflops.tables import Tabled, joint, rows_of, summed
from trueflops.units import BITS_PER_BYTE


@dataclass(kw_only=True)
class PieceCost(Priced):
    """One graph on one rank, for one micro-batch: what it takes, and what it holds."""

    dense_parameters: Size  # trained elements held by this rank, unsharded by ZeRO
    expert_parameters: Size
    frozen_parameters: Size  # those that are not trained, dense and experts'
    frozen_bytes: Size  # of the dense ones, in the width they are stored in
    frozen_expert_bytes: Size
    weight_bytes: Size  # in the width they are stored in
    weight_tensors: Size  # how many weights those are
    weight_modules: Size  # and how many modules hold them: a bias lies beside its weight
    tied_parameters: Size  # of the dense ones: a head's share of the embedding's table
    tied_bytes: Size  # the same where that table is frozen
    kept_bytes: Size  # per micro-batch, until its backward
    trained: dict[str, Size]  # of the trained tensors, one by one: tensors.py

    def of(self, phase: str, exposed: Mapping[str, Size]) -> Size:
        """Seconds of a phase, of each cause the share that is `exposed`."""
        total: Size = 0.0
        for (at, cause), seconds in self.seconds.items():
            if at == phase:
                total = total + seconds * exposed.get(cause, 1.0)
        return total

    def of_cause(self, phase: str, cause: str) -> Size:
        """Seconds of one cause in a phase."""
        return self.seconds.get((phase, cause), 0.0)

    def clocked(self, phase: str) -> Size:
        """Of these, what follows the chip's clock."""
        total: Size = 0.0
        for (at, cause), seconds in self.seconds.items():
            if at == phase and cause in CLOCKED_CAUSES:
                total = total + seconds
        return total

    def map(self, change: Callable[[Size], Size]) -> PieceCost:
        """The same piece with every size changed."""
        return join_pieces([self], lambda sizes: change(sizes[0]))


@dataclass(frozen=True)
class Costs:
    """Every piece of the model. A block that recomputes keeps its own `kept_bytes`, one that does
    not `kept_whole`; only the first spends the seconds of phase `recompute`. What is alive while
    they run: `live` and `live_whole`.
    """

    blocks: tuple[PieceCost, ...]
    kept_whole: tuple[Size, ...]
    embedding: PieceCost
    head: PieceCost
    boundary_bytes: Size  # activation handed from stage to stage, per micro-batch
    live: tuple[Live, ...]
    live_whole: tuple[Live, ...]
    live_embedding: Live
    live_head: Live
    wide_logits_bytes: Size  # of an fp32 copy, where the loss is one op that keeps it

    def pieces(self, model: Model) -> Iterator[tuple[PieceCost, int]]:
        """Every piece with how often the model holds it."""
        yield self.embedding, 1
        for kind, block in enumerate(self.blocks):
            yield block, model.pattern.count(kind)
        yield self.head, 1 + model.modules

    def map(self, change: Callable[[Size], Size]) -> Costs:
        """The same costs with every size changed."""
        return Costs(
            tuple(block.map(change) for block in self.blocks),
            tuple(change(kept) for kept in self.kept_whole),
            self.embedding.map(change),
            self.head.map(change),
            change(self.boundary_bytes),
            tuple(live.map(change) for live in self.live),
            tuple(live.map(change) for live in self.live_whole),
            self.live_embedding.map(change),
            self.live_head.map(change),
            change(self.wide_logits_bytes),
        )


@dataclass(frozen=True)
class KeyedCosts:
    """Costs per distinct shape of work, and which shape each plan has."""

    costs: Costs
    which: Rows | None  # None: all plans share one shape

    def spread(self, some: Rows | None = None, plan: Plan | None = None) -> Costs:
        """Costs of all plans or some: one element for each or, as far as `plan` has them tabled,
        for each distinct shape.
        """
        if self.which is None:
            return self.costs
        table = None
        tabled = [s for n in SHAPING if plan and isinstance(s := getattr(plan, n), Tabled)]
        if tabled and (table := joint(tabled, exact=True)[1]):
            some = table.example if some is None else some.take(table.example)
        which = self.which if some is None else self.which.take(some)

        def of(size: Size) -> Size:
            if np.ndim(size) == 0:
                return size
            taken = np.asarray(size).take(which)
            if table is None:
                return taken
            return cast("Array", Tabled(taken, tabled[0].batch, table, table.names))

        return self.costs.map(of)


def training_costs(model: Model, plan: Plan, seq: int, clock: Clock | None) -> KeyedCosts:
    """Price a training micro-batch for each distinct shape of work; without a clock, what it holds
    alone.

    An axis of one rank changes the graph (no collectives, other fusions), so shapes are compiled
    together only where the same axes are in use.
    """
    keys, which = rows_of([getattr(plan, name) for name in SHAPING])
    alone = keys[:, : len(AXES)] == 1.0
    groups: dict[tuple[bool, ...], list[int]] = defaultdict(list)
    for row, pattern in enumerate(alone):
        groups[tuple(pattern)].append(row)
    priced = []
    for rows in groups.values():
        shaped = plan.but(**_columns(keys[rows]))
        program = compile_program(model, shaped, training_pass(shaped, seq))
        priced.append(program_costs(program, clock, Placement.of(shaped)))
    if len(keys) == 1:
        return KeyedCosts(priced[0], None)
    return KeyedCosts(merged(priced, list(groups.values()), len(keys)), which)


def _columns(keys: Array) -> dict[str, Size]:
    """Plan fields for some shapes: a number where all agree, else an array."""
    return {
        name: float(keys[0, i]) if (keys[:, i] == keys[0, i]).all() else keys[:, i]
        for i, name in enumerate(SHAPING)
    }


def merged(priced: Sequence[Costs], rows: Sequence[list[int]], count: int) -> Costs:
    """Put the costs of separately compiled shapes side by side, in the order of the keys."""

    def join(sizes: Sequence[Size]) -> Size:
        if all(isinstance(size, float) and size == sizes[0] for size in sizes):
            return sizes[0]
        whole = np.zeros(count)
        for size, at in zip(sizes, rows, strict=True):
            whole[at] = size
        return whole

    def pieces(found: Sequence[PieceCost]) -> PieceCost:
        return join_pieces(found, join)

    def lives(found: Sequence[Live]) -> Live:
        names = [field.name for field in fields(Live)]
        return Live(**{name: join([getattr(live, name) for live in found]) for name in names})

    kinds = range(len(priced[0].blocks))
    return Costs(
        tuple(pieces([c.blocks[k] for c in priced]) for k in kinds),
        tuple(join([c.kept_whole[k] for c in priced]) for k in kinds),
        pieces([c.embedding for c in priced]),
        pieces([c.head for c in priced]),
        join([c.boundary_bytes for c in priced]),
        tuple(lives([c.live[k] for c in priced]) for k in kinds),
        tuple(lives([c.live_whole[k] for c in priced]) for k in kinds),
        lives([c.live_embedding for c in priced]),
        lives([c.live_head for c in priced]),
        join([c.wide_logits_bytes for c in priced]),
    )


def join_pieces(found: Sequence[PieceCost], join: Callable[[Sequence[Size]], Size]) -> PieceCost:
    """Pieces as one, size by size: tables by key, where one that is not there counts nothing."""
    made: dict[str, Any] = {}
    for name in _FIELDS:
        values = [getattr(piece, name) for piece in found]
        if isinstance(values[0], dict):
            keys = dict.fromkeys(key for table in values for key in table)
            made[name] = {key: join([table.get(key, 0.0) for table in values]) for key in keys}
        else:
            made[name] = join(values)
    return PieceCost(**made)


_FIELDS: Final = tuple(field.name for field in fields(PieceCost))


def training_pass(plan: Plan, seq: int) -> Pass:
    """One micro-batch in the plan's dtype."""
    bits = plan.wide_bytes * BITS_PER_BYTE
    stream = BYTES[plan.stream_dtype] * BITS_PER_BYTE if plan.stream_dtype else 0.0
    return Pass(plan.micro_batch, float(seq), dtype=plan.wide_dtype, bits=bits, stream_bits=stream)


def program_costs(program: Program, clock: Clock | None, placement: Placement) -> Costs:
    """Price every graph of a program, if there is a clock."""
    graphs = [*program.recomputing, program.embedding, program.head]
    prices = clock.price(graphs, placement) if clock else [Priced() for _ in graphs]
    pieces = [_piece(graph, price) for graph, price in zip(graphs, prices, strict=True)]
    *blocks, embedding, head = pieces
    kept = [total_bytes(graph.kept_tensors) for graph in program.blocks]
    return Costs(
        tuple(blocks),
        tuple(kept),
        embedding,
        head,
        program.blocks[0].result.bytes,
        program.alive.recomputing,
        program.alive.blocks,
        program.alive.embedding,
        program.alive.head,
        _wide_logits_bytes(program.head),
    )


def _wide_logits_bytes(head: Graph) -> Size:
    losses = (node for node in head.forward if isinstance(node, Op))
    return next((op.outputs[1].bytes for op in losses if op.kind is Kind.CROSS_ENTROPY), 0.0)


def _piece(graph: Graph, priced: Priced) -> PieceCost:
    trained = [weight for weight in graph.weights if weight.role is Role.WEIGHT]
    frozen = [weight for weight in graph.weights if weight.role is Role.FROZEN]
    dense: Size = 0.0
    experts: Size = 0.0
    for weight in trained:
        if weight.has("experts"):
            experts = experts + weight.elements
        else:
            dense = dense + weight.elements
    table = [w for w in graph.weights if graph.name == "head" and w.name == "embedding.tokens"]
    tensors = _tensors(graph)
    return PieceCost(
        **{field.name: getattr(priced, field.name) for field in fields(Priced)},
        dense_parameters=dense,
        expert_parameters=experts,
        frozen_parameters=summed(weight.elements for weight in frozen),
        frozen_bytes=total_bytes(tuple(w for w in frozen if not w.has("experts"))),
        frozen_expert_bytes=total_bytes(tuple(w for w in frozen if w.has("experts"))),
        weight_bytes=total_bytes(graph.weights),
        weight_tensors=float(len(tensors)),
        weight_modules=float(sum(not name.endswith(".bias") for name in tensors)),
        tied_parameters=summed(w.elements for w in table if w in trained),
        tied_bytes=summed(w.bytes for w in table if w in frozen),
        kept_bytes=total_bytes(graph.kept_tensors),
        trained=tensor_sizes(w for w in trained if w not in table),
    )


def _tensors(graph: Graph) -> list[str]:
    """Weights as the family's code holds them: those that are packed into one have its name."""
    ops = [node for node in graph.forward if isinstance(node, Op) and "packed" in node.facts]
    packed = {w.name for op in ops for w in op.weights}
    packed -= {name for op in ops for name in (op.name, f"{op.name}.bias")}
    return [weight.name for weight in graph.weights if weight.name not in packed]
