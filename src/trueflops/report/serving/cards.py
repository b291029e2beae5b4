"""Cards that share the layers of a model: what each holds and takes, and which split is faster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console, RenderableType

from trueflops import units
from trueflops.language import say
from trueflops.predict import ServingPoint
from trueflops.report.grid import grid


def print_cards(out: Console, point: ServingPoint, faster: Mapping[str, Any] | None) -> None:
    """The table, and what to type for a faster split."""
    out.print()
    out.print(cards_table(point))
    if faster is None:
        return
    told = say(
        "Faster: --tensor-split {split} would write {rate} tokens/s ({layers} layers).",
        split=faster["tensor_split"],
        rate=units.show(faster["tokens_per_second"], "count"),
        layers=" + ".join(map(str, faster["layers"])),
    )
    if faster["spare"]:
        told += say(
            " Leave out what then has one layer: {names}.", names=", ".join(faster["spare"])
        )
    out.print(told)


def cards_table(point: ServingPoint) -> RenderableType:
    """A row for every card, in the order of the layers."""
    table = grid(
        "",
        ("layers", "right"),
        ("GiB", "right"),
        ("of", "right"),
        ("a token", "right"),
        ("a prompt", "right"),
        title="Every card",
    )
    for stage in point.stages:
        held = float(stage.memory.value) / units.GIBI
        table.add_row(
            stage.chip.name,
            str(stage.layers),
            f"{held:.1f}" if stage.fits else f"[red]{held:.1f} ✗[/]",
            f"{stage.capacity_bytes / units.GIBI:.1f}",
            units.show(stage.decode_seconds, "seconds"),
            units.show(stage.prefill_seconds, "seconds"),
        )
    return table
