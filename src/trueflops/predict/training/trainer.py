"""A training step: time and memory of one plan, or of a million, by the same lines.

    step = m · mean stage + uneven stages + bubble + exposed communication + optimizer + offload
Every term is a leaf of the tree that `TrainingStep.step` is; the memory is another tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from trueflops.catalog import Cluster
from trueflops.clock import Clock
from trueflops.errors import TrueflopsError
from trueflops.graph import Graph, Op, compile_program
from trueflops.graph.passes import traffic_bytes
from trueflops.graph.program import SHAPING, STRUCTURE
from trueflops.model import Model, freeze_first, predict_further
from trueflops.plan import NUMERIC, Plan
from trueflops.predict.costs import Costs, KeyedCosts, training_costs, training_pass
from trueflops.predict.training.communication import Communication, communicate
from trueflops.predict.training.hooks import captured, hooked, slowed
from trueflops.predict.training.memory import Held, hold
from trueflops.predict.training.moments import Stored, stage_memory
from trueflops.predict.training.pipeline import Pipeline, run_pipeline
from trueflops.predict.training.schedule import bubble_seconds, weight_copies
from trueflops.predict.training.stages import STAGES, Stages, every_stage, representative_stages
from trueflops.predict.training.step import TrainingStep
from trueflops.predict.training.step_terms import step_term
from trueflops.predict.training.upkeep import Upkeep, maintain
from trueflops.profile import Profile
from trueflops.records.limits import TOLERANCE
from trueflops.runtime import Term
from trueflops.sizes import Size, plain, weighs
from trueflops.tables import MANY, Batch
from trueflops.workload import Training

AT_ONCE: Final = 262144  # plans: fewer share less; more need more memory and are no faster
_MODEL: Final = ("freeze_layers", "mtp")  # fields of a plan that change the model


@dataclass(frozen=True)
class FusionSavings:
    """One layer and micro-batch, forward and backward, before and after fusion."""

    kernels_before: float
    kernels_after: float
    bytes_before: float
    bytes_after: float


@dataclass(frozen=True, kw_only=True)
class Laid:
    """A step as its stages run it."""

    costs: Costs
    micro_batches: Size
    stages: Stages
    held: Held
    upkeep: Upkeep
    pipeline: Pipeline
    sent: Communication
    bubble: Size


def tabled(plan: Plan) -> Plan:
    """The same plans, whose sizes are computed once for all that agree in what they read."""
    return plan if plan.count < MANY else plan.in_batch(_batch(plan))


def _batch(plan: Plan) -> Batch:
    """What all depends on that no layer runs again for, and what a rank's work does."""
    batch = plan.batch()
    batch.share(name for name in NUMERIC if name != "recompute_layers")
    plan.in_batch(batch).dp  # noqa: B018  # one column of both of its factors
    batch.share((*SHAPING, *STAGES, "dp", "recompute_layers"))
    return batch


class Trainer:
    """Answers for one model and workload on one cluster: build once, ask for many plans.

    >>> import trueflops as tf
    >>> where, asked = tf.cluster("8xH100"), tf.Training(seq=4096, global_batch=64, tokens=1e9)
    >>> profile = tf.profile_of(where.accelerator)
    >>> trainer = tf.Trainer(tf.read_model("Llama-3.1-8B"), asked, where, profile)
    >>> step = trainer.predict_one(tf.Plan(dp_shard=8, zero=3))
    >>> bool(step.fits), [part.name for part in step.memory.parts][:3]
    (True, ['weights', 'gradients', 'optimizer states'])
    """

    def __init__(
        self, model: Model, workload: Training, cluster: Cluster, profile: Profile
    ) -> None:
        self.model, self.workload = model, workload
        self.cluster, self.profile = cluster, profile
        self.clock = Clock(cluster, profile)
        self.capacity = cluster.accelerator.need("memory.capacity")
        self.host_times: Size = 1.0  # how many times as long its host issues kernels, of several
        self._remembered: dict[tuple[Any, ...], KeyedCosts] = {}

    def on_host(self, times: Size) -> Trainer:
        """The same on a host, or on several, that issues kernels so many times as long; what was
        priced is shared.
        """
        other = copy(self)
        other.host_times = self.host_times * times
        return other

    def predict(self, plan: Plan) -> TrainingStep:
        """Predict one plan or many."""
        shared = tabled(plan)
        return self.combine(shared, self.keyed_costs(shared).spread(plan=shared))

    def predict_in_parts(self, plan: Plan) -> Iterator[tuple[NDArray[np.intp], TrainingStep]]:
        """Predict very many plans, some at a time: their numbers, and their steps.

        Plans that share work come together, in whatever order they are given.
        """
        batch = _batch(plan)
        keyed = self.keyed_costs(plan.in_batch(batch))
        for rows in batch.parts((*SHAPING, *STAGES), AT_ONCE):
            some = plan.in_batch(batch.part(rows))
            yield rows, self.combine(some, keyed.spread(rows, some))

    def predict_one(self, plan: Plan) -> TrainingStep:
        """Predict a single plan, in plain numbers."""
        return self.predict(plan).pick(0)

    def keyed_costs(self, plan: Plan) -> KeyedCosts:
        """What a rank's pieces cost, one element per distinct shape of work.

        Single plans are remembered: one that differs only in dp, pp, ZeRO … compiles nothing.
        """
        if plan.count > 1:
            return training_costs(self.as_trained(plan), plan, self.workload.seq, self.clock)
        plan = plan.pick(0)
        key = tuple(getattr(plan, name) for name in (*SHAPING, *STRUCTURE, *_MODEL))
        if key not in self._remembered:
            keyed = training_costs(self.as_trained(plan), plan, self.workload.seq, self.clock)
            self._remembered[key] = KeyedCosts(keyed.costs.map(plain), None)
        return self._remembered[key]

    def as_trained(self, plan: Plan) -> Model:
        """The model, of which the plan may freeze the first layers, or train more than is used."""
        return predict_further(freeze_first(self.model, plan.freeze_layers), plan.mtp)

    def combine(self, plan: Plan, costs: Costs) -> TrainingStep:
        """Put the costs of a rank's pieces together as the plan says."""
        laid = self.lay_out(plan, costs)
        pipeline, m = laid.pipeline, laid.micro_batches
        step = step_term(
            plan, m, pipeline, laid.sent, laid.upkeep, laid.bubble, self.clock, self.model
        )
        if np.any(pipeline.work.peak_seconds / TOLERANCE > step.value):
            raise TrueflopsError("a step was predicted to beat the chip's peak")
        memory, cached = self._memory(laid.costs, plan, laid.stages, laid.held, m).where_fullest()
        return TrainingStep(
            model=self.model,
            plan=plan,
            workload=self.workload,
            cluster=self.cluster,
            profile=self.profile,
            step=step,
            memory=memory,
            cached_bytes=cached,
            capacity_bytes=self.capacity,
            micro_batches=m,
            work=pipeline.work,
            host_bytes=laid.upkeep.host_bytes,
        )

    def lay_out(self, plan: Plan, costs: Costs) -> Laid:
        """What every stage computes, sends and holds, before it becomes a tree."""
        costs = captured(hooked(costs, plan, self.clock), plan, self.clock)
        costs = slowed(costs, self.host_times) if weighs(self.host_times - 1.0) else costs
        m, model = plan.micro_batches(self.workload.global_batch), self.as_trained(plan)
        stages = representative_stages(model, plan)
        held = hold(costs, plan, stages)
        most, copies = held.most(), weight_copies(plan)
        # What replicas exchange for every micro-batch is of the stage that it passes.
        exchanged = most.times(np.where(plan.zero >= 2, 1.0, copies))
        upkeep = maintain(self.clock, self.model, plan, most.times(copies), m)
        pipeline = run_pipeline(costs, plan, model, stages, self.clock, upkeep.beside(m), m)
        return Laid(
            costs=costs,
            micro_batches=m,
            stages=stages,
            held=held,
            upkeep=upkeep,
            pipeline=pipeline,
            sent=communicate(self.clock, plan, exchanged, costs.boundary_bytes, m, pipeline.slow),
            bubble=bubble_seconds(
                plan, m, pipeline.usual.total, pipeline.slow, pipeline.dispatched
            ),
        )

    def memory(self, plan: Plan, costs: Costs) -> Term:
        """That of `combine` alone: what the fullest accelerator holds."""
        stages = representative_stages(self.as_trained(plan), plan)
        m = plan.micro_batches(self.workload.global_batch)
        held = hold(costs, plan, stages)
        return self._memory(costs, plan, stages, held, m).fullest

    def memory_alone(self, plan: Plan) -> Term:
        """The same of plans of which no time is asked: nothing is priced."""
        costs = training_costs(self.as_trained(plan), plan, self.workload.seq, None)
        return self.memory(plan, costs.spread())

    def memory_by_stage(self, plan: Plan) -> list[Term]:
        """The memory of every pipeline stage of a single plan."""
        memory = self.stored_by_stage(plan).memory
        return [memory.pick(stage) for stage in range(np.shape(memory.value)[0])]

    def stored_by_stage(self, plan: Plan) -> Stored:
        """The same, with what the allocator keeps beside it."""
        costs = self.keyed_costs(plan).spread()
        stages: Stages = every_stage(self.as_trained(plan), plan)
        m = plan.micro_batches(self.workload.global_batch)
        return self._memory(costs, plan, stages, hold(costs, plan, stages), m)

    def _memory(self, costs: Costs, plan: Plan, stages: Stages, held: Held, m: Size) -> Stored:
        workspace = self.cluster.accelerator.architecture.blas_workspace_bytes
        return stage_memory(
            costs, plan, stages, held, m, self.profile, float(workspace), self.cluster.per_node
        )

    def fusion_savings(self, plan: Plan) -> FusionSavings:
        """Kernels and memory traffic of one layer with and without the fuse pass."""
        run = training_pass(plan, self.workload.seq)

        def layer(of: Plan) -> Graph:
            return compile_program(self.model, of, run).blocks[-1]

        before, after = layer(plan.but(flash=False, fused=False)), layer(plan)
        return FusionSavings(
            float(sum(isinstance(node, Op) for node in before)),
            float(sum(isinstance(node, Op) for node in after)),
            float(traffic_bytes(before)),
            float(traffic_bytes(after)),
        )
