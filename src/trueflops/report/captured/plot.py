"""Pictures of a captured step: its kernels under the roofline, its memory over time."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from trueflops import units
from trueflops.language import ENGLISH, speaking
from trueflops.predict.captured.program import CapturedProgram
from trueflops.report.plots import BAR, FADED, GOOD, INK, check_name, load_pyplot, open_frame, save

COLORS: Final = {"matmul": BAR, "attention": GOOD, "memory": "#d98a3b", "experts": "#8a5bd0"}
LAYERS: Final = {
    "parameters": "#3b7dd8", "optimizer state": "#7fa8e0", "gradients": "#8a5bd0",
    "activations": "#2a9d62", "recomputed activations": "#8fd0ac", "temporary": "#d98a3b",
    "inputs and buffers": "#b8c2cc", "library workspaces": "#7a8794",
}  # fmt: skip
LARGEST_DOT: Final = 900.0


@speaking(ENGLISH)  # the font of pictures has no other letters
def plot_roofline(found: CapturedProgram, path: Path) -> None:
    """Each kind of kernel where its intensity and its rate put it; larger dots took longer."""
    check_name(path)
    pyplot = load_pyplot()
    chip = found.clock.chip
    dtype = next(d for d in ("bf16", "fp16", "fp32") if chip.computes(d))
    peak, bandwidth = chip.peak_flop_per_second(dtype), found.clock.silicon.bandwidth
    figure, axes = pyplot.subplots(figsize=(9.0, 5.2))
    left, right = 0.01, 10_000.0
    ridge = peak / bandwidth
    axes.plot([left, ridge, right], [left * bandwidth, peak, peak], color=FADED, lw=1.5, ls="--")
    axes.text(ridge, peak * 1.3, f"{dtype} peak {units.show(peak, 'flop_per_second')}", ha="right",
              color=FADED, fontsize=9)  # fmt: skip
    longest = max(group.seconds for group in found.groups)
    for cause, color in COLORS.items():
        groups = [g for g in found.groups if g.cause == cause and g.flop and g.moved_bytes]
        if groups:
            axes.scatter(
                [max(g.intensity, left) for g in groups],
                [g.flop / g.seconds for g in groups],
                s=[max(8.0, LARGEST_DOT * g.seconds / longest) for g in groups],
                color=color, alpha=0.55, edgecolors="white", linewidths=0.6, label=cause,
            )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(left, right)
    axes.set_ylim(left * bandwidth / 100.0, peak * 4.0)  # what lies below took no time
    axes.set_xlabel("FLOP per byte", color=INK)
    axes.set_ylabel("FLOP/s", color=INK)
    axes.legend(frameon=False, loc="lower right", markerscale=0.5)
    step = units.show(float(found.step.seconds.value), "seconds")
    axes.set_title(f"Kernels of a step of {step} on {chip.name}; area is time", loc="left",
                   fontsize=12, fontweight="bold", color=INK)  # fmt: skip
    open_frame(axes)
    figure.tight_layout()
    save(figure, path)


@speaking(ENGLISH)  # the font of pictures has no other letters
def plot_memory(found: CapturedProgram, path: Path) -> None:
    """Bytes by category, in the order in which the host allocated."""
    check_name(path)
    pyplot = load_pyplot()
    timeline = found.memory.timeline
    every = max(1, len(timeline) // 2000)
    points = timeline[::every]
    names = [name for name in LAYERS if any(held.get(name) for _, held in points)]
    figure, axes = pyplot.subplots(figsize=(9.0, 4.6))
    axes.stackplot(
        [at for at, _ in points],
        [[held.get(name, 0) / units.GIBI for _, held in points] for name in names],
        labels=names, colors=[LAYERS[name] for name in names], linewidth=0.0,
    )  # fmt: skip
    capacity = found.fitting.capacity_bytes / units.GIBI
    top = max(sum(held.values()) for _, held in points) / units.GIBI
    if capacity and capacity < 1.6 * top:
        axes.axhline(capacity, color="#c0392b", lw=1.2, ls="--")
        axes.text(points[0][0], capacity, f" {found.clock.chip.name}", va="bottom", color="#c0392b")
    axes.set_ylabel("GiB", color=INK)
    axes.set_xticks([])
    axes.set_xlabel("the step: forward, backward, optimizer", color=INK)
    axes.margins(x=0)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], frameon=False, loc="center left",
                bbox_to_anchor=(1.0, 0.5))  # fmt: skip
    peak = units.show(found.memory.peak_allocated_bytes, "memory")
    axes.set_title(f"Memory of a step on {found.clock.chip.name}: {peak} at the peak", loc="left",
                   fontsize=12, fontweight="bold", color=INK)  # fmt: skip
    open_frame(axes)
    figure.tight_layout()
    save(figure, path)
