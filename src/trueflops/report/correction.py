"""A correction of a profile by real steps: which part, by what, and how much it helps elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from trueflops import units
from trueflops.language import mark, say, word
from trueflops.profile.correction import FACTORS, RESERVE
from trueflops.report.tables import console
from trueflops.run.correction import Fit, Observed, missed

_MEANS = {
    "compute": mark("every kernel"), "host": mark("every call and launch"),
    "links": mark("every collective"),
}  # fmt: skip
_NEAR = 0.01


def show_correction(fit: Fit, observed: Sequence[Observed], where: str) -> None:
    """Steps, then factors, then what a reader may expect of other plans."""
    out = console()
    table = Table(
        title=say("Steps, as they were and are predicted"), title_justify="left", box=None
    )
    table.add_column(word("plan"))
    for name in ("measured", "before", mark("after"), mark("left out")):
        table.add_column(word(name), justify="right")
    for place, each in enumerate(observed):
        without = fit.left_out[place] if fit.left_out else None
        table.add_row(
            each.name, units.show(each.seconds, "seconds"),
            _off(fit.before[place], each.seconds), _off(fit.after[place], each.seconds),
            "–" if without is None else _off(without, each.seconds),
        )  # fmt: skip
    out.print(table)
    out.print()
    for name in FACTORS:
        value = fit.values[name]
        says = say("{name}: as it was", name=name)
        if abs(value - 1.0) >= _NEAR:
            says = say(
                "{name}: {what} takes {value:.2f} times as long",
                name=name,
                what=_MEANS[name],
                value=value,
            )
        out.print(Text(says))
    if fit.values[RESERVE]:
        more = units.show(fit.values[RESERVE], "memory")
        out.print(Text(say("memory: {more} more a device", more=more)))
    before = missed(fit.before, observed)
    if fit.left_out:
        after = missed(fit.left_out, observed)
        out.print(
            Text(
                say(
                    "Plans that a fit has not seen: {before:.0%} off before, {after:.0%} now.",
                    before=before,
                    after=after,
                )
            )
        )
    else:
        out.print(Text(say("Run two or three other plans as well, to see what it does for those.")))
    # On one line, however long: it is copied.
    out.print(Text(say("use it with --profile {where}", where=where), no_wrap=True), soft_wrap=True)


def encode_correction(fit: Fit, observed: Sequence[Observed]) -> dict[str, Any]:
    """The same as JSON."""
    without = fit.left_out or [None] * len(observed)
    return {
        "factors": {name: fit.values[name] for name in FACTORS},
        "reserve_bytes": fit.values[RESERVE],
        "runs": [
            {
                "plan": dict(each.said["plan"]), "measured_seconds": each.seconds,
                "before_seconds": before, "after_seconds": after, "left_out_seconds": alone,
            }
            for each, before, after, alone in zip(
                observed, fit.before, fit.after, without, strict=True
            )
        ],
    }  # fmt: skip


def _off(predicted: float, measured: float) -> str:
    return f"{predicted / measured - 1.0:+.0%}"
