"""A sweep for readers: what it would ask, and what became of its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.text import Text

from trueflops import units
from trueflops.errors import shorten
from trueflops.language import say
from trueflops.report.grid import grid
from trueflops.report.tables import console, plural
from trueflops.sweep.questions import Questions
from trueflops.sweep.rows import STATUSES, Row
from trueflops.sweep.spec import Axis, Spec

_STYLE = {"ok": "green", "failed": "red"}


class Swept(NamedTuple):
    """A table that was written."""

    table: Path
    columns: int
    rows: Sequence[Row]
    kept: int  # rows that a journal held
    seconds: float


def show_questions(spec: Spec, questions: Questions, table: Path, kept: int) -> None:
    """What a sweep would ask: how many, and the first, a middle and the last of them."""
    out, asked = console(), questions.asked
    count = plural(len(asked), "question")
    out.print(
        Text(
            say(
                "{count} of {command}: {spec}",
                count=count,
                command=spec.command,
                spec=_made_of(spec, questions),
            )
        )
    )
    sample = sorted({0, len(asked) // 2, len(asked) - 1})
    rows = grid(("", "right"), "")
    for place in sample:
        rows.add_row(Text(f"{place + 1:,}", style="dim"), Text(asked[place].typed))
    out.print(rows)
    out.print(
        Text(
            say("into {table}", table=table)
            + (say(", {kept} kept from before", kept=plural(kept, "row")) if kept else "")
        )
    )


def encode_questions(questions: Questions, table: Path, kept: int) -> dict[str, Any]:
    """The same for JSON, every question spelt out."""
    return {
        "table": str(table),
        "questions": [each.typed for each in questions.asked],
        "excluded": questions.excluded,
        "kept": kept,
    }


def _made_of(spec: Spec, questions: Questions) -> str:
    words = [_sizes(spec.axes)] if spec.axes else []
    if questions.excluded:
        words.append(say("without {excluded:,}", excluded=questions.excluded))
    words += [say("and {axes}", axes=_sizes(axes)) for axes in spec.include]
    return ", ".join(words)


def _sizes(axes: Sequence[Axis]) -> str:
    """'model 2 × on 4'."""
    return " × ".join(f"{axis.name} {len(axis.values):,}" for axis in axes)


def show_swept(done: Swept) -> None:
    """How many rows of each status, and what most of those that are not well say."""
    out = console()
    before = say(", {kept:,} kept from before", kept=done.kept) if done.kept else ""
    taken = units.show(done.seconds, "seconds")
    rows = say(
        "{number} of {columns} columns in {taken}{before}",
        number=plural(len(done.rows), "row"),
        columns=done.columns,
        taken=taken,
        before=before,
    )
    out.print(Text(f"{done.table}: {rows}"))
    statuses = grid(("", "right"), "", "")
    for status in STATUSES:
        whys = Counter(str(row["why"]) for row in done.rows if row["status"] == status)
        if not whys:
            continue
        why, times = whys.most_common(1)[0]
        often = say(" ({times:,} of them)", times=times) if times < whys.total() else ""
        said = f"{shorten(why, 200)}{often}" if why else ""
        style = _STYLE.get(status, "yellow")
        statuses.add_row(f"{whys.total():,}", Text(status, style=style), Text(said, style="dim"))
    out.print(statuses)


def encode_swept(done: Swept) -> dict[str, Any]:
    """The same for JSON."""
    statuses = Counter(str(row["status"]) for row in done.rows)
    return {
        "table": str(done.table),
        "rows": len(done.rows),
        "columns": done.columns,
        "kept": done.kept,
        "seconds": done.seconds,
        "statuses": {status: statuses[status] for status in STATUSES},
    }
