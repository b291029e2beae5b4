"""Flags of `trueflops web`."""

from __future__ import annotations

import argparse

from trueflops.cli.arguments.shared import common_flags, integer, whole
from trueflops.errors import printable
from trueflops.language import say


def _port(text: str) -> int:
    value = integer(text)
    if not 0 <= value <= 65535:
        raise argparse.ArgumentTypeError(
            say("{text} must lie between 0 and 65535", text=printable(text, 40))
        )
    return value


def web_flags(p: argparse.ArgumentParser) -> None:
    """Where it is served."""
    p.add_argument(
        "--host",
        metavar="ADDRESS",
        default="127.0.0.1",
        help="to listen on (default: 127.0.0.1, this machine alone; 0.0.0.0: everyone)",
    )
    p.add_argument(
        "--port", type=_port, metavar="N", default=8080, help="(default: 8080; 0: any free one)"
    )
    p.add_argument(
        "--workers", type=whole, metavar="N", default=None, help="processes (default: one a core)"
    )
    p.add_argument(
        "--open",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="the page in a browser (default: on)",
    )
    common_flags(p)
