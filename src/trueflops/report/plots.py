"""Pictures as PNG. Needs the `plot` extra (matplotlib), which is imported only here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trueflops import units
from trueflops.errors import BadInput, printable
from trueflops.predict import TrainingStep
from trueflops.report.plans import describe_plan
from trueflops.report.waterfall import training_waterfall

INK, FADED, BAR, LOSS, GOOD = "#1d2733", "#7a8794", "#3b7dd8", "#d9e3f0", "#2a9d62"


def plot_waterfall(step: TrainingStep, path: Path) -> None:
    """From the number on the box to the number you get, one bar a loss."""
    if path.suffix != ".png" or not path.stem:
        raise BadInput(f"--plot {printable(str(path))}: name a file that ends in .png")
    pyplot = _pyplot()
    falls = training_waterfall(step)
    rates = [fall.flop_per_second / units.TERA for fall in falls]
    figure, axes = pyplot.subplots(figsize=(9.0, 0.46 * len(falls) + 1.2))
    for row, (fall, rate) in enumerate(zip(falls, rates, strict=True)):
        before = rates[row - 1] if row else rate
        ends = fall.name in ("advertised", "yours")
        axes.barh(row, before, color=LOSS, height=0.72)
        axes.barh(row, rate, color=GOOD if ends else BAR, height=0.72)
        axes.text(rate * 0.985, row, units.digits(rate), ha="right", va="center", color="white",
                  fontsize=10, fontweight="bold")  # fmt: skip
        axes.text(before + rates[0] * 0.012, row, fall.why, va="center", color=FADED, fontsize=9)
    axes.set_yticks(range(len(falls)), [fall.name for fall in falls], fontsize=10, color=INK)
    axes.invert_yaxis()
    axes.set_xlim(0, rates[0] * 1.32)
    axes.set_xticks([])
    for side in ("top", "right", "bottom", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0)
    where = f"{step.cluster.count} × {step.cluster.accelerator.name}"
    title = f"{step.model.name} on {where}: TFLOP/s per accelerator\n"
    axes.set_title(title, loc="left", fontsize=12, fontweight="bold", color=INK, pad=4)
    axes.text(0, 1.005, describe_plan(step.plan), transform=axes.transAxes, fontsize=9, color=FADED)
    figure.tight_layout()
    save(figure, path)


def save(figure: Any, path: Path) -> None:
    """Write a figure; a folder that is not there is the user's to make."""
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: cannot be written ({error})") from None


def _pyplot() -> Any:
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        raise BadInput("pictures need matplotlib: pip install 'trueflops[plot]'") from None
    return pyplot
