"""A predicted training step: what was asked, and the two trees that answer, time and memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trueflops.catalog import Cluster
from trueflops.model import Model
from trueflops.plan import Plan
from trueflops.predict.training.peaks import PeakKind, peak_of
from trueflops.predict.training.pipeline import StepWork
from trueflops.profile import Profile
from trueflops.runtime.terms import Term, at, leaf
from trueflops.sizes import Size
from trueflops.workload import Training


@dataclass(frozen=True, kw_only=True)
class TrainingStep:
    """What one step takes, and what the fullest accelerator holds."""

    model: Model
    plan: Plan
    workload: Training
    cluster: Cluster
    profile: Profile
    step: Term
    memory: Term  # of the fullest stage
    cached_bytes: Size  # that the allocator keeps there of other moments, as long as there is room
    capacity_bytes: float
    micro_batches: Size
    work: StepWork
    host_bytes: Size  # offloaded, per accelerator

    @property
    def fits(self) -> Any:
        """Whether the fullest accelerator's memory suffices, and the host's for what it takes."""
        inside = np.asarray(self.memory.value) <= self.capacity_bytes
        room = self.cluster.node_memory_bytes
        if room is None:
            return inside
        return inside & (np.asarray(self.host_bytes) * self.cluster.per_node <= room)

    @property
    def fits_surely(self) -> Any:
        """Whether it fits even at the upper end of the interval: what a search should offer."""
        return self.fits & (np.asarray(self.memory.estimate.high) <= self.capacity_bytes)

    def peak(self, kind: PeakKind) -> Term:
        """What PyTorch calls allocated or reserved, or what the device reports: with its parts."""
        room = np.maximum(self.capacity_bytes - np.asarray(self.memory.value), 0.0)
        cached = np.minimum(self.cached_bytes, room)
        law = self.profile.curve("allocator")
        return peak_of(self.memory, kind, leaf("cached blocks", cached, law, "allocator", "bytes"))

    @property
    def surely_too_full(self) -> Any:
        """Whether even the lower end of the interval exceeds the accelerator: it did not run so."""
        return np.asarray(self.memory.estimate.low) > self.capacity_bytes

    def pick(self, index: int) -> TrainingStep:
        """The step of one plan out of many, in plain numbers."""
        return replace(
            self,
            plan=self.plan.pick(index),
            step=self.step.pick(index),
            memory=self.memory.pick(index),
            micro_batches=at(self.micro_batches, index),
            work=self.work.pick(index),
            cached_bytes=at(self.cached_bytes, index),
            host_bytes=at(self.host_bytes, index),
        )
