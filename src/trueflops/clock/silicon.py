"""What the laws need to know of a chip: units, clock, cache, bandwidth and peaks, in SI units.

Where the catalog does not know a fact, that of the same die does, else a usual value stands in; a
law depends on it only weakly (a wave over unknown units, a start in cycles of an unknown clock).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trueflops.catalog import Accelerator
from trueflops.profile import fact_of_die

# Assumed, for chips whose vendors publish none (Ascend, Gaudi, Groq): the multiprocessors of a
# data-centre GPU, between an A100's 108 and an L40S's 142.
USUAL_UNITS = 128.0
# Hertz. Assumed, for chips without a published clock (TPU, Trainium, Ascend …): the median of the
# catalog's 96 chips that have one is 1.76 GHz.
USUAL_CLOCK = 1.7e9


@dataclass(frozen=True)
class Silicon:
    """One chip as a law sees it."""

    units: float  # multiprocessors, compute units, tensor cores: what tiles are dealt to
    hertz: float
    l2_bytes: float
    bandwidth: float
    peak: Callable[[str], float]  # dense flop per second of a dtype
    portable: float = 1.0  # of the peak, by the instruction that all of a vendor's chips have

    @classmethod
    def of(cls, chip: Accelerator) -> Silicon:
        """The facts of one accelerator."""
        return cls(
            fact_of_die(chip, "compute.units") or USUAL_UNITS,
            fact_of_die(chip, "compute.clock") or USUAL_CLOCK,
            fact_of_die(chip, "memory.l2") or 0.0,
            chip.need("memory.bandwidth"),
            chip.peak_flop_per_second,
            chip.architecture.mma_sync_share,
        )
