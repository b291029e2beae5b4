"""What a search found beside the best plan: the front, why others fell out, the nearest miss."""

from __future__ import annotations

from typing import Any

from rich.console import Console, RenderableType
from rich.text import Text

from trueflops import units
from trueflops.catalog import Price
from trueflops.language import say
from trueflops.plan.words import changed_flags, describe_plan, flags_of
from trueflops.predict import TrainingStep, training_bill
from trueflops.report.encode import plan as encode_plan
from trueflops.report.grid import Bar, grid
from trueflops.search import Found
from trueflops.search.best import NOT_ALLOWED


def print_found(out: Console, found: Found, rent: Price | None = None) -> None:
    """Only what says something: a front of one plan does not."""
    if len(found.front) > 1:
        out.print()
        out.print(front_table(found, rent))
    out.print()
    out.print(fallen_table(found))
    if found.nearest is not None and found.best:
        out.print()
        out.print(_miss(found.nearest, found.best[0]), highlight=False)


def front_table(found: Found, rent: Price | None = None) -> RenderableType:
    """The fastest plan within each part of the memory."""
    table = grid(
        ("step", "right"), ("GiB", "right"), ("run", "right"), "", "plan",
        title="Time against memory and dollars",
    )  # fmt: skip
    slowest = max(float(step.step.value) for step in found.front)
    for step in found.front:
        seconds = float(step.step.value)
        table.add_row(
            units.show(seconds, "seconds"),
            f"{float(step.memory.value) / units.GIBI:.1f}",
            _cost(step, rent),
            Bar(seconds / slowest, 12, "cyan"),
            describe_plan(step.plan),
        )
    return table


def _cost(step: TrainingStep, rent: Price | None) -> str:
    usd = training_bill(step, rent=rent).usd
    return units.show(float(usd.value), "usd") if usd else say("no price known")


def fallen_table(found: Found) -> RenderableType:
    """How many plans fell out, and why."""
    table = grid(("plans", "right"), "", "", title="Why not the others")
    for code, number in found.refused.most_common():
        why = (
            say("the tool has no setting for it")
            if code == NOT_ALLOWED
            else say("refused by this rule")
        )
        table.add_row(f"{number:,}", code, Text(why, style="dim"))
    table.add_row(f"{found.too_large:,}", "memory", Text(say("may not fit"), style="dim"))
    table.add_row(f"{found.slower:,}", "time", Text(say("slower, by a bound"), style="dim"))
    shown = len(found.best)
    rest = max(found.fitting - shown, 0)
    table.add_row(
        f"{rest:,}", "predicted", Text(say("slower, or of a kind listed above"), style="dim")
    )
    return table


def _miss(near: TrainingStep, best: TrainingStep) -> str:
    faster = 100.0 * (1.0 - float(near.step.value) / float(best.step.value))
    needed = float(near.memory.estimate.high)
    lacks = units.show(max(needed - near.capacity_bytes, 0.0), "memory")
    changes = changed_flags(best.plan, near.plan) or describe_plan(near.plan)
    return say(
        "Nearest miss: {changes} would be {faster:.1f} % faster and lacks {lacks} to "
        "fit surely ({value}, up to {needed}).",
        changes=changes,
        faster=faster,
        lacks=lacks,
        value=units.show(float(near.memory.value), "memory"),
        needed=units.show(needed, "memory"),
    )


def encode_found(found: Found, rent: Price | None = None) -> dict[str, Any]:
    """The same as JSON."""

    def short(step: TrainingStep) -> dict[str, Any]:
        taken, bill = step.step.estimate, training_bill(step, rent=rent)
        return {
            "plan": encode_plan(step.plan),
            "plan_flags": flags_of(step.plan),
            "step_seconds": step.step.value,
            "step_seconds_low": taken.low,
            "step_seconds_high": taken.high,
            "memory_bytes": step.memory.value,
            "cost_usd": bill.usd.value if bill.usd else None,
            "mfu": bill.mfu.value,
        }

    return {
        "best": [short(step) for step in found.best],
        "search": {
            "front": [short(step) for step in found.front],
            "nearest_miss": short(found.nearest) if found.nearest is not None else None,
            "legal": found.legal,
            "refused": dict(found.refused),
            "too_large": found.too_large,
            "slower": found.slower,
            "predicted": found.fitting,
            "complete": found.complete,
        },
    }
