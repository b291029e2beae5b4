"""Nodes: how many accelerators share a host, and what joins them inside and outwards.

In: data/nodes/*.toml, one host each. Out: Node. A rack that is one NVLink domain (NVL72) is many
hosts with a `domain` larger than the host; `count` is in packages, as published.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from trueflops import units
from trueflops.catalog.accelerators import Accelerator, accelerator
from trueflops.catalog.facts import DATA, Fact, facts_of, read_toml
from trueflops.catalog.links import link
from trueflops.catalog.names import find_or_suggest, fold, index
from trueflops.errors import BadCatalog

TABLES: Final = ("accelerators", "scale_up", "scale_out", "host", "power")
_DIMENSIONS: Final = {
    "accelerators.power": "watts",
    "scale_up.bandwidth": "bytes_per_second",
    "scale_out.bandwidth": "bytes_per_second",
    "host.memory": "bytes",
    "host.memory_bandwidth": "bytes_per_second",
    "host.nvme": "bytes",
    "host.nvme_bandwidth": "bytes_per_second",
    "power.maximum": "watts",
}
_COUNTS: Final = ("accelerators.count", "scale_up.domain", "scale_out.ports")
_TEXTS: Final = ("scale_up.link", "scale_up.topology", "scale_out.link", "host.link", "host.cpus")
TOPOLOGIES: Final = (
    "switch",
    "mesh",
    "cube-mesh",
    "pair",
    "torus-2d",
    "torus-3d",
    "pcie-peer",
    "pcie-host",
)


@dataclass(frozen=True)
class Node:
    """One host. `count` and `domain` are in devices, as software sees them."""

    name: str
    accelerator: Accelerator
    aliases: tuple[str, ...]
    notes: tuple[str, ...]
    facts: Mapping[str, Fact]
    values: Mapping[str, float]

    @property
    def count(self) -> int:
        """Devices in one host."""
        return int(self.values["accelerators.count"]) * self.accelerator.devices_per_package

    @property
    def domain(self) -> int:
        """Devices that the scale-up fabric joins."""
        packages = int(self.values.get("scale_up.domain", self.values["accelerators.count"]))
        return packages * self.accelerator.devices_per_package

    @property
    def topology(self) -> str:
        """How the scale-up fabric is wired."""
        return self.facts["scale_up.topology"].text if "scale_up.topology" in self.facts else ""

    def dimension(self, path: str) -> str | None:
        """The SI unit of a fact, as its suffix in the code; "" of a count, None of a text."""
        return None if path in _TEXTS else _DIMENSIONS.get(path, "")

    def link_name(self, path: str) -> str:
        """The name of a link in links.toml, or empty."""
        return self.facts[path].text if path in self.facts else ""


def node(name: str) -> Node:
    """Load one node by name or alias."""
    found = find_node(name)
    return found or _load(find_or_suggest("nodes", name))


def find_node(name: str) -> Node | None:
    """Load one node by name or alias; None if there is none."""
    files, key = index("nodes"), fold(name)
    path = files.get(key) or files.get(_by_alias().get(key, ""))
    return _load(path) if path else None


@cache
def _load(path: Path) -> Node:
    return decode(read_toml(path), f"nodes/{path.name}")


def nodes() -> list[Node]:
    """Every node of the catalog."""
    return [_load(path) for path in index("nodes").values()]


@cache
def _by_alias() -> Mapping[str, str]:
    return {
        fold(alias): fold(path.stem)
        for path in index("nodes").values()
        for alias in read_toml(path).get("aliases", ())
    }


@cache
def _defaults() -> Mapping[str, str]:
    return read_toml(DATA / "nodes" / "defaults.toml")


def default_node(chip: Accelerator) -> Node | None:
    """The node that `64xCHIP` means; None where no server with this chip is known."""
    name = _defaults().get(chip.name)
    return node(name) if name else None


def decode(raw: Mapping[str, Any], where: str) -> Node:
    """Build a Node from a TOML record, checking units, link names and topology."""
    unknown = raw.keys() - set(TABLES) - {"name", "accelerator", "aliases", "notes"}
    if unknown:
        raise BadCatalog(f"{where}: unknown key {', '.join(sorted(unknown))}")
    facts = facts_of(raw, TABLES, where)
    values = {}
    for path, fact in facts.items():
        if path in _DIMENSIONS:
            values[path] = units.parse(fact.text, _DIMENSIONS[path], what=f"{where}: {path}")
        elif path in _COUNTS:
            values[path] = float(units.parse_count(fact.text, what=f"{where}: {path}"))
        elif path not in _TEXTS:
            raise BadCatalog(f"{where}: unknown fact {path}")
        elif path.endswith(".link"):
            link(fact.text)
        elif path == "scale_up.topology" and fact.text not in TOPOLOGIES:
            raise BadCatalog(f"{where}: topology {fact.text!r} is none of {', '.join(TOPOLOGIES)}")
    chip = accelerator(raw["accelerator"])
    if "accelerators.power" in values:  # what this host lets each of them draw
        facts_of_chip = {**chip.facts, "power.tdp": facts["accelerators.power"]}
        limit = {**chip.values, "power.tdp": values["accelerators.power"]}
        chip = replace(chip, facts=facts_of_chip, values=limit)
    return Node(
        raw["name"],
        chip,
        tuple(raw.get("aliases", ())),
        tuple(raw.get("notes", ())),
        facts,
        values,
    )
