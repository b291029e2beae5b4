"""Flags about chips and measurements: compare, catalog, completion, measure, calibrate, verify."""

from __future__ import annotations

import argparse

from trueflops.cli.arguments.shared import (
    common_flags,
    integer,
    lang_flag,
    profile_flags,
    what_helps_flag,
    whole,
)
from trueflops.measure.flags import add_flags


def compare_flags(p: argparse.ArgumentParser) -> None:
    """Flags of `trueflops compare`."""
    p.add_argument("chips", nargs="*", metavar="CHIP", help="chips (default: all that ship)")
    p.add_argument(
        "--for",
        dest="model",
        metavar="MODEL",
        help="add: does it fit, tokens/s, $ per million tokens, MFU",
    )
    p.add_argument("--vendor", metavar="NAME", help="only this vendor's")
    p.add_argument("--since", type=integer, metavar="YEAR", help="only from this year on")
    p.add_argument("--until", type=integer, metavar="YEAR", help="only up to this year")
    p.add_argument("--all", action="store_true", help="announced chips and rumours too")
    p.add_argument("--sort", metavar="COLUMN", help="bf16, fp8, memory, bandwidth, price, name …")
    p.add_argument(
        "--count",
        type=whole,
        metavar="N",
        help="with --for: so many of each chip (default: the fewest on which all can)",
    )
    p.add_argument("--seq", metavar="N", help="with --for: sequence length (default 4096)")
    what_helps_flag(p)
    profile_flags(p)
    common_flags(p)


def catalog_flags(p: argparse.ArgumentParser) -> None:
    """Flags of `trueflops catalog`."""
    p.add_argument(
        "name",
        nargs="*",
        metavar="NAME",
        help="a chip, node, cluster, link, model, number format, or a config.json",
    )
    common_flags(p)


def completion_flags(p: argparse.ArgumentParser) -> None:
    """Flags of `trueflops completion`."""
    p.add_argument("shell", choices=("bash", "zsh", "fish"), metavar="SHELL", help="%(choices)s")
    p.add_argument(
        "words",
        nargs="*",
        default=[],
        metavar="WORD",
        help="after --: what is typed so far; prints what the last word may become",
    )
    p.add_argument("-v", "--verbose", action="store_true", help="tracebacks on errors")
    lang_flag(p)


def measure_flags(p: argparse.ArgumentParser) -> None:
    """Flags of `trueflops measure`."""
    add_flags(p)
    p.add_argument("--plot", metavar="FILE.png", help="show: draw the roofline")
    common_flags(p)


def calibrate_flags(p: argparse.ArgumentParser) -> None:
    """Flags of `trueflops calibrate`."""
    p.add_argument(
        "folders", nargs="+", metavar="FOLDER", help="folders that hold measured kernels as CSV"
    )
    p.add_argument(
        "--only",
        metavar="CURVES",
        help="curves to fit anew, such as eager,matmul.odd; others stay as they are",
    )
    p.add_argument(
        "-o", "--output", metavar="FOLDER", help="where to write (default: the package's own data)"
    )
    p.add_argument("-v", "--verbose", action="store_true", help="tracebacks on errors")
    lang_flag(p)


def verify_flags(p: argparse.ArgumentParser) -> None:
    """Flags of `trueflops verify`."""
    p.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="measured results: CSV, known by its header, or runs that run --calibrate kept",
    )
    profile_flags(p)
    p.add_argument(
        "--held-out", action="store_true", help="only the rows that nothing was fitted to"
    )
    p.add_argument(
        "--leave-source-out",
        action="store_true",
        help="each source of training runs by settings of its framework chosen without it",
    )
    common_flags(p)
