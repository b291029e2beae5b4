"""How the algorithms of a collective grow with the number of ranks, as PNG (the plot extra)."""

from __future__ import annotations

from pathlib import Path

from trueflops import units
from trueflops.language import ENGLISH, speaking
from trueflops.predict.collective import CollectiveCompared
from trueflops.report.collective import NAMES
from trueflops.report.plots import INK, LOSS, check_name, load_pyplot, open_frame, save


@speaking(ENGLISH)  # the font of pictures has no other letters
def plot_collective(found: CollectiveCompared, path: Path) -> None:
    """A line for each algorithm, seconds over ranks."""
    check_name(path)
    pyplot = load_pyplot()
    figure, axes = pyplot.subplots(figsize=(9.0, 4.8))
    for algorithm, times in found.by_count.items():
        points = [(n, t) for n, t in zip(found.counts, times, strict=True) if t is not None]
        ranks, seconds = zip(*points, strict=True) if points else ((), ())
        axes.plot(ranks, seconds, marker="o", label=NAMES[algorithm])
    axes.set(xscale="log", yscale="log")
    axes.set_xticks(found.counts, [str(n) for n in found.counts])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda value, _: units.show(value, "seconds"))
    axes.set_xlabel("ranks", color=INK)
    axes.grid(color=LOSS, linewidth=0.5)
    open_frame(axes)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=9)
    payload = units.show(found.payload_bytes, "bytes")
    axes.set_title(f"{found.kind} of {payload} on {found.cluster.name}", loc="left", fontsize=12,
                   fontweight="bold", color=INK)  # fmt: skip
    figure.tight_layout()
    save(figure, path)
