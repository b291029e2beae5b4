"""What a run did, as plain data: every rank's counts, every step's loss and seconds."""

from __future__ import annotations

from dataclasses import dataclass

from trueflops.predict.sent import Sent


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


@dataclass(frozen=True, kw_only=True)
class StepRan:
    """One step, as all ranks agree on it."""

    step: int
    loss: float
    seconds: float
    counted: bool  # it ran under the counter, which slows it down


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A whole run."""

    ranks: tuple[RankCount, ...]
    steps: tuple[StepRan, ...]
    device: str
    begun_at: int  # steps that a checkpoint had seen before

    @property
    def step_seconds(self) -> float | None:
        """The median of steps that nothing was counted in; None where all were."""
        plain = sorted(s.seconds for s in self.steps if not s.counted)
        return plain[len(plain) // 2] if plain else None
