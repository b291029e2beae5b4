"""Hardware that nobody sells: a cluster with more of one resource, or with another's.

In: a cluster and its profile. Out: the same pair with one resource multiplied, or with some of the
resources of a second pair, ready for a Trainer. Curves are shares of what a chip has, so that they
stay as they were fitted. What is faster is not hotter: twice the flop per second are as many
joules a second, as from one generation to the next, else the power cap would hide the gain; the
cap is a resource of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from enum import Enum
from typing import Final, NamedTuple

from trueflops.catalog import Accelerator, Cluster, Tier
from trueflops.profile import Curve, CurveKey, Profile
from trueflops.profile.host_speed import slower_host


class Resource(Enum):
    """What a cluster has so much of; the value is what it is called."""

    FLOPS = "FLOP/s"
    BANDWIDTH = "memory bandwidth"
    MEMORY = "memory"
    LINKS = "links in a node"
    NETWORK = "network"
    POWER = "power cap"
    HOST = "speed of the host"


class Hardware(NamedTuple):
    """What a Trainer asks."""

    cluster: Cluster
    profile: Profile

    @property
    def resources(self) -> tuple[Resource, ...]:
        """Those that it has: one chip has no links, one node no network, a CPU is its own host."""
        inside, between = _split(self.cluster)
        capped = self.cluster.accelerator.get("power.tdp") is not None
        lacking = {Resource.LINKS: not inside, Resource.NETWORK: not between}
        lacking |= {Resource.POWER: not capped, Resource.HOST: self.cluster.accelerator.is_cpu}
        return tuple(each for each in Resource if not lacking.get(each, False))


_RATES: Final = ("peak.", "accumulate.", "measured.")
_MOVING: Final = ("memory", "cast", "eager")  # kinds of curves whose rate is the memory's
_POWER, _BYTE = CurveKey("power"), "joules_byte"


def more_of(of: Hardware, resource: Resource, factor: float) -> Hardware:
    """The same hardware with so many times as much of one resource; latencies stay."""
    cluster, profile = of
    chip = cluster.accelerator
    if resource in (Resource.LINKS, Resource.NETWORK):
        inside, between = _split(cluster)
        chosen = inside if resource is Resource.LINKS else between
        tiers = tuple(
            replace(tier, bandwidth=tier.bandwidth * factor) if tier in chosen else tier
            for tier in cluster.tiers
        )
        return Hardware(replace(cluster, tiers=tiers), profile)
    if resource is Resource.HOST:
        return Hardware(cluster, _faster_host(profile, factor))
    scaled = {
        path: value * factor
        for path, value in chip.values.items()
        if value is not None and _is_of(path, resource)
    }
    power = profile.curve(_POWER)
    joules = {
        name: value * (factor if name == "cap_watts" else 1.0 / factor)
        for name, value in power.values.items()
        if _burns(name, resource)
    }
    return Hardware(
        replace(cluster, accelerator=_with(chip, scaled)),
        profile.having({_POWER: replace(power, values={**power.values, **joules})}),
    )


def _faster_host(profile: Profile, factor: float) -> Profile:
    """The same accelerator beside a host that issues kernels in so much less time."""
    software, why = profile.curve("framework"), f"a host {factor:g} times as fast"
    sooner = {name: software[name] / factor for name in ("launch", "step")}
    return profile.having(
        {
            CurveKey("dispatch"): slower_host(profile.curve("dispatch"), 1.0 / factor, why),
            CurveKey("framework"): replace(software, values={**software.values, **sooner}),
        }
    )


def mixed(own: Hardware, other: Hardware, taken: Collection[Resource]) -> Hardware:
    """One's own hardware with some resources of another's, each with the curves of its kernels.

    What belongs to no other resource comes with FLOP/s: units, clock, cache, the power cap.
    """
    of = {each: other if each in taken else own for each in Resource}
    compute, memory, links = of[Resource.FLOPS], of[Resource.BANDWIDTH], of[Resource.LINKS]
    chip = _with(
        compute.cluster.accelerator,
        {
            "memory.bandwidth": memory.cluster.accelerator.get("memory.bandwidth"),
            "memory.capacity": of[Resource.MEMORY].cluster.accelerator.get("memory.capacity"),
        },
    )
    curves = {
        **_kinds(compute.profile, (*_MOVING, "collective"), without=True),
        **_kinds(memory.profile, _MOVING),
        **_kinds(links.profile, ("collective",)),
    }
    power = compute.profile.curve(_POWER)
    byte = memory.profile.curve(_POWER)[_BYTE]
    curves[_POWER] = replace(power, values={**power.values, _BYTE: byte})
    inside, between = _split(links.cluster)
    if between and (others := _split(of[Resource.NETWORK].cluster)[1]):
        between = others
    cluster = replace(links.cluster, accelerator=chip, tiers=(*inside, *between))
    return Hardware(cluster, replace(compute.profile, curves=curves))


def _split(cluster: Cluster) -> tuple[tuple[Tier, ...], tuple[Tier, ...]]:
    """Tiers within a scale-up domain, and those of the network between."""
    finite = [tier for tier in cluster.tiers if tier.reach != float("inf")]
    within = max([cluster.per_node, *(tier.reach for tier in finite[:1])], default=1)
    inside = tuple(tier for tier in finite if tier.reach <= within)
    return inside, tuple(tier for tier in cluster.tiers if tier not in inside)


def _is_of(path: str, resource: Resource) -> bool:
    """Whether a fact of a chip says how much of a resource it has."""
    named = {
        Resource.BANDWIDTH: "memory.bandwidth",
        Resource.MEMORY: "memory.capacity",
        Resource.POWER: "power.tdp",
    }
    if resource is Resource.FLOPS:
        return path.startswith(_RATES)
    return path == named.get(resource)


def _burns(name: str, resource: Resource) -> bool:
    """Whether a parameter of the power curve goes with a resource."""
    if resource is Resource.FLOPS:
        return name.startswith("joules_") and name != _BYTE
    return name == {Resource.BANDWIDTH: _BYTE, Resource.POWER: "cap_watts"}.get(resource)


def _with(chip: Accelerator, values: Mapping[str, float | None]) -> Accelerator:
    return replace(chip, values={**chip.values, **values})


def _kinds(
    profile: Profile, kinds: Collection[str], *, without: bool = False
) -> dict[CurveKey, Curve]:
    return {k: curve for k, curve in profile.curves.items() if (k.kind in kinds) != without}
