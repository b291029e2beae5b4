"""The floor under every overlap: a step lasts at least as long as its busiest resource works.

    a tier's links   Σ bytes that a rank sends there / their bandwidth
    the host lane    Σ bytes to (or from) host memory / its bandwidth, and what a PCIe tier carries
Kernels, the host's launches and the bubble are terms of a step that nothing hides; these two run
beside them. Rule 9 of the design: whatever overlaps, physics is not beaten.
"""

from __future__ import annotations

import numpy as np

from trueflops.catalog import Cluster
from trueflops.sizes import Size


def busy_seconds(cluster: Cluster, links: tuple[Size, ...], host_bytes: Size) -> dict[str, Size]:
    """How long each resource of the busiest rank works in a step, by its name."""
    busy: dict[str, Size] = {}
    lane: Size = 0.0
    if cluster.host_bandwidth is not None:
        lane = host_bytes / cluster.host_bandwidth
    for tier, seconds in zip(cluster.tiers, links, strict=False):  # no links: nothing is sent
        busy[tier.name] = busy.get(tier.name, 0.0) + seconds
        if tier.topology.startswith("pcie"):
            lane = lane + seconds
    return {**busy, "host link": lane}


def floor_seconds(busy: dict[str, Size]) -> Size:
    """What no step goes below."""
    longest: Size = 0.0
    for seconds in busy.values():
        longest = np.maximum(longest, seconds)
    return longest
