"""What a run did, as plain data: every rank's counts, every step's loss and seconds."""

from __future__ import annotations

from dataclasses import dataclass

from trueflops.predict.training.sent import Sent
from trueflops.predict.training.through_one import Passed
from trueflops.run.served import Served


@dataclass(frozen=True, kw_only=True)
class RankCount:
    """One step of one rank, counted."""

    rank: int
    stage: int
    moved: tuple[Sent, ...]
    wire_bytes: int | None  # that left by its sockets; None where the system does not count them
    peak_bytes: int
    weight_bytes: int
    gradient_bytes: int
    state_bytes: int
    passed: tuple[Passed, ...] = ()  # this process, where it alone holds the weights


@dataclass(frozen=True, kw_only=True)
class StepRan:
    """One step, as all ranks agree on it."""

    step: int
    loss: float
    seconds: float
    counted: bool  # it ran under the counter, which slows it down
    loss_scale: float = 1.0  # of fp16, by which the next step's gradients are multiplied
    memory_bytes: int | None = None  # the peak of this rank's tensors, where somebody looked
    traced: bool = False  # it ran under the profiler, which slows it down, too

    @property
    def plain(self) -> bool:
        """Whether nobody looked on: its seconds are the run's own."""
        return not (self.counted or self.traced)


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A whole run."""

    ranks: tuple[RankCount, ...]
    steps: tuple[StepRan, ...]
    device: str
    begun_at: int  # steps that a checkpoint had seen before
    served: Served | None = None  # by a parameter server

    @property
    def step_seconds(self) -> float | None:
        """The median of steps that nobody looked on at; None where there is none."""
        plain = sorted(s.seconds for s in self.steps if s.plain)
        return plain[len(plain) // 2] if plain else None
