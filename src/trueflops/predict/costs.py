"""What one rank's blocks, embedding and head cost, computed once per distinct shape of work.

Of a million plans only a few hundred differ in what a rank computes (tp, cp, ep, etp and the
micro-batch); all others combine the same costs differently. In: a Program and a Clock.
Out: Costs, whose arrays have one element per distinct shape, and where each plan finds its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trueflops.clock import Clock, Placement, Priced
from trueflops.graph import Graph, Op, Pass, Program, compile_program
from trueflops.graph.program import SHAPING
from trueflops.graph.rules import total_bytes
from trueflops.model import Model
from trueflops.plan import Plan
from trueflops.sizes import Size, distinct

CAUSES: Final = ("matmul", "experts", "attention", "memory", "tp", "cp", "ep", "etp")
PHASES: Final = ("forward", "recompute", "backward", "backward_weight")


@dataclass(frozen=True)
class PieceCost:
    """One graph on one rank, for one micro-batch."""

    seconds: dict[tuple[str, str], Size]  # (phase, cause)
    matrix_flop: dict[str, Size]  # by phase
    moved_bytes: dict[str, Size]
    kernels: dict[str, float]
    dense_parameters: Size  # elements held by this rank, unsharded by ZeRO
    expert_parameters: Size
    weight_bytes: Size  # in the width they are stored in
    tied_parameters: Size  # of the dense ones: a head's share of the embedding's table
    kept_bytes: Size  # per micro-batch, until its backward
    working_bytes: Size  # alive only while the hungriest op runs

    def of(self, phase: str) -> Size:
        """Seconds of a phase."""
        total: Size = 0.0
        for (at, _), seconds in self.seconds.items():
            if at == phase:
                total = total + seconds
        return total


@dataclass(frozen=True)
class Costs:
    """Every piece of the model. A block that recomputes keeps its own `kept_bytes`, one that does
    not `kept_whole`; only the first spends the seconds of phase `recompute`.
    """

    blocks: tuple[PieceCost, ...]
    kept_whole: tuple[Size, ...]
    embedding: PieceCost
    head: PieceCost
    boundary_bytes: Size  # activation handed from stage to stage, per micro-batch

    def pieces(self, model: Model) -> Iterator[tuple[PieceCost, int]]:
        """Every piece with how often the model holds it."""
        yield self.embedding, 1
        for kind, block in enumerate(self.blocks):
            yield block, model.pattern.count(kind)
        yield self.head, 1

    def spread(self, which: NDArray[np.intp]) -> Costs:
        """One element per plan instead of one per distinct shape."""

        def take(size: Size) -> Size:
            return size if np.ndim(size) == 0 else np.asarray(size)[which]

        return Costs(
            tuple(_map(b, take) for b in self.blocks),
            tuple(take(kept) for kept in self.kept_whole),
            _map(self.embedding, take),
            _map(self.head, take),
            take(self.boundary_bytes),
        )


@dataclass(frozen=True)
class KeyedCosts:
    """Costs per distinct shape of work, and which shape each plan has."""

    costs: Costs
    which: NDArray[np.intp] | None  # None: all plans share one shape

    def spread(self, part: slice = slice(None)) -> Costs:
        """Costs with one element per plan, for all plans or a part of them."""
        return self.costs if self.which is None else self.costs.spread(self.which[part])


def training_costs(model: Model, plan: Plan, seq: int, clock: Clock) -> KeyedCosts:
    """Price a training micro-batch for each distinct shape of work."""
    keys, which = distinct([getattr(plan, name) for name in SHAPING])
    columns = {
        name: keys[:, i] if len(keys) > 1 else float(keys[0, i]) for i, name in enumerate(SHAPING)
    }
    shaped = plan.but(**columns)
    program = compile_program(model, shaped, training_pass(shaped, seq))
    costs = program_costs(program, clock, Placement.of(shaped))
    return KeyedCosts(costs, which if len(keys) > 1 else None)


def training_pass(plan: Plan, seq: int) -> Pass:
    """One micro-batch in the plan's dtype."""
    bits = 32.0 if plan.wide_dtype in ("fp32", "tf32") else 16.0
    return Pass(plan.micro_batch, float(seq), dtype=plan.wide_dtype, bits=bits)


def program_costs(program: Program, clock: Clock, placement: Placement) -> Costs:
    """Price every graph of a program."""
    graphs = [*program.lean, program.embedding, program.head]
    pieces = [
        _piece(graph, price)
        for graph, price in zip(graphs, clock.price(graphs, placement), strict=True)
    ]
    *blocks, embedding, head = pieces
    kept = [total_bytes(graph.kept_tensors) for graph in program.blocks]
    return Costs(tuple(blocks), tuple(kept), embedding, head, program.blocks[0].result.bytes)


def _piece(graph: Graph, priced: Priced) -> PieceCost:
    dense: Size = 0.0
    experts: Size = 0.0
    tied: Size = 0.0
    for weight in graph.weights:
        if weight.has("experts"):
            experts = experts + weight.elements
        else:
            dense = dense + weight.elements
        if graph.name == "head" and weight.name == "embedding.tokens":
            tied = weight.elements
    return PieceCost(
        dict(priced.seconds),
        dict(priced.matrix_flop),
        dict(priced.moved_bytes),
        dict(priced.kernels),
        dense,
        experts,
        total_bytes(graph.weights),
        tied,
        total_bytes(graph.kept_tensors),
        _working_bytes(graph),
    )


def _working_bytes(graph: Graph) -> Size:
    """What the hungriest op holds beside weights and kept tensors: gradients, gathered inputs."""
    kept = {t.name for t in graph.kept_tensors}
    largest: Size = 0.0
    for node in graph:
        if isinstance(node, Op):
            own = {t.name: t for t in (*node.inputs, *node.outputs) if t.role != "weight"}
            largest = np.maximum(
                largest, total_bytes(tuple(t for name, t in own.items() if name not in kept))
            )
    return largest


def _map(piece: PieceCost, take: Callable[[Size], Size]) -> PieceCost:
    return PieceCost(
        {key: take(s) for key, s in piece.seconds.items()},
        {key: take(s) for key, s in piece.matrix_flop.items()},
        {key: take(s) for key, s in piece.moved_bytes.items()},
        piece.kernels,
        take(piece.dense_parameters),
        take(piece.expert_parameters),
        take(piece.weight_bytes),
        take(piece.tied_parameters),
        take(piece.kept_bytes),
        take(piece.working_bytes),
    )
