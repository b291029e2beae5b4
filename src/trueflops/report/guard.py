"""A guarded step for readers: passed or not, and which kernels and tensors grew."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from trueflops import units
from trueflops.errors import printable
from trueflops.language import say
from trueflops.predict.captured.guarded import Comparison, Growth
from trueflops.records.baseline import Baseline
from trueflops.report.grid import grid
from trueflops.report.tables import console, filled

LISTED: Final = 8  # rows of what grew


def encode_written(path: Path, now: Baseline) -> dict[str, Any]:
    """A baseline that was written, for JSON."""
    return {
        "baseline": str(path),
        "written": True,
        "passed": True,
        **now.question,
        "step_seconds": now.step_seconds,
        "peak_allocated_bytes": now.peak_allocated_bytes,
    }


def encode_comparison(path: Path, found: Comparison) -> dict[str, Any]:
    """A comparison for JSON, SI units in the key names."""
    before, now = found.before, found.now
    return {
        "baseline": str(path),
        "written": False,
        "passed": found.passed,
        **now.question,
        "tolerance": found.tolerance,
        "step_seconds": {"before": before.step_seconds, "now": now.step_seconds},
        "peak_allocated_bytes": {
            "before": before.peak_allocated_bytes, "now": now.peak_allocated_bytes,
        },
        "slower": found.slower,
        "larger": found.larger,
        "grown_parts": [_encode(row, "seconds") for row in found.parts],
        "grown_kernels": [_encode(row, "seconds") for row in found.kernels],
        "grown_tensors": [_encode(row, "bytes") for row in found.tensors],
        "other_releases": found.releases or None,
    }  # fmt: skip


def _encode(row: Growth, unit: str) -> dict[str, Any]:
    return {
        "name": row.name,
        f"before_{unit}": row.before,
        f"now_{unit}": row.now,
        "detail": row.detail or None,
        "source": row.source or None,
    }


def show_written(path: Path, now: Baseline, *, updated: bool) -> None:
    """Where the step was written down."""
    out = console()
    step, peak = _time(now.step_seconds), _memory(now.peak_allocated_bytes)
    out.print(
        Text(
            say(
                "{program} on {on}: a step of {step}, {peak} at the peak",
                program=now.program,
                on=now.on,
                step=step,
                peak=peak,
            ),
            "bold",
        )
    )
    kept = say("is the new baseline") if updated else say("had no baseline, and is one now")
    said = say("that {kept}: {path}; commit it", kept=kept, path=printable(str(path)))
    out.print(Text(textwrap.fill(said, out.width, break_on_hyphens=False)))


def show_comparison(path: Path, found: Comparison) -> None:
    """Whether it grew, by how much, and what did."""
    out = console()
    before, now = found.before, found.now
    verdict = "passed" if found.passed else "failed"
    limit = say("+{tolerance:g} % at most", tolerance=100.0 * found.tolerance)
    out.print(
        Text(
            say(
                "{verdict}: {program} on {on}, {limit}",
                verdict=verdict,
                program=now.program,
                on=now.on,
                limit=limit,
            ),
            "bold",
        )
    )
    table = grid("", ("baseline", "right"), ("now", "right"), ("", "right"), "")
    rows = (
        ("step", before.step_seconds, now.step_seconds, _time, found.slower),
        (say("peak memory"), before.peak_allocated_bytes, now.peak_allocated_bytes, _memory,
         found.larger),
    )  # fmt: skip
    for name, then, is_now, shown, grew in rows:
        mark = Text(say("too much"), style="red") if grew else Text("")
        table.add_row(name, shown(then), shown(is_now), _change(then, is_now), mark)
    out.print(table)
    if found.slower:
        _show_grown(out, say("Parts of the step that grew"), found.parts, _time)
        _show_grown(out, say("Kernels that grew"), found.kernels, _time)
    if found.larger:
        _show_grown(out, say("Tensors at the peak that grew"), found.tensors, _memory)
    if found.releases:
        said = say(
            "note: the baseline was written by {releases}: that may have moved it too",
            releases=found.releases,
        )
        out.print(Text(filled(out, said), style="dim"))
    again = say(
        "--update accepts this step as the new baseline ({name})", name=printable(path.name)
    )
    if found.better or not found.passed:
        out.print(Text(textwrap.fill(again, out.width, break_on_hyphens=False), style="dim"))


def _show_grown(out: Console, title: str, rows: Sequence[Growth], shown: Any) -> None:
    if not rows:
        return
    out.print()
    out.print(Text(title, style="bold"))
    for row in rows[:LISTED]:
        then = f"{shown(row.before)} → " if row.before else ""
        at = f", {row.source}" if row.source else ""
        figure = f"+{shown(row.grew)}"
        first = f"{figure:>10}  {row.name}{at}"
        out.print(Text(textwrap.fill(first, out.width, subsequent_indent=" " * 12)))
        second = ", ".join(filter(None, (f"{then}{shown(row.now)}", row.detail)))
        indent = " " * 12
        out.print(Text(textwrap.fill(
            second, out.width, initial_indent=indent, subsequent_indent=indent,
            break_on_hyphens=False), style="dim"))  # fmt: skip
    if len(rows) > LISTED:
        out.print(Text(f"{'':12}and {len(rows) - LISTED} more (--json has them all)", style="dim"))


def _change(before: float, now: float) -> str:
    if not before:
        return ""
    share = 100.0 * (now / before - 1.0)
    return f"{share:+.2f} %".replace("-", "−")


def _time(seconds: float) -> str:
    return units.show(seconds, "seconds")


def _memory(size: float) -> str:
    return units.show(size, "memory")
