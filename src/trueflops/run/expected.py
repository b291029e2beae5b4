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
from trueflops.predict.training.pipelined import pipelined_peaks
from trueflops.predict.training.sent import Sent, parts, sent_bytes
from trueflops.profile import Profile, profile_of
from trueflops.run.job import Job
from trueflops.run.sharing import share_cores, tensor_by_tensor

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
    model_flop: float  # of a step, the mean of all ranks, as MFU counts it


def framework_of(plan: Plan) -> str:
    """The setting that says which kernels the run has."""
    return "run-sharded" if plan.zero >= 2 and plan.dp_shard * plan.cp > 1 else "run"


def expect(
    job: Job, where: Cluster | None, profile: Profile | None, *, on_gpu: bool = False
) -> Expected:
    """Predict a run; `on_gpu` where no cluster says what it runs on."""
    plan, world = job.plan, int(job.plan.world)
    on = where or cluster(f"{world}x{STAND_IN}")
    known = profile or profile_of(on.accelerator, framework_of(plan))
    if where is None and not on_gpu:
        known = tensor_by_tensor(known)
    on, known = share_cores(on, known)
    trainer = Trainer(job.model, job.workload, on, known)
    peaks = pipelined_peaks(trainer, plan) if plan.pp > 1 else [_tensors(trainer, plan)]
    each = world // int(plan.pp)
    ranks = []
    for rank in range(world):
        stage = rank // each
        weights, states, sides = _held(job, rank, stage)
        ranks.append(
            ExpectedRank(
                rank=rank,
                stage=stage,
                sent=sent_bytes(job.model, plan, job.workload, stage),
                peak_bytes=peaks[stage],
                weight_bytes=weights * BYTES[plan.parameter_dtype],
                gradient_bytes=weights * BYTES[plan.parameter_dtype],
                state_bytes=states * plan.state_bytes
                + sides * plan.factored * BYTES[plan.parameter_dtype],
            )
        )
    step = trainer.predict_one(plan)
    flop = float(step.work.model_flop)
    return Expected(ranks=tuple(ranks), step=step if where else None, model_flop=flop)


def _tensors(trainer: Trainer, plan: Plan) -> float:
    (memory,) = trainer.memory_by_stage(plan)
    return sum(float(part.value) for part in memory.parts if part.name not in NO_TENSORS)


def _held(job: Job, rank: int, stage: int) -> tuple[int, int, int]:
    """Elements of weights between steps, of those whose states this rank has, and of the rows and
    columns of these.
    """
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
        return kept, kept, 0  # Adafactor does not run so: as_run.py
    mine = _dealt(own, share)[place] if plan.zero == 1 and share > 1 else own
    return whole, sum(s.elements for s in mine), sum(map(_sides, mine))


def _sides(share: Share) -> int:
    """Second moments of torch.optim.Adafactor: of rows and columns, of a vector all."""
    *some, last = share.shape
    return prod(some) + prod(some[:-1]) * last if some else last


def _rows(share: Share, ways: int, place: int) -> int:
    """Elements of one rank's rows, as torch.chunk cuts them: the last may be fewer, or none."""
    first, *rest = share.shape
    each = -(-first // ways)
    return max(min(each, first - place * each), 0) * prod(rest)


def _dealt(own: list[Share], ways: int) -> list[list[Share]]:
    """Tensors of each rank of ZeroRedundancyOptimizer: the largest first, always to the rank that
    has the fewest elements (zero_redundancy_optimizer.py, _partition_parameters).
    """
    loads = [0] * ways
    dealt: list[list[Share]] = [[] for _ in loads]
    for each in sorted(own, key=lambda s: s.elements, reverse=True):
        least = loads.index(min(loads))
        loads[least] += each.elements
        dealt[least].append(each)
    return dealt
