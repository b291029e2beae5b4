"""Power: the energy of work, and the clock that a chip at its power cap can hold.

    energy at full clock   E = Σ flop·e(dtype) + bytes·e(byte)
    at a share r of it     E·r^γ, since a slower clock needs a lower voltage
    time                   C/r + M: most of a matmul follows the clock, memory does not
    the cap                static + E·r^γ / (C/r + M) ≤ cap           → r
A long, matmul-heavy step runs at r < 1 (an H200 sustains 665 of 830 TFLOP/s); a decode step, bound
by memory, does not. Energies are joules per flop of a dtype and per byte: the same for chips of
one architecture, whatever their caps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from trueflops.catalog import Accelerator
from trueflops.profile import Curve
from trueflops.sizes import Array, Size
from trueflops.tables import on_rows

# Of a cap, for work. Assumed, a guard: no limit is set where a chip could not run at all.
LEAST_ROOM: Final = 0.2
# No chip throttles below this share of its clock. Assumed, a guard: the lowest clock under the
# loads of truth/h200/power.csv is 1349 of 1980 MHz, 0.68.
SLOWEST: Final = 0.3
CLOCKED_CAUSES: Final = ("matmul", "experts", "attention")


@dataclass(frozen=True)
class Throttle:
    """The share of its clock that a chip holds, and the seconds that this adds."""

    ratio: Size
    added: Size


class PowerLaw:
    """What one chip draws under load."""

    def __init__(self, chip: Accelerator, law: Curve) -> None:
        own = law.values.get("cap_watts")  # of the machine that was measured
        self.law, self.cap, self.chip = law, own or chip.get("power.tdp"), chip

    def compute_joules(self, flop: Size, dtype: str) -> Size:
        """Energy of matrix products at full clock, beside what the chip draws anyway."""
        if self.cap is None:
            return 0.0
        each = self.law.values.get(f"joules_{dtype}")
        if each is None:  # as much at its peak as bf16 at its own
            each = self.law["joules_bf16"]
            if each:  # 0 of a chip without bf16, of which nothing is known
                peaks = [self.chip.peak_flop_per_second(d) for d in ("bf16", dtype)]
                each *= peaks[0] / peaks[1]
        return each * flop

    def memory_joules(self, moved_bytes: Size) -> Size:
        """Energy of bytes read and written."""
        return self.law["joules_byte"] * moved_bytes if self.cap else 0.0

    def joules(self, flop: Size, moved_bytes: Size, dtype: str, *, matrix: bool) -> Size:
        """Energy of one op at full clock; only what runs on a matrix engine burns by its flop."""
        burnt = self.memory_joules(moved_bytes)
        return burnt + self.compute_joules(flop, dtype) if matrix else burnt

    def throttle(self, joules: Size, clocked: Size, whole: Size) -> Throttle:
        """What the cap does to work of `whole` seconds, `clocked` of which are matrix products."""
        return Throttle(*on_rows(self._throttle, joules, clocked, whole))

    def _throttle(self, joules: Size, clocked: Size, whole: Size) -> tuple[Size, Size]:
        follows = self.law["clocked"] * clocked
        if self.cap is None or not np.any(joules > (self.cap - self.law["static_watts"]) * whole):
            return 1.0, 0.0 * whole
        # With x = 1/r, c = C/(C + M) and the load a = E / (C + M) / (cap − static), the cap is
        # ln a = γ·ln x + ln(1 + c·(x − 1)): nearly a line in ln x, of which Halley's method finds
        # the root by two steps from x = 1, to 1e-7 for γ ≥ 1.
        lasting, exponent = np.maximum(whole, 1e-300), self.law["exponent"]
        load = np.log(np.maximum(joules / (self._room * lasting), 1.0))
        share = follows / lasting
        slower = _halley(load, share, exponent)
        slowed = np.exp(slower)
        longer = 1.0 + share * (slowed - 1.0)
        left = load - exponent * slower - np.log(longer)
        slower = slower + _halley(left, share * slowed / longer, exponent)
        slowed = np.minimum(np.exp(slower), 1.0 / SLOWEST)
        return 1.0 / slowed, follows * (slowed - 1.0)

    def least_added(self, joules: Size, clocked: Size, whole: Size) -> Size:
        """Seconds that the cap adds at least: by one step of Newton's method for x itself, which
        stays below the root since E·x^−γ − (cap − static)·(C·x + M) is convex and falls.
        """
        if self.cap is None:
            return 0.0
        follows = self.law["clocked"] * clocked
        slope = self.law["exponent"] * joules + self._room * follows
        slowed = np.maximum(joules - self._room * whole, 0.0) / np.maximum(slope, 1e-300)
        return follows * np.minimum(slowed, 1.0 / SLOWEST - 1.0)

    @property
    def _room(self) -> float:
        """Watts that are left for work."""
        cap = self.cap or 0.0
        return max(cap - self.law["static_watts"], LEAST_ROOM * cap)

    def watts(self, joules: Size, taken: Size, ratio: Size) -> Size:
        """Mean power of a chip that does this work in so many seconds; never above the cap."""
        return np.minimum(self._watts(joules, taken, ratio), self.cap or 0.0)

    def _watts(self, joules: Size, taken: Size, ratio: Size) -> Array:
        static = self.law["static_watts"]
        busy = joules * ratio ** self.law["exponent"] / np.maximum(taken, 1e-300)
        return np.asarray(static + busy)


def _halley(left: Size, share: Size, exponent: float) -> Size:
    """A step towards the root of γ·ln x + ln(1 + c·(x − 1)), of which `left` is left, from where
    `share` of the time follows the clock.
    """
    slope = exponent + share
    return left / (slope + 0.5 * left * share * (1.0 - share) / slope)
