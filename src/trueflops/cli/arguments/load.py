"""Flags of a load, for which a server's scheduler is simulated."""

from __future__ import annotations

import argparse

ARRIVALS = ("closed-loop", "poisson", "bursts", "at-once")


def load_flags(p: argparse.ArgumentParser) -> None:
    """What requests come."""
    load = p.add_argument_group(
        "load", "with any of these the scheduler is simulated: percentiles of what users see"
    )
    load.add_argument("--rate", metavar="N", help="requests a second, as 10 or 10/s")
    load.add_argument(
        "--rates",
        metavar="N,N…",
        nargs="?",
        const="auto",
        help="latency against load: at each of these rates, as 1,2,4,8, or up to all it can serve",
    )
    load.add_argument("--requests", metavar="N", help="requests in all (default 1000)")
    load.add_argument(
        "--arrival",
        choices=ARRIVALS,
        default=None,
        help="how they come (default: poisson with --rate, else --concurrency users in a loop)",
    )
    load.add_argument(
        "--burstiness",
        metavar="X",
        help="shape of gamma gaps, as vllm bench has it: 1 poisson, less in bursts",
    )
    load.add_argument("--think", metavar="TIME", help="of a user between two requests, as 5s")
    load.add_argument(
        "--lengths",
        metavar="SPREAD",
        help="of input and output: fixed, lognormal, or to either side, as 0.2 (the default)",
    )
    load.add_argument(
        "--requests-from",
        metavar="FILE",
        help="a trace (CSV, JSONL): arrival, input, output; Azure's, BurstGPT's or Mooncake's too",
    )
    load.add_argument(
        "--percentile", metavar="P", help="at which --ttft and --tpot must hold (default 99)"
    )
    load.add_argument("--trace", metavar="FILE", help="requests over time, for ui.perfetto.dev")
    load.add_argument(
        "--prefix-hits", metavar="SHARE", help="of a prompt that the cache has already, as 0.5"
    )
