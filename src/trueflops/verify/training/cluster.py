"""The cluster of a row: its accelerator's free text as a chip of the catalog, so many of them.

Some tables count cores where software sees chips of several; `cores` says how many make one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from typing import Final

from trueflops.catalog import Accelerator, Cluster, accelerator, cluster
from trueflops.catalog.clusters import node_of_installation
from trueflops.catalog.names import find
from trueflops.catalog.networks import noted_network, with_network
from trueflops.catalog.nodes import Node, default_node, find_node, node
from trueflops.errors import UnknownName
from trueflops.records.chips import chip_of
from trueflops.records.tables import Row
from trueflops.verify.cells import Missing, needed, noted, number, text
from trueflops.verify.training.measured import measures_time

_CORES: Final = re.compile(r"(\d{1,9})\s*(?:neuron)?cores?\s*(?:/|per)\s*chip", re.IGNORECASE)
_NODE: Final = re.compile(
    r"\b(one|\d{1,3}) (?:x )?(?:gpu|card|accelerator|chip)s? ?(?:a|per|/) ?node", re.IGNORECASE
)
_EACH: Final = re.compile(r"(?:per|/|a|each) ?(?:GPU|card|accelerator|chip|NPU)\b", re.IGNORECASE)
_BYTES: Final = re.compile(r"GB/s|GBps")
_ASIDE: Final = re.compile(r"\s*\([^)]*\)")
_INSTANCE: Final = re.compile(
    r"\b(?:[\w-]+\.\d{0,2}xlarge|a\w{1,2}-\w+gpu-\dg|Standard_ND\w+|DGX[- ]?\w+)\b"
)
_NAME: Final = re.compile(r"(?:^|[;,(]|\b(?:on|at)\s)\s*([A-Z][\w-]{2,30})\s*(?=$|[;,.)])")
"""An installation as a phrase of its own, or where a run was 'on Alps'; not 'as in Selene'."""
_WATTS: Final = re.compile(r"^\s*\w[\w -]*?\b(\d{2,4}) ?W\b")  # 'B200 1000W'
_LIMITED: Final = re.compile(r"power[- ]limit(?:ed)?\b(?:\W{1,3}(\d{2,4}) ?W\b)?", re.IGNORECASE)
_CARD: Final = re.compile(r"\bcards? (?:is|are|was|were) (?:an? )?([\w-]*\d[\w-]*)", re.IGNORECASE)
UNNAMED: Final = "A100-SXM4-80GB"
"""Where memory is judged of a row that measured no time and names no accelerator: tensors are as
large on every chip, and what a driver's context takes differs by a few hundred MB."""
UNKNOWN_LIMIT: Final = 0.6  # of the cap (assumed) where a chip is said to be limited, not to what

# torchtitan's own runs are all on one cluster whose "H100" has 96 GB of HBM2e and 500 W; who rents
# a cloud's machine has another one.
_HOUSE_CHIPS: Final = {("torchtitan", "H100-SXM5-80GB"): "H100-SXM5-96GB-HBM2e"}


@dataclass(frozen=True)
class Machine:
    """Where a row ran. `devices` counts as the row does, `cores` of them are one accelerator."""

    cluster: Cluster
    devices: int
    cores: int


def read_machine(row: Row, framework: str) -> Machine:
    """The cluster that a row names; Missing where it names none."""
    said = text(row, "accelerator")
    if not said and measures_time(row):
        raise Missing("accelerator is empty")
    devices = needed(row, "n_devices")
    if not said:
        return Machine(chips(devices, UNNAMED), devices, 1)
    cores_said = _CORES.search(said)
    cores = int(cores_said[1]) if cores_said else 1
    if devices % cores:
        raise Missing(f"n_devices {devices} is not a multiple of {cores} cores a chip")
    capacity = number(row, "memory_gb")
    notes = text(row, "notes")
    rented = _whole_node(said) or _instance(f"{said}; {text(row, 'network')}; {notes}")
    try:
        found = chip_of(_noted_chip(notes) or said, capacity * cores if capacity else None)
    except UnknownName as error:
        if rented is None or not (_whole_node(said) or _INSTANCE.search(said)):
            raise Missing(str(error)) from None
        found = rented.accelerator
    house = None if rented else _HOUSE_CHIPS.get((framework, found.whole))
    chip = accelerator(house or found.whole)
    network = _network(row, chip)
    watts = _power_limit(chip, f"{said}; {notes}")
    host = rented.name if rented and rented.accelerator.name == chip.name else ""
    where = chips(devices // cores, chip.name, network, watts, _node_size(notes), host)
    return Machine(where, devices, cores)


def _whole_node(said: str) -> Node | None:
    """'Atlas 800T A2 (910B)', 'p5': a column that names the machine instead of its chips."""
    return find_node(_ASIDE.sub("", said).strip()) if not find("accelerators", said) else None


def _instance(said: str) -> Node | None:
    """The cloud's machine, vendor's server or installation that a row names: 'p4d.24xlarge',
    'DGX-2', 'Alps'.
    """
    named = chain(
        map(find_node, _INSTANCE.findall(said)), map(node_of_installation, _NAME.findall(said))
    )
    return next((host for host in named if host), None)


def _network(row: Row, chip: Accelerator) -> float | None:
    """Bytes per second of a node, which a row may state of each of its accelerators; notes count
    where their column is empty, but for bytes, which notes have of links inside a node.
    """
    said, notes = text(row, "network"), text(row, "notes")
    found = noted_network(said or _BYTES.sub("", notes)) or None  # nobody has a network of 0
    host = default_node(chip)
    if found is None or host is None or not _EACH.search(said):
        return found
    return found * (_node_size(notes) or host.count)


def _noted_chip(notes: str) -> str:
    """'card is A800-SXM4-80GB': what ran, where a table's column names a class of cards."""
    said = _CARD.search(notes)
    return said[1] if said and find("accelerators", said[1]) else ""


def _node_size(notes: str) -> int | None:
    """'one GPU a node', '4 GPUs/node'."""
    said = _NODE.search(notes)
    return None if said is None else 1 if said[1].casefold() == "one" else int(said[1])


def _power_limit(chip: Accelerator, said: str) -> float | None:
    """Watts to which a row says that its chips were held; most of the cap if not how low."""
    usual = chip.get("power.tdp")
    if usual is not None and (watts := _WATTS.search(said)):
        return min(float(watts[1]), usual)
    if usual is None or not (limit := _LIMITED.search(said)):
        return None
    return min(float(limit[1]), usual) if limit[1] else UNKNOWN_LIMIT * usual


@cache
def chips(
    count: int,
    name: str,
    network: float | None = None,
    watts: float | None = None,
    node_size: int | None = None,
    rented: str = "",
) -> Cluster:
    """So many chips in nodes that they fill; network, power limit and nodes as the row says."""
    if watts is not None:
        whole = chips(count, name, network, None, node_size, rented)
        chip = whole.accelerator
        values = {**chip.values, "power.tdp": watts}
        return replace(whole, accelerator=replace(chip, values=values))
    host = node(rented) if rented else default_node(accelerator(name))
    size = node_size or (host.count if host else count)
    per_node = max(d for d in range(1, min(size, count) + 1) if count % d == 0)
    filled = per_node == min(size, count) and node_size is None
    whole = cluster(f"{count}x{name}" if filled else f"{count // per_node}x{per_node}x{name}")
    if host and rented and per_node == host.count:
        whole = cluster(f"{count // per_node}x{rented}")
    return whole if network is None else with_network(whole, network, size)


def slices(row: Row) -> int | None:
    """Into how many separately cabled slices a row says that its accelerators fall."""
    return noted(row, r"\b(\d{1,9}) slice")
