"""A simulated pipeline for readers: a note, a table of ranks over time, JSON."""

from __future__ import annotations

from typing import Any, Final

from rich.console import RenderableType
from rich.text import Text

from trueflops import units
from trueflops.language import say
from trueflops.predict.training.simulated import TOLERANCE, SimulatedPipeline
from trueflops.report.grid import grid

LEVELS: Final = " ▁▂▃▄▅▆▇█"
MOMENTS: Final = 32  # of a curve in the terminal


def pipeline_note(found: SimulatedPipeline) -> str:
    """What the simulation says against the closed form; nothing where they agree."""
    if abs(found.off) <= TOLERANCE:
        return ""
    more = "more" if found.off > 0 else "less"
    taken, apart = units.show(found.seconds, "seconds"), 100.0 * abs(found.off)
    return say(
        "stages and bubble, simulated event by event, take {taken}: {apart:.1f} % "
        "{more} than the closed form that is shown",
        taken=taken,
        apart=apart,
        more=more,
    )


def pipeline_table(found: SimulatedPipeline) -> RenderableType:
    """Every rank: how long it works and waits, and its activations over the step."""
    stepped, whole = found.stepped, found.stepped.seconds
    curves = [found.held(rank) for rank in range(len(stepped.ranks))]
    most = max(size for curve in curves for _, size in curve) or 1.0
    table = grid(
        ("stage", "right"),
        ("works", "right"),
        ("waits", "right"),
        ("at most", "right"),
        "activations over the step",
        title="Every stage, simulated event by event",
    )
    for rank, curve in enumerate(curves):
        busy = stepped.busy(rank)
        table.add_row(
            str(rank),
            units.show(busy, "seconds"),
            f"{100.0 * (whole - busy) / whole:.1f} %",
            units.show(max(size for _, size in curve), "memory"),
            Text(_drawn(curve, whole, most), style="magenta"),
        )
    return table


def _drawn(curve: list[tuple[float, float]], whole: float, most: float) -> str:
    top = len(LEVELS) - 1
    return "".join(LEVELS[round(top * size / most)] for size in most_held(curve, whole, MOMENTS))


def most_held(curve: list[tuple[float, float]], whole: float, moments: int) -> list[float]:
    """The most that is held in each of some equal stretches of the step."""
    highest, now, at = [0.0] * moments, 0.0, 0
    for when, size in [*curve, (whole, 0.0)]:
        until = min(int(moments * when / whole), moments - 1)
        for moment in range(at, until + 1):
            highest[moment] = max(highest[moment], now)
        at, now = until, size
        highest[at] = max(highest[at], now)
    return highest


def encode_pipeline(found: SimulatedPipeline) -> dict[str, Any]:
    """The same for JSON."""
    stepped = found.stepped
    return {
        "simulated_seconds": found.seconds,
        "closed_form_seconds": found.closed_seconds,
        "ranks": [
            {
                "busy_seconds": stepped.busy(rank),
                "idle_seconds": stepped.seconds - stepped.busy(rank),
                "most_activation_bytes": stepped.most_held(rank, found.kept_bytes),
            }
            for rank in range(len(stepped.ranks))
        ],
    }
