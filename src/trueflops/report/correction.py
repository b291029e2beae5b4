"""A correction of a profile by real steps: which part, by what, and how much it helps elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from trueflops import units
from trueflops.profile.correction import FACTORS, RESERVE
from trueflops.report.tables import console
from trueflops.run.correction import Fit, Observed, missed

_MEANS = {
    "compute": "every kernel", "host": "every call and launch", "links": "every collective",
}  # fmt: skip
_NEAR = 0.01


def show_correction(fit: Fit, observed: Sequence[Observed], where: str) -> None:
    """Steps, then factors, then what a reader may expect of other plans."""
    out = console()
    table = Table(title="Steps, as they were and are predicted", title_justify="left", box=None)
    table.add_column("plan")
    for name in ("measured", "before", "after", "left out"):
        table.add_column(name, justify="right")
    for place, each in enumerate(observed):
        without = fit.left_out[place] if fit.left_out else None
        table.add_row(
            _named(each), units.show(each.seconds, "seconds"),
            _off(fit.before[place], each.seconds), _off(fit.after[place], each.seconds),
            "–" if without is None else _off(without, each.seconds),
        )  # fmt: skip
    out.print(table)
    out.print()
    for name in FACTORS:
        value = fit.values[name]
        near = abs(value - 1.0) < _NEAR
        says = "as it was" if near else f"{value:.2f} times as long"
        out.print(Text(f"{name}: {_MEANS[name]} takes {says}" if not near else f"{name}: {says}"))
    if fit.values[RESERVE]:
        out.print(Text(f"memory: {units.show(fit.values[RESERVE], 'memory')} more a device"))
    before = missed(fit.before, observed)
    if fit.left_out:
        after = missed(fit.left_out, observed)
        out.print(Text(f"Plans that a fit has not seen: {before:.0%} off before, {after:.0%} now."))
    else:
        out.print(Text("Run two or three other plans as well, to see what it does for those."))
    out.print(Text(f"use it with --profile {where}"))


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


def _named(each: Observed) -> str:
    said = {name: value for name, value in each.said["plan"].items() if "dtype" not in name}
    said.pop("compute", None)
    words = " ".join(f"{name} {value}" for name, value in said.items()) or "one rank"
    return f"{words}, seq {each.workload.seq}, batch {each.workload.global_batch}"
