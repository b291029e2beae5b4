"""A collective for readers: its algorithms side by side, and by the number of ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from trueflops import units
from trueflops.clock import Algorithm
from trueflops.graph.kinds import CollectiveKind
from trueflops.language import mark, say, word
from trueflops.predict.collective import CollectiveCompared, Compared
from trueflops.predict.collective.compare import FLOORS
from trueflops.report import encode
from trueflops.report.grid import grid
from trueflops.report.tables import ranged, show_list

NAMES: Final[Mapping[Algorithm, str]] = {
    Algorithm.RING: "ring",
    Algorithm.TREE: mark("two trees"),
    Algorithm.HIERARCHY: "hierarchical",
    Algorithm.DIRECT: "direct",
    Algorithm.HALVING: "halving-doubling",
    Algorithm.BRUCK: "Bruck",
    Algorithm.BINOMIAL: mark("binomial tree"),
    Algorithm.IN_SWITCH: "in-switch",
    Algorithm.SHARDED_SERVER: mark("all serve"),
    Algorithm.HOST_SERVER: mark("host serves"),
    Algorithm.RANK_SERVER: mark("rank 0 serves"),
}
BY_COUNT: Final = (
    Algorithm.RING,
    Algorithm.TREE,
    Algorithm.DIRECT,
    Algorithm.IN_SWITCH,
    Algorithm.SHARDED_SERVER,
    Algorithm.HOST_SERVER,
    Algorithm.RANK_SERVER,
    Algorithm.HIERARCHY,
    Algorithm.HALVING,
    Algorithm.BINOMIAL,
    Algorithm.BRUCK,
)
"""Columns of the table by count, as many as fit a line: the first of those that there are."""
MOST_COLUMNS: Final = 6
WAYS: Final[Mapping[Algorithm, str]] = {
    Algorithm.RING: mark("each rank to its neighbour, a chunk a step"),
    Algorithm.TREE: mark(
        "a chain in each node, two binary trees between nodes, half the bytes in each"
    ),
    Algorithm.HIERARCHY: mark("tier by tier: each moves only what the inner ones left over"),
    Algorithm.DIRECT: mark("every pair at once"),
    Algorithm.HALVING: mark("with the rank 1, 2, 4 … away, half of what is left each time"),
    Algorithm.BRUCK: mark("half of all bytes each step, to the rank 1, 2, 4 … away"),
    Algorithm.BINOMIAL: mark(
        "whoever has all the bytes sends them all, to the rank 1, 2, 4 … away"
    ),
    Algorithm.IN_SWITCH: mark("the switches add (SHARP), where they are set up to"),
    Algorithm.SHARDED_SERVER: mark("each rank is the parameter server of its part of the bytes"),
    Algorithm.HOST_SERVER: mark(
        "a parameter server in one node's host memory; what its CPU takes to add is "
        "not known, so it takes longer (≥)"
    ),
    Algorithm.RANK_SERVER: mark("rank 0 gets and sends everything, as in torch.nn.DataParallel"),
}
OTHERWISE: Final[Mapping[CollectiveKind, Mapping[Algorithm, str]]] = {
    CollectiveKind.BROADCAST: {
        Algorithm.RING: mark("rank 0 to 1 to 2 …, one chunk behind the other"),
        Algorithm.HIERARCHY: mark("scatter, then all-gather, tier by tier"),
        Algorithm.RANK_SERVER: mark("rank 0 sends all the bytes to each"),
    },
    CollectiveKind.ALL_TO_ALL: {
        Algorithm.RING: mark("every block from neighbour to neighbour until it is there"),
        Algorithm.HIERARCHY: mark(
            "inside nodes first, so that a rank talks to one of each other node"
        ),
    },
}


def show_collective(out: Console, found: CollectiveCompared) -> None:
    """The answer, the algorithms, and how each grows."""
    value, between = ranged(found.seconds, "seconds")
    payload = units.show(found.payload_bytes, "bytes")
    title = say(
        "{kind} of {payload} among {ranks:,} ranks of {name}",
        kind=found.kind,
        payload=payload,
        ranks=found.ranks,
        name=found.cluster.name,
    )
    out.print(Text(title, style="bold"))
    out.print(
        say(
            "{value}  ({between}, {origin})  by the library's fastest: {names}",
            value=value,
            between=between,
            origin=found.seconds.origin,
            names=NAMES[found.chosen.way.algorithm],
        )
    )
    for tier, size in zip(found.cluster.tiers, found.sizes, strict=True):
        bandwidth = units.show(tier.bandwidth, "bytes_per_second")
        sums = f", {tier.in_switch}" if tier.in_switch else ""
        out.print(
            say(
                "[dim]{size:,} × {name}: {bandwidth} each way for each rank{sums}[/]",
                size=size,
                name=tier.name,
                bandwidth=bandwidth,
                sums=sums,
            )
        )
    out.print()
    _show_algorithms(out, found)
    _show_counts(out, found)


def _show_algorithms(out: Console, found: CollectiveCompared) -> None:
    table = grid(
        "algorithm",
        ("time", "right"),
        ("busbw", "right"),
        ("algbw", "right"),
        ("steps", "right"),
        ("sends", "right"),
        "bound by",
    )
    for each in found.found:
        way = each.way
        mark = " *" if each.of_library else ""
        table.add_row(
            Text(word(NAMES[way.algorithm]) + mark, "bold" if each is found.best else ""),
            _time(way.algorithm, way.seconds),
            units.digits(found.bus_bandwidth(way.seconds) / units.GIGA),
            units.digits(found.algorithm_bandwidth(way.seconds) / units.GIGA),
            f"{way.steps:,}",
            units.show(way.sent_bytes, "bytes"),
            _bound(each),
        )
    out.print(table)
    said = [
        say("busbw, algbw: as nccl-tests counts, in GB/s; sends: the busiest rank or server"),
        say("* the library's own: its fastest is what train and infer pay"),
    ]
    adds = found.kind is CollectiveKind.ALL_REDUCE and found.seconds.origin == "measured"
    if adds and found.cluster.tiers[0].in_switch:
        said.append(say("* at the rates of measured rows, in which a switch may have added, too"))
    for line in said:
        out.print(Text(line, "dim"))
    out.print()
    ways = {**WAYS, **OTHERWISE.get(found.kind, {})}
    there = [each.way.algorithm for each in found.found]
    show_list(out, "how each works", [(word(NAMES[a]), word(ways[a])) for a in there])


def _time(algorithm: Algorithm, seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return ("≥ " if algorithm in FLOORS else "") + units.show(seconds, "seconds")


def _bound(each: Compared) -> str:
    """A tier without what its name says in brackets, and how much of the time hangs on it."""
    return f"{each.bound.partition(' (')[0]} {100.0 * each.shares[each.bound]:.0f} %"


def _show_counts(out: Console, found: CollectiveCompared) -> None:
    if len(found.counts) < 2:
        return
    columns = [a for a in BY_COUNT if a in found.by_count][:MOST_COLUMNS]
    table = grid(
        ("ranks", "right"), *[(NAMES[a], "right") for a in columns],
        title="by the number of ranks",
    )  # fmt: skip
    for row, count in enumerate(found.counts):
        table.add_row(f"{count:,}", *(_time(a, found.by_count[a][row]) for a in columns))
    out.print(table)
    out.print()
    if found.kind is CollectiveKind.ALL_REDUCE:
        show_list(out, "how they grow", _growth(found))


def _growth(found: CollectiveCompared) -> list[tuple[str, str]]:
    """What the table says: a ring sends at most twice the bytes, rank 0 once more for each rank."""
    few, many = found.counts[0], found.counts[-1]
    inside = max((n for n in found.counts if n <= found.cluster.per_node), default=few)

    def sent(times: float) -> str:
        return units.show(times * found.payload_bytes, "bytes")

    return [
        (
            say("ring"),
            say(
                "a rank sends 2(n−1)/n of the bytes: {sent_few} among {few}, {sent_many} among "
                "{many}, never more than twice them; only its steps grow, which is what "
                "small messages pay",
                sent_few=sent(2 * (few - 1) / few),
                few=few,
                sent_many=sent(2 * (many - 1) / many),
                many=many,
            ),
        ),
        (
            say("rank 0 serves"),
            say(
                "it gets (n−1) times the bytes and sends as many: {sent_few} among {few}, "
                "{sent_inside} among {inside}; DataParallel is one process and does not leave "
                "its node (–); where torch finds NCCL, it reduces and broadcasts by rings, "
                "too",
                sent_few=sent(few - 1),
                few=few,
                sent_inside=sent(inside - 1),
                inside=inside,
            ),
        ),
    ]


def encode_collective(found: CollectiveCompared) -> dict[str, Any]:
    """The same for programs."""
    return {
        "collective": found.kind.value,
        "payload_bytes": found.payload_bytes,
        "ranks": found.ranks,
        "cluster": encode.cluster(found.cluster),
        "ranks_by_tier": list(found.sizes),
        **encode.estimate("seconds", found.seconds),
        "library_algorithm": found.chosen.way.algorithm.value,
        "fastest_algorithm": found.best.way.algorithm.value,
        "algorithms": [
            {
                "name": each.way.algorithm.value,
                "of_library": each.of_library,
                "seconds": each.way.seconds,
                "is_lower_bound": each.is_floor,
                "bus_bytes_per_second": found.bus_bandwidth(each.way.seconds),
                "algorithm_bytes_per_second": found.algorithm_bandwidth(each.way.seconds),
                "steps": each.way.steps,
                "busiest_sends_bytes": each.way.sent_bytes,
                "bound": each.bound,
                "share_of_time": dict(each.shares),
            }
            for each in found.found
        ],
        "by_count": [
            {
                "ranks": count,
                "seconds": {a.value: times[row] for a, times in found.by_count.items()},
            }
            for row, count in enumerate(found.counts)
        ],
    }
