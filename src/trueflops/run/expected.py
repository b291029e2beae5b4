"""What is predicted of a run, rank by rank, to be held against what was counted. Needs no torch.

In: a Job, and the hardware where it is known. Out: Expected. Bytes of collectives and of weights,
gradients and states are exact; the peak is that of `predict` without what is no tensor (context,
communicators, workspaces of libraries); seconds need a chip.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from trueflops.catalog import Cluster, cluster
from trueflops.plan import BYTES, Plan
from trueflops.plan.shares import Share, block_shares, embedding_shares, head_shares
from trueflops.predict import Trainer, TrainingStep
from trueflops.predict.sent import Sent, parts, sent_bytes
from trueflops.profile import Profile, profile_of
from trueflops.run.job import Job

NO_TENSORS: Final = ("library workspaces", "allocator slack", "communicators", "context")
STAND_IN: Final = "H100"
"""Where no chip is known: the bytes of tensors are the same on any."""


@dataclass(frozen=True, kw_only=True)
class ExpectedRank:
    """Of one rank."""

    rank: int
    stage: int
    sent: tuple[Sent, ...]
    peak_bytes: float
    weight_bytes: float
    gradient_bytes: float
    state_bytes: float


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Of all ranks; `step` where a chip was named."""

    ranks: tuple[ExpectedRank, ...]
    step: TrainingStep | None


def framework_of(plan: Plan) -> str:
    """The setting that says which kernels the run has."""
    return "run-sharded" if plan.zero >= 2 and plan.dp_shard * plan.cp > 1 else "run"


def expect(job: Job, where: Cluster | None, profile: Profile | None) -> Expected:
    """Predict a run."""
    plan, world = job.plan, int(job.plan.world)
    on = where or cluster(f"{world}x{STAND_IN}")
    known = profile or profile_of(on.accelerator, framework_of(plan))
    trainer = Trainer(job.model, job.workload, on, known)
    memory = trainer.memory_by_stage(plan)
    each = world // int(plan.pp)
    ranks = []
    for rank in range(world):
        stage = rank // each
        tensors = [part for part in memory[stage].parts if part.name not in NO_TENSORS]
        weights, states = _held(job, rank, stage)
        ranks.append(
            ExpectedRank(
                rank=rank,
                stage=stage,
                sent=sent_bytes(job.model, plan, job.workload, stage),
                peak_bytes=float(sum(float(part.value) for part in tensors)),
                weight_bytes=weights * BYTES[plan.parameter_dtype],
                gradient_bytes=weights * BYTES[plan.parameter_dtype],
                state_bytes=states * plan.state_bytes,
            )
        )
    return Expected(ranks=tuple(ranks), step=trainer.predict_one(plan) if where else None)


def _held(job: Job, rank: int, stage: int) -> tuple[int, int]:
    """Elements of weights between steps, and of those whose states this rank has."""
    plan, model = job.plan, job.model
    own: list[Share] = []
    for part in parts(model, plan, stage).values():
        own += embedding_shares(model, plan) if part.first else []
        own += head_shares(model, plan) if part.last else []
        own += [s for layer in part.layers for s in block_shares(model, plan, layer)]
    share = int(plan.dp_shard * plan.cp)
    place = rank // int(plan.tp) % share
    whole = sum(s.elements for s in own)
    if plan.zero >= 2 and share > 1:
        few = int(plan.dp * plan.cp / plan.ep)
        kept = 0
        for each in own:
            spread = each.axis == "ep" and plan.ep > 1
            ways = few if spread else share
            kept += _rows(each, ways, place // int(plan.ep) if spread else place)
        return kept, kept
    if plan.zero == 1 and share > 1:
        return whole, _dealt(job, own, share)[place]
    return whole, whole


def _rows(share: Share, ways: int, place: int) -> int:
    """Elements of one rank's rows, as torch.chunk cuts them: the last may be fewer, or none."""
    first, *rest = share.shape
    each = -(-first // ways)
    return max(min(each, first - place * each), 0) * prod(rest)


def _dealt(job: Job, own: list[Share], ways: int) -> list[int]:
    """Elements of each rank of ZeroRedundancyOptimizer: the largest tensor first, always to the
    rank that has the fewest (zero_redundancy_optimizer.py, _partition_parameters).
    """
    loads = [0] * ways
    for size in sorted((s.elements for s in own), reverse=True):
        loads[loads.index(min(loads))] += size
    return loads
