"""What a stage really takes: its kernels, and what untuned libraries, the host and the cap add.

Phase by phase a stage waits for a host that issues its kernels one by one; over the whole
micro-batch its mean power decides the clock. In that order: a chip that waits draws less. Each
phase then takes no longer than before when any of its parts gets faster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from trueflops.clock import PowerLaw
from trueflops.profile import Profile
from trueflops.sizes import Size

HOST_SHARPNESS: Final = 8.0


@dataclass(frozen=True)
class StageWork:
    """One micro-batch on one stage, by phase, as its kernels alone would run."""

    seconds: dict[str, Size]
    clocked: dict[str, Size]  # of these, what follows the chip's clock
    kernels: dict[str, Size]
    joules: Size  # at full clock


@dataclass(frozen=True)
class Slowed:
    """The same as it really runs, and what was added."""

    seconds: dict[str, Size]
    untuned: Size
    gaps: Size
    capped: Size
    clock_ratio: Size

    @property
    def total(self) -> Size:
        """Forward and back."""
        return summed(self.seconds)


def slow_down(stage: StageWork, profile: Profile, power: PowerLaw) -> Slowed:
    """Add what libraries lose on these shapes, then waits for the host, then the power cap."""
    launch = profile.curve("framework")["launch"]
    lost = 1.0 / profile.curve("models")["typical"] - 1.0
    waited: dict[str, Size] = {}
    gaps: dict[str, Size] = {}
    for phase, seconds in stage.seconds.items():
        device = seconds + lost * stage.clocked[phase]
        gaps[phase] = waiting_for_host(launch * stage.kernels[phase], device)
        waited[phase] = device + gaps[phase]
    clocked = summed(stage.clocked)
    held = power.throttle(stage.joules, clocked, summed(waited))
    share = held.added / np.maximum(clocked, 1e-300)
    taken = {phase: waited[phase] + share * stage.clocked[phase] for phase in waited}
    return Slowed(taken, lost * clocked, summed(gaps), held.added, held.ratio)


def waiting_for_host(host: Size, device: Size) -> Size:
    """Seconds that a stream of kernels waits for a host that issues them one by one.

    Stretches of short kernels wait even where the whole is device-bound: a smooth maximum.
    """
    share = host / np.maximum(device, 1e-300)
    return device * np.expm1(np.log1p(share**HOST_SHARPNESS) / HOST_SHARPNESS)


def summed(sizes: dict[str, Size]) -> Size:
    """All phases together."""
    total: Size = 0.0
    for size in sizes.values():
        total = total + size
    return total
