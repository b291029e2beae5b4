"""Predicted against measured: the table by group and over all groups, and the same as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import nan
from typing import Any, Final

from rich.markup import escape
from rich.text import Text

from trueflops.language import say
from trueflops.report.grid import Column, Grid, grid
from trueflops.report.tables import console, plural
from trueflops.verify.findings import Findings, UnknownSoftware
from trueflops.verify.score import Overall, Score, overall, summary

RIGHT: Final[tuple[Column, ...]] = (
    ("rows", "right"),
    ("MAPE", "right"),
    ("median", "right"),
    ("p90", "right"),
)
LISTED = 12  # reasons of refusal on a terminal; --json has them all


def encode_findings(findings: Findings, without: Findings | None = None) -> dict[str, Any]:
    """Every row, every refusal, and the scores: errors as fractions, the rest in SI units.

    `without` is what the same rows gave without the profile that was asked for.
    """
    answer = {
        "rows": [
            {
                "file": row.file,
                "id": row.id,
                "group": row.group,
                "quantity": row.quantity,
                "measured": row.measured,
                "predicted": row.predicted,
                "low": row.low,
                "high": row.high,
                "error": row.error,
            }
            for row in findings.rows
        ],
        "refused": [row._asdict() for row in findings.refused],
        "unknown_software": [row._asdict() for row in findings.unknown_software],
        "summary": [_without_scored(score) for score in summary(findings)],
        "overall": [row._asdict() for row in overall(findings)],
    }
    if without is not None:
        answer["summary_without_profile"] = [_without_scored(s) for s in summary(without)]
        answer["overall_without_profile"] = [row._asdict() for row in overall(without)]
    return answer


def _without_scored(score: Score) -> dict[str, Any]:
    return {key: value for key, value in score._asdict().items() if key != "scored"}


def show_findings(findings: Findings, without: Findings | None = None) -> None:
    """A table of groups for every quantity, one over all groups, then why rows were refused."""
    out = console()
    scores = summary(findings)
    before = {(s.group, s.quantity): s.median for s in summary(without)} if without else None
    for quantity in dict.fromkeys(score.quantity for score in scores):
        of_quantity = [score for score in scores if score.quantity == quantity]
        out.print(_by_group(quantity, of_quantity, before))
        out.print()
    if without is not None:
        out.print(say("[dim]shipped: the median error without the profile[/]\n"))
    if any(not score.scored for score in scores):
        out.print(say("[dim]* shown, but left out of the overall figures[/]\n"))
    if totals := overall(findings):
        out.print(_over_all(totals))
    if unknown := findings.unknown_software:
        out.print()
        out.print(_unknown(unknown))
    reasons = Counter(row.reason for row in findings.refused)
    if reasons:
        table = grid(
            ("", "right"),
            "",
            title=say("{number} refused", number=plural(len(findings.refused), "row")),
        )
        for reason, rows in reasons.most_common(LISTED):
            table.add_row(f"{rows:,}", Text(reason))
        out.print()
        out.print(table)
        if len(reasons) > LISTED:
            out.print(
                say(
                    "[dim]  … {number:,} more reasons; --json lists them all[/]",
                    number=len(reasons) - LISTED,
                )
            )


def _by_group(
    quantity: str, scores: Iterable[Score], before: Mapping[tuple[str, str], float] | None
) -> Grid:
    more: tuple[Column, ...] = () if before is None else (("shipped", "right"),)
    table = grid(
        "group", *RIGHT, *more, ("bias", "right"), ("in 90 %", "right"), title=quantity, gives_way=0
    )
    for s in scores:
        shares = [s.mape, s.median, s.p90]
        if before is not None:
            shares.append(before.get((s.group, s.quantity), nan))
        table.add_row(
            escape(s.group) + ("" if s.scored else " [dim]*[/]"),
            f"{s.rows:,}",
            *(f"{100 * share:.1f} %" for share in shares),
            f"{100 * s.bias:+.1f} %",
            f"{100 * s.coverage:.0f} %",
        )
    return table


def _unknown(software: Iterable[UnknownSoftware]) -> Grid:
    table = grid("no settings are known of", ("rows", "right"), "judged as", gives_way=0)
    for named, judged_as, rows in software:
        table.add_row(Text(named), f"{rows:,}", judged_as)
    return table


def _over_all(totals: Iterable[Overall]) -> Grid:
    table = grid(
        "all scored groups", ("groups", "right"), *RIGHT, ("in 90 %", "right"), gives_way=0
    )
    for t in totals:
        table.add_row(
            t.quantity,
            f"{t.groups}",
            f"{t.rows:,}",
            *(f"{100 * share:.1f} %" for share in (t.macro_mape, t.median, t.p90)),
            f"{100 * t.coverage:.0f} %",
        )
    return table
