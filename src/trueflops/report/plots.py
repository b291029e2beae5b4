"""Pictures as PNG. Needs the `plot` extra (matplotlib), which is imported only here."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from trueflops import units
from trueflops.errors import BadInput, printable
from trueflops.files import check_writable, write_file
from trueflops.language import ENGLISH, say, speaking
from trueflops.plan.words import describe_plan
from trueflops.predict import TrainingStep
from trueflops.predict.explain import KernelExplained
from trueflops.report.roofline import Axes
from trueflops.report.waterfall import training_waterfall

INK, FADED, BAR, LOSS, GOOD = "#1d2733", "#7a8794", "#3b7dd8", "#d9e3f0", "#2a9d62"


@speaking(ENGLISH)  # the font of pictures has no other letters
def plot_waterfall(step: TrainingStep, path: Path) -> None:
    """From the number on the box to the number you get, one bar a loss."""
    check_name(path)
    pyplot = load_pyplot()
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
    open_frame(axes, "top", "right", "bottom", "left")
    axes.tick_params(length=0)
    where = f"{step.cluster.count} × {step.cluster.accelerator.name}"
    title = f"{step.model.name} on {where}: TFLOP/s per accelerator\n"
    axes.set_title(title, loc="left", fontsize=12, fontweight="bold", color=INK, pad=4)
    axes.text(0, 1.005, describe_plan(step.plan), transform=axes.transAxes, fontsize=9, color=FADED)
    figure.tight_layout()
    save(figure, path)


@speaking(ENGLISH)  # the font of pictures has no other letters
def plot_roofline(kernel: KernelExplained, path: Path) -> None:
    """The roofs of the datasheet and as delivered, and where this kernel lies under them."""
    check_name(path)
    pyplot = load_pyplot()
    figure, axes = pyplot.subplots(figsize=(8.0, 4.8))
    view = Axes.around(kernel)
    left, right = 10**view.left, 10**view.right
    rate = kernel.flop_per_second
    for peak, bandwidth, ridge, color, style, name in (
        (kernel.peak, kernel.bandwidth, kernel.ridge, FADED, "--", "datasheet"),
        (kernel.delivered_peak, kernel.delivered_bandwidth, kernel.delivered_ridge, BAR, "-",
         "delivered"),
    ):  # fmt: skip
        rates = [left * bandwidth / units.TERA, peak / units.TERA, peak / units.TERA]
        says = f"{name}: {units.show(peak, 'flop_per_second')}, "
        says += units.show(bandwidth, "bytes_per_second")
        axes.plot([left, ridge, right], rates, style, color=color, linewidth=2, label=says)
    x, y = kernel.intensity, float(rate.value) / units.TERA
    low, high = float(rate.low) / units.TERA, float(rate.high) / units.TERA
    said = f"{kernel.name}: {units.show(float(rate.value), 'flop_per_second')}"
    axes.errorbar(x, y, [[y - low], [high - y]], fmt="o", color=GOOD, markersize=8, capsize=4,
                  zorder=3, label=f"{said} ({kernel.bound})")  # fmt: skip
    axes.axvline(kernel.ridge, color=LOSS, zorder=0)
    axes.text(kernel.ridge * 1.04, 10**view.bottom / units.TERA * 1.15,
              f"ridge {units.digits(kernel.ridge)}", color=FADED, fontsize=9)  # fmt: skip
    axes.set(xscale="log", yscale="log", xlim=(left, right),
             ylim=(10**view.bottom / units.TERA, 10**view.top / units.TERA))  # fmt: skip
    axes.set_xlabel("flop per byte that must move", color=INK)
    axes.set_ylabel("TFLOP/s", color=INK)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.grid(color=LOSS, linewidth=0.5)
    open_frame(axes)
    axes.legend(loc="best", frameon=False, fontsize=9)
    axes.set_title(
        say("{name} on {chip}", name=kernel.name, chip=kernel.chip.name),
        loc="left",
        fontsize=12,
        fontweight="bold",
        color=INK,
    )
    figure.tight_layout()
    save(figure, path)


def open_frame(axes: Any, *sides: str) -> None:
    """Take away sides of the frame that say nothing: the top and the right one, or those named."""
    for side in sides or ("top", "right"):
        axes.spines[side].set_visible(False)


def check_name(path: Path) -> None:
    if path.suffix != ".png" or not path.stem:
        raise BadInput(f"--plot {printable(str(path))}: name a file that ends in .png")
    check_writable(path)


def save(figure: Any, path: Path) -> None:
    """Write a figure; a folder that is not there is the user's to make."""
    from matplotlib import pyplot

    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=150, format="png")
    pyplot.close(figure)
    write_file(path, drawn.getvalue())


def load_pyplot() -> Any:
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        raise BadInput("pictures need matplotlib: pip install 'trueflops[plot]'") from None
    return pyplot
