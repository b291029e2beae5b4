"""Memory of every pipeline stage on one accelerator, part by part, at the schedule's peak.

In: Costs, a Plan, the Stages. Out: a Term [stage, plan] whose parts sum. States follow ZeRO
(Rajbhandari 2020, arXiv 1910.02054): stage 1 shares the optimizer's, 2 also gradients, 3 also
weights. Activations follow from what differentiation keeps, times the micro-batches in flight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trueflops.plan import BYTES, Plan
from trueflops.predict.costs import Costs
from trueflops.predict.foreach import temporary_bytes, updates_by_lists
from trueflops.predict.schedule import in_flight, weight_copies
from trueflops.predict.stages import Stages
from trueflops.profile import Profile
from trueflops.runtime.terms import Term, exact, leaf, total
from trueflops.sizes import Size


@dataclass(frozen=True)
class Held:
    """Parameters that a rank of each stage holds before ZeRO divides them."""

    dense: Size
    experts: Size
    largest: Size  # of the pieces that are gathered and reduced one at a time

    @property
    def all(self) -> Size:
        """Dense and expert parameters together."""
        return self.dense + self.experts

    def own(self, plan: Plan, from_stage: int) -> Size:
        """What is left of them on one rank where ZeRO divides them from this stage on.

        Dense states are shared by dp_shard and cp, those of experts by what ep and etp leave.
        """
        ways = plan.dp_shard * plan.cp
        if not np.any(np.asarray(plan.zero) >= from_stage):
            return self.all
        divide = np.asarray(plan.zero) >= from_stage
        experts = self.experts / np.where(divide, plan.expert_ways(plan.dp_shard), 1.0)
        return self.dense / np.where(divide, ways, 1.0) + experts

    def most(self) -> Held:
        """Those of the stage that holds the most, plan by plan."""
        return Held(*(np.max(v, axis=0) for v in (self.dense, self.experts, self.largest)))


def held_parameters(costs: Costs, stages: Stages) -> Held:
    """Parameters of each stage's rank; a table tied across one stage is held once."""
    head = costs.head.dense_parameters - stages.first * costs.head.tied_parameters
    dense = stages.first * costs.embedding.dense_parameters + stages.last * head
    experts: Size = np.zeros_like(stages.index)
    # The ends are gathered whole, like a block.
    largest = np.maximum(stages.first * costs.embedding.dense_parameters, stages.last * head)
    for layers, block in zip(stages.layers, costs.blocks, strict=True):
        dense = dense + layers * block.dense_parameters
        experts = experts + layers * block.expert_parameters
        largest = np.maximum(largest, block.dense_parameters + block.expert_parameters)
    return Held(dense, experts, largest)


def stage_memory(
    costs: Costs, plan: Plan, stages: Stages, held: Held, micro_batches: Size, profile: Profile
) -> Term:
    """Everything one accelerator of each stage holds at its fullest moment."""
    law, tensors = profile.curve("allocator"), profile.curve("activations")
    copies = weight_copies(plan)
    weight, gradient = BYTES[plan.parameter_dtype], BYTES[plan.gradient_dtype]
    own = held.own(plan, 3)
    # Of what is offloaded the piece at work and the next one are on the device.
    here = np.minimum(2.0 * held.largest, own) * plan.offload_parameters
    weights = (own * (1.0 - plan.offload_parameters) + here) * weight * copies
    if plan.autocasts:  # the narrowed copies live as long as the forward and backward
        weights = weights + held.all * BYTES["bf16"]
    # With the states gradients leave for the host as the backward makes them, and are added up
    # there; a piece at a time waits on the way (ZeRO-Offload, arXiv 2101.06840 §4.1).
    gone = np.asarray(plan.offload_optimizer)
    leaving = np.where(gone > 0.0, np.minimum(held.largest, held.own(plan, 2)), 0.0)
    gradients = (held.own(plan, 2) * (1.0 - gone) + leaving * gone) * gradient * copies
    # Gradients that are made in the only backward grow as the activations shrink.
    fresh = profile.curve("framework")["fresh_gradients"] * (np.asarray(micro_batches) == 1.0)
    each = plan.state_bytes * copies * (1.0 - plan.offload_optimizer)
    states = held.own(plan, 1) * each
    kept, working = _activations(costs, plan, stages, micro_batches)
    logits = stages.last * (costs.head.kept_bytes + costs.head.working_bytes)
    # ZeRO-3 holds two pieces gathered (this one and the next) and one whole gradient.
    zero = np.asarray(plan.zero)
    gathered = np.where(zero >= 3, 2.0 * weight + gradient, np.where(zero == 2, gradient, 0.0))
    gathered = gathered * held.largest
    groups: Size = 0.0
    for degree in (plan.tp, plan.cp, plan.pp, plan.dp, plan.ep):
        groups = groups + np.where(np.asarray(degree) > 1, 1.0, 0.0)
    buffers = gathered + groups * law["communicator"]
    early = gradients - fresh * np.minimum(gradients, kept + logits)
    if updates_by_lists(profile, plan):
        # Once the activations are gone the optimizer makes a list of temporaries: a second peak.
        roots = temporary_bytes(plan, held.own(plan, 1)) * (1.0 - plan.offload_optimizer)
        late = gradients + roots > early + kept + logits + working
        early = np.where(late, gradients, early)
        kept, logits = np.where(late, 0.0, kept), np.where(late, 0.0, logits)
        working = np.where(late, roots, working)
    loose = (kept + working + logits + buffers) * law["slack"]
    return total(
        "memory",
        exact("weights", weights, "bytes"),
        exact("gradients", early, "bytes"),
        exact("optimizer states", states, "bytes"),
        leaf("activations", kept, tensors, "activations", "bytes"),
        leaf("logits and loss", logits, tensors, "activations", "bytes"),
        leaf("working tensors", working, tensors, "activations", "bytes"),
        leaf("communication buffers", buffers, law, "allocator", "bytes"),
        leaf("allocator slack", loose, law, "allocator", "bytes"),
        leaf("context", law["context"], law, "allocator", "bytes"),
        unit="bytes",
        cause="allocator",
        spread=law["whole"],
    )


def fullest(memory: Term) -> Term:
    """The memory of the fullest stage, plan by plan: a tree [stage, plan] becomes one [plan]."""
    size = np.asarray(memory.value)
    at = np.argmax(size, axis=0)[None]

    def pick(value: Size) -> Size:
        rows = np.broadcast_to(value, size.shape)
        return np.take_along_axis(rows, at, axis=0)[0]

    parts = (Term(p.name, pick(p.value), p.unit, p.cause, p.spread, p.origin) for p in memory.parts)
    return total(memory.name, *parts, unit="bytes", cause=memory.cause, spread=memory.spread)


def kept_bytes(costs: Costs, plan: Plan, stages: Stages) -> Size:
    """What one micro-batch leaves in each stage until its backward."""
    share = stages.recomputed(plan)
    kept = stages.first * costs.embedding.kept_bytes
    for layers, block, whole in zip(stages.layers, costs.blocks, costs.kept_whole, strict=True):
        kept = kept + layers * ((1.0 - share) * whole + share * block.kept_bytes)
    return kept


def _activations(
    costs: Costs, plan: Plan, stages: Stages, micro_batches: Size
) -> tuple[Size, Size]:
    """Tensors kept for all micro-batches in flight, and those alive only for the moment."""
    flying = in_flight(plan, stages.index, micro_batches) * (1.0 - plan.offload_activations)
    working: Size = np.zeros_like(stages.index)
    again = stages.recomputed(plan) > 0.0
    for layers, block, whole in zip(stages.layers, costs.blocks, costs.kept_whole, strict=True):
        # A block that recomputes is whole again while its backward runs.
        moment = block.working_bytes + np.where(again, whole - block.kept_bytes, 0.0)
        working = np.maximum(working, np.where(layers > 0.0, moment, 0.0))
    return kept_bytes(costs, plan, stages) * flying, working


def host_bytes(plan: Plan, held: Held, kept: Size) -> Size:
    """What one accelerator keeps in host memory."""
    if not plan.offloads or plan.offload_to != "host":
        return 0.0
    moments = held.own(plan, 1) * plan.state_bytes
    gradients = held.own(plan, 2) * BYTES[plan.gradient_dtype]
    weights = held.own(plan, 3) * BYTES[plan.parameter_dtype] * plan.offload_parameters
    states = (moments + gradients) * plan.offload_optimizer
    return states + weights + kept * plan.offload_activations
