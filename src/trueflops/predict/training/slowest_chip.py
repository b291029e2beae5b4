"""Stragglers: a synchronous step waits for the slowest of its ranks.

    E[slowest of n] = σ · (t + (γ − ½ ln(4π ln n)) / t),  t = √(2 ln n)      (Gumbel's limit)

Chips of one kind differ in the power that they need at a clock, so that those at their power cap
run at different clocks (Sinha et al. 2022, arXiv 2208.11035). A chip below its cap holds its
highest clock, as all others do. In: seconds of compute. Out: seconds that the others wait.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from trueflops.sizes import Size

# "8 % (max 22 %) average performance variation" among the GPUs of a cluster (the abstract). Assumed
# to be the range of a normal scatter of some thousand chips: 6.5 standard deviations of 1,000.
SCATTER: Final = 0.08 / 6.5


def waiting_for_slowest(ranks: Size, compute: Size, capped: Size) -> Size:
    """Seconds that a step of so many ranks is longer than that of the mean chip.

    `capped` is what the power cap added to the mean chip's compute. Where that is less than the
    scatter would add, part of the chips hold their highest clock.
    """
    far = np.sqrt(2.0 * np.log(np.maximum(ranks, 2.0)))
    slowest = far + (np.euler_gamma - 0.5 * np.log(2.0 * np.pi * far * far)) / far
    waited = np.minimum(SCATTER * slowest * compute, capped)
    return waited if np.all(ranks > 1.0) else np.where(ranks > 1.0, waited, 0.0)[()]
