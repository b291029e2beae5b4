"""Links between accelerators, hosts and nodes: one direction, per accelerator or per node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from trueflops import units
from trueflops.catalog.facts import DATA, Fact, read_toml
from trueflops.catalog.names import fold
from trueflops.errors import BadCatalog, UnknownName

_QUANTITIES = {
    "bandwidth": "bytes_per_second",
    "per_peer_bandwidth": "bytes_per_second",
    "latency": "seconds",
    "latency_ll": "seconds",
    "latency_ll128": "seconds",
    "latency_simple": "seconds",
    "reached": "count",
    "reached_error": "count",
}


_TEXTS = ("in_switch",)  # the name of what sums in its switches, where something does


@dataclass(frozen=True)
class Link:
    """A kind of link. `values` hold bandwidth and latencies in SI units, those that are known."""

    name: str
    scope: str
    layout: str
    notes: tuple[str, ...]
    facts: Mapping[str, Fact]
    values: Mapping[str, float]

    def dimension(self, path: str) -> str | None:
        """The SI unit of a fact, as its suffix in the code; None of a text."""
        return _QUANTITIES.get(path)

    @property
    def in_switch(self) -> str:
        """What sums in its switches, such as NVLink SHARP; empty where nothing does."""
        return self.facts["in_switch"].text if "in_switch" in self.facts else ""


@cache
def _links() -> Mapping[str, Link]:
    links = {}
    for name, raw in read_toml(DATA / "links.toml").items():
        unknown = raw.keys() - _QUANTITIES.keys() - {*_TEXTS, "scope", "layout", "notes"}
        if unknown:
            raise BadCatalog(f"links.toml: {name}: unknown key {', '.join(sorted(unknown))}")
        facts = {
            key: Fact.decode(raw[key], f"links.toml: {name}.{key}")
            for key in (*_QUANTITIES, *_TEXTS)
            if key in raw
        }
        values = {
            key: units.parse(fact.text, _QUANTITIES[key], what=f"links.toml: {name}.{key}")
            for key, fact in facts.items()
            if key in _QUANTITIES
        }
        notes = tuple(raw.get("notes", ()))
        links[fold(name)] = Link(name, raw["scope"], raw.get("layout", ""), notes, facts, values)
    return links


def link(name: str) -> Link:
    """Look a link up by name."""
    found = _links().get(fold(name))
    if found is None:
        raise UnknownName("link", name, (known.name for known in links()))
    return found


def links() -> list[Link]:
    """Every link of the catalog."""
    return list(_links().values())
