"""Which number priced what, from which measurements, with which error: for readers and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from trueflops import units
from trueflops.language import mark, say, word
from trueflops.predict.provenance import PricedLaw, PricedPart, Provenance
from trueflops.profile import Choice, Curve, FittedRows
from trueflops.report.grid import Grid, grid
from trueflops.report.tables import plural

_WHOSE: Final = {
    "given": mark("the profile given with --profile"),
    "own": mark("this chip's own"),
    "sibling": mark("that of a chip with the same die"),
    "transfer": mark("fitted across chips"),
    "assumed": mark("assumed, nothing fitted"),
    "framework": mark("a setting of the framework"),
}
TABLES: Final = 4  # of a curve's rows, that are listed; the others are counted
TELLING: Final = 5e-4  # of the whole: what is worth lines of its own; JSON has every part


def show_provenance(out: Console, found: Provenance) -> None:
    """Part by part, the largest first; a curve that was described above is named alone."""
    out.print()
    out.print(Text(say("Which number priced what: {of}", of=found.of), style="bold"))
    described: dict[int, str] = {}
    for part in found.parts:
        share = part.seconds / found.seconds
        if share < TELLING:
            continue
        table = grid("", "")
        taken = f"{units.show(part.seconds, 'seconds')}, {100.0 * share:.1f} %"
        kernels = f", {plural(round(part.kernels), 'kernel')}" if part.kernels > 1.5 else ""
        out.print()
        out.print(Text.assemble((word(part.what.replace("_", " ")), "bold"), f"  {taken}{kernels}"))
        for choice in part.choices:
            _describe(table, choice, described, part.what)
        out.print(table)
    if short := [part.what for part in found.parts if part.seconds < TELLING * found.seconds]:
        said = say(
            "under {telling:g} % each: {names}",
            telling=100.0 * TELLING,
            names=say(", ").join(word(what.replace("_", " ")) for what in short),
        )
        out.print()
        out.print(Text(said, style="dim"))
    if found.law is not None:
        _show_law(out, found.law)


def _describe(table: Grid, choice: Choice, described: dict[int, str], what: str) -> None:
    curve = choice.curve
    table.add_row("  curve", Text(show_chain(choice)))
    if id(curve) in described:
        where = described[id(curve)].replace("_", " ")
        table.add_row("", Text(say("as said under {where}", where=where), style="dim"))
        return
    described[id(curve)] = what
    if curve.lineage is not None:
        holder, profile = curve.lineage.holder, curve.lineage.profile
        of = "" if holder == "transfer" else f": {profile}"
        table.add_row("  whose", Text(f"{word(_WHOSE[holder])}{of}"))
        for change in curve.lineage.changes:
            table.add_row("  changed", Text(change))
    if curve.rows:
        listed = [_rows(rows) for rows in curve.rows[:TABLES]]
        others = curve.rows[TABLES:]
        if others:
            more = sum(rows.count for rows in others)
            listed.append(
                say(
                    "{more:,} more, of {number}",
                    more=more,
                    number=plural(len(others), "other table or chip"),
                )
            )
        table.add_row("  rows", Text(say("; ").join(listed)))
    elif curve.fitted_rows:
        table.add_row("  rows", Text(f"{curve.fitted_rows:,}"))
    table.add_row("  source", Text(f"{word(curve.origin)}: {curve.source}"))
    table.add_row("  error", Text(_error(curve)))


def show_chain(choice: Choice) -> str:
    """'matmul.fp8.grouped (absent) → matmul.fp8'."""
    said = []
    for tried in choice.tried:
        ended = say(": its fit ended at a bound of {names}", names=", ".join(tried.at_bounds))
        why = f" ({word(tried.outcome)}{ended if tried.at_bounds else ''})"
        said.append(f"{tried.key}{'' if tried.outcome == 'found' else why}")
    return " → ".join(said)


def _rows(rows: FittedRows) -> str:
    """'3,520 of ops/gemm.csv (H100-SXM5-80GB, vllm 0.24.0)'."""
    where = ", ".join(filter(None, (rows.chip, rows.software, rows.date)))
    return say("{count:,} of {table} ({where})", count=rows.count, table=rows.table, where=where)


def _error(curve: Curve) -> str:
    spread = say("one standard deviation {error:.1f} %", error=100.0 * curve.error)
    if curve.held_out is None:
        return say("no rows held out; {spread}", spread=spread)
    off = curve.held_out
    seen = say(
        "median {median:.1f} %, p90 {p90:.1f} %", median=100.0 * off.median, p90=100.0 * off.p90
    )
    return say(
        "{seen} on {rows} held out; {spread}",
        seen=seen,
        rows=plural(off.rows, "row"),
        spread=spread,
    )


def _show_law(out: Console, law: PricedLaw) -> None:
    out.print()
    table = grid(
        "",
        ("value", "right"),
        "",
        "",
        title=say("Its law: {formula}", formula=law.formula),
        gives_way=3,
    )
    for each in law.parameters:
        bound = say(" (at a bound of the fit)") if each.at_bound else ""
        table.add_row(each.name, units.digits(each.value), each.unit, Text(each.meaning + bound))
    out.print(table)
    if law.landmarks:
        said = say(
            "and {landmarks}: what was measured near each shape",
            landmarks=plural(law.landmarks, "landmark"),
        )
        out.print(Text(said, style="dim"))


def encode_provenance(found: Provenance) -> dict[str, Any]:
    """The same for JSON."""
    law = found.law
    return {
        "of": found.of,
        "seconds": found.seconds,
        "parts": [_encode_part(part) for part in found.parts],
        "law": law
        and {
            "formula": law.formula,
            "parameters": {
                each.name: {
                    "value": each.value,
                    "unit": each.unit,
                    "meaning": each.meaning,
                    "at_bound": each.at_bound,
                }
                for each in law.parameters
            },
            "landmarks": law.landmarks,
        },
    }


def _encode_part(part: PricedPart) -> dict[str, Any]:
    return {
        "what": part.what,
        "seconds": part.seconds,
        "kernels": part.kernels or None,
        "curves": [encode_choice(choice) for choice in part.choices],
    }


def encode_choice(choice: Choice) -> dict[str, Any]:
    """How a curve was chosen, and what it rests on."""
    curve, lineage = choice.curve, choice.curve.lineage
    return {
        "asked": str(choice.key),
        "found": str(choice.found),
        "tried": [
            {"curve": str(t.key), "outcome": t.outcome, "at_bounds": list(t.at_bounds)}
            for t in choice.tried
        ],
        "holder": lineage.holder if lineage else None,
        "profile": lineage.profile if lineage else None,
        "changes": list(lineage.changes) if lineage else [],
        "origin": curve.origin,
        "source": curve.source,
        "fitted_rows": curve.fitted_rows,
        "rows": [asdict(rows) for rows in curve.rows],
        "held_out": curve.held_out and asdict(curve.held_out),
        "log_seconds_error": curve.error,
        "at_bounds": list(curve.at_bounds),
    }
