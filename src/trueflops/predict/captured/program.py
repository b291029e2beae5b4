"""Everything that is predicted of a captured program on a chip."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

from trueflops.clock import Clock
from trueflops.predict.captured.compiled import as_if_compiled, fuse_regions
from trueflops.predict.captured.fitting import CONTEXT, Fitting, fitting
from trueflops.predict.captured.groups import KernelGroup, group_kernels
from trueflops.predict.captured.lowering import Lowering
from trueflops.predict.captured.memory import CapturedMemory, captured_memory
from trueflops.predict.captured.step import CapturedStep, captured_step
from trueflops.records.recording import Recording


@dataclass
class CapturedProgram:
    """A recording on a chip: its step, its memory, whether it fits."""

    recording: Recording
    clock: Clock
    step: CapturedStep
    memory: CapturedMemory
    lowering: Lowering
    recorded: Recording  # as the program ran, before what was compiled was fused

    @cached_property
    def groups(self) -> list[KernelGroup]:
        """Kernels, alike ones together, the costliest first."""
        return group_kernels(self.step.ran)

    @cached_property
    def fitting(self) -> Fitting:
        """Whether it fits, and what would save most."""
        capacity = self.clock.chip.get("memory.capacity") or 0.0
        return fitting(self.recording, self.memory, capacity)

    @cached_property
    def fused(self) -> CapturedStep:
        """The step if all of it were compiled."""
        marked = as_if_compiled(self.recording, self.lowering)
        return captured_step(marked, self.clock, self.lowering)

    @property
    def peak_share(self) -> float:
        """Of the dense bf16 peak (or the best there is) that products and attention reach."""
        chip = self.clock.chip
        dtype = next((d for d in ("bf16", "fp16", "fp32") if chip.computes(d)), "")
        if not dtype or not self.step.seconds.value:
            return 0.0
        rate = self.step.flop / float(self.step.seconds.value)
        return float(rate / chip.peak_flop_per_second(dtype))


def predict_program(recording: Recording, clock: Clock) -> CapturedProgram:
    """Fuse what was compiled, price it, run it on two clocks, replay its memory."""
    lowering = Lowering()
    fused = fuse_regions(recording, lowering)
    return program_of(recording, fused, captured_step(fused, clock, lowering), clock, lowering)


def program_of(
    recording: Recording, fused: Recording, step: CapturedStep, clock: Clock, lowering: Lowering
) -> CapturedProgram:
    """A program whose step is predicted, with its memory."""
    workspace = int(clock.chip.architecture.blas_workspace_bytes)
    if clock.cluster.host_bandwidth is None and "host copy" in step.by_cause:
        free = f"how {clock.chip.name} reaches host memory is not known: such copies cost nothing"
        fused = replace(fused, warnings=[*fused.warnings, free])
    capacity = clock.chip.get("memory.capacity")
    memory = captured_memory(
        fused,
        workspace=workspace,
        limit_bytes=capacity - CONTEXT if capacity else inf,
        on_host=clock.chip.is_cpu,
    )
    return CapturedProgram(fused, clock, step, memory, lowering, recording)
