"""A micro-batch's way through the pipeline: part by part on average, and on the slowest stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from trueflops.clock import CLOCKED_CAUSES
from trueflops.model import Model
from trueflops.plan import Plan
from trueflops.predict.costs import Costs
from trueflops.predict.memory import recomputed_share
from trueflops.predict.stages import Stages
from trueflops.sizes import Size

USEFUL: Final = ("forward", "backward", "backward_weight")


@dataclass(frozen=True)
class MeanStage:
    """One micro-batch on the average stage: seconds by (phase, cause)."""

    seconds: dict[tuple[str, str], Size]
    kernels: Size
    joules: Size  # at full clock

    def caused(self, cause: str, *phases: str) -> Size:
        """Seconds of one cause in some phases."""
        found: Size = 0.0
        for phase in phases:
            found = found + self.seconds.get((phase, cause), 0.0)
        return found

    @property
    def clocked(self) -> Size:
        """Seconds of matrix products, which follow the chip's clock."""
        found: Size = 0.0
        for (_, cause), seconds in self.seconds.items():
            if cause in CLOCKED_CAUSES:
                found = found + seconds
        return found

    @property
    def total(self) -> Size:
        """All phases and causes."""
        found: Size = 0.0
        for seconds in self.seconds.values():
            found = found + seconds
        return found


def mean_stage(costs: Costs, plan: Plan, model: Model) -> MeanStage:
    """All layers, divided over the stages."""
    share = recomputed_share(plan, model.layers / plan.pp)
    seconds: dict[tuple[str, str], Size] = {}
    kernels: Size = 0.0
    joules: Size = 0.0
    for piece, times in costs.pieces(model):
        for key, value in piece.seconds.items():
            weight = times * share if key[0] == "recompute" else times
            seconds[key] = seconds.get(key, 0.0) + weight * value / plan.pp
        for phase, count in piece.kernels.items():
            weight = times * share if phase == "recompute" else times
            kernels = kernels + weight * count / plan.pp
            joules = joules + weight * piece.joules[phase] / plan.pp
    return MeanStage(seconds, kernels, joules)


@dataclass(frozen=True)
class SlowestStage:
    """One micro-batch on the slowest stage: F, recomputation, B and W, and how many layers."""

    forward: Size
    recompute: Size
    backward: Size
    backward_weight: Size
    layers: Size

    @property
    def total(self) -> Size:
        """Forward and back."""
        return self.forward + self.recompute + self.backward + self.backward_weight


def slowest_stage(costs: Costs, plan: Plan, stages: Stages) -> SlowestStage:
    """Find the slowest stage of each plan."""
    share = recomputed_share(plan, stages.all_layers)
    phases = []
    for phase in ("forward", "recompute", "backward", "backward_weight"):
        weight = share if phase == "recompute" else 1.0
        time = stages.first * costs.embedding.of(phase) + stages.last * costs.head.of(phase)
        for layers, block in zip(stages.layers, costs.blocks, strict=True):
            time = time + layers * weight * block.of(phase)
        phases.append(time)
    whole = phases[0] + phases[1] + phases[2] + phases[3]
    at = np.argmax(whole, axis=0)[None]

    def chosen(rows: Size) -> Size:
        return np.take_along_axis(np.broadcast_to(rows, whole.shape), at, axis=0)[0]

    forward, again, backward, weights = (chosen(time) for time in phases)
    return SlowestStage(forward, again, backward, weights, chosen(stages.all_layers))


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
