"""Advice about a captured program for readers: what to do, what it saves, how sure that is."""

from __future__ import annotations

import textwrap
from typing import Any

from rich.console import Console
from rich.text import Text

from trueflops import units
from trueflops.language import say
from trueflops.predict.advice import Advice
from trueflops.predict.captured.advice import Advised
from trueflops.predict.captured.elsewhere import usd_of
from trueflops.predict.captured.program import CapturedProgram
from trueflops.report import encode
from trueflops.report.grid import grid
from trueflops.report.tables import console, ranged, show_list


def encode_advice(found: Advised) -> dict[str, Any]:
    """For JSON, SI units in the key names."""
    return {
        "advice": [
            {
                "code": a.code,
                "text": a.text,
                "saves_seconds": {"value": a.saves_seconds, "low": a.low, "high": a.high},
                "peak_allocated_bytes": a.peak_bytes,
                "makes_fit": a.makes_fit,
            }
            for a in found.advice
        ],
        "elsewhere": [
            {
                "on": row.chip,
                **encode.estimate("seconds", row.seconds),
                "usd_per_million_steps": row.usd,
                "faster": row.faster,
                "cheaper": row.cheaper,
            }
            for row in found.elsewhere
        ],
        "not_tried": list(found.untried),
    }


def show_advice(found: Advised, program: CapturedProgram) -> None:
    """A list, best first; each change alone."""
    out = console()
    step = units.show(float(program.step.seconds.value), "seconds")
    if found.advice:
        rows = [(_figure(a), _sentence(a)) for a in found.advice]
        show_list(out, say("Changes that were tried, of {step}; each alone", step=step), rows)
    else:
        out.print(
            say(
                "No change that was tried saves more than its own uncertainty, of {step}.",
                step=step,
            )
        )
    if found.elsewhere:
        _show_elsewhere(out, found, program)
    for text in found.untried:
        said = textwrap.fill(
            say("note: not tried: {text}", text=text), out.width, break_on_hyphens=False
        )
        out.print(Text(said, style="dim"))


def _show_elsewhere(out: Console, found: Advised, program: CapturedProgram) -> None:
    chip, step = program.clock.chip, program.step.seconds
    table = grid("", ("step", "right"), ("90 % interval", "right"), ("a million", "right"),
                 "", title="The same step elsewhere")  # fmt: skip
    paid = usd_of(chip, float(step.value), program.clock.cluster.count)
    table.add_row(chip.name, *ranged(step, "seconds"), _dollars(paid), "as asked")
    for row in found.elsewhere:
        words = [word for word, so in (("faster", row.faster), ("cheaper", row.cheaper)) if so]
        table.add_row(
            row.chip, *ranged(row.seconds, "seconds"), _dollars(row.usd), " and ".join(words)
        )
    out.print(table)
    out.print()


def _dollars(usd: float | None) -> str:
    return "" if usd is None else units.show(usd, "usd")


def _figure(of: Advice) -> str:
    if of.saves_seconds <= 0.0:
        return say("fits")
    return say("saves {saves_seconds}", saves_seconds=units.show(of.saves_seconds, "seconds"))


def _sentence(of: Advice) -> str:
    said = of.text
    if of.saves_seconds > 0.0 and of.low is not None and of.high is not None:
        between = units.show_between(max(of.low, 0.0), of.saves_seconds, of.high, "seconds")
        said += f" ({between})"
    elif of.makes_fit:
        said += say(
            "; {saves_seconds} longer for as much work",
            saves_seconds=units.show(-of.saves_seconds, "seconds"),
        )
    return (
        say("{said}; it then fits", said=said) if of.makes_fit and of.saves_seconds > 0.0 else said
    )
