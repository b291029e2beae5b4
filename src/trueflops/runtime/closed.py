"""A stretch of kernels in closed form: what untuned libraries, the host and the power cap add.

The formula for what `replay.py` simulates, for a million plans at once: phase by phase a device
waits for a host that issues its kernels one by one; then its mean power over the whole decides the
clock. In that order: a chip that waits draws less. Each phase takes no longer than before when any
of its parts gets faster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np

from trueflops.clock import PowerLaw
from trueflops.clock.host import waiting_for_host
from trueflops.profile import Profile
from trueflops.runtime.terms import Term, leaf
from trueflops.sizes import Size
from trueflops.tables import summed

TOGETHER: Final = (("forward",), ("recompute", "backward"), ("backward_weight",))
"""Phases whose short kernels alternate, layer by layer: the host's lead in one helps the next."""


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Kernels of one stream, by phase, as they would run back to back at full clock."""

    seconds: dict[str, Size]
    clocked: dict[str, Size]  # of these, what follows the chip's clock
    kernels: dict[str, Size]
    host: dict[str, Size]  # seconds that the host needs to issue them
    joules: Size  # at full clock
    by_cause: dict[tuple[str, str], Size] = field(default_factory=dict)  # (phase, cause)

    def caused(self, cause: str, *phases: str) -> Size:
        """Seconds of one cause in some phases."""
        found: Size = 0.0
        for phase in phases:
            found = found + self.by_cause.get((phase, cause), 0.0)
        return found


@dataclass(frozen=True, kw_only=True)
class Beside:
    """Work of the same step that the cap sees too, but that is no part of the stretch."""

    seconds: Size = 0.0
    joules: Size = 0.0


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A stretch as it really runs, and what was added."""

    waited: dict[str, Size]  # seconds by phase at full clock, waits for the host included
    clocked: dict[str, Size]  # of these, what follows the chip's clock
    untuned: Size
    shared: Size  # for kernels of others on some of the chip's units
    gaps: Size
    capped: Size
    clock_ratio: Size

    @cached_property
    def total(self) -> Size:
        """Forward and back."""
        return summed((*self.waited.values(), self.capped))

    def seconds(self, chosen: Callable[[Size], Size] = lambda size: size) -> dict[str, Size]:
        """By phase, each slowed by the cap as far as it follows the clock; of sizes [stage, plan]
        those of the stage that is chosen.
        """
        clocked = {phase: chosen(size) for phase, size in self.clocked.items()}
        share = chosen(self.capped) / np.maximum(summed(clocked.values()), 1e-300)
        return {phase: chosen(size) + share * clocked[phase] for phase, size in self.waited.items()}

    def added(self, profile: Profile, times: Size = 1.0) -> tuple[Term, ...]:
        """What was added as leaves of a step that runs the stretch so many times."""
        vendor, power, host = (profile.curve(n) for n in ("models", "power", "framework"))
        shared = (leaf("units shared", times * self.shared, host, "framework"),)
        return (
            leaf("untuned shapes", times * self.untuned, vendor, "vendor"),
            *(shared if np.any(self.shared) else ()),
            leaf("power cap", times * self.capped, power, "power"),
            leaf("launch gaps", times * self.gaps, host, "framework"),
        )


def run_closed(
    work: Stretch,
    power: PowerLaw,
    *,
    gap: float,
    lost: float = 0.0,
    shared: Size = 0.0,
    beside: Beside | None = None,
    blocking: bool = False,
) -> Ran:
    """Add what libraries lose on these shapes, then waits for the host, then the power cap.

    `lost` and `shared` (others' kernels on some of the units) are relative to what follows the
    clock, `gap` in seconds after every kernel. A `blocking` host issues the next kernel when the
    one before has ended: nothing runs beside it.
    """
    beside = beside or Beside()
    device = {
        phase: seconds + (lost + shared) * work.clocked[phase] + gap * work.kernels[phase]
        for phase, seconds in work.seconds.items()
    }
    waited: dict[str, Size] = {}
    gaps: Size = 0.0
    for phases in ([phase for phase in group if phase in device] for group in TOGETHER):
        busy = summed(device[phase] for phase in phases)
        issued = summed(work.host[phase] for phase in phases)
        waits = issued if blocking else waiting_for_host(issued, busy)
        share = waits / np.maximum(busy, 1e-300)
        for phase in phases:
            waited[phase] = device[phase] * (1.0 + share)
            gaps = gaps + gap * work.kernels[phase]
        gaps = gaps + waits
    clocked = summed(work.clocked.values())
    whole = summed(waited.values()) + beside.seconds
    held = power.throttle(work.joules + beside.joules, clocked, whole)
    return Ran(
        waited=waited,
        clocked=work.clocked,
        untuned=lost * clocked,
        shared=shared * clocked,
        gaps=gaps,
        capped=held.added,
        clock_ratio=held.ratio,
    )
