"""The network of a node as sources write it: '4x100Gb', '8x400Gb InfiniBand', '1600 Gbps'.

In: a text. Out: bytes per second of one node in one direction, and clusters that have it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from math import inf
from typing import Final

from trueflops import units
from trueflops.catalog.clusters import Cluster
from trueflops.catalog.fabric import UNMEASURED
from trueflops.catalog.links import link
from trueflops.errors import BadInput, shorten
from trueflops.language import say

_RAILS: Final = re.compile(r"\b(\d{1,9})\s*x\s*(\d{1,9})\s*Gb(?:ps|it|/s|E)?\b")
_TOTAL: Final = re.compile(r"\b(\d{1,9})\s*Gb(?:ps|it/s|/s)\b")


def noted_network(text: str) -> float | None:
    """What a text says of the network of a node, in bytes per second; None if nothing."""
    bits = None
    if rails := _RAILS.search(text):
        bits = float(rails[1]) * float(rails[2])
    elif total := _TOTAL.search(text):
        bits = float(total[1])
    return bits * units.GIGA / units.BITS_PER_BYTE if bits else None


def read_network(text: str) -> float:
    """The same of a text that must say it."""
    found = noted_network(text)
    if not found:
        raise BadInput(
            say(
                "network {text!r}: write the links of a node, each way, as 8x400Gb or 100Gbps",
                text=shorten(text),
            )
        )
    return found


def with_network(cluster: Cluster, node_bytes_per_second: float, sharing: int) -> Cluster:
    """The same cluster over another network, which so many accelerators of a node share.

    Of its kind nothing is known: a cloud's Ethernet is not the InfiniBand of the usual node.
    """
    if not cluster.tiers or cluster.tiers[-1].reach != inf:
        return cluster
    *inner, outer = cluster.tiers
    bandwidth = node_bytes_per_second / sharing
    outer = replace(outer, bandwidth=bandwidth, origin="assumed", network=UNMEASURED)
    return replace(cluster, tiers=(*inner, outer))


def with_bus(cluster: Cluster, name: str) -> Cluster:
    """The same cluster whose cards stand in other PCIe slots; what NVLink joins stays as it is."""
    bus = link(name).values["bandwidth"]
    joined = [
        replace(tier, name=name, bandwidth=min(bus, tier.bandwidth))
        if tier.topology.startswith("pcie")
        else tier
        for tier in cluster.tiers
    ]
    return replace(cluster, tiers=tuple(joined))
