"""The floor under every overlap: a step lasts at least as long as its busiest resource works.

    a tier's links   Σ bytes that a rank sends there / their bandwidth
    the host lane    Σ bytes to (or from) host memory / its bandwidth, and what a PCIe tier carries
Kernels, the host's launches and the bubble are terms of a step that nothing hides; these two run
beside them. And no step as a whole computes faster than the chip's products do alone.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from trueflops.catalog import Cluster
from trueflops.clock import Clock
from trueflops.runtime.terms import Estimate
from trueflops.sizes import Size, weighs


def busy_seconds(cluster: Cluster, links: tuple[Size, ...], host_bytes: Size) -> dict[str, Size]:
    """How long each resource of the busiest rank works in a step, by its name."""
    busy: dict[str, Size] = {}
    lane: Size = 0.0
    if cluster.host_bandwidth is not None:
        lane = host_bytes / cluster.host_bandwidth
    for tier, seconds in zip(cluster.tiers, links, strict=False):  # no links: nothing is sent
        busy[tier.name] = busy[tier.name] + seconds if tier.name in busy else seconds
        if tier.topology.startswith("pcie"):
            lane = lane + seconds
    return {**busy, "host link": lane}


def floor_seconds(busy: dict[str, Size]) -> Size:
    """What no step goes below."""
    lasting = [seconds for seconds in busy.values() if weighs(seconds)]
    return reduce(np.maximum, lasting) if lasting else 0.0


def achievable(clock: Clock, dtype: str) -> Estimate:
    """Flop per second that large products reach for a moment; a guess where none was measured."""
    law = clock.profile.curve("matmul")
    unsure = law.error if law.origin in ("derived", "assumed") else 0.0
    peak = clock.chip.peak_flop_per_second(dtype)
    return Estimate(clock.matmul_rate(dtype), {"matmul": unsure}, law.origin, most=peak)
