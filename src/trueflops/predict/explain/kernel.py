"""What every explained kernel has: its time, its rate, the limits of its law and the roofline.

What binds a kernel is said in one place, `bound`: the limit of its law that alone takes longest.
Where the roofline would have said otherwise, because a kernel computes or waits for more than its
flop and bytes tell, `beyond_roofline` says so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trueflops.catalog import Accelerator
from trueflops.clock import Clock, curve_key
from trueflops.clock.law import Law
from trueflops.errors import BadInput, MissingFact
from trueflops.graph.ir import Op
from trueflops.language import say
from trueflops.profile import Choice, Curve
from trueflops.runtime.terms import Estimate
from trueflops.sizes import Size
from trueflops.units import GIBI


@dataclass(frozen=True, kw_only=True)
class KernelExplained(ABC):
    """One kernel on one chip, in SI units."""

    chip: Accelerator
    profile: str
    choice: Choice  # of the law's curve in the profile
    form: str
    dtype: str  # that it is computed in
    seconds: Estimate
    flop: float
    moved_bytes: float  # that must move at least
    peak: float  # flop per second
    bandwidth: float  # bytes per second
    efficiency: float  # of the peak, that such kernels reach at best
    units: float
    units_known: bool
    limits: Mapping[str, float]  # what each alone would take, in seconds
    correction: float  # the residual as a factor: with landmarks over without

    @property
    @abstractmethod
    def name(self) -> str:
        """The kernel in a few words."""

    @property
    def law(self) -> Curve:
        """The parameters that priced it."""
        return self.choice.curve

    @property
    def flop_per_second(self) -> Estimate:
        """The rate that the prediction comes to."""
        return self.seconds.under(self.flop)

    @property
    def bytes_per_second(self) -> float:
        """Compulsory bytes over the predicted time."""
        return self.moved_bytes / float(self.seconds.value)

    @property
    def bound(self) -> str:
        """The limit that alone would take longest: what binds."""
        return max(self.limits, key=lambda name: self.limits[name])

    @property
    def roofline_side(self) -> str:
        """Which roof of the datasheet is the lower one at this intensity."""
        return "compute" if self.intensity >= self.ridge else "memory"

    @property
    def beyond_roofline(self) -> bool:
        """Whether another limit binds than the roofline of flop and bytes shows."""
        return self.bound != self.roofline_side

    @property
    def intensity(self) -> float:
        """Flop per byte that must move at least."""
        return self.flop / self.moved_bytes

    @property
    def ridge(self) -> float:
        """Flop per byte from which on the datasheet's peak is the lower roof."""
        return self.peak / self.bandwidth

    @property
    def delivered_peak(self) -> float:
        """The roof that such kernels reach at best, flop per second."""
        return self.peak * self.efficiency

    @property
    def delivered_bandwidth(self) -> float:
        """The slope that such kernels reach, bytes per second."""
        return self.bandwidth * self.law["bandwidth"]

    @property
    def delivered_ridge(self) -> float:
        """Flop per byte at which the two delivered roofs meet."""
        return self.delivered_peak / self.delivered_bandwidth

    @property
    def unit(self) -> str:
        """What the chip's units are called."""
        return self.chip.architecture.unit or "unit"


def curve_of(clock: Clock, op: Op, law: Law) -> Choice:
    """The curve that prices an op, and how it was chosen."""
    choice = clock.profile.choose(curve_key(op))
    if missing := sorted(law.parameters.keys() - choice.curve.values.keys()):
        kind = choice.key.kind.replace("_", " ")
        raise MissingFact(f"profile {clock.profile.name}: its {kind} curve lacks {missing[0]}")
    return choice


def check_room(chip: Accelerator, needed: float, what: str) -> None:
    """Refuse what the chip's memory cannot hold."""
    capacity = chip.get("memory.capacity")
    if capacity and needed > capacity:
        raise BadInput(
            say(
                "{what} take {needed:,.0f} GiB and {name} has {capacity:,.0f} GiB; name a "
                "smaller one",
                what=what,
                needed=needed / GIBI,
                name=chip.name,
                capacity=capacity / GIBI,
            )
        )


def one(size: Size) -> float:
    """The only number of a size."""
    return float(np.ravel(size)[0])
