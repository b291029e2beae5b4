"""The front of a search as a picture: time against memory, and what each plan's run costs."""

from __future__ import annotations

from pathlib import Path

from trueflops import units
from trueflops.catalog import Price
from trueflops.language import ENGLISH, speaking
from trueflops.plan.words import describe_plan
from trueflops.predict import TrainingStep, training_bill
from trueflops.report.plots import (
    BAR,
    FADED,
    GOOD,
    INK,
    LOSS,
    check_name,
    load_pyplot,
    open_frame,
    save,
)


@speaking(ENGLISH)  # the font of pictures has no other letters
def plot_front(front: tuple[TrainingStep, ...], path: Path, rent: Price | None = None) -> None:
    """A point a plan, with the interval of its time; the best in another colour."""
    check_name(path)
    pyplot = load_pyplot()
    lines = 0.19 * len(front)
    figure, axes = pyplot.subplots(figsize=(9.0, 4.8 + lines))
    capacity = front[0].capacity_bytes / units.GIBI
    for place, step in enumerate(front):
        e, gibi = step.step.estimate, float(step.memory.value) / units.GIBI
        value, low, high = float(e.value), float(e.low), float(e.high)
        axes.errorbar(gibi, value, [[value - low], [high - value]], fmt="o", markersize=8,
                      color=BAR if place else GOOD, ecolor=LOSS, elinewidth=3)  # fmt: skip
        axes.annotate(f"{place + 1}", (gibi, value), xytext=(7, 5), textcoords="offset points",
                      fontsize=10, fontweight="bold", color=INK)  # fmt: skip
        bill = training_bill(step, rent=rent)
        costs = f"{units.show(float(bill.usd.value), 'usd')} · " if bill.usd else ""
        says = f"{place + 1}  {units.show(value, 'seconds')} · {costs}{describe_plan(step.plan)}"
        figure.text(0.02, (lines - 0.19 * place - 0.1) / (4.8 + lines), says, fontsize=8, color=INK)
    axes.axvline(capacity, color=FADED, linestyle="--", linewidth=1)
    axes.text(capacity, axes.get_ylim()[1], "all of its memory ", ha="right", va="top",
              color=FADED, fontsize=9)  # fmt: skip
    axes.set_xlim(0.0, capacity * 1.02)
    axes.set_xlabel("GiB on the fullest accelerator", color=INK)
    axes.set_ylabel("seconds a step", color=INK)
    axes.grid(color=LOSS, linewidth=0.5)
    open_frame(axes)
    first = front[0]
    where = f"{first.cluster.count:,} × {first.cluster.accelerator.name}"
    axes.set_title(f"{first.model.name} on {where}: time against memory", loc="left", fontsize=12,
                   fontweight="bold", color=INK)  # fmt: skip
    figure.tight_layout(rect=(0.0, lines / (4.8 + lines), 1.0, 1.0))
    save(figure, path)
