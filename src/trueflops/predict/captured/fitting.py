"""Whether a captured step fits a chip, and what would make it fit: the answer to "why OOM"."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Final, NamedTuple

from trueflops.language import say
from trueflops.predict.captured.memory import CapturedMemory
from trueflops.records.recording import Recording
from trueflops.units import GIBI

CONTEXT: Final = 0.5 * GIBI
"""Driver, kernels' code and libraries, beside what the allocator holds (assumed)."""
OF_LAYERS: Final = 0.1  # of activations that stay with checkpoints at every layer
KEPT: Final = ("activations", "recomputed activations")


class Saving(NamedTuple):
    """Something a user could do, and about how much it would free at the peak."""

    saves_bytes: float
    text: str


@dataclass
class Fitting:
    """The peak beside the chip."""

    capacity_bytes: float
    needed_bytes: float
    savings: list[Saving]

    @property
    def fits(self) -> bool:
        """Whether the step would run."""
        return self.needed_bytes <= self.capacity_bytes


def fitting(recording: Recording, memory: CapturedMemory, capacity: float) -> Fitting:
    """Hold the peak against the chip, and list what would free most of it."""
    # A cache that runs full is emptied before torch gives up: only what is allocated must fit, and
    # what CUDA graphs keep.
    needed = memory.peak_allocated_bytes + memory.pool_bytes + CONTEXT
    return Fitting(capacity, needed, sorted(_savings(recording, memory), reverse=True))


def _savings(recording: Recording, memory: CapturedMemory) -> list[Saving]:
    by, found = memory.by("category"), []
    layers = _repeated(recording)
    kept = sum(by.get(name, 0) for name in KEPT)
    inside = sum(
        h.size_bytes for h in memory.alive if h.category in KEPT and _inside(h.module, layers)
    )
    recomputes = any("recompute" in name for name in by)
    if inside and not recomputes:
        found.append(
            Saving(
                (1.0 - OF_LAYERS) * inside, say("checkpoint every layer (activation checkpointing)")
            )
        )
    if kept:
        found.append(Saving(kept / 2, say("half the batch, accumulating gradients over two")))
    optimizer = sum(
        h.size_bytes for h in memory.alive if h.category == "temporary" and "_foreach" in h.op
    )
    if optimizer:
        found.append(
            Saving(optimizer, say("fused=True in the optimizer: no temporary of every weight"))
        )
    head = sum(h.size_bytes for h in memory.alive if "log_softmax" in h.op or _is_logits(h.op))
    if head:
        found.append(Saving(head / 2, say("a chunked or fused cross-entropy: logits never whole")))
    states = sum(by.get(n, 0) for n in ("parameters", "gradients", "optimizer state"))
    if states and recording.by_session:
        found.append(Saving(states / 2, say("weights of half as many bits")))
    elif states and recording.world == 1:
        found.append(
            Saving(states / 2, say("shard weights, gradients and states over two chips (FSDP)"))
        )
    return [saving for saving in found if saving.saves_bytes > 0.01 * memory.peak_allocated_bytes]


def _is_logits(op: str) -> bool:
    return "nll_loss" in op or "cross_entropy" in op


def _repeated(recording: Recording) -> set[str]:
    """Prefixes of modules that come many times: the layers of a model."""
    times: dict[str, int] = defaultdict(int)
    for path in recording.modules:
        parts = path.split(".")
        for i, part in enumerate(parts):
            if part.isdigit():
                times[".".join(parts[:i])] += 1
                break
    return {prefix for prefix, count in times.items() if count > 2}


def _inside(module: str, layers: set[str]) -> bool:
    return any(module.startswith(prefix + ".") for prefix in layers)
