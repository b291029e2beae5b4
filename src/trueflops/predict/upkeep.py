"""What weights, gradients and states need: casts, sums, copies, the update, offload.

In: a plan and what a rank holds. Out: seconds beside those of the model's own graph.
"""

from __future__ import annotations

import numpy as np

from trueflops.clock import Clock
from trueflops.graph.program import NARROW
from trueflops.model import Model
from trueflops.plan import BYTES, Plan
from trueflops.predict.memory import Held
from trueflops.predict.muon import newton_schulz_seconds
from trueflops.predict.terms import Term, leaf, total
from trueflops.sizes import Size


def weight_casts(clock: Clock, plan: Plan, held: Held, m: Size) -> Size:
    """Weights narrowed for their products: by autocast for every micro-batch, and their gradients
    widened; to fp8 or fp4 once a step, in both layouts.
    """
    if plan.compute in NARROW:
        each = BYTES[plan.parameter_dtype] + 2.0 * BYTES["fp8"]
        return clock.stream(held.all * each, "cast", kernels=2.0)
    if not plan.autocasts:
        return 0.0
    each = BYTES[plan.parameter_dtype] + BYTES["bf16"]
    return m * clock.stream(2.0 * held.all * each, "cast", kernels=2.0)


def accumulation(clock: Clock, plan: Plan, held: Held, m: Size) -> Size:
    """Gradients added up over the micro-batches: read and written once more for each.

    A gradient wider than what the product writes is also widened every time. Those that are
    offloaded are added up on the host.
    """
    each = BYTES[plan.gradient_dtype]
    wider = 2.0 * max(each - BYTES["bf16"], 0.0)
    own = held.own(plan, 2) * (1.0 - plan.offload_optimizer)
    shown = clock.profile.curve("framework")["accumulation"]
    return clock.stream(shown * own * ((m - 1.0) * 2.0 * each + m * wider), "")


def gathered_copies(clock: Clock, plan: Plan, held: Held, m: Size) -> Size:
    """ZeRO-3 parameter by parameter: what was gathered is copied out of one buffer for every
    forward and backward, and gradients are copied into another before they are scattered.
    """
    if not clock.profile.curve("framework")["gathered_copies"]:
        return 0.0
    out = 2.0 * plan.wide_bytes
    back = plan.wide_bytes + BYTES[plan.gradient_dtype]
    copied = clock.stream(held.all * (2.0 * out + back), "", kernels=3.0)
    return np.where(np.asarray(plan.zero) >= 3, m * copied, 0.0)


def update(clock: Clock, model: Model, plan: Plan, held: Held) -> Term:
    """Clip, then update: read gradients, read and write states, write weights."""
    own = held.own(plan, 1)
    gradient, weight = BYTES[plan.gradient_dtype], BYTES[plan.parameter_dtype]
    clipping = 3.0 * gradient  # read once for the norm; read and written to be scaled
    each = clipping + gradient + weight + 2.0 * plan.state_bytes
    if not plan.has_master:
        each += weight  # the weights themselves are read and updated
    law = clock.profile.curve("memory")
    # Three passes over the list of tensors: their norm, its scaling, the update.
    seconds = clock.stream(own * each, "optimizer", kernels=3.0)
    if plan.optimizer != "muon":
        return leaf("optimizer", seconds, law, "memory")
    steps = newton_schulz_seconds(model, plan, held, clock)
    products = leaf("Newton–Schulz", steps, clock.profile.curve("matmul"), "matmul")
    return total("optimizer", leaf("update", seconds, law, "memory"), products)


def offload(
    clock: Clock, plan: Plan, held: Held, kept: Size, m: Size, beside: Size
) -> tuple[Term, Size]:
    """What travels to host memory or drives and back: states are waited for; weights,
    activations, and gradients on their way out can hide.

    Beside it the bytes that travel in the busier direction.
    """
    law, nvme = clock.profile.curve("host"), plan.offload_to == "nvme"
    if not plan.offloads:
        return leaf("offload", 0.0, law, "host"), 0.0
    states = held.own(plan, 1) * plan.state_bytes * plan.offload_optimizer
    gradients = held.own(plan, 2) * BYTES[plan.gradient_dtype] * plan.offload_optimizer
    weights = held.own(plan, 3) * BYTES[plan.parameter_dtype] * plan.offload_parameters
    activations = kept * plan.offload_activations
    waited = clock.host_copy(2.0 * states + gradients, nvme)  # the update needs the sums
    streamed = clock.host_copy(m * (2.0 * (weights + activations) + gradients), nvme)
    # The host link is its own: compute, other communication and the bubble all hide it.
    shown = np.maximum(streamed - beside, 0.0) if plan.overlap else streamed
    out = states + m * (activations + gradients)
    back = states + gradients + m * (activations + 2.0 * weights)  # for forward and backward
    return leaf("offload", waited + shown, law, "host"), np.maximum(out, back)
