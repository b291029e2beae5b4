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


@dataclass(frozen=True, kw_only=True)
class Held:
    """What a rank of each stage holds: parameters, and what a micro-batch leaves there."""

    dense: Size  # parameters before ZeRO divides them
    experts: Size
    largest: Size  # of the pieces that are gathered and reduced one at a time
    kept_bytes: Size = 0.0  # of one micro-batch, until its backward
    ways: tuple[tuple[Size, Size], ...] = ((1.0, 1.0),) * 3
    """By how many ranks ZeRO divides dense parameters and experts: states, gradients, weights."""

    @property
    def all(self) -> Size:
        """Dense and expert parameters together, undivided."""
        return self.dense + self.experts

    @property
    def states(self) -> Size:
        """Parameters whose optimizer states are this rank's own."""
        return self._own(0)

    @property
    def gradients(self) -> Size:
        """Parameters whose gradients are."""
        return self._own(1)

    @property
    def weights(self) -> Size:
        """Parameters whose weights are."""
        return self._own(2)

    def _own(self, what: int) -> Size:
        dense, experts = self.ways[what]
        return self.dense / dense + self.experts / experts

    def most(self) -> Held:
        """Those of the stage that holds the most, plan by plan."""
        return Held(
            dense=np.max(self.dense, axis=0),
            experts=np.max(self.experts, axis=0),
            largest=np.max(self.largest, axis=0),
            kept_bytes=np.max(self.kept_bytes, axis=0),
            ways=self.ways,
        )


def hold(costs: Costs, plan: Plan, stages: Stages) -> Held:
    """What each stage's rank holds; a table tied across one stage is held once.

    Dense states are shared by dp_shard and cp, those of experts by what ep and etp leave.
    """
    head = costs.head.dense_parameters - stages.first * costs.head.tied_parameters
    dense = stages.first * costs.embedding.dense_parameters + stages.last * head
    experts: Size = np.zeros_like(stages.index)
    # The ends are gathered whole, like a block.
    largest = np.maximum(stages.first * costs.embedding.dense_parameters, stages.last * head)
    kept = stages.first * costs.embedding.kept_bytes
    again = stages.recomputed
    for layers, block, whole in zip(stages.layers, costs.blocks, costs.kept_whole, strict=True):
        dense = dense + layers * block.dense_parameters
        experts = experts + layers * block.expert_parameters
        largest = np.maximum(largest, block.dense_parameters + block.expert_parameters)
        kept = kept + layers * ((1.0 - again) * whole + again * block.kept_bytes)
    zero, dense_ways = np.asarray(plan.zero), plan.dp_shard * plan.cp
    expert_ways = plan.expert_ways(plan.dp_shard)
    ways = tuple(
        (np.where(zero >= stage, dense_ways, 1.0), np.where(zero >= stage, expert_ways, 1.0))
        if np.any(zero >= stage)
        else (1.0, 1.0)
        for stage in (1, 2, 3)
    )
    return Held(dense=dense, experts=experts, largest=largest, kept_bytes=kept, ways=ways)


def stage_memory(
    costs: Costs, plan: Plan, stages: Stages, held: Held, micro_batches: Size, profile: Profile
) -> Term:
    """Everything one accelerator of each stage holds at its fullest moment."""
    law, tensors = profile.curve("allocator"), profile.curve("activations")
    copies = weight_copies(plan)
    weight, gradient = BYTES[plan.parameter_dtype], BYTES[plan.gradient_dtype]
    # Of what is offloaded the piece at work and the next one are on the device.
    here = np.minimum(2.0 * held.largest, held.weights) * plan.offload_parameters
    weights = (held.weights * (1.0 - plan.offload_parameters) + here) * weight * copies
    if plan.autocasts:  # the narrowed copies live as long as the forward and backward
        weights = weights + held.all * BYTES["bf16"]
    # With the states gradients leave for the host as the backward makes them, and are added up
    # there; a piece at a time waits on the way (ZeRO-Offload, arXiv 2101.06840 §4.1).
    gone = np.asarray(plan.offload_optimizer)
    leaving = np.where(gone > 0.0, np.minimum(held.largest, held.gradients), 0.0)
    gradients = (held.gradients * (1.0 - gone) + leaving * gone) * gradient * copies
    # Gradients that are made in the only backward grow as the activations shrink.
    fresh = profile.curve("framework")["fresh_gradients"] * (np.asarray(micro_batches) == 1.0)
    each = plan.state_bytes * copies * (1.0 - plan.offload_optimizer)
    states = held.states * each
    working = _working_bytes(costs, stages)
    flying = in_flight(plan, stages.index, micro_batches) * (1.0 - plan.offload_activations)
    kept = held.kept_bytes * flying
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
        roots = temporary_bytes(plan, held.states) * (1.0 - plan.offload_optimizer)
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


def _working_bytes(costs: Costs, stages: Stages) -> Size:
    """Tensors alive only for the moment; a block that recomputes is whole again in its backward."""
    working: Size = np.zeros_like(stages.index)
    again = stages.recomputed > 0.0
    for layers, block, whole in zip(stages.layers, costs.blocks, costs.kept_whole, strict=True):
        moment = block.working_bytes + np.where(again, whole - block.kept_bytes, 0.0)
        working = np.maximum(working, np.where(layers > 0.0, moment, 0.0))
    return working
