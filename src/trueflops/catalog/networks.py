"""The network of a node as sources write it: '4x100Gb', '8x HDR', '1600 Gbps', '3.2 Tb/s', '25GbE'.

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

_GIGABIT: Final = units.GIGA / units.BITS_PER_BYTE
_SIZE: Final = r"(\d{1,9}(?:\.\d{1,3})?)"
_BITS: Final = r"(?:-?G(?:b(?:ps|it(?:/s)?|/s|E)?|E)|Gigabit)"
_RAILS: Final = re.compile(rf"\b(\d{{1,9}})\s*[x×*]\s*{_SIZE}\s*{_BITS}\b")
_RAILS_AFTER: Final = re.compile(rf"\b{_SIZE}\s*{_BITS}\s*[x×*]\s*(\d{{1,3}})\b")
_LINK: Final = re.compile(rf"{_SIZE}\s*{_BITS}")  # '10Gb' alone: one of them
_BARE_RAILS: Final = re.compile(
    r"(?:^|\b(?:RoCE(?:v2)?|IB|InfiniBand|EFA|Slingshot(?:-11)?|Ethernet|NICs?)\W{1,2})"
    r"(\d{1,2})\s*[x×*]\s*(10|25|40|50|100|200|400|800)G?(?![\w.])"
)
_TOTAL: Final = re.compile(rf"\b{_SIZE}\s*-?([GT])(?:b(?:ps|it(?:/s)?|/s|E)|igabit Ethernet)\b")
_BYTES: Final = re.compile(rf"\b{_SIZE}\s*GB(?:/s|ps)\b")
_ETHERNET: Final = re.compile(rf"\bEthernet {_SIZE}G\b|\b{_SIZE}G Ethernet\b")
_GENERATION: Final = r"(?:InfiniBand |IB )?(EDR|HDR|NDR|XDR)(?:100|200|400|800)?"
_PORTS: Final = re.compile(rf"\b(\d{{1,2}})\s*[x×*]?\s*{_GENERATION}\b")
_PORTS_AFTER: Final = re.compile(
    rf"\b{_GENERATION}\W{{1,3}}(\d{{1,2}}) (?:NIC|port|card|HCA|rail)s?\b"
)


def noted_network(text: str) -> float | None:
    """What a text says of the network of a node, in bytes per second; None if nothing."""
    if rails := _RAILS.search(text) or _RAILS_AFTER.search(text) or _BARE_RAILS.search(text):
        return float(rails[1]) * float(rails[2]) * _GIGABIT
    if ports := _PORTS.search(text):
        return float(ports[1]) * _port(ports[2])
    if ports := _PORTS_AFTER.search(text):
        return float(ports[2]) * _port(ports[1])
    if total := _TOTAL.search(text):
        return float(total[1]) * _GIGABIT * (1000.0 if total[2] == "T" else 1.0)
    if whole := _ETHERNET.search(text):
        return float(whole[1] or whole[2]) * _GIGABIT
    if whole := _BYTES.search(text):
        return float(whole[1]) * units.GIGA
    return None


def _port(generation: str) -> float:
    return link(f"InfiniBand {generation} (4x port)").values["bandwidth"]


def read_network(text: str) -> float:
    """The same of a text that must say it."""
    found = noted_network(f"1x{text}" if _LINK.fullmatch(text) else text)
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
    outer = replace(
        outer, name="network", bandwidth=bandwidth, origin="assumed", network=UNMEASURED
    )
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
