"""Bytes that pass the one process which holds the weights: the older ways of data parallelism.

In: a model, a plan, a workload. Out: what goes out of that process and comes in, in one step, to
the byte. With n replicas each is n or n − 1 times one replica's, while a rank of a ring sends
2(n−1)/n of the gradients however many there are.
    dataparallel      in every forward weights and tokens out, logits in; in every backward their
                      gradients the other way (torch/nn/parallel/data_parallel.py)
    parameter-server  once a step, from each worker the gradients, and to it the new weights
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trueflops.model import Model
from trueflops.plan import BYTES, Plan
from trueflops.plan.shares import block_shares, embedding_shares, head_shares
from trueflops.workload import Training

ID_BYTES: Final = 8  # of a token: PyTorch's embedding takes int64
REPORT_BYTES: Final = 24  # that a worker sends before a gradient: its loss and two durations
TASK_BYTES: Final = 8  # that it is sent before the weights: which sequences are next


@dataclass(frozen=True)
class Passed:
    """One kind of tensor, in one step."""

    what: str
    out: bool  # of the process that holds the weights, or into it
    payload: float  # bytes, of all replicas together


def through_one(model: Model, plan: Plan, workload: Training) -> tuple[Passed, ...]:
    """What passes in one step; nothing where there is one replica, or the engine is DDP."""
    replicas, elements = float(plan.dp), _elements(model, plan)
    weights, gradients = (
        elements * BYTES[dtype] for dtype in (plan.parameter_dtype, plan.gradient_dtype)
    )
    match plan.engine:
        case "dataparallel" if replicas > 1:
            others = replicas - 1.0
            m = float(plan.micro_batches(workload.global_batch))
            tokens = float(plan.micro_batch) * workload.seq
            logits = tokens * model.vocab * plan.wide_bytes
            return (
                Passed("weights", True, m * others * weights),
                Passed("tokens", True, m * others * tokens * ID_BYTES),
                Passed("logits", False, m * others * logits),
                Passed("gradients of logits", True, m * others * logits),
                Passed("gradients", False, m * others * gradients),
            )
        case "parameter-server":
            return (
                Passed("gradients", False, replicas * (gradients + REPORT_BYTES)),
                Passed("weights", True, replicas * (weights + TASK_BYTES)),
            )
        case _:
            return ()


def ring_bytes(model: Model, plan: Plan) -> float:
    """What a rank of DDP's ring sends instead (Patarasuk and Yuan 2009)."""
    replicas = float(plan.dp)
    return 2.0 * (replicas - 1.0) / replicas * _elements(model, plan) * BYTES[plan.gradient_dtype]


def _elements(model: Model, plan: Plan) -> float:
    ends = embedding_shares(model, plan) + head_shares(model, plan)
    layers = (s for n in range(model.layers) for s in block_shares(model, plan, n))
    return float(sum(s.elements for s in (*ends, *layers)))
