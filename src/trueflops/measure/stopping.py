"""Ctrl-C and SIGTERM, which must not get lost.

A KeyboardInterrupt that arrives while Python runs a finaliser is printed and forgotten. So it is
also remembered, and raised again before the next job.
"""

from __future__ import annotations

import signal
from typing import Any

_asked: list[int] = []


def listen() -> None:
    """From now on both signals interrupt, and stay known."""
    _asked.clear()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)


def check() -> None:
    """Raise the interruption that Python dropped, if there was one."""
    if _asked:
        raise KeyboardInterrupt


def _interrupt(number: int, frame: Any) -> None:
    _asked.append(number)
    raise KeyboardInterrupt
