"""A checkpoint: what it holds, for how long the step stands still for it, when it is safe.

In: a predicted step, a storage bandwidth. Out: Checkpoint. It holds what training cannot go on
without: weights, and the optimizer's states with the master copy. BLOOM's of 176.2 B parameters
took 2.3 TiB (bigscience.notion.site), 14 bytes each, and so it does here.
"""

from __future__ import annotations

from dataclasses import dataclass

from trueflops.catalog.operation import usual
from trueflops.model import Model, adapter_count, freeze_first, read_targets, trained_count
from trueflops.plan import BYTES, Plan
from trueflops.predict.training.step import TrainingStep


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint of the whole model."""

    size_bytes: float
    stall_seconds: float  # for which the step stands still
    write_seconds: float  # until it is safe; as long as reading it back
    asynchronous: bool

    @property
    def unsafe_seconds(self) -> float:
        """Work that goes on while it is written, and is lost with it."""
        return self.write_seconds if self.asynchronous else 0.0


def checkpoint_of(
    step: TrainingStep, storage_bytes_per_second: float, *, asynchronous: bool
) -> Checkpoint:
    """What a step's checkpoint takes.

    An asynchronous one is copied to the host's memory while the step waits, and written from there
    beside the next steps (PyTorch's async_save, MegaScale section 4.4). Replicas share the copying;
    deciding who writes what takes longer than that unless a rank holds much.
    """
    size = checkpoint_bytes(step.model, step.plan)
    write = size / storage_bytes_per_second
    copy = size / step.cluster.count / (step.cluster.host_bandwidth or float("inf"))
    stall = min(max(copy, usual("stall")), write) if asynchronous else write
    return Checkpoint(size, stall, write, asynchronous)


def checkpoint_bytes(model: Model, plan: Plan) -> float:
    """Weights that are trained, and their states; frozen ones can be had where they came from."""
    return trained_parameters(model, plan) * (BYTES[plan.trained_dtype] + plan.state_bytes)


def trained_parameters(model: Model, plan: Plan) -> int:
    """How many parameters have a gradient."""
    frozen = freeze_first(model, plan.freeze_layers)
    if not plan.adapters:
        return trained_count(frozen)
    return adapter_count(frozen, plan.lora_rank, read_targets(plan.lora_targets))
