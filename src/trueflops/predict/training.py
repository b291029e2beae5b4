"""A training step: time and memory of one plan, or of a million, by the same lines.

    step = m · mean stage + uneven stages + bubble + exposed communication + optimizer + offload
Every term is a leaf of the tree that `TrainingStep.step` is; the memory is another tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot
from typing import Any

import numpy as np

from trueflops.catalog import Cluster
from trueflops.clock import CLOCKED_CAUSES, PHYSICS, Clock, Transfer
from trueflops.errors import TrueflopsError
from trueflops.graph import Graph, Op, compile_program
from trueflops.graph.passes import traffic_bytes
from trueflops.graph.program import SHAPING, STRUCTURE
from trueflops.model import Model
from trueflops.plan import Plan
from trueflops.predict.communication import Exchange, exchange_gradients, pass_stages
from trueflops.predict.costs import Costs, KeyedCosts, training_costs, training_pass
from trueflops.predict.memory import (
    Held,
    fullest,
    held_parameters,
    host_bytes,
    kept_bytes,
    stage_memory,
)
from trueflops.predict.pipeline import (
    USEFUL,
    StepWork,
    busiest_links,
    every_stage_work,
    mean_stage,
    slowest_stage,
    step_work,
)
from trueflops.predict.schedule import bubble_seconds
from trueflops.predict.stages import Stages, every_stage, representative_stages
from trueflops.predict.training_step import TrainingStep
from trueflops.predict.upkeep import (
    accumulation,
    gathered_copies,
    offload,
    update,
    update_bytes,
    weight_casts,
)
from trueflops.profile import Profile
from trueflops.runtime import (
    COMMUNICATION,
    COMPUTE,
    Beside,
    Ran,
    Stretch,
    Term,
    achievable,
    busy_seconds,
    floor_seconds,
    leaf,
    run_closed,
    total,
)
from trueflops.sizes import Size, summed
from trueflops.workload import Training


@dataclass(frozen=True)
class FusionSavings:
    """One layer and micro-batch, forward and backward, before and after fusion."""

    kernels_before: float
    kernels_after: float
    bytes_before: float
    bytes_after: float


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
        self._remembered: dict[tuple[Any, ...], KeyedCosts] = {}
        self._rates: dict[str, float] = {}

    def predict(self, plan: Plan) -> TrainingStep:
        """Predict one plan or many."""
        return self.combine(plan, self.keyed_costs(plan).spread())

    def predict_one(self, plan: Plan) -> TrainingStep:
        """Predict a single plan, in plain numbers."""
        return self.predict(plan).pick(0)

    def keyed_costs(self, plan: Plan) -> KeyedCosts:
        """What a rank's pieces cost, one element per distinct shape of work.

        Single plans are remembered: one that differs only in dp, pp, ZeRO … compiles nothing.
        """
        if plan.count > 1:
            return training_costs(self.model, plan, self.workload.seq, self.clock)
        plan = plan.pick(0)
        key = tuple(getattr(plan, name) for name in (*SHAPING, *STRUCTURE))
        if key not in self._remembered:
            costs = training_costs(self.model, plan, self.workload.seq, self.clock)
            self._remembered[key] = costs
        return self._remembered[key]

    def combine(self, plan: Plan, costs: Costs) -> TrainingStep:
        """Put the costs of a rank's pieces together as the plan says."""
        m = plan.micro_batches(self.workload.global_batch)
        stages = representative_stages(self.model, plan)
        held = held_parameters(costs, stages)
        most = held.most()
        exposed = self._exposed(plan)
        mean = mean_stage(costs, plan, self.model, exposed)
        updated = update(self.clock, self.model, plan, most)
        aside = self._beside_stretch(plan, most, updated, m)
        usual = self._run(mean, aside)
        every = every_stage_work(costs, plan, stages, exposed)
        slow = slowest_stage(self._run(every, aside), stages)
        forward = slow.seconds["forward"]
        backward = summed(slow.seconds.values()) - forward
        dp = exchange_gradients(self.clock, plan, most, m, slow.layers, forward, backward)
        pp = pass_stages(self.clock, plan, costs.boundary_bytes, m, forward, backward)
        longest = np.maximum(summed(slow.seconds.values()), usual.total)
        uneven = m * (longest - usual.total)
        bubble = bubble_seconds(plan, m, usual.total * plan.pp, longest, slow.seconds)
        kept = np.max(kept_bytes(costs, plan, stages), axis=0)
        moved = weight_casts(self.clock, plan, most, m) + accumulation(self.clock, plan, most, m)
        moved = moved + gathered_copies(self.clock, plan, most, m)
        compute = self._compute(mean, m, moved, usual)
        communication = self._communication(plan, mean, m, dp, pp)
        beside = compute.value + communication.value + uneven + bubble
        matmul, software = self.profile.curve("matmul"), self.profile.curve("framework")
        offloaded, lane = offload(self.clock, plan, most, kept, m, beside)
        terms = (
            compute,
            communication,
            leaf("uneven stages", uneven, matmul, "matmul"),
            leaf("pipeline bubble", bubble, matmul, "matmul"),
            updated,
            offloaded,
            leaf("host, once a step", software["step"], software, "framework"),
        )
        # Whatever was hidden above, no step is shorter than its busiest link.
        inside = Transfer(0.0, busiest_links(costs, plan, stages))
        links = (m * inside + dp.whole + pp.whole).links
        floor = floor_seconds(busy_seconds(self.cluster, links, lane + dp.host_bytes))
        waited = np.maximum(floor - total("without", *terms).value, 0.0)
        done = step_work(costs, plan, self.model, m, m * mean.joules, usual.clock_ratio)
        step = total(
            "step",
            *terms,
            leaf("busiest link", waited, self.profile.curve("collective"), "collective"),
            cause="framework",
            spread=hypot(software.error, software["experts_error"] * self.model.is_moe),
            least=np.maximum(floor, self._least(plan, mean, m, done)),
        )
        if np.any(done.peak_seconds > PHYSICS * np.asarray(step.value)):
            raise TrueflopsError("a step was predicted to beat the chip's peak")
        memory = fullest(stage_memory(costs, plan, stages, held, m, self.profile))
        return TrainingStep(
            self.model,
            plan,
            self.workload,
            self.cluster,
            self.profile,
            step,
            memory,
            self.capacity,
            m,
            done,
            host_bytes(plan, most, kept),
        )

    def memory_by_stage(self, plan: Plan) -> list[Term]:
        """The memory of every pipeline stage of a single plan."""
        costs = self.keyed_costs(plan).spread()
        stages: Stages = every_stage(self.model, plan)
        m = plan.micro_batches(self.workload.global_batch)
        held = held_parameters(costs, stages)
        memory = stage_memory(costs, plan, stages, held, m, self.profile)
        return [memory.pick(stage) for stage in range(stages.index.shape[0])]

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

    def _compute(self, mean: Stretch, m: Size, weights: Size, ran: Ran) -> Term:
        parts = [
            leaf(label, m * mean.caused(cause, *USEFUL), self.profile.curve(cause), cause)
            for cause, label in COMPUTE.items()
        ]
        again = (
            leaf(label, m * mean.caused(cause, "recompute"), self.profile.curve(cause), cause)
            for cause, label in COMPUTE.items()
        )
        parts.append(total("recomputation", *again))
        parts.append(leaf("weights, gradients", weights, self.profile.curve("memory"), "memory"))
        parts += ran.added(self.profile, m)
        return total("compute", *parts)

    def _run(self, work: Stretch, beside: Beside) -> Ran:
        """As it really runs: untuned shapes, the host and the power cap added."""
        lost = 1.0 / self.profile.curve("models")["typical"] - 1.0
        gap = self.clock.host.gap
        return run_closed(work, self.clock.power, gap=gap, lost=lost, beside=beside)

    def _beside_stretch(self, plan: Plan, held: Held, updated: Term, m: Size) -> Beside:
        """The update, of which every micro-batch has its share: the cap sees a step's mean power,
        and an update only moves bytes.
        """
        moved = update_bytes(self.profile, plan, held)
        joules = self.clock.power.memory_joules(moved)
        return Beside(seconds=updated.value / m, joules=joules / m)

    def _exposed(self, plan: Plan) -> dict[str, float]:
        """How much of a communication inside a layer makes its stage wait.

        Split into pieces, a product can begin on those that have arrived (collective matmul).
        DualPipe's point: a forward's all-to-all runs beside another micro-batch's backward.
        """
        hidden = self.profile.curve("framework")["hidden_tp"]
        return {"tp": 1.0 - hidden, "ep": 0.0 if plan.schedule == "dualpipe" else 1.0}

    def _least(self, plan: Plan, mean: Stretch, m: Size, done: StepWork) -> Size:
        """All that is computed, as fast as large products are, or these where they are faster."""
        if plan.compute not in self._rates:
            peak = self.clock.chip.peak_flop_per_second(plan.compute)
            rate = float(achievable(self.clock, plan.compute).high)
            self._rates[plan.compute] = rate / peak
        own: Size = 0.0
        for cause in CLOCKED_CAUSES:
            own = own + m * mean.caused(cause, *USEFUL, "recompute")
        return np.minimum(done.peak_seconds / self._rates[plan.compute], own)

    def _beside(self, dp: Exchange) -> Size:
        """What data-parallel communication costs: what shows of it, and what its kernels and their
        traffic take from the compute beside which the rest runs.
        """
        law = self.profile.curve("framework")
        hidden = (dp.whole.seconds - dp.exposed) * law["hidden_dp"]
        return dp.whole.seconds - hidden + law["contention"] * hidden

    def _communication(
        self, plan: Plan, mean: Stretch, m: Size, dp: Exchange, pp: Exchange
    ) -> Term:
        law = self.profile.curve("collective")
        handed = pp.exposed
        sent = {axis: mean.caused(axis, *USEFUL, "recompute") for axis in COMMUNICATION}
        busy = summed(mean.by_cause.values()) - summed(sent.values())
        sent["tp"] = sent["tp"] * self._exposed(plan)["tp"]
        if plan.schedule == "dualpipe":
            longer = np.maximum(m * (sent["ep"] - busy) + pp.whole.seconds, 0.0)
            sent["ep"] = np.maximum(sent["ep"] - busy, 0.0)
            handed = longer - m * sent["ep"]  # hides behind what the all-to-all leaves over
        parts = [
            leaf(label, m * sent[axis], law, "collective") for axis, label in COMMUNICATION.items()
        ]
        parts.append(leaf("data parallel", self._beside(dp), law, "collective"))
        parts.append(leaf("pipeline sends", handed, law, "collective"))
        return total("exposed communication", *parts)
