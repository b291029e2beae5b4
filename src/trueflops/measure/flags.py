"""The flags of `trueflops measure` and of `python -m trueflops.measure`. Standard library alone."""

from __future__ import annotations

import argparse
import re
from typing import Final

USUAL_BUDGET: Final = "5m"
_UNITS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
LONGEST: Final = 2 * 3600.0


def budget(text: str) -> float:
    """60s, 5m, 1h: seconds to spend."""
    match = re.fullmatch(r"\s*([\d.]+)\s*([a-z]*)\s*", text.lower())
    if match is None or match[2] not in _UNITS or match[1].count(".") > 1 or match[1] == ".":
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a time; write 60s, 5m or 1h")
    seconds = float(match[1]) * _UNITS[match[2]]
    if not 5.0 <= seconds <= LONGEST:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} must lie between 5s and 2h")
    return seconds


def add_flags(p: argparse.ArgumentParser) -> None:
    """What a measurement can be told."""
    p.add_argument(
        "words",
        nargs="*",
        metavar="show|fit PROFILE",
        help="show a profile, or fit one measured on a bare node; without: measure",
    )
    p.add_argument("-o", "--output", metavar="PROFILE.json", help="where to write, or to resume")
    p.add_argument(
        "--budget", type=budget, default=None, metavar="60s|5m|20m",
        help=f"time to spend (default {USUAL_BUDGET})",
    )  # fmt: skip
    p.add_argument("--device", default="", metavar="cuda:1", help="default: the first accelerator")
    p.add_argument(
        "--all", action="store_true", dest="all_devices",
        help="every GPU of this node at once; says how far they differ",
    )  # fmt: skip
    p.add_argument(
        "--for", dest="model", metavar="MODEL", help="time this model's own products first"
    )
    p.add_argument(
        "--dtypes", type=lambda text: tuple(text.split(",")), default=(), metavar="bf16,fp8",
        help="number formats (default: all that the device has)",
    )  # fmt: skip
    p.add_argument(
        "--collectives", action="store_true",
        help="under torchrun: collectives among all ranks, nothing else",
    )  # fmt: skip
    p.add_argument("--fresh", action="store_true", help="start over where a file is there already")
    p.add_argument("-q", "--quiet", action="store_true", help="no progress")
