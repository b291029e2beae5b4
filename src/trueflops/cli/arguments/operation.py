"""Flags that say how a cluster is run and paid for: those of the whole bill."""

from __future__ import annotations

import argparse

from trueflops.cli.arguments.shared import real


def operation_flags(p: argparse.ArgumentParser) -> None:
    """Failures, checkpoints, spot, ownership; the price and --pue are flags of infer too."""
    run = p.add_argument_group(
        "the whole bill", "what is not given is as published: docs/bill.md has the sources"
    )
    run.add_argument(
        "--mtbf", metavar="TIME", help="mean time between failures of one accelerator, as 50000h"
    )
    run.add_argument("--restart", metavar="TIME", help="until a failed job steps again, as 10min")
    run.add_argument(
        "--storage", metavar="RATE", help="what checkpoints are written at, in all, as 100GB/s"
    )
    run.add_argument(
        "--checkpoint",
        choices=("async", "sync"),
        default=None,
        help="written beside the next steps, or while they wait (default: async)",
    )
    run.add_argument(
        "--checkpoint-every", metavar="TIME", help="as 30min (default: the best interval)"
    )
    run.add_argument(
        "--spot-lifetime",
        metavar="TIME",
        help="mean time until a node of --spot is taken back, as 24h",
    )
    run.add_argument("--buy", metavar="USD", help="what one accelerator is sold for, as 30000")
    run.add_argument(
        "--years", type=real, default=None, metavar="N", help="of use of what is bought (default 5)"
    )
    run.add_argument(
        "--electricity", metavar="USD", help="dollars for a kWh, as 0.09 (default: 0.0895)"
    )
