"""The slowest stage of a pipeline, part by part, and a micro-batch's way through all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from trueflops.model import Model
from trueflops.plan import Plan
from trueflops.predict.costs import Costs, PieceCost
from trueflops.predict.memory import recomputed_share
from trueflops.predict.stages import Stages
from trueflops.sizes import Size

USEFUL: Final = ("forward", "backward", "backward_weight")


@dataclass(frozen=True)
class SlowestStage:
    """One micro-batch on the slowest stage: seconds by (phase, cause)."""

    seconds: dict[tuple[str, str], Size]
    layers: Size
    kernels: Size
    total: Size

    def of(self, *phases: str) -> Size:
        """Seconds of some phases."""
        found: Size = 0.0
        for (phase, _), seconds in self.seconds.items():
            if phase in phases:
                found = found + seconds
        return found

    def caused(self, cause: str, *phases: str) -> Size:
        """Seconds of one cause in some phases."""
        found: Size = 0.0
        for phase in phases:
            found = found + self.seconds.get((phase, cause), 0.0)
        return found


def slowest_stage(costs: Costs, plan: Plan, stages: Stages) -> SlowestStage:
    """Find the slowest stage of each plan, then sum its parts."""
    share = recomputed_share(plan, stages.all_layers)
    time = stages.first * _useful(costs.embedding) + stages.last * _useful(costs.head)
    for layers, block in zip(stages.layers, costs.blocks, strict=True):
        time = time + layers * (_useful(block) + share * block.of("recompute"))
    at = np.argmax(time, axis=0)[None]

    def chosen(rows: Size) -> Size:
        return np.take_along_axis(np.broadcast_to(rows, time.shape), at, axis=0)[0]

    first, last, share = chosen(stages.first), chosen(stages.last), chosen(share)
    seconds: dict[tuple[str, str], Size] = {}
    kernels: Size = 0.0
    pieces = [(costs.embedding, first), (costs.head, last)]
    pieces += [(b, chosen(n)) for b, n in zip(costs.blocks, stages.layers, strict=True)]
    for piece, times in pieces:
        for key, value in piece.seconds.items():
            weight = times * share if key[0] == "recompute" else times
            seconds[key] = seconds.get(key, 0.0) + weight * value
        for phase, count in piece.kernels.items():
            kernels = kernels + (times * share if phase == "recompute" else times) * count
    return SlowestStage(seconds, chosen(stages.all_layers), kernels, np.max(time, axis=0))


def whole_model_seconds(costs: Costs, plan: Plan, model: Model) -> Size:
    """One micro-batch through all stages, forward and back."""
    share = recomputed_share(plan, model.layers / plan.pp)
    time: Size = 0.0
    for piece, times in costs.pieces(model):
        time = time + times * (_useful(piece) + share * piece.of("recompute"))
    return time


@dataclass(frozen=True)
class StepWork:
    """What an accelerator does in one step, on average over the stages."""

    model_flop: Size  # 3 × the forward's matmuls and causal attention: the same for every plan
    hardware_flop: Size  # all that is computed: recomputation, masked keys, flash's extra product
    peak_seconds: Size  # the latter at the peak of each op's dtype
    moved_bytes: Size

    def pick(self, index: int) -> StepWork:
        """The work of one plan out of many."""
        values = (self.model_flop, self.hardware_flop, self.peak_seconds, self.moved_bytes)
        return StepWork(*(float(np.ravel(v)[index % np.size(v)]) for v in values))


def step_work(costs: Costs, plan: Plan, model: Model, micro_batches: Size) -> StepWork:
    """Sum the work of all layers and divide it over the stages."""
    share = recomputed_share(plan, model.layers / plan.pp)
    needed: Size = 0.0
    done: Size = 0.0
    at_peak: Size = 0.0
    moved: Size = 0.0
    for piece, times in costs.pieces(model):
        needed = needed + 3.0 * times * piece.model_flop
        for phase in (*USEFUL, "recompute"):
            weight = times * share if phase == "recompute" else times
            done = done + weight * piece.matrix_flop.get(phase, 0.0)
            at_peak = at_peak + weight * piece.peak_seconds.get(phase, 0.0)
            moved = moved + weight * piece.moved_bytes.get(phase, 0.0)
    each = micro_batches / plan.pp
    return StepWork(needed * each, done * each, at_peak * each, moved * each)


def _useful(piece: PieceCost) -> Size:
    return piece.of("forward") + piece.of("backward") + piece.of("backward_weight")
