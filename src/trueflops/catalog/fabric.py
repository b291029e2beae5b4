"""The fabric of a cluster as tiers, from the inside out: which ranks a message reaches how fast.

In: a chip, the node it sits in, how many of them, and what the user's own file says instead.
Out: Tiers with bandwidth per accelerator and direction, and NCCL's latency per hop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from trueflops.catalog.accelerators import Accelerator
from trueflops.catalog.facts import Origin, weakest
from trueflops.catalog.links import Link, link
from trueflops.catalog.nodes import Node
from trueflops.errors import MissingFact
from trueflops.language import say

NET: Final = "NCCL NET hop (any IB/RoCE/EFA)"
PROTOCOLS: Final = ("ll", "ll128", "simple")
Given = Mapping[str, Any]
"""What a user's cluster file sets: 'scale_up.bandwidth' -> bytes per second, and so on."""


@dataclass(frozen=True)
class Network:
    """What large collectives over a kind of network reach of its bandwidth, and how surely.

    That of the links inside a node is part of the law that is fitted there.
    """

    reached: float
    error: float


UNMEASURED: Final = Network(reached=0.8, error=0.35)
"""Of a kind of network over which no collective is known to have been timed. Assumed: as inside of
nodes that were not measured (profile/data/assumed.toml), from half to all of it."""


def network_of(name: str) -> Network:
    """What is known of a kind of network, by its link."""
    values = link(name).values if name else {}
    if "reached" not in values:
        return UNMEASURED
    return Network(values["reached"], values["reached_error"])


@dataclass(frozen=True)
class Tier:
    """One level of the fabric. Bandwidth is one direction, per accelerator."""

    name: str
    reach: float  # how many accelerators it joins
    bandwidth: float
    latency: Mapping[str, float]  # seconds per hop, by NCCL protocol
    topology: str
    origin: Origin
    unconfirmed: bool = False  # whether no source is at hand for some of it
    in_switch: str = ""  # what sums in its switches, as SHARP; empty: nothing does
    network: Network | None = None  # what its collectives reach, where it leaves the node


def tiers(
    chip: Accelerator, host: Node | None, nodes: int, per_node: int, given: Given
) -> tuple[Tier, ...]:
    """Every level that this many accelerators need."""
    if nodes * per_node == 1:
        return ()
    found = _inside(chip, host, per_node, given)
    if nodes * per_node > max((t.reach for t in found), default=1):
        found.append(_outside(chip, host, per_node, given))
    return tuple(found)


def _inside(chip: Accelerator, host: Node | None, per_node: int, given: Given) -> list[Tier]:
    """What joins accelerators without leaving the scale-up domain."""
    # A card without a known server shares a PCIe bus with its neighbours, if it has one.
    name = host.link_name("scale_up.link") if host else chip.text("links.host")
    kind = link(name) if name else None
    wired = host.topology if host else "pcie-peer"
    topology = given.get("scale_up.topology") or wired or "switch"
    domain = given.get("scale_up.domain") or (host.domain if host else 1)
    bandwidth = given.get("scale_up.bandwidth") or _scale_up_bandwidth(chip, host, kind)
    if per_node == 1 and domain == 1:
        return []
    if bandwidth is None:
        raise MissingFact(
            say(
                "how {name} are joined is not known: the catalog has no node of it and no "
                'host link; write a cluster TOML with [scale_up] bandwidth = "64 GB/s" (one '
                "direction, per accelerator)",
                name=chip.name,
            )
        )
    claims: list[Origin] = ["assumed"]
    unconfirmed = False
    if host and not {"scale_up.bandwidth", "scale_up.latency"} & set(given):
        said = [fact for path, fact in host.facts.items() if path.startswith("scale_up")]
        claims = [fact.origin for fact in said]
        if "scale_up.bandwidth" not in host.facts and "links.scale_up_bandwidth" in chip.facts:
            said.append(chip.facts["links.scale_up_bandwidth"])
        unconfirmed = any(fact.unconfirmed for fact in said)
    # A scale-up domain no larger than the host ends with it, even if few of its chips are used.
    whole_host = host is not None and domain <= host.count
    reach = float(per_node if whole_host else max(domain, per_node))
    if topology == "pair":
        reach = 2.0
    elif "scale_up.domain" in given:
        reach = float(domain)
    # Links to chips that are not used are idle. In a DGX-1's cube of eight each has four peers, so
    # that what is left depends on which are used: a quad, which has the most, is taken to have all.
    if topology == "mesh" and 1.0 < reach < domain:
        bandwidth *= (reach - 1.0) / (domain - 1.0)
    latency = _latency(kind, "NVLink 4", given.get("scale_up.latency"))
    if topology == "pcie-host":  # a hop is two: into host memory, and out of it
        latency = {protocol: 2.0 * hop for protocol, hop in latency.items()}
    wire = name or "scale-up"
    sums = kind.in_switch if kind and topology == "switch" else ""
    inner = Tier(wire, reach, bandwidth, latency, topology, weakest(claims), unconfirmed, sums)
    if topology != "pair" or per_node <= 2:
        return [inner]
    bus = link((host.link_name("host.link") if host else "") or "PCIe 4.0 x16")
    return [
        inner,
        Tier(
            bus.name,
            float(per_node),
            bus.values["bandwidth"],
            _latency(bus, bus.name, None),
            "pcie-peer",
            "assumed",
        ),
    ]


def _scale_up_bandwidth(chip: Accelerator, host: Node | None, kind: Link | None) -> float | None:
    of_link = kind.values.get("bandwidth") if kind else None
    if host is None or host.topology.startswith("pcie"):
        return of_link
    own = host.values.get("scale_up.bandwidth")
    return own or chip.get("links.scale_up_bandwidth") or of_link


def _outside(chip: Accelerator, host: Node | None, per_node: int, given: Given) -> Tier:
    """The network between nodes; published and given per node, so divided here."""
    own = host.values.get("scale_out.bandwidth") if host else None
    bandwidth = given.get("scale_out.bandwidth") or own
    if bandwidth is None:
        raise MissingFact(
            say(
                "no network between {name} nodes is known; write --network 8x400Gb, or a cluster "
                'TOML with [scale_out] bandwidth = "400 GB/s" (one direction, per node)',
                name=host.name if host else chip.name,
            )
        )
    origin: Origin = "assumed"
    unconfirmed = False
    if host and "scale_out.bandwidth" not in given:
        fact = host.facts["scale_out.bandwidth"]
        origin, unconfirmed = fact.origin, fact.unconfirmed
    wire = host.link_name("scale_out.link") if host else ""
    sharing = per_node if given.get("scale_out.bandwidth") or host is None else host.count
    return Tier(
        wire or "network",
        inf,
        bandwidth / sharing,
        _latency(None, NET, given.get("scale_out.latency")),
        "switch",
        origin,
        unconfirmed,
        link(wire).in_switch if wire else "",
        network_of(host.link_name("scale_out.link") if host else ""),
    )


def _latency(kind: Link | None, fallback: str, given: float | None) -> Mapping[str, float]:
    """Per-hop latency by protocol; a link without its own figures borrows those of its class."""
    own = kind.values if kind else {}
    if given is not None:
        return dict.fromkeys(PROTOCOLS, given)
    if "latency" in own and "latency_simple" not in own:
        return dict.fromkeys(PROTOCOLS, own["latency"])
    values = own if "latency_simple" in own else link(fallback).values
    return {p: values[f"latency_{p}"] for p in PROTOCOLS}
