"""Which predictions a change moves, and by how much.

`replay/questions.txt` holds one command a line, over all commands, and `replay/predictions.csv`
what they answered when the table was last written.

    python benchmarks/replay.py            ask again; show what moved since the table was written
    python benchmarks/replay.py --since R  what the table moved since revision R (no question asked)
    python benchmarks/replay.py --write    ask again and write the table

A refactor moves nothing. A change of a law is committed with the table, so that its diff is the
list of what it moved; `tests/test_replay.py` holds the table to the code.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import math
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

from trueflops.cli import main as trueflops

ROOT: Final = Path(__file__).parent.parent
FOLDER: Final = Path(__file__).parent / "replay"
TABLE: Final = FOLDER / "predictions.csv"
HEADER: Final = ("question", "quantity", "value", "low", "high")
DIGITS: Final = 7  # written; the last may differ between machines
SAME: Final = 2e-6  # relative: below it a number has not moved
# What each command is asked for: keys of its JSON; a tree or an estimate gives its interval too.
QUANTITIES: Final[Mapping[str, tuple[str, ...]]] = {
    "train": ("step_seconds", "memory", "mfu", "energy_kwh"),
    "infer": ("ttft_seconds", "tpot_seconds", "tokens_per_second", "memory"),
    "explain": ("seconds",),
    "collective": ("seconds", "algorithms"),
    "stragglers": ("modes",),
    "capture": ("step", "memory"),
    "diagnose": ("predicted_kernel_seconds",),
    "compare": ("chips",),
    "ops": ("rows",),
    "verify": ("overall",),
}
RATE: Final = "gradients_per_second"
NEEDS_TORCH: Final = ("capture",)


class Interval(NamedTuple):
    """A predicted number; without an interval low and high are the number itself."""

    value: float
    low: float
    high: float


Table = dict[tuple[str, str], Interval]


def questions() -> list[str]:
    """The commands, in the order of the file; lines that begin with # are headings."""
    lines = (FOLDER / "questions.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def ask(question: str) -> dict[str, Any]:
    """The answer of one command as JSON."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        contextlib.chdir(ROOT),
    ):
        code = trueflops([*shlex.split(question), "--json"])
    if code not in (0, 1):
        raise SystemExit(f"replay: trueflops {question}: exit {code}\n{err.getvalue()}")
    answer = json.loads(out.getvalue())
    assert isinstance(answer, dict)
    return answer


def predictions(asked: Sequence[str]) -> Table:
    """What all of these questions are answered."""
    table: Table = {}
    for question in asked:
        answer = ask(question)
        for key in QUANTITIES[question.split()[0]]:
            for name, found in _numbers(key, answer[key]):
                table[question, name] = found
    return table


def _numbers(name: str, found: Any) -> Iterator[tuple[str, Interval]]:
    """Estimates, trees and plain numbers under a key, each with its interval."""
    if isinstance(found, list):
        for i, entry in enumerate(found):
            label = str(entry.get("name", entry.get("quantity", i + 1)))
            for key in ("training", "serving", "seconds", "median", "coverage", RATE):
                if entry.get(key) is not None:
                    yield from _numbers(f"{label} {key}", entry if key == "seconds" else entry[key])
    elif isinstance(found, dict):
        keys = ("value", "bytes", "seconds", "tokens_per_second", "peak_allocated_bytes")
        value = next((found[key] for key in keys if key in found), None)
        if isinstance(value, dict):
            yield from _numbers(name, value)
        elif value is not None:
            low, high = found.get("low", value), found.get("high", value)
            yield name, Interval(*(math.inf if x is None else float(x) for x in (value, low, high)))
    elif found is not None:
        yield name, Interval(float(found), float(found), float(found))


def moved(before: Table, after: Table) -> list[str]:
    """One line for each prediction that is not what it was, the furthest first."""
    rows: list[tuple[float, str]] = []
    for key in before.keys() | after.keys():
        question, quantity = key
        if key not in before or key not in after:
            word = "new" if key in after else "gone"
            rows.append((math.inf, f"{word:>9}  {quantity:<24}  {question}"))
            continue
        changes = [_change(a, b) for a, b in zip(before[key], after[key], strict=True)]
        if max(map(abs, changes)) > SAME:
            ends = f" (interval {changes[1]:+.2%}, {changes[2]:+.2%})"
            ends = "" if abs(changes[0]) > SAME else ends
            rows.append(
                (max(map(abs, changes)), f"{changes[0]:>+9.2%}  {quantity:<24}  {question}{ends}")
            )
    return [text for _, text in sorted(rows, key=lambda row: (-row[0], row[1]))]


def _change(before: float, after: float) -> float:
    if before == after:
        return 0.0
    return math.inf if before == 0.0 else after / before - 1.0


def read_table(text: str) -> Table:
    """A table as it was written."""
    return {
        (row["question"], row["quantity"]): Interval(
            float(row["value"]), float(row["low"]), float(row["high"])
        )
        for row in csv.DictReader(io.StringIO(text))
    }


def write_table(table: Table) -> None:
    """Write it, rounded to what is the same on every machine."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HEADER)
    for (question, quantity), found in table.items():
        writer.writerow((question, quantity, *(f"{number:.{DIGITS}g}" for number in found)))
    TABLE.write_text(out.getvalue())


def _at(revision: str) -> str:
    path = TABLE.relative_to(ROOT).as_posix()
    shown = subprocess.run(
        ["git", "show", f"{revision}:{path}"], cwd=ROOT, capture_output=True, text=True
    )
    if shown.returncode:
        raise SystemExit(f"replay: no table at revision {revision}")
    return shown.stdout


def main(arguments: Sequence[str] | None = None) -> int:
    """Show what moved; exit 0, so that a change of a law can be looked at."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--write", action="store_true", help="write the table anew")
    options.add_argument("--since", metavar="REVISION", help="compare with the table of a revision")
    given = options.parse_args(arguments)
    asked = questions()
    if find_spec("torch") is None and not given.write:
        asked = [q for q in asked if q.split()[0] not in NEEDS_TORCH]
        print("replay: without torch no program is captured", file=sys.stderr)
    written = TABLE.read_text() if TABLE.exists() else ",".join(HEADER)
    before = read_table(_at(given.since) if given.since else written)
    if given.since:
        after = read_table(written)
    else:
        before = {key: found for key, found in before.items() if key[0] in asked or given.write}
        after = predictions(asked)
    lines = moved(before, after)
    print("\n".join(lines) or "nothing moved")
    print(
        f"{len(lines)} of {len(after)} predictions moved, of {len({q for q, _ in after})} questions"
    )
    if given.write:
        write_table(after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
