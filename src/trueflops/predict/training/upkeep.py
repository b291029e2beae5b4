"""What weights, gradients and states need: casts, sums, copies, the update, offload.

In: a plan and what a rank holds. Out: seconds beside those of the model's own graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trueflops.clock import Clock
from trueflops.clock.host import waiting_for_host
from trueflops.graph.program import NARROW
from trueflops.model import Model
from trueflops.plan import BYTES, Plan
from trueflops.predict.training.adafactor import Adafactor
from trueflops.predict.training.foreach import (
    Update,
    clip_lists,
    update_by_lists,
    updates_by_lists,
)
from trueflops.predict.training.held import adafactor_of, blockwise_of, keeper_of
from trueflops.predict.training.memory import Held
from trueflops.predict.training.muon import newton_schulz_seconds
from trueflops.predict.training.schedule import weight_copies
from trueflops.runtime import Beside, Term, leaf, total
from trueflops.sizes import Size


@dataclass(frozen=True, kw_only=True)
class Upkeep:
    """Of one step."""

    update: Term
    update_joules: Size  # at full clock
    moved: Size  # seconds of casts, sums and copies
    waited: Size  # seconds for what is offloaded and needed at once
    streamed: Size  # seconds for what is offloaded and can hide
    lane_bytes: Size  # that travel to or from the host, in the busier direction
    host_bytes: Size  # that one accelerator keeps in host memory

    def beside(self, micro_batches: Size) -> Beside:
        """The update as the power cap sees it beside one micro-batch: it sees a step's mean power,
        and an update only moves bytes.
        """
        return Beside(
            seconds=self.update.value / micro_batches, joules=self.update_joules / micro_batches
        )


def maintain(clock: Clock, model: Model, plan: Plan, held: Held, m: Size) -> Upkeep:
    """All of it, for m micro-batches."""
    adafactor = adafactor_of(clock.profile, plan)
    term, moved_bytes = _update(clock, model, plan, held, adafactor)
    moved = _weight_casts(clock, plan, held, m) + _accumulation(clock, plan, held, m)
    offloaded = _offload(clock, plan, held, adafactor, m)
    return Upkeep(
        update=term,
        update_joules=clock.power.memory_joules(moved_bytes),
        moved=moved + _gathered_copies(clock, plan, held, m),
        **offloaded,
    )


def _weight_casts(clock: Clock, plan: Plan, held: Held, m: Size) -> Size:
    """Weights narrowed for their products: by autocast for every micro-batch, and their gradients
    widened; to fp8 or fp4 once a step, in both layouts.
    """
    if plan.compute in NARROW:
        both = 2.0 * BYTES["fp8"]
        own = held.all * (BYTES[plan.trained_dtype] + both)
        return clock.stream(own + held.frozen_bytes + held.frozen * both, "cast", kernels=2.0)
    if not plan.autocasts:
        return 0.0
    each = BYTES[plan.parameter_dtype] + BYTES["bf16"]
    return m * clock.stream(2.0 * held.all * each, "cast", kernels=2.0)


def _accumulation(clock: Clock, plan: Plan, held: Held, m: Size) -> Size:
    """Gradients added up over the micro-batches: read and written once more for each.

    A gradient wider than what the product writes is also widened every time. Those that are
    offloaded are added up on the host.
    """
    each = BYTES[plan.summed_dtype]
    wider = 2.0 * max(each - BYTES["bf16"], 0.0)
    # Of two stages that a rank holds a micro-batch passes one.
    own = held.gradients * (1.0 - plan.offload_optimizer) / weight_copies(plan)
    exposed = clock.profile.curve("framework")["accumulation"]
    return clock.stream(exposed * own * ((m - 1.0) * 2.0 * each + m * wider), "")


def _gathered_copies(clock: Clock, plan: Plan, held: Held, m: Size) -> Size:
    """ZeRO-3 parameter by parameter: what was gathered is copied out of one buffer for every
    forward and backward, and gradients are copied into another before they are scattered.
    """
    if not clock.profile.curve("framework")["gathered_copies"]:
        return 0.0
    out = 2.0 * plan.wide_bytes
    back = plan.wide_bytes + BYTES[plan.summed_dtype]
    moved = held.all * (2.0 * out + back) + held.frozen_bytes * 2.0 * 2.0
    copied = clock.stream(moved, "", kernels=3.0)
    return np.where(plan.zero >= 3, m * copied, 0.0)


def _update(
    clock: Clock, model: Model, plan: Plan, held: Held, adafactor: Adafactor | None
) -> tuple[Term, Size]:
    """Clip, then update: read gradients, read and write states, write weights. Beside it the bytes
    that move.
    """
    if adafactor is not None:
        return _update_in_calls(clock, plan, held, adafactor)
    if updates_by_lists(clock.profile, plan):
        seconds, moved = update_by_lists(clock, plan, _updated_here(plan, held))
        return leaf("optimizer", seconds, clock.profile.curve("eager"), "eager"), moved
    seconds, moved = _fused_update(clock, plan, held)
    law = clock.profile.curve("memory")
    if plan.optimizer != "muon":
        return leaf("optimizer", seconds, law, "memory"), moved
    steps = newton_schulz_seconds(model, plan, held, clock)
    products = leaf("Newton–Schulz", steps, clock.profile.curve("matmul"), "matmul")
    return total("optimizer", leaf("update", seconds, law, "memory"), products), moved


def _update_in_calls(
    clock: Clock, plan: Plan, held: Held, adafactor: Adafactor
) -> tuple[Term, Size]:
    """Adafactor's calls one by one, on gradients that were clipped as a list."""
    own = _updated_here(plan, held)
    clipped = clip_lists(clock, plan, own)
    updated = adafactor.update(clock, held, own)
    seconds = clipped.seconds + updated.seconds
    term = leaf("optimizer", seconds, clock.profile.curve("eager"), "eager")
    return term, clipped.moved_bytes + updated.moved_bytes


def _fused_update(clock: Clock, plan: Plan, held: Held) -> Update:
    """Three passes over the list of tensors: their norm, its scaling, the update."""
    gradient, weight = BYTES[plan.summed_dtype], BYTES[plan.trained_dtype]
    # Read once for the norm; read and written to be scaled. There is no norm before all are made.
    clipping = 0.0 if plan.update_in_backward else 3.0 * gradient
    each = clipping + gradient + weight + 2.0 * plan.state_bytes
    if not plan.has_master:
        each += weight  # the weights themselves are read and updated
    moved = _updated_here(plan, held) * each
    if not plan.goes_one_by_one:
        return Update(clock.stream(moved, "optimizer", kernels=3.0), moved)
    kernels = 2.0 + _updated_tensors(clock, plan, held)
    seconds = clock.stream(moved, "optimizer", kernels=kernels)
    if (blockwise := blockwise_of(clock.profile, plan)) is not None:
        seconds = np.maximum(seconds, blockwise.seconds(clock, held, 1.0 - plan.offload_optimizer))
    host = kernels * clock.host.alone_seconds(None)
    return Update(seconds + waiting_for_host(host, seconds), moved)


def _updated_tensors(clock: Clock, plan: Plan, held: Held) -> Size:
    """Kernels of bitsandbytes, one for each weight (bitsandbytes/optim/optimizer.py,
    Optimizer8bit.step); of flat pieces there is about one.
    """
    flat = np.asarray(plan.zero) >= keeper_of(clock.profile).flat_from
    # ZeRO-1 gives whole weights to a rank, later stages a part of each.
    some = np.where(np.asarray(plan.zero) == 1, held.states / np.maximum(held.all, 1.0), 1.0)
    return np.where(flat, 1.0, np.maximum(held.tensors * some, 1.0))


def _updated_here(plan: Plan, held: Held) -> Size:
    """Parameters whose states the accelerator holds: the others are updated on the host."""
    return held.states * (1.0 - plan.offload_optimizer)


def _offload(
    clock: Clock, plan: Plan, held: Held, adafactor: Adafactor | None, m: Size
) -> dict[str, Size]:
    """What lives in host memory or on drives: states are updated there, and waited for; weights,
    activations, and gradients on their way out can hide.

    Adam runs on the host's cores (DeepSpeedCPUAdam, ZeRO-Offload, arXiv 2101.06840 §4.1): it reads
    the gradient, reads and writes the states, and writes weights that travel back meanwhile.
    Adafactor's calls pass over what is as large as the weights many times.
    """
    if not plan.offloads:
        return dict.fromkeys(("waited", "streamed", "lane_bytes", "host_bytes"), 0.0)
    nvme = plan.offload_to == "nvme"
    updated = held.states * plan.offload_optimizer
    states, made = updated * plan.state_bytes, updated * BYTES[plan.trained_dtype]
    passed_over: Size = 0.0
    if adafactor is not None:
        states = states + adafactor.state_bytes(held) * plan.offload_optimizer
        passed_over = adafactor.passes_bytes * updated
    gradients = held.gradients * BYTES[plan.summed_dtype] * plan.offload_optimizer
    weights = held.weights * BYTES[plan.trained_dtype] + held.own_frozen_bytes
    weights = weights * plan.offload_parameters
    activations = held.kept_bytes * plan.offload_activations
    read = updated * BYTES[plan.summed_dtype]
    adam = clock.host_update(read + 2.0 * states + made + passed_over)
    waited = np.maximum(adam, clock.host_copy(made))
    if nvme:  # states are fetched from the drives and put back
        waited = waited + clock.host_copy(2.0 * states, nvme)
    passed = m / weight_copies(plan)  # micro-batches that pass each of the stages held here
    streamed = clock.host_copy(passed * (2.0 * weights + gradients) + m * 2.0 * activations, nvme)
    out = m * activations + passed * gradients
    back = made + m * activations + passed * 2.0 * weights  # for forward and backward
    return {
        "waited": waited,
        "streamed": streamed,
        "lane_bytes": np.maximum(out, back),
        "host_bytes": 0.0 if nvme else states + gradients + weights + activations,
    }
