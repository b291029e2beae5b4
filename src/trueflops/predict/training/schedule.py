"""Pipeline schedules: how long the bubble is and how many micro-batches are in flight.

With t_s the time of stage s for one micro-batch (forward F, input gradient B, weight gradient W),
m micro-batches and p stages, the bubble of one step is
    gpipe, 1f1b   Σ t_s − max t_s = (p−1)(F + B + W)    (Huang 2019; Narayanan 2021)
    interleaved   that, divided by vpp                  (Narayanan 2021 §2.2)
    zb-h1         (p−1)(F + B − W)                      (Qi 2024, arXiv 2401.10241 §2.3)
    zb-h2         (p−1)(F + B − 2W)
    zb-v          0 where F = B = W (§6); else (p−1) max(B − W, F − W, (B − F)/2)
    dualpipe      (p/2−1)(F&B + (B+W) − 3W)             (DeepSeek-V3, arXiv 2412.19437, table 2)
Zero-bubble schedules fill the gap with weight gradients, of which there are only m; their ranks
begin the next step without waiting for one another (Qi 2024 §4). The same by event simulation:
runtime/stepped.py, to which tests hold these formulas.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from trueflops.plan import Plan
from trueflops.sizes import Size
from trueflops.tables import summed


@dataclass(frozen=True, kw_only=True)
class SlowestStage:
    """The stage that sets the pace, plan by plan: its phases, and how many layers it has."""

    seconds: dict[str, Size]
    layers: Size

    @property
    def forward(self) -> Size:
        """Seconds of one forward."""
        return self.seconds["forward"]

    @property
    def input_gradient(self) -> Size:
        """Seconds of the gradient of its input, recomputation included."""
        return self.seconds["recompute"] + self.seconds["backward"]

    @property
    def weight_gradient(self) -> Size:
        """Seconds of the gradients of its weights."""
        return self.seconds["backward_weight"]

    @cached_property
    def backward(self) -> Size:
        """Seconds of one backward, recomputation included."""
        return self.total - self.forward

    @cached_property
    def total(self) -> Size:
        """Forward and back."""
        return summed(self.seconds.values())


class Dispatched(NamedTuple):
    """Seconds of the experts' all-to-all in one forward and one backward of a stage."""

    forward: Size = 0.0
    backward: Size = 0.0


NONE: Final = Dispatched()


def bubble_seconds(
    plan: Plan,
    micro_batches: Size,
    usual: Size,
    slowest: SlowestStage,
    dispatched: Dispatched = NONE,
) -> Size:
    """Idle time of the slowest stage; `usual` is a micro-batch's time on the average one."""
    f, b, w = slowest.forward, slowest.input_gradient, slowest.weight_gradient
    others = np.maximum(plan.pp - 1.0, 0.0)
    longest = np.maximum(slowest.total, usual)
    if plan.schedule == "zb-v":
        longer = np.maximum(np.maximum(b, f) - w, (b - f) / 2.0)
        # Ranks that are faster catch up with every micro-batch, so that the slowest waits less.
        return np.maximum(others * longer - micro_batches * (longest - usual), 0.0)
    if plan.bidirectional:
        path = dual_path(plan, micro_batches, slowest, dispatched)
        computed = path.forwards * f + path.backwards * b + path.weights * w
        return np.maximum(computed - (micro_batches - path.pairs) * (f + b + w), 0.0)
    whole = usual * plan.pp  # through all stages
    idle = np.maximum(whole - longest, 0.0)
    if plan.schedule == "zb-h1":
        return np.maximum(idle - np.minimum(2.0 * others, micro_batches) * w, 0.0)
    if plan.schedule == "zb-h2":
        return np.maximum(idle - np.minimum(3.0 * others, micro_batches) * w, 0.0)
    return idle / plan.vpp


class DualPath(NamedTuple):
    """The longest way through a step of DualPipe: what lies on it."""

    pairs: Size  # a forward beside a whole backward
    forwards: Size  # alone, as are
    backwards: Size  # input gradients, and
    weights: Size  # weight gradients


def dual_path(
    plan: Plan, micro_batches: Size, slowest: SlowestStage, dispatched: Dispatched = NONE
) -> DualPath:
    """Of the eight steps of the public schedule, with h = p/2 (github.com/deepseek-ai/DualPipe).

    Either way has m − h − 2 pairs and 3 weight gradients alone. One turns after 3h forwards and has
    2h + 1 backwards, the other 2h and 3h; where F = B the first is the bubble of table 2, where
    backwards are longer the second, which has one F less than the table.
    """
    half = plan.pp / 2.0
    forward = slowest.forward + dispatched.forward
    backward = slowest.input_gradient + dispatched.backward
    late = half * forward + backward >= half * backward  # 3h·F + (2h+1)·B ≥ 2h·F + 3h·B
    return DualPath(
        pairs=pairs(plan, micro_batches),
        forwards=np.where(late, 3.0, 2.0) * half,
        backwards=np.where(late, 2.0 * half + 1.0, 3.0 * half),
        weights=3.0,
    )


def pairs(plan: Plan, micro_batches: Size) -> Size:
    """Forwards that run beside a backward: on the longest way through a step of DualPipe; else on
    the mean stage, whose warm-up has nothing to run beside (megatron-core,
    pipeline_parallel/combined_1f1b.py; Megatron-LM's rule of how long that is: `in_flight`).
    """
    if plan.bidirectional:
        return np.maximum(micro_batches - plan.pp / 2.0 - 2.0, 0.0)
    others, pieces = plan.pp - 1.0, plan.pieces
    first = np.where(pieces > 1, others + (pieces - 1.0) * plan.pp, others / 2.0)
    return np.maximum(micro_batches - (first + 1.0) / pieces, 0.0)


def in_flight(plan: Plan, stage: Size, micro_batches: Size) -> Size:
    """Micro-batches whose activations a stage holds at its fullest, as multiples of all its layers.

    Interleaving holds more, each for one piece of the layers (Megatron-LM's warm-up rule). Where
    weight gradients come late, what they need is held until then: nearly all (Qi 2024, table 2).
    """
    pp, vpp = plan.pp, plan.vpp
    if plan.schedule == "gpipe":  # one stage alone runs each micro-batch to its end
        return np.where(pp > 1, micro_batches, 1.0)
    if plan.schedule == "dualpipe":
        return np.minimum(pp + 1.0, micro_batches)
    if plan.schedule in ("zb-h1", "zb-v"):
        return np.minimum(pp + 0.0 * stage, micro_batches)
    if plan.schedule == "zb-h2":
        return np.minimum(2.0 * pp - 1.0 + 0.0 * stage, micro_batches)
    plain = np.minimum(pp - stage, micro_batches)
    pieces = (pp - stage - 1.0) * 2.0 + (vpp - 1.0) * pp + 1.0
    interleaved = np.minimum(pieces, micro_batches * vpp) / vpp
    return np.where(vpp > 1, interleaved, plain)


def weight_copies(plan: Plan) -> float:
    """DualPipe runs both ends of the pipeline at once and so holds two stages' weights."""
    return 2.0 if plan.bidirectional else 1.0
