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
from trueflops.predict.memory import recomputed_share
from trueflops.predict.slowing import Slowed, StageWork, summed
from trueflops.predict.stages import Stages
from trueflops.sizes import Size

USEFUL: Final = ("forward", "backward", "backward_weight")
PHASES: Final = ("forward", "recompute", "backward", "backward_weight")


@dataclass(frozen=True)
class MeanStage:
    """One micro-batch on the average stage: seconds by (phase, cause)."""

    seconds: dict[tuple[str, str], Size]
    kernels: dict[str, Size]
    joules: Size  # at full clock

    def caused(self, cause: str, *phases: str) -> Size:
        """Seconds of one cause in some phases."""
        found: Size = 0.0
        for phase in phases:
            found = found + self.seconds.get((phase, cause), 0.0)
        return found

    @property
    def total(self) -> Size:
        """All phases and causes."""
        found: Size = 0.0
        for seconds in self.seconds.values():
            found = found + seconds
        return found

    def work(self, shown: Mapping[str, float]) -> StageWork:
        """The same by phase, of each cause what is `shown`."""
        seconds: dict[str, Size] = dict.fromkeys(PHASES, 0.0)
        clocked: dict[str, Size] = dict.fromkeys(PHASES, 0.0)
        for (phase, cause), value in self.seconds.items():
            seconds[phase] = seconds[phase] + value * shown.get(cause, 1.0)
            if cause in CLOCKED_CAUSES:
                clocked[phase] = clocked[phase] + value
        kernels = {phase: self.kernels.get(phase, 0.0) for phase in PHASES}
        return StageWork(seconds, clocked, kernels, self.joules)


def mean_stage(costs: Costs, plan: Plan, model: Model) -> MeanStage:
    """All layers, divided over the stages."""
    share = recomputed_share(plan, model.layers / plan.pp)
    seconds: dict[tuple[str, str], Size] = {}
    kernels: dict[str, Size] = {}
    joules: Size = 0.0
    for piece, times in costs.pieces(model):
        for key, value in piece.seconds.items():
            weight = times * share if key[0] == "recompute" else times
            seconds[key] = seconds.get(key, 0.0) + weight * value / plan.pp
        for phase, count in piece.kernels.items():
            weight = times * share if phase == "recompute" else times
            kernels[phase] = kernels.get(phase, 0.0) + weight * count / plan.pp
            joules = joules + weight * piece.joules.get(phase, 0.0) / plan.pp
    return MeanStage(seconds, kernels, joules)


class _OfStages:
    """Sums over the pieces of each stage, [stage, plan]."""

    def __init__(self, costs: Costs, plan: Plan, stages: Stages) -> None:
        self.costs, self.stages = costs, stages
        self.share = recomputed_share(plan, stages.all_layers)

    def __call__(self, of: Callable[[PieceCost, str], Size], phase: str) -> Size:
        """One size of one phase, of which only some layers run the recomputation."""
        weight = self.share if phase == "recompute" else 1.0
        found = self.stages.first * of(self.costs.embedding, phase)
        found = found + self.stages.last * of(self.costs.head, phase)
        for layers, block in zip(self.stages.layers, self.costs.blocks, strict=True):
            found = found + layers * weight * of(block, phase)
        return found


def stage_work(costs: Costs, plan: Plan, stages: Stages, shown: Mapping[str, float]) -> StageWork:
    """The work of every stage, [stage, plan]."""
    whole = _OfStages(costs, plan, stages)
    return StageWork(
        {phase: whole(lambda piece, at: piece.of(at, shown), phase) for phase in PHASES},
        {phase: whole(PieceCost.clocked, phase) for phase in PHASES},
        {phase: whole(lambda piece, at: piece.kernels.get(at, 0.0), phase) for phase in PHASES},
        summed(
            {phase: whole(lambda piece, at: piece.joules.get(at, 0.0), phase) for phase in PHASES}
        ),
    )


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


def slowest_stage(slowed: Slowed, stages: Stages) -> SlowestStage:
    """Find it among all stages as they really run."""
    whole = np.asarray(slowed.total)
    at = np.argmax(whole, axis=0)[None]

    def chosen(rows: Size) -> Size:
        return np.take_along_axis(np.broadcast_to(rows, whole.shape), at, axis=0)[0]

    return SlowestStage(
        {phase: chosen(size) for phase, size in slowed.seconds.items()},
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
