"""Ranks bound to NUMA nodes, so that a rank's memory lies beside the cores that use it.

In: a local rank and how many there are; of a GPU its PCI address. Out: the node, bound. Linux gives
a page to the node of the core that touches it first, so binding the cores binds the memory.
torchrun's --numa-binding does this beside GPUs alone and needs numactl (torch/numa/binding.py).
Nodes are read as Linux shows them: Documentation/admin-guide/mm/numaperf.rst. Needs no torch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trueflops.language import say

NODES = Path("/sys/devices/system/node")
DEVICES = Path("/sys/bus/pci/devices")


@dataclass(frozen=True)
class Node:
    """One node, and those of its cores that this process may use."""

    number: int
    cores: frozenset[int]

    @property
    def shown(self) -> str:
        """As Linux writes it: 'node 1 (CPUs 48-95,144-191)'."""
        return say(
            "node {number} (CPUs {cores})", number=self.number, cores=write_cores(self.cores)
        )


def read_nodes(folder: Path = NODES, allowed: frozenset[int] | None = None) -> tuple[Node, ...]:
    """The nodes of this machine that have cores for us; none where the system does not say."""
    if allowed is None:
        if not sys.platform.startswith("linux"):
            return ()
        allowed = frozenset(os.sched_getaffinity(0))
    found = []
    for listed in sorted(folder.glob("node[0-9]*/cpulist")):
        own = read_cores(listed.read_text()) & allowed
        if own:
            found.append(Node(int(listed.parent.name.removeprefix("node")), own))
    return tuple(sorted(found, key=lambda node: node.number))


def read_cores(text: str) -> frozenset[int]:
    """'0-3,8' as {0, 1, 2, 3, 8}."""
    cores: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cores.update(range(int(first), int(last or first) + 1))
    return frozenset(cores)


def write_cores(cores: frozenset[int]) -> str:
    """{0, 1, 2, 3, 8} as '0-3,8'."""
    runs: list[list[int]] = []
    for core in sorted(cores):
        if runs and core == runs[-1][-1] + 1:
            runs[-1][1:] = [core]
        else:
            runs.append([core])
    return ",".join("-".join(map(str, run)) for run in runs)


def node_of(
    nodes: tuple[Node, ...], local: int, ranks: int, pci: str = "", devices: Path = DEVICES
) -> Node:
    """Where a local rank belongs: beside its GPU, or neighbours together, as many on each node."""
    by_number: Mapping[int, Node] = {node.number: node for node in nodes}
    beside = devices / pci.lower() / "numa_node"
    if pci and beside.is_file():
        node = by_number.get(int(beside.read_text()))  # −1 where the firmware does not say
        if node is not None:
            return node
    return nodes[local * len(nodes) // max(ranks, 1)]


def bind(node: Node) -> None:
    """Every thread of this process, and all that it starts."""
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), node.cores)
