"""The host's own speed: one and the same machine issues calls at half its speed on another day.

Host-bound programs follow it, so whoever measures a chip measures a loop of plain Python too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from trueflops.profile.profile import Curve

# Of one H200 machine in several sessions: 20,000 rounds of the loop took 2.0 ms where 160M Llamas
# ran at 0.46 of the time that the slowest session gives them, and 5.0 ms in that one
# (truth/h200/programs.csv); the shipped law is 0.66 of it.
USUAL_LOOP_SECONDS: Final = 3.0e-3
FOLLOWS: Final = 0.85  # ln(1.0 / 0.46) / ln(5.0 / 2.0)
ERROR: Final = 0.18  # a host's speed changes within seconds, and the law itself misses by 0.09
TIMES: Final = (
    "issue", "view", "listed", "launch", "module", "checkpoint", "generated", "graph", "modules",
    "routed", "ddp", "fsdp_unit", "zero1", "zero2", "zero3_forward", "zero3_backward",
    "zero3_gradient",
)  # fmt: skip


def of_host(dispatch: Curve, loop_seconds: float) -> Curve:
    """What a host needs to issue calls on which the loop took this long."""
    slower = (loop_seconds / USUAL_LOOP_SECONDS) ** FOLLOWS
    told = f"× {slower:.2f}: the host takes {loop_seconds * 1e3:.1f} ms for a loop of plain Python"
    return replace(slower_host(dispatch, slower, told), error=ERROR, origin="measured")


def slower_host(dispatch: Curve, times: float, why: str) -> Curve:
    """A host that needs so many times as long."""
    values = {n: v * times if n in TIMES else v for n, v in dispatch.values.items()}
    return replace(dispatch, values=values).because(why)
