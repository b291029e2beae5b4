"""Several of a device that no catalog knows: how they are joined, as `trueflops measure` saw it."""

from __future__ import annotations

from trueflops.catalog.accelerators import Accelerator
from trueflops.catalog.clusters import Cluster
from trueflops.catalog.fabric import PROTOCOLS, Tier
from trueflops.errors import BadInput
from trueflops.language import say


def cluster_measured(chip: Accelerator, count: int) -> Cluster:
    """So many ranks of a device that no catalog knows, joined as was measured."""
    joined: tuple[Tier, ...] = ()
    if count > 1:
        bandwidth, hop = chip.get("links.scale_up_bandwidth"), chip.get("links.latency")
        if not bandwidth or not hop:
            raise BadInput(
                say(
                    "how several {name} are joined was not measured; run it under torchrun: "
                    "torchrun --nproc-per-node 2 -m trueflops.measure --collectives -o PROFILE",
                    name=chip.name,
                )
            )
        latency = dict.fromkeys(PROTOCOLS, hop)
        joined = (Tier("measured", float(count), bandwidth, latency, "switch", "measured"),)
    return Cluster(
        name=f"{count}x{chip.name}",
        accelerator=chip,
        node_name="",
        nodes=1,
        per_node=count,
        tiers=joined,
        host_bandwidth=None,
        node_memory_bytes=None,
        node_memory_bandwidth=None,
        node_nvme_bandwidth=None,
        watts=None,
    )
