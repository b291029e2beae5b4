"""How fast the host is: a loop of plain Python, which touches no tensor."""

from __future__ import annotations

import time
from typing import Final

ROUNDS: Final = 20_000
REPEATS: Final = 3


def python_loop_seconds() -> float:
    """Seconds of the fastest of a few loops, some milliseconds each."""
    return min(_loop_seconds() for _ in range(REPEATS))


def _loop_seconds() -> float:
    kept: dict[int, tuple[int, str]] = {}
    begun = time.perf_counter()
    for i in range(ROUNDS):
        kept[i & 255] = (i, str(i))
    return time.perf_counter() - begun
