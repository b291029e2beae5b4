"""A micro-batch's way through the pipeline: part by part on average, and on the slowest stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from trueflops.clock import CLOCKED_CAUSES
from trueflops.model import Model
from trueflops.plan import Plan
from trueflops.predict.costs import Costs, PieceCost
from trueflops.predict.stages import Stages, recomputed_share
from trueflops.runtime import Ran, Stretch
from trueflops.sizes import Size, summed

USEFUL: Final = ("forward", "backward", "backward_weight")
PHASES: Final = ("forward", "recompute", "backward", "backward_weight")


def mean_stage(costs: Costs, plan: Plan, model: Model, exposed: Mapping[str, float]) -> Stretch:
    """One micro-batch on the average stage: all layers, divided over the stages.

    `exposed` is the share of each cause that its stage waits for.
    """
    share = recomputed_share(plan, model.layers / plan.pp)
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

    def __init__(self, costs: Costs, plan: Plan, stages: Stages) -> None:
        self.costs, self.stages = costs, stages
        self.share = stages.recomputed(plan)

    def __call__(self, of: Callable[[PieceCost, str], Size], phase: str) -> Size:
        """One size of one phase, of which only some layers run the recomputation."""
        weight = self.share if phase == "recompute" else 1.0
        found = self.stages.first * of(self.costs.embedding, phase)
        found = found + self.stages.last * of(self.costs.head, phase)
        for layers, block in zip(self.stages.layers, self.costs.blocks, strict=True):
            found = found + layers * weight * of(block, phase)
        return found


def every_stage_work(
    costs: Costs, plan: Plan, stages: Stages, exposed: Mapping[str, float]
) -> Stretch:
    """One micro-batch on every stage, [stage, plan]."""
    whole = _OfStages(costs, plan, stages)
    return Stretch(
        seconds={phase: whole(lambda piece, at: piece.of(at, exposed), phase) for phase in PHASES},
        clocked={phase: whole(PieceCost.clocked, phase) for phase in PHASES},
        kernels={phase: whole(_table("kernels"), phase) for phase in PHASES},
        host={phase: whole(_table("host"), phase) for phase in PHASES},
        joules=summed(whole(_table("joules"), phase) for phase in PHASES),
    )


def _table(name: str) -> Callable[[PieceCost, str], Size]:
    return lambda piece, phase: getattr(piece, name).get(phase, 0.0)


def busiest_links(costs: Costs, plan: Plan, stages: Stages) -> tuple[Size, ...]:
    """Seconds for which a micro-batch keeps each tier's links busy, on the stage that does most."""
    whole = _OfStages(costs, plan, stages)
    busy: dict[int, Size] = {}
    keys = {key for piece in (*costs.blocks, costs.embedding, costs.head) for key in piece.links}
    for phase, tier in sorted(keys):
        busy[tier] = busy.get(tier, 0.0) + whole(_link(tier), phase)
    return tuple(np.max(busy[tier], axis=0) for tier in sorted(busy))


def _link(tier: int) -> Callable[[PieceCost, str], Size]:
    return lambda piece, phase: piece.links.get((phase, tier), 0.0)


@dataclass(frozen=True)
class SlowestStage:
    """The stage that sets the pace, plan by plan: its phases, and how many layers it has."""

    seconds: dict[str, Size]
    layers: Size


def slowest_stage(ran: Ran, stages: Stages) -> SlowestStage:
    """Find it among all stages as they really run."""
    whole = np.asarray(ran.total)
    at = np.argmax(whole, axis=0)[None]

    def chosen(rows: Size) -> Size:
        return np.take_along_axis(np.broadcast_to(rows, whole.shape), at, axis=0)[0]

    return SlowestStage(
        {phase: chosen(size) for phase, size in ran.seconds.items()},
        chosen(stages.all_layers),
    )


@dataclass(frozen=True)
class StepWork:
    """What an accelerator does in one step, on average over the stages."""

    model_flop: Size  # 3 × the forward's matmuls and causal attention: the same for every plan
    hardware_flop: Size  # all that is computed: recomputation, masked keys, flash's extra product
    peak_seconds: Size  # the latter at the peak of each op's dtype
    joules: Size  # at full clock, beside what the chip draws anyway
    clock_ratio: Size  # the share of its clock that the power cap leaves

    def pick(self, index: int) -> StepWork:
        """The work of one plan out of many."""
        values = (
            self.model_flop, self.hardware_flop, self.peak_seconds, self.joules, self.clock_ratio
        )  # fmt: skip
        return StepWork(*(float(np.ravel(v)[index % np.size(v)]) for v in values))


def step_work(
    costs: Costs, plan: Plan, model: Model, micro_batches: Size, joules: Size, clock_ratio: Size
) -> StepWork:
    """Sum the work of all layers and divide it over the stages."""
    share = recomputed_share(plan, model.layers / plan.pp)
    needed: Size = 0.0
    done: Size = 0.0
    at_peak: Size = 0.0
    for piece, times in costs.pieces(model):
        needed = needed + 3.0 * times * piece.model_flop
        for phase in (*USEFUL, "recompute"):
            weight = times * share if phase == "recompute" else times
            done = done + weight * piece.matrix_flop.get(phase, 0.0)
            at_peak = at_peak + weight * piece.peak_seconds.get(phase, 0.0)
    each = micro_batches / plan.pp
    return StepWork(needed * each, done * each, at_peak * each, joules, clock_ratio)
