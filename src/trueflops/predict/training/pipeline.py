"""A micro-batch's way through the pipeline: part by part on average, and on the slowest stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from trueflops.clock import CLOCKED_CAUSES, Clock
from trueflops.model import Model
from trueflops.plan import Plan
from trueflops.predict.costs import Costs, PieceCost
from trueflops.predict.training.schedule import Dispatched, SlowestStage, pairs
from trueflops.predict.training.stages import Stages
from trueflops.runtime import Beside, Ran, StageSeconds, Stretch, run_closed
from trueflops.runtime.terms import at
from trueflops.sizes import Size, plain, weighs
from trueflops.tables import by_value, summed, where_largest

USEFUL: Final = ("forward", "backward", "backward_weight")
PHASES: Final = ("forward", "recompute", "backward", "backward_weight")


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """One micro-batch through all stages: on average, on the slowest, and what it is worth."""

    mean: Stretch
    usual: Ran  # the mean stage as it really runs
    slow: SlowestStage
    exposed: Mapping[str, Size]  # of the communication of each axis, the share that is waited for
    dispatched: Dispatched  # the mean stage's all-to-all of experts
    links: tuple[Size, ...]  # seconds for which each tier's links are busy, on the busiest stage
    work: StepWork  # of all micro-batches


def run_pipeline(
    costs: Costs, plan: Plan, model: Model, stages: Stages, clock: Clock, beside: Beside, m: Size
) -> Pipeline:
    """Every stage's work, as it really runs: untuned shapes, the host and the power cap added."""
    exposed = exposed_shares(plan, clock, m)
    mean = _mean_stage(costs, plan, model, stages, exposed)
    usual, each = (
        _run(work, plan, clock, beside, m)
        for work in (mean, _every_stage(costs, stages, exposed, clock.host.gap))
    )
    return Pipeline(
        mean=mean,
        usual=usual,
        slow=_slowest(each, stages),
        exposed=exposed,
        dispatched=Dispatched(
            mean.caused("ep", "forward"),
            mean.caused("ep", "recompute", "backward", "backward_weight"),
        ),
        links=_busiest_links(costs, stages),
        work=_step_work(costs, plan, model, stages, m, m * mean.joules, usual.clock_ratio),
    )


def run_pieces(
    costs: Costs, plan: Plan, pieces: Stages, clock: Clock, beside: Beside, m: Size
) -> list[StageSeconds]:
    """The same, piece by piece of a single plan: compute, and the all-to-all of experts."""
    work = _every_stage(costs, pieces, exposed_shares(plan, clock, m), clock.host.gap)
    part = 1.0 / plan.pieces  # of the update, which the power cap sees once a step
    beside = Beside(seconds=part * beside.seconds, joules=part * beside.joules)
    ran = _run(work, plan, clock, beside, m).seconds()
    whole, count = _OfStages(costs, pieces), pieces.index.shape[0]

    def rows(size: Size) -> list[float]:
        return [float(each) for each in np.broadcast_to(np.ravel(size), count)]

    sent = {phase: whole(lambda piece, at: piece.of_cause(at, "ep"), phase) for phase in PHASES}
    if plan.overlap_dispatch and not plan.bidirectional:  # what shows is no part of any one task
        sent = dict.fromkeys(PHASES, 0.0)
    own = {phase: ran[phase] - (0.0 if plan.pairs_dispatch else sent[phase]) for phase in PHASES}
    columns = (
        own["forward"],
        own["recompute"] + own["backward"],
        own["backward_weight"],
        sent["forward"],
        sent["recompute"] + sent["backward"] + sent["backward_weight"],
    )
    names = ("forward", "input", "weight", "forward_sent", "input_sent")
    return [
        StageSeconds(**dict(zip(names, row, strict=True)))
        for row in zip(*map(rows, columns), strict=True)
    ]


def _run(work: Stretch, plan: Plan, clock: Clock, beside: Beside, m: Size) -> Ran:
    return run_closed(
        work,
        clock.power,
        gap=clock.host.gap,
        lost=1.0 / clock.profile.curve("models")["typical"] - 1.0,
        shared=_shared(plan, clock, m),
        beside=beside,
        blocking=plan.launch_blocking or clock.chip.is_cpu,
    )


def _shared(plan: Plan, clock: Clock, m: Size) -> Size:
    """By how much compute takes longer as kernels of the all-to-all run beside it, on units that
    it then lacks (DeepSeek-V3, arXiv 2412.19437 §3.2.2).
    """
    if not plan.pairs_dispatch:
        return 0.0
    taken = clock.profile.curve("framework")["dispatch_units"]
    slower = taken / np.maximum(clock.silicon.units - taken, 1.0)
    return slower * np.where(plan.ep > 1, pairs(plan, m) / m, 0.0)


def exposed_shares(plan: Plan, clock: Clock, m: Size | None = None) -> dict[str, Size]:
    """How much of a communication inside a layer makes its stage wait; the least, where nobody says
    of how many micro-batches.

    Split into pieces, a product can begin on those that have arrived (collective matmul).
    DualPipe's point, and Megatron's overlapped dispatch: a forward's all-to-all runs beside another
    micro-batch's backward; what then shows of it is counted apart. Megatron's others wait for it.
    """
    hidden = clock.profile.curve("framework")["hidden_tp"]
    alone: Size = 0.0 if plan.pairs_dispatch else 1.0
    if plan.overlap_dispatch and not plan.bidirectional and m is not None:
        alone = 1.0 - pairs(plan, m) / m
    return {"tp": 1.0 - hidden, "ep": alone}


def _mean_stage(
    costs: Costs, plan: Plan, model: Model, stages: Stages, exposed: Mapping[str, Size]
) -> Stretch:
    """The average stage: all layers, divided over the stages."""
    share = stages.recomputed_on_average
    by_cause: dict[tuple[str, str], Size] = {}
    seconds: dict[str, Size] = dict.fromkeys(PHASES, 0.0)
    clocked: dict[str, Size] = dict.fromkeys(PHASES, 0.0)
    kernels: dict[str, Size] = dict.fromkeys(PHASES, 0.0)
    host: dict[str, Size] = dict.fromkeys(PHASES, 0.0)
    joules: Size = 0.0
    for piece, times in costs.pieces(model):
        for key, value in piece.seconds.items():
            weight = times * share if key[0] == "recompute" else times
            by_cause[key] = by_cause.get(key, 0.0) + weight * value / plan.pp
        for phase, count in piece.kernels.items():
            weight = times * share if phase == "recompute" else times
            kernels[phase] = kernels[phase] + weight * count / plan.pp
            host[phase] = host[phase] + weight * piece.host[phase] / plan.pp
            joules = joules + weight * piece.joules.get(phase, 0.0) / plan.pp
    for (phase, cause), value in by_cause.items():
        seconds[phase] = seconds[phase] + value * exposed.get(cause, 1.0)
        if cause in CLOCKED_CAUSES:
            clocked[phase] = clocked[phase] + value
    return Stretch(
        seconds=seconds, clocked=clocked, kernels=kernels, host=host, joules=joules,
        by_cause=by_cause,
    )  # fmt: skip


class _OfStages:
    """Sums over the pieces of each stage, [stage, plan]."""

    def __init__(self, costs: Costs, stages: Stages) -> None:
        self.costs, self.stages = costs, stages

    def __call__(self, of: Callable[[PieceCost, str], Size], phase: str) -> Size:
        """One size of one phase, of which only some layers run the recomputation."""
        costs, stages = self.costs, self.stages
        found: Size = 0.0
        heads = stages.last * stages.heads
        for held, piece in ((stages.first, costs.embedding), (heads, costs.head)):
            size = of(piece, phase)
            if weighs(size):
                found = found + held * size
        for layers, block in zip(stages.layers, costs.blocks, strict=True):
            size = of(block, phase)
            if weighs(size):
                held = layers * stages.recomputed if phase == "recompute" else layers
                found = found + held * size
        return found


def _every_stage(costs: Costs, stages: Stages, exposed: Mapping[str, Size], gap: float) -> Stretch:
    """Every stage, [stage, plan]. Kernels are counted only where there is a gap between them."""
    whole = _OfStages(costs, stages)

    def of_phases(name: str) -> dict[str, Size]:
        return {phase: whole(_table(name), phase) for phase in PHASES}

    return Stretch(
        seconds={phase: whole(lambda piece, at: piece.of(at, exposed), phase) for phase in PHASES},
        clocked={phase: whole(PieceCost.clocked, phase) for phase in PHASES},
        kernels=dict.fromkeys(PHASES, 0.0) if not gap else of_phases("kernels"),
        host=of_phases("host"),
        joules=whole(_useful_joules, "useful") + whole(_table("joules"), "recompute"),
    )


def _useful_joules(piece: PieceCost, _: str) -> Size:
    return summed(piece.joules.get(phase, 0.0) for phase in USEFUL)


def _table(name: str) -> Callable[[PieceCost, str], Size]:
    return lambda piece, phase: getattr(piece, name).get(phase, 0.0)


def _busiest_links(costs: Costs, stages: Stages) -> tuple[Size, ...]:
    """Seconds for which a micro-batch keeps each tier's links busy, on the stage that does most."""
    whole = _OfStages(costs, stages)
    busy: dict[int, Size] = {}
    keys = {key for piece in (*costs.blocks, costs.embedding, costs.head) for key in piece.links}
    for phase, tier in sorted(keys):
        busy[tier] = busy.get(tier, 0.0) + whole(_link(tier), phase)
    return tuple(plain(np.max(busy[tier], axis=0)) for tier in sorted(busy))


def _link(tier: int) -> Callable[[PieceCost, str], Size]:
    return lambda piece, phase: piece.links.get((phase, tier), 0.0)


def _slowest(ran: Ran, stages: Stages) -> SlowestStage:
    """Find it among all stages as they really run."""
    chosen = where_largest(ran.total, "slowest stage")
    return SlowestStage(
        seconds=ran.seconds(chosen),
        layers=by_value(chosen(stages.all_layers), "layers of the slowest", stages.index),
    )


@dataclass(frozen=True, kw_only=True)
class StepWork:
    """What an accelerator does in one step, on average over the stages."""

    # 3 × the forward's matmuls and causal attention, the same for every plan; of frozen weights
    # without the gradients that they do not have
    model_flop: Size
    hardware_flop: Size  # all that is computed: recomputation, masked keys, flash's extra product
    peak_seconds: Size  # the latter at the peak of each op's dtype
    joules: Size  # at full clock, beside what the chip draws anyway
    clock_ratio: Size  # the share of its clock that the power cap leaves

    def pick(self, index: int) -> StepWork:
        """The work of one plan out of many."""
        return StepWork(**{f.name: at(getattr(self, f.name), index) for f in fields(self)})


def _step_work(
    costs: Costs,
    plan: Plan,
    model: Model,
    stages: Stages,
    micro_batches: Size,
    joules: Size,
    clock_ratio: Size,
) -> StepWork:
    """Sum the work of all layers and divide it over the stages."""
    share = stages.recomputed_on_average
    needed: Size = 0.0
    done: Size = 0.0
    at_peak: Size = 0.0
    for piece, times in costs.pieces(model):
        useful = summed(piece.matrix_flop.get(phase, 0.0) for phase in USEFUL)
        needed = needed + times * np.minimum(3.0 * piece.model_flop, useful)
        for phase in (*USEFUL, "recompute"):
            weight = times * share if phase == "recompute" else times
            done = done + weight * piece.matrix_flop.get(phase, 0.0)
            at_peak = at_peak + weight * piece.peak_seconds.get(phase, 0.0)
    each = micro_batches / plan.pp
    return StepWork(
        model_flop=needed * each,
        hardware_flop=done * each,
        peak_seconds=at_peak * each,
        joules=joules,
        clock_ratio=clock_ratio,
    )
