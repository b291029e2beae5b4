"""Pipeline schedules: how long the bubble is and how many micro-batches are in flight.

With t_s the time of stage s for one micro-batch (forward F, input gradient B, weight gradient W),
m micro-batches and p stages, the bubble of one step is
    gpipe, 1f1b   Σ t_s − max t_s = (p−1)(F + B + W)    (Huang 2019; Narayanan 2021)
    interleaved   that, divided by vpp                  (Narayanan 2021 §2.2)
    zb-h1         (p−1)(F + B − W)                      (Qi 2024, arXiv 2401.10241 §2.3)
    zb-h2         (p−1)(F + B − 2W)
    dualpipe      (p/2−1)(F + 2B − W)                   (DeepSeek-V3, arXiv 2412.19437, table 2)
Zero-bubble schedules fill the gap with weight gradients, of which there are only m.
"""

from __future__ import annotations

import numpy as np

from trueflops.plan import Plan
from trueflops.predict.pipeline import SlowestStage
from trueflops.sizes import Size


def bubble_seconds(plan: Plan, micro_batches: Size, usual: Size, slowest: SlowestStage) -> Size:
    """Idle time of the slowest stage; `usual` is a micro-batch's time on the average one."""
    slow = slowest.seconds
    f, b, w = slow["forward"] + slow["recompute"], slow["backward"], slow["backward_weight"]
    whole = usual * plan.pp  # through all stages
    longest = np.maximum(slowest.total, usual)
    idle = np.maximum(whole - longest, 0.0)
    others = np.maximum(plan.pp - 1.0, 0.0)
    if plan.schedule == "zb-h1":
        return np.maximum(idle - np.minimum(2.0 * others, micro_batches) * w, 0.0)
    if plan.schedule == "zb-h2":
        return np.maximum(idle - np.minimum(3.0 * others, micro_batches) * w, 0.0)
    if plan.schedule == "dualpipe":
        return np.maximum(plan.pp / 2.0 - 1.0, 0.0) * np.maximum(f + 2.0 * b - w, 0.0)
    return idle / plan.vpp


def in_flight(plan: Plan, stage: Size, micro_batches: Size) -> Size:
    """Micro-batches whose activations a stage holds at its fullest, as multiples of all its layers.

    Interleaving holds more, each for one piece of the layers (Megatron-LM's warm-up rule).
    """
    pp, vpp = plan.pp, plan.vpp
    if plan.schedule == "gpipe":  # one stage alone runs each micro-batch to its end
        return np.where(np.asarray(pp) > 1, micro_batches, 1.0)
    if plan.schedule == "dualpipe":
        return np.minimum(pp + 1.0, micro_batches)
    if plan.schedule == "zb-h2":
        return np.minimum(2.0 * (pp - stage) - 1.0, micro_batches)
    plain = np.minimum(pp - stage, micro_batches)
    pieces = (pp - stage - 1.0) * 2.0 + (vpp - 1.0) * pp + 1.0
    interleaved = np.minimum(pieces, micro_batches * vpp) / vpp
    return np.where(np.asarray(vpp) > 1, interleaved, plain)


def weight_copies(plan: Plan) -> float:
    """DualPipe runs both ends of the pipeline at once and so holds two stages' weights."""
    return 2.0 if plan.schedule == "dualpipe" else 1.0
