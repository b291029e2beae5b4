"""Flags of the commands about communication: collective, stragglers."""

from __future__ import annotations

import argparse

from trueflops.cli.arguments.shared import (
    common_flags,
    natural,
    percentage,
    profile_flags,
    real,
    whole,
)
from trueflops.errors import printable
from trueflops.language import say

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
_FOLDED = {name.replace("_", ""): name for name in COLLECTIVES}
ALGORITHMS = (
    "ring", "tree", "hierarchical", "direct", "halving-doubling", "binomial-tree",
    "server-everywhere", "server-rank0", "in-switch", "server-host", "bruck",
)  # fmt: skip


def _collective(text: str) -> str:
    """all-reduce, AllReduce, ncclAllReduce and all_reduce_perf are one."""
    folded = text.casefold().removeprefix("nccl").removesuffix("_perf")
    return _FOLDED.get(folded.replace("-", "").replace("_", ""), text)


def _times(text: str) -> float:
    """'1.5x', or 1.5."""
    return real(text.strip().removesuffix("x").removesuffix("×"))


def slower(text: str) -> float:
    """How many times as long a slow rank takes."""
    value = _times(text)
    if not 1.0 <= value <= 1000.0:
        raise argparse.ArgumentTypeError(
            say(
                "{text} must lie between 1x and 1000x: 1.5x takes half as long again",
                text=printable(text, 40),
            )
        )
    return value


def thinner(text: str) -> float:
    """Which share of its bandwidth a slow link has."""
    value = _times(text)
    if not 0.001 <= value <= 1.0:
        raise argparse.ArgumentTypeError(
            say(
                "{text} must lie between 0.001x and 1x: 0.5x has half the bandwidth",
                text=printable(text, 40),
            )
        )
    return value


def rounds(text: str) -> int:
    """Steps of a simulation: enough to settle, few enough to wait for."""
    value = whole(text)
    if not 10 <= value <= 100_000:
        raise argparse.ArgumentTypeError(
            say("{text} must lie between 10 and 100,000", text=printable(text, 40))
        )
    return value


def collective_flags(p: argparse.ArgumentParser) -> None:
    """Flags of `trueflops collective`."""
    p.add_argument(
        "kind",
        type=_collective,
        choices=COLLECTIVES,
        metavar="COLLECTIVE",
        help=", ".join(COLLECTIVES),
    )
    p.add_argument(
        "--bytes",
        metavar="SIZE",
        required=True,
        help="as nccl-tests counts: all that a rank has at the end of an all_gather, or at the "
        "start of the others; 1GB, 25MB",
    )
    p.add_argument("--on", metavar="CLUSTER", default=None, help="8xH100, 4x8xH100, or a TOML file")
    p.add_argument("--ranks", type=whole, metavar="N", help="neighbours (default: all of --on)")
    p.add_argument(
        "--network",
        metavar="LINKS",
        default=None,
        help="between nodes, of a node: 8x400Gb, 100Gbps",
    )
    p.add_argument(
        "--steps",
        nargs="?",
        const="ring",
        choices=ALGORITHMS,
        metavar="ALGORITHM",
        help="draw who sends what to whom, by a ring or another: tree, hierarchical, "
        "halving-doubling, server-everywhere, server-rank0, direct, binomial-tree",
    )
    profile_flags(p)
    p.add_argument("--plot", metavar="FILE.png", help="draw time over ranks (needs matplotlib)")
    common_flags(p)


def stragglers_flags(p: argparse.ArgumentParser) -> None:
    """Flags of `trueflops stragglers`."""
    p.add_argument("--on", metavar="CLUSTER", default=None, help="8xH100, 4x8xH100, or a TOML file")
    p.add_argument("--ranks", type=whole, metavar="N", help="workers (default: all of --on)")
    p.add_argument(
        "--step",
        metavar="TIME",
        required=True,
        help="what a healthy worker computes before it communicates: 500ms",
    )
    p.add_argument(
        "--bytes",
        metavar="SIZE",
        default=None,
        help="gradients of a step (default: nothing is sent)",
    )
    p.add_argument("--batch", type=whole, metavar="N", help="samples of a worker's step")
    slow = p.add_argument_group("what is slow", "rank 0, its link, or all now and then")
    slow.add_argument(
        "--slow-rank", type=slower, default=1.0, metavar="1.5x", help="it computes so much longer"
    )
    slow.add_argument(
        "--slow-link",
        type=thinner,
        default=1.0,
        metavar="0.5x",
        help="its outermost link has that much of the bandwidth",
    )
    slow.add_argument(
        "--jitter",
        type=percentage,
        default=0.0,
        metavar="SHARE",
        help="standard deviation of every step: 10%%",
    )
    p.add_argument(
        "--staleness", type=natural, default=3, metavar="S", help="steps ahead of the slowest (3)"
    )
    p.add_argument("--drop", type=natural, default=1, metavar="B", help="gradients left out (1)")
    p.add_argument(
        "--network",
        metavar="LINKS",
        default=None,
        help="links of a node to the network, each way, as 8x400Gb (default: the node's own)",
    )
    p.add_argument(
        "--rounds", type=rounds, metavar="N", help="steps of each that are simulated (40 to 1000)"
    )
    p.add_argument("--seed", type=natural, default=0, metavar="N", help="of the jitter (0)")
    p.add_argument("--timeline", action="store_true", help="draw the first steps")
    profile_flags(p)
    common_flags(p)
