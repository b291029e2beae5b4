"""How much of an accelerator's memory a program sees: less than is sold.

    visible = capacity · (15/16 where ECC is kept in the same memory) − what the driver keeps

GDDR has no bits of its own for error correction; cards for servers and workstations have it on and
give a sixteenth of the memory to it (NVIDIA's Ampere and Ada tuning guides; nvidia-smi shows 23,034
MiB on an L4 and 46,068 on an L40S). What the driver keeps of the rest is read off the totals that
torch.cuda.mem_get_info gives: 14.56 GiB on a T4, 23.55 on an RTX 4090, 39.39 on an A100-40GB, 44.4
on an L40S, 79.19 on an H100 (logs in vLLM's issues 15766, 13061, 16378, 19736), 139.80 on an H200
(measured here), 191.45 on an MI300X (issue 20069). On Apple's chips, whose memory is the host's
too, it is Metal's recommendedMaxWorkingSetSize: 10.67 of 16 GiB, 21.33 of 32, 48 of 64, 72 of 96
(llama-cpp-python's issue 687; llama.cpp's pull request 2011, issues 1870 and 3213).
"""

from __future__ import annotations

from typing import Final

from trueflops.catalog.accelerators import Accelerator
from trueflops.units import GIBI

INLINE_ECC: Final = 15.0 / 16.0
_WITH_INLINE_ECC: Final = ("T4", "L4", "L40", "L40S", "A10", "A10G", "A40", "A16", "A2")
NVIDIA_KEEPS: Final = (0.3 * GIBI, 0.006)  # bytes, and a share
AMD_KEEPS: Final = (0.3 * GIBI, 0.0)
_USABLE: Final = {"B300-SXM-288GB": 275040.0 / 1024.0 * GIBI}  # the catalog's note on it
APPLE_SMALL: Final = 36.0 * GIBI  # up to which Metal gets two thirds, above three quarters


def visible_bytes(chip: Accelerator) -> float:
    """What mem_get_info calls the total.

    >>> import trueflops as tf
    >>> from trueflops.catalog.visible import visible_bytes
    >>> round(visible_bytes(tf.accelerator("H100")) / 2**30, 1)
    79.2
    """
    there = chip.need("memory.capacity")
    if chip.vendor == "Apple":
        return there * (2.0 / 3.0 if there <= APPLE_SMALL else 0.75)
    if chip.is_cpu or chip.vendor not in ("NVIDIA", "AMD"):
        return there
    kept, share = NVIDIA_KEEPS if chip.vendor == "NVIDIA" else AMD_KEEPS
    if chip.whole in _WITH_INLINE_ECC:
        there *= INLINE_ECC
    there = min(there, _USABLE.get(chip.whole, there))
    return there * (1.0 - share) - kept
