"""Every op of a step, or of a pass of a server, one by one: its work, its seconds, how often.

In: a Trainer and a step, or a Server and a pass. Out: RanOp and RanCollective, in the order in
which a rank runs them. Prices are the clock's, asked for once more op by op; provenance.py sums
them by curve, report/ops.py shows each under the chip's roofs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from trueflops.clock import Clock, PricedOp
from trueflops.clock.collectives import Placement
from trueflops.graph import Graph, Op, compile_program
from trueflops.graph.ir import Collective
from trueflops.plan import Plan
from trueflops.predict.costs import training_pass
from trueflops.predict.explain.kernel import one
from trueflops.predict.kernels import limits_alone
from trueflops.predict.training.stages import recomputed_share
from trueflops.predict.training.step import TrainingStep
from trueflops.predict.training.trainer import Trainer
from trueflops.profile import CurveKey
from trueflops.runtime.terms import Estimate

if TYPE_CHECKING:  # of `infer` alone
    from trueflops.graph import Program
    from trueflops.predict.serving import Server, ServingPoint


class _Run(NamedTuple):
    """A graph and how often it runs."""

    where: str  # block, embedding, head
    graph: Graph
    often: float
    again: float = 1.0  # of its recomputation: the share of layers that do


@dataclass(frozen=True)
class RanOp:
    """One kernel of a step, alone on the accelerator."""

    where: str
    phase: str
    op: Op
    priced: PricedOp
    often: float  # in a step on the average stage, or in a pass

    @property
    def key(self) -> CurveKey:
        """The curve that it asked for."""
        return self.priced.pricing.key

    @property
    def seconds(self) -> Estimate:
        """Of one run of it."""
        curve, kind = self.priced.curve, self.priced.pricing.kind
        value, least = float(self.priced.seconds), float(self.priced.least)
        return Estimate(value, {kind: curve.error}, curve.origin, min(least, value))

    @property
    def flop(self) -> float:
        """Of one run of it."""
        return float(self.priced.work.flop)

    @property
    def moved_bytes(self) -> float:
        """That it must read and write at least."""
        return float(self.priced.work.bytes_read + self.priced.work.bytes_written)

    def bound(self, clock: Clock) -> str:
        """The limit that alone would take longest."""
        limits = limits_alone(clock, self.op, self.priced)
        return max(limits, key=lambda name: one(limits[name]))


@dataclass(frozen=True)
class RanCollective:
    """One collective of a step, alone on its links."""

    where: str
    phase: str
    sent: Collective
    seconds: Estimate
    often: float

    @property
    def key(self) -> CurveKey:
        """The curve that priced it."""
        return key_of(self.sent)


Ran = RanOp | RanCollective


def step_ops(trainer: Trainer, step: TrainingStep) -> list[Ran]:
    """What the average pipeline stage runs in a step."""
    plan, model = step.plan, trainer.model
    program = compile_program(model, plan, training_pass(plan, trainer.workload.seq))
    counts = [model.pattern.count(kind) for kind in range(len(program.recomputing))]
    graphs = (*program.recomputing, program.embedding, program.head)
    again = float(recomputed_share(plan, model.layers / plan.pp))
    runs = [
        _Run(where, graph, float(layers * step.micro_batches / plan.pp), again)
        for where, graph, layers in zip(_places(len(counts)), graphs, (*counts, 1, 1), strict=True)
    ]
    return _priced(trainer.clock, runs, plan)


def serving_ops(server: Server, point: ServingPoint) -> dict[str, list[Ran]]:
    """What one replica runs in a decode step, and in one that reads (a chunk of) a prompt."""
    return {
        "decode": pass_ops(server, server.decode_program(point.plan, point.running), point.plan),
        "prefill": pass_ops(server, server.prefill_program(point.plan), point.plan),
    }


def pass_ops(server: Server, program: Program, plan: Plan) -> list[Ran]:
    """A forward pass through all layers."""
    counts = [server.model.pattern.count(kind) for kind in range(len(program.blocks))]
    graphs = (*program.blocks, program.embedding, program.head)
    runs = [
        _Run(where, graph, float(layers))
        for where, graph, layers in zip(_places(len(counts)), graphs, (*counts, 1, 1), strict=True)
    ]
    return _priced(server.clock, runs, plan, ("forward",))


def key_of(sent: Collective) -> CurveKey:
    """The curve that prices a collective."""
    return CurveKey("collective", operation=sent.kind, kernel=sent.library)


def _places(kinds: int) -> list[str]:
    """Names of a program's graphs; blocks are numbered where there are several kinds of them."""
    blocks = ["block"] if kinds == 1 else [f"block {kind}" for kind in range(kinds)]
    return [*blocks, "embedding", "head"]


def _priced(
    clock: Clock, runs: Sequence[_Run], plan: Plan, phases: Iterable[str] = ()
) -> list[Ran]:
    """Each distinct node priced once; those of some phases, or of all."""
    only = set(phases)
    nodes = [
        (run, phase, node)
        for run in runs
        for phase, node in run.graph.phases()
        if not only or phase in only
    ]
    ops = list({id(node): node for _, _, node in nodes if isinstance(node, Op)}.values())
    # A change of layout moves nothing.
    sent = [node for _, _, node in nodes if isinstance(node, Collective) and node.kind != "copy"]
    each = dict(zip(map(id, ops), clock.price_ops(ops), strict=True))
    moved = dict(zip(map(id, sent), clock.transfers(sent, Placement.of(plan)), strict=True))
    found: list[Ran] = []
    for run, phase, node in nodes:
        often = run.often * (run.again if phase == "recompute" else 1.0)
        if isinstance(node, Op):
            found.append(RanOp(run.where, phase, node, each[id(node)], often))
        elif id(node) in moved:
            curve, taken = clock.profile.curve(key_of(node)), float(moved[id(node)].seconds)
            seconds = Estimate(taken, {"collective": curve.error}, curve.origin)
            found.append(RanCollective(run.where, phase, node, seconds, often))
    return found
