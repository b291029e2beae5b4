"""Clusters: nodes × accelerators with the links between them.

Written `64xH100`, `16x8xH100` (nodes × accelerators), `4xDGX-H100`, `Selene`, or a TOML file; cards
of several kinds in one host, which hold the stages of a pipeline, as `RTX-4090+2xRTX-3090`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from trueflops import units
from trueflops.catalog.accelerators import Accelerator, accelerator, accelerator_like
from trueflops.catalog.fabric import Given, Tier, tiers
from trueflops.catalog.facts import Fact, read_toml
from trueflops.catalog.links import link
from trueflops.catalog.names import find, index
from trueflops.catalog.nodes import TOPOLOGIES, Node, default_node, find_node, node
from trueflops.catalog.partitions import is_slice
from trueflops.errors import BadInput, UnknownName, printable, shorten
from trueflops.files import own_path
from trueflops.language import say

MOST_ACCELERATORS: Final = 10_000_000


@dataclass(frozen=True)
class Cluster:
    """What `--on` names. Everything per accelerator unless the name says node.

    >>> import trueflops as tf
    >>> [tier.name for tier in tf.cluster("64xH100").tiers]
    ['NVLink 4', 'InfiniBand NDR (4x port)']
    """

    name: str
    accelerator: Accelerator
    node_name: str
    nodes: int
    per_node: int
    tiers: tuple[Tier, ...]
    host_bandwidth: float | None  # accelerator to host memory, one direction
    node_memory_bytes: float | None
    node_memory_bandwidth: float | None  # of all sockets: what their cores can read and write
    node_nvme_bandwidth: float | None
    watts: float | None  # a whole node at its maximum, divided over its accelerators
    usd_per_hour: float | None = None  # of the user's file
    own: bool = False  # read from the user's file
    cards: tuple[Accelerator, ...] = ()  # where they differ: each, in the order of its layers

    @property
    def count(self) -> int:
        """All accelerators."""
        return self.nodes * self.per_node

    def computes(self, dtype: str) -> bool:
        """Whether every accelerator multiplies in it."""
        return all(card.computes(dtype) for card in self.cards or (self.accelerator,))


_UNLIKE = re.compile(r"\s*\+\s*(?=\S)")  # a name may end with a plus: Xeon Platinum 8480+
MOST_CARDS: Final = 16  # of several kinds in one host
MOST_ON_A_BUS: Final = 8  # slots of a server for cards (assumed)
_SIZED = re.compile(r"(\d{1,30})\s*[x×*]\s*(?:(\d{1,30})\s*[x×*]\s*)?(.+)", re.IGNORECASE)
_MISPLACED = re.compile(  # H100x8, H100 8, 8 H100
    r"(?:(\d{1,9})\s+)?(.+?)(?:\s*[x×*]?\s*(?<=[x×*\s])(\d{1,9}))?", re.IGNORECASE
)


def cluster(text: str, *, unlike: bool = False, network: float | None = None) -> Cluster:
    """A cluster as it is written after --on; of unlike cards only where the caller takes them.
    `network`, in bytes a second of a node, is that of nodes of which none is known.

    >>> import trueflops as tf
    >>> where = tf.cluster("16x8xH100")  # 16 nodes of 8
    >>> where.count, where.node_name
    (128, 'DGX-H100')
    """
    if len(parts := _UNLIKE.split(text.strip())) > 1:
        return _of_unlike(text, parts, unlike)
    if text.endswith(".toml"):
        return _from_file(own_path(text))
    match = _SIZED.fullmatch(text.strip())
    if match is None:
        return _named(text)
    first, second, what = int(match[1]), match[2], match[3]
    per_node = int(second) if second else None
    if first < 1 or per_node == 0 or first * (per_node or 1) > MOST_ACCELERATORS:
        raise BadInput(
            say(
                "cluster {text!r}: needs between 1 and {most_accelerators:,} accelerators; "
                "write for example 64xH100 or 16x8xH100",
                text=shorten(text),
                most_accelerators=MOST_ACCELERATORS,
            )
        )
    if per_node is None and not find("accelerators", what) and not is_slice(what):
        if host := find_node(what):
            return _assemble(text, host.accelerator, host, first, host.count)
        if path := find("clusters", what):
            return _installation(read_toml(path), text, times=first)
    given: Given = {} if network is None else {"scale_out.bandwidth": network}
    return _of_accelerators(text, accelerator(what), first, per_node, given)


def cluster_of(chip: Accelerator, count: int = 1) -> Cluster:
    """So many of a chip, in the nodes that are usual for it."""
    return _of_accelerators(f"{count}x{chip.name}", chip, count, None)


def on_a_bus(chip: Accelerator, count: int, given: Given) -> Cluster:
    """Cards of one host, joined as someone says who has it."""
    return _assemble(f"{count}x{chip.name}", chip, default_node(chip), 1, count, given)


def host_bandwidth(chip: Accelerator, host: Node | None = None) -> float | None:
    """Of the way to host memory, in this node or the one that is usual for the chip."""
    host = host or default_node(chip)
    name = host.link_name("host.link") if host else chip.text("links.host")
    return link(name).values.get("bandwidth") if name else None


def node_of_installation(name: str) -> Node | None:
    """The node of a named installation; None where no such one is known."""
    path = find("clusters", name)
    return node(read_toml(path)["node"]) if path else None


def _named(text: str) -> Cluster:
    """A named installation, a node, or a single accelerator."""
    if path := find("clusters", text):
        return _installation(read_toml(path), text)
    if find("accelerators", text) or is_slice(text):
        return _of_accelerators(text, accelerator(text), 1, None)
    if host := find_node(text):
        return _assemble(text, host.accelerator, host, 1, host.count)
    if (found := _MISPLACED.fullmatch(text.strip())) and find("accelerators", found[2]):
        raise BadInput(
            say(
                "cluster {text!r}: write the number first, as {right}",
                text=shorten(text),
                right=f"{found[1] or found[3]}x{found[2]}",
            )
        )
    known = [f.stem for kind in ("accelerators", "nodes", "clusters") for f in index(kind).values()]
    raise UnknownName(
        "cluster", text, known, "(write 64xH100, 16x8xH100, 4xDGX-H100, or a TOML file)"
    )


def _installation(raw: Mapping[str, Any], text: str, times: int = 1) -> Cluster:
    """A named cluster, or several racks; thinner links between pods are a tier of their own."""
    count = Fact.decode(raw["nodes"], f"clusters: {raw['name']}.nodes")
    host = node(raw["node"])
    nodes = times * units.parse_count(count.text, what=raw["name"])
    whole = _assemble(text, host.accelerator, host, nodes, host.count)
    network = raw.get("network", {})
    if "oversubscription" not in network or "pod" not in network:
        return whole
    pod, thinner = (float(network[key]["value"]) for key in ("pod", "oversubscription"))
    *inner, outer = whole.tiers
    between = replace(outer, name=f"{outer.name} between pods", bandwidth=outer.bandwidth / thinner)
    return replace(whole, tiers=(*inner, replace(outer, reach=pod), between))


def _of_accelerators(
    text: str,
    chip: Accelerator,
    first: int,
    second: int | None,
    given: Given = {},  # noqa: B006  (never changed)
) -> Cluster:
    if "partition.most" in chip.values:
        return _of_slices(text, chip, first, second)
    host = default_node(chip)
    if second is not None:
        return _assemble(text, chip, host, first, second, given)
    size = host.count if host else _in_a_host(chip)
    if first <= size:
        return _assemble(text, chip, host, 1, first, given)
    if first % size:
        near = first // size * size
        raise BadInput(
            say(
                "{count} {name} do not fill nodes of {size}; write {fewer}x{name}, "
                "{more}x{name}, or name the layout: NODESxPER_NODEx{name}",
                count=first,
                name=chip.typed,
                size=size,
                fewer=near,
                more=near + size,
            )
        )
    return _assemble(text, chip, host, first // size, size, given)


def _in_a_host(chip: Accelerator) -> int:
    """How many cards a host has of which no server is known: as many as have links, or slots."""
    return max(int(chip.get("links.scale_up_domain") or 0), MOST_ON_A_BUS)


def _of_unlike(text: str, parts: list[str], taken: bool) -> Cluster:
    """Cards of several kinds in one host, which reach one another through its memory."""
    found = [cluster(part) for part in parts]
    cards = tuple(each.accelerator for each in found for _ in range(min(each.count, MOST_CARDS)))
    if len({card.name for card in cards}) == 1:
        return cluster(f"{len(cards)}x{cards[0].name}")
    if not taken:
        raise BadInput(
            say(
                "cluster {text!r}: unlike cards hold the layers of a model that is served, in "
                "trueflops infer alone; write one kind of them here, as {first}",
                text=shorten(text),
                first=parts[0],
            )
        )
    if len(cards) > MOST_CARDS or any(each.nodes > 1 for each in found):
        raise BadInput(
            say(
                "cluster {text!r}: unlike cards are those of one host, {most} at most; write for "
                "example RTX-4090+2xRTX-3090",
                text=shorten(text),
                most=MOST_CARDS,
            )
        )
    if any(card.is_cpu for card in cards):
        raise BadInput(
            say(
                "cluster {text!r}: a host's processor is no card; name cards alone, and how many "
                "layers they hold: --gpu-layers",
                text=shorten(text),
            )
        )
    slowest = min(cards, key=lambda card: host_bandwidth(card) or 0.0)
    given: Given = {"scale_up.topology": "pcie-host"}
    joined = _assemble(text, slowest, None, 1, len(cards), given)
    return replace(joined, accelerator=cards[0], cards=cards)


def _of_slices(text: str, chip: Accelerator, first: int, second: int | None) -> Cluster:
    """Parts of the chips of one node, which reach one another through host memory."""
    host = default_node(accelerator(chip.whole))
    chips = host.count if host else 1
    room = chips * int(chip.need("partition.most"))
    if second is not None or first > room:
        raise BadInput(
            say(
                "cluster {text!r}: slices are those of one node, {room} at most of {name} on "
                "{chips} chips; write {first}x{name}",
                text=shorten(text),
                room=room,
                name=chip.name,
                chips=chips,
                first=min(first, room),
            )
        )
    return _assemble(text, chip, None, 1, first, {"scale_up.topology": "pcie-host"})


def _assemble(
    text: str,
    chip: Accelerator,
    host: Node | None,
    nodes: int,
    per_node: int,
    given: Given = {},  # noqa: B006  (never changed)
) -> Cluster:
    values: Given = {**(host.values if host else {}), **given}
    return Cluster(
        name=text.strip(),
        accelerator=chip,
        node_name=host.name if host else "",
        nodes=nodes,
        per_node=per_node,
        tiers=tiers(chip, host, nodes, per_node, given),
        host_bandwidth=given.get("host.bandwidth") or host_bandwidth(chip, host),
        node_memory_bytes=values.get("host.memory"),
        node_memory_bandwidth=values.get("host.memory_bandwidth"),
        node_nvme_bandwidth=values.get("host.nvme_bandwidth"),
        watts=_share(values.get("power.maximum"), host, per_node),
        usd_per_hour=given.get("price"),
    )


def _share(node_watts: float | None, host: Node | None, per_node: int) -> float | None:
    """An accelerator's share of its node's power: of all the node has, not of those in use."""
    if node_watts is None:
        return None
    return node_watts / (host.count if host else per_node)


# ── a cluster of the user's own: a node or chip of the catalog, and what is different there ──────

_TABLES: Final[Mapping[str, Mapping[str, str]]] = {
    "scale_up": {
        "bandwidth": "bytes_per_second",
        "latency": "seconds",
        "topology": "",
        "domain": "count",
    },
    "scale_out": {"bandwidth": "bytes_per_second", "latency": "seconds"},
    "host": {
        "memory": "bytes",
        "memory_bandwidth": "bytes_per_second",
        "bandwidth": "bytes_per_second",
        "nvme_bandwidth": "bytes_per_second",
    },
    "power": {"maximum": "watts"},
}
_TOP: Final = ("name", "node", "accelerator", "nodes", "per_node", "price")


def _from_file(path: Path) -> Cluster:
    """Read a cluster TOML (docs/clusters.md)."""
    raw = read_toml(path)
    path = Path(printable(str(path)))
    for key in raw.keys() - _TABLES.keys() - set(_TOP):
        raise UnknownName(f"key in {path}", key, [*_TOP, *_TABLES])
    given = _given(raw, path)
    if "node" in raw and "accelerator" in raw:
        raise BadInput(say("{path}: say node or accelerator, not both", path=path))
    described = raw.get("accelerator")
    host: Node | None = None
    if isinstance(described, Mapping):
        chip = accelerator_like(described, str(path))
        host = default_node(accelerator(str(described.get("like"))))
    elif described is not None:
        chip = accelerator(str(described))
        host = default_node(chip)
    elif "node" in raw:
        host = node(str(raw["node"]))
        chip = host.accelerator
    else:
        raise BadInput(say('{path}: say node = "DGX-H100" or accelerator = "H100"', path=path))
    nodes = _whole(raw.get("nodes", 1), f"{path}: nodes")
    per_node = _whole(raw.get("per_node", host.count if host else 1), f"{path}: per_node")
    if nodes * per_node > MOST_ACCELERATORS:
        raise BadInput(
            say(
                "{path}: more than {most_accelerators:,} accelerators",
                path=path,
                most_accelerators=MOST_ACCELERATORS,
            )
        )
    name = printable(str(raw.get("name", path.stem)), 60)
    return replace(_assemble(name, chip, host, nodes, per_node, given), own=True)


def _given(raw: Mapping[str, Any], path: Path) -> dict[str, Any]:
    given: dict[str, Any] = {}
    if "price" in raw:
        rent = units.parse(str(raw["price"]), "usd_per_hour", what=f"{path}: price")
        given["price"] = units.check_sane(rent, "usd_per_hour", what=f"{path}: price")
    for table, keys in _TABLES.items():
        found = raw.get(table, {})
        if not isinstance(found, Mapping):
            raise BadInput(
                say("{path}: {table} must be a table: [{table}]", path=path, table=table)
            )
        for key, value in found.items():
            where = f"{path}: {table}.{key}"
            if key not in keys:
                raise UnknownName(f"key in {path} [{table}]", key, keys)
            if key == "domain":
                given[f"{table}.{key}"] = _whole(value, where)
            elif key == "topology":
                if value not in TOPOLOGIES:
                    raise UnknownName("topology", str(value), TOPOLOGIES)
                given[f"{table}.{key}"] = value
            else:
                found_value = units.parse(str(value), keys[key], what=where)
                given[f"{table}.{key}"] = units.check_sane(found_value, keys[key], what=where)
    return given


def _whole(value: object, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_ACCELERATORS:
        raise BadInput(
            say(
                "{where} must be a whole number of at least 1, not {value!r}",
                where=where,
                value=value,
            )
        )
    return value
