"""The stages of a captured pipeline for readers: which one the others wait for."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from trueflops import units
from trueflops.language import say
from trueflops.predict.captured.stages import CapturedStages
from trueflops.report.grid import grid
from trueflops.report.tables import console, filled, plural


def encode_stages(found: CapturedStages) -> dict[str, Any]:
    """Everything for JSON, SI units in the key names."""
    return {
        "seconds": found.seconds,
        "slowest_rank": found.slowest,
        "fullest_rank": found.fullest,
        "ranks": [
            {
                "rank": rank,
                "seconds": float(each.step.seconds.value),
                "device_busy_seconds": each.step.device_seconds,
                "exposed_communication_seconds": each.step.exposed_seconds,
                "bubble_seconds": each.step.waited_seconds,
                "idle_seconds": each.step.idle_seconds,
                "peak_allocated_bytes": each.memory.peak_allocated_bytes,
                "fits": each.fitting.fits,
            }
            for rank, each in found.ranks.items()
        ],
    }


def show_stages(found: CapturedStages) -> None:
    """A line for each stage."""
    out = console()
    table = grid(
        ("rank", "right"),
        ("step", "right"),
        ("busy", "right"),
        ("communication", "right"),
        ("bubble", "right"),
        ("idle", "right"),
        ("memory", "right"),
        title=say(
            "A pipeline of {number}, replayed together", number=plural(len(found.ranks), "stage")
        ),
    )
    for rank, each in found.ranks.items():
        step = each.step
        spans = (
            float(step.seconds.value), step.device_seconds, step.exposed_seconds,
            step.waited_seconds, step.idle_seconds,
        )  # fmt: skip
        memory = units.show(each.memory.peak_allocated_bytes, "memory")
        table.add_row(str(rank), *(units.show(span, "seconds") for span in spans), memory)
    out.print(table)
    said = say("no stage waits for another: the program sends no messages between ranks")
    if len(found.ranks) > 1:
        waited = max(each.step.waited_seconds for each in found.ranks.values())
        said = say(
            "rank {slowest} waits least: the others wait for it; the longest bubble is "
            "{waited:.0f} % of the step; rank {fullest} needs most memory",
            slowest=found.slowest,
            waited=100.0 * waited / found.seconds,
            fullest=found.fullest,
        )
    out.print(Text(filled(out, said), style="dim"))
    out.print()
