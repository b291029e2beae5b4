"""Of what the MFU of a run is a share: a peak, and who says so. Needs no torch.

In: where the run was predicted for, or the name of the device it runs on. Out: Peak, or None: of a
CPU that nobody measured no peak is known.
"""

from __future__ import annotations

from dataclasses import dataclass

from trueflops.catalog import Accelerator, Cluster, accelerator
from trueflops.errors import TrueflopsError
from trueflops.language import say
from trueflops.records.chips import chip_of


@dataclass(frozen=True)
class Peak:
    """Flop per second of one device."""

    flop_per_second: float
    said_by: str


def peak_of(where: Cluster | None, device: str, dtype: str) -> Peak | None:
    """That of the chip that seconds are predicted for, else of the one torch names."""
    chip = where.accelerator if where else _named(device)
    if chip is None:
        return None
    try:
        rate = chip.peak_flop_per_second(dtype)
    except TrueflopsError:  # it does not multiply in this dtype, or nobody says how fast
        return None
    said = say("its datasheet")
    if chip.status == "measured":
        said = say("the fastest product that the profile measured")
    if where is not None and chip.is_cpu and where.count > 1:
        rate /= where.count
        said = say("1/{count} of {said}: its ranks share it", count=where.count, said=said)
    return Peak(rate, say("{dtype} of {name}, {said}", dtype=dtype, name=chip.name, said=said))


def _named(device: str) -> Accelerator | None:
    try:
        return accelerator(chip_of(device).whole)
    except TrueflopsError:
        return None
