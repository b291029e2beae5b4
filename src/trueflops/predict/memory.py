"""Memory of every pipeline stage on one accelerator, part by part, at the schedule's peak.

In: Costs, a Plan, the Stages. Out: a Term [stage, plan] whose parts sum. States follow ZeRO
(Rajbhandari 2020, arXiv 1910.02054): stage 1 shares the optimizer's, 2 also gradients, 3 also
weights. Activations follow from what differentiation keeps, times the micro-batches in flight.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from trueflops.plan import BYTES, Plan
from trueflops.predict.costs import Costs, PieceCost
from trueflops.predict.foreach import temporary_bytes, updates_by_lists
from trueflops.predict.schedule import in_flight, weight_copies
from trueflops.predict.stages import Stages
from trueflops.profile import Profile
from trueflops.runtime.terms import Term, exact, leaf, total
from trueflops.sizes import Size


@dataclass(frozen=True, kw_only=True)
class Held:
    """What a rank of each stage holds: parameters, and what a micro-batch leaves there."""

    dense: Size  # trained parameters before ZeRO divides them
    experts: Size
    largest: Size  # of the pieces that are gathered and reduced one at a time
    kept_bytes: Size = 0.0  # of one micro-batch, until its backward
    frozen: Size = 0.0  # parameters that are not trained, and their bytes: dense, experts', of
    frozen_dense_bytes: Size = 0.0  # the largest piece
    frozen_expert_bytes: Size = 0.0
    frozen_largest_bytes: Size = 0.0
    ways: tuple[tuple[Size, Size], ...] = ((1.0, 1.0),) * 3
    """By how many ranks ZeRO divides dense parameters and experts: states, gradients, weights."""

    @property
    def all(self) -> Size:
        """Trained parameters, dense and experts', undivided."""
        return self.dense + self.experts

    @property
    def frozen_bytes(self) -> Size:
        """Bytes of the weights that are not trained, undivided."""
        return self.frozen_dense_bytes + self.frozen_expert_bytes

    @property
    def own_frozen_bytes(self) -> Size:
        """Those of them that are this rank's own."""
        dense, experts = self.ways[2]
        return self.frozen_dense_bytes / dense + self.frozen_expert_bytes / experts

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
        largest = {
            field.name: np.max(getattr(self, field.name), axis=0)
            for field in fields(self)
            if field.name != "ways" and np.ndim(getattr(self, field.name))
        }
        return replace(self, **largest)


def hold(costs: Costs, plan: Plan, stages: Stages) -> Held:
    """What each stage's rank holds; a table tied across one stage is held once.

    Dense states are shared by dp_shard and cp, those of experts by what ep and etp leave.
    """
    head = costs.head.dense_parameters - stages.first * costs.head.tied_parameters
    dense = stages.first * costs.embedding.dense_parameters + stages.last * head
    experts: Size = np.zeros_like(stages.index)
    # The ends are gathered whole, like a block.
    largest = np.maximum(stages.first * costs.embedding.dense_parameters, stages.last * head)
    frozen = _Frozen(costs, stages)
    kept = stages.first * costs.embedding.kept_bytes
    again = stages.recomputed
    for layers, block, whole in zip(stages.layers, costs.blocks, costs.kept_whole, strict=True):
        dense = dense + layers * block.dense_parameters
        experts = experts + layers * block.expert_parameters
        largest = np.maximum(largest, block.dense_parameters + block.expert_parameters)
        frozen.add(layers, block)
        kept = kept + layers * ((1.0 - again) * whole + again * block.kept_bytes)
    zero, dense_ways = np.asarray(plan.zero), plan.dp_shard * plan.cp
    expert_ways = plan.expert_ways(plan.dp_shard)
    ways = tuple(
        (np.where(zero >= stage, dense_ways, 1.0), np.where(zero >= stage, expert_ways, 1.0))
        if np.any(zero >= stage)
        else (1.0, 1.0)
        for stage in (1, 2, 3)
    )
    return Held(
        dense=dense,
        experts=experts,
        largest=largest,
        kept_bytes=kept,
        ways=ways,
        frozen=frozen.parameters,
        frozen_dense_bytes=frozen.dense_bytes,
        frozen_expert_bytes=frozen.expert_bytes,
        frozen_largest_bytes=frozen.largest_bytes,
    )


class _Frozen:
    """What each stage holds of weights that are not trained."""

    def __init__(self, costs: Costs, stages: Stages) -> None:
        first, last, ends = stages.first, stages.last, (costs.embedding, costs.head)
        at_ends = [
            first * costs.embedding.frozen_bytes,
            last * (costs.head.frozen_bytes - first * costs.head.tied_bytes),
        ]
        self.parameters: Size = first * ends[0].frozen_parameters + last * ends[1].frozen_parameters
        self.dense_bytes: Size = at_ends[0] + at_ends[1]
        self.expert_bytes: Size = np.zeros_like(stages.index)
        self.largest_bytes: Size = np.maximum(*at_ends)

    def add(self, layers: Size, block: PieceCost) -> None:
        """So many more layers of a kind."""
        self.parameters = self.parameters + layers * block.frozen_parameters
        self.dense_bytes = self.dense_bytes + layers * block.frozen_bytes
        self.expert_bytes = self.expert_bytes + layers * block.frozen_expert_bytes
        whole = block.frozen_bytes + block.frozen_expert_bytes
        self.largest_bytes = np.maximum(self.largest_bytes, whole)


def stage_memory(
    costs: Costs, plan: Plan, stages: Stages, held: Held, micro_batches: Size, profile: Profile
) -> Term:
    """Everything one accelerator of each stage holds at its fullest moment."""
    law, tensors = profile.curve("allocator"), profile.curve("activations")
    copies = weight_copies(plan)
    weight, gradient = BYTES[plan.trained_dtype], BYTES[plan.summed_dtype]
    # Of what is offloaded the piece at work and the next one are on the device.
    piece = held.largest * weight + held.frozen_largest_bytes
    stored = held.weights * weight + held.own_frozen_bytes
    here = np.minimum(2.0 * piece, stored) * plan.offload_parameters
    weights = (stored * (1.0 - plan.offload_parameters) + here) * copies
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
    if np.any(held.frozen):
        # Frozen weights leave no gradients meanwhile: either the head is fullest, or a layer.
        layer = working + _inputs_that_stay(costs, plan, stages, profile)
        apart, head = np.asarray(held.frozen) > 0.0, logits > layer
        logits = np.where(apart & ~head, 0.0, logits)
        working = np.where(apart, np.where(head, 0.0, layer), working)
    # ZeRO-3 holds two pieces gathered (this one and the next) and one whole gradient.
    zero = np.asarray(plan.zero)
    whole = held.largest * gradient
    gathered = np.where(zero >= 3, 2.0 * piece + whole, np.where(zero == 2, whole, 0.0))
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


def _inputs_that_stay(costs: Costs, plan: Plan, stages: Stages, profile: Profile) -> Size:
    """Gradients of checkpointed inputs that stay until the backward ends, as the inputs do."""
    if not profile.curve("framework")["frozen_inputs"]:
        return 0.0
    inputs: Size = np.zeros_like(stages.index)
    for layers, block in zip(stages.layers, costs.blocks, strict=True):
        inputs = inputs + layers * stages.recomputed * block.kept_bytes
    return np.where(np.asarray(plan.zero) >= 3, inputs, 0.0)


def _working_bytes(costs: Costs, stages: Stages) -> Size:
    """Tensors alive only for the moment; a block that recomputes is whole again in its backward."""
    working: Size = np.zeros_like(stages.index)
    again = stages.recomputed > 0.0
    for layers, block, whole in zip(stages.layers, costs.blocks, costs.kept_whole, strict=True):
        moment = block.working_bytes + np.where(again, whole - block.kept_bytes, 0.0)
        working = np.maximum(working, np.where(layers > 0.0, moment, 0.0))
    return working
