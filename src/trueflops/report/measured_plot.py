"""The roofs that were measured beside those of the datasheet: in a terminal and as a PNG.

Burst is the fastest product of a format, confirmed by laps of a race; sustained is what is left
once power and clock have settled. Every product that was timed is a dot at its flop per byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import floor, log10
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

from rich.text import Text

from trueflops import units
from trueflops.catalog import Accelerator
from trueflops.errors import BadInput, printable
from trueflops.language import ENGLISH, say, speaking
from trueflops.profile import Profile
from trueflops.records.ceilings import (
    Winner,
    cell,
    from_memory,
    rate,
    shape,
    sustained,
    winners,
)
from trueflops.records.formats import moved_bytes, peak
from trueflops.records.measured import Record, Row
from trueflops.report.plots import FADED, INK, LOSS, check_name, load_pyplot, open_frame, save
from trueflops.report.roofline import HEIGHT, MARGIN, Axes, legend, plot_width, put_dot, ruler

DTYPES: Final = (
    "bf16", "fp16", "fp8", "fp8_row", "fp8_fast", "int8", "tf32", "fp32", "fp64", "bf16_2:4"
)  # fmt: skip
COLORS: Final = {
    "bf16": "#3b7dd8", "fp8": "#d1495b", "fp16": "#00798c", "int8": "#8d5fb8", "tf32": "#e09f3e",
    "fp32": "#2a9d62", "fp64": "#7f5539",
}  # fmt: skip
APART: Final = 1.25  # roofs that differ by less are one line in a terminal
DRAWN: Final = 3  # of them
Numbers = dict[str, float | None]


@dataclass(frozen=True)
class Ceiling:
    """The fastest product of one format; rates in flop per second, None where not known."""

    dtype: str
    shape: tuple[int, int, int]
    burst: float
    laps: int  # of the race that confirmed it; 0: the best single timing
    sustained: float | None
    lasting_shape: tuple[int, int, int] | None  # of the load that was sustained
    datasheet: float | None

    def encoded(self) -> dict[str, Any]:
        """For JSON."""
        return {
            **dict(zip("mnk", self.shape, strict=True)),
            "confirmed": self.laps > 0, "laps": self.laps, "flop_per_second": self.burst,
            "share_of_datasheet": share(self.burst, self.datasheet),
            "sustained_flop_per_second": self.sustained, "sustained_mnk": self.lasting_shape,
            "sustained_share_of_datasheet": share(self.sustained, self.datasheet),
            "datasheet_flop_per_second": self.datasheet,
        }  # fmt: skip


def share(value: float | None, of: float | None) -> float | None:
    """A part of a whole; None where either is not known."""
    return value / of if value and of else None


def printed(chip: Accelerator, path: str) -> float | None:
    """What the datasheet says; None where there is no datasheet."""
    return chip.get(path) if chip.status != "measured" else None


def ceilings(record: Record, chip: Accelerator) -> list[Ceiling]:
    """The winner of each format's race; where none was run, the best single timing."""
    best = winners(record)
    single: dict[str, Winner] = {}
    for row in sorted(_products(record), key=rate):
        single[str(row["dtype"])] = Winner(shape(row), rate(row), 0)
    best = {**single, **best}
    loads = sustained(record)
    order = {dtype: place for place, dtype in enumerate(DTYPES)}
    return [
        Ceiling(
            dtype,
            *best[dtype],
            loads[dtype].flop_per_second if dtype in loads else None,
            loads[dtype].shape if dtype in loads else None,
            datasheet_peak(chip, dtype),
        )
        for dtype in sorted(best, key=lambda dtype: order.get(dtype, len(order)))
    ]


def datasheet_peak(chip: Accelerator, dtype: str) -> float | None:
    """What the datasheet says of a format, or of the one that it is a variant of."""
    if chip.status == "measured":
        return None
    return peak(dtype, chip.values, chip.sparse_factor) or None


def bandwidth_best(record: Record, op: str = "", *, cached: bool = False) -> tuple[float, float]:
    """The best bytes per second and the buffer's bytes: from memory, or with all in cache."""
    if not cached:
        return max(from_memory(record, op), default=(0.0, 0.0))
    cache, found = cell(record.device, "l2_bytes"), []
    for row in record.tables.get("bandwidth", ()):
        whole = cell(row, "bytes") * {"copy": 2.0, "triad": 3.0}.get(str(row["op"]), 1.0)
        if op in ("", row["op"]) and whole <= cache:
            found.append((cell(row, "bandwidth"), cell(row, "bytes")))
    return max(found, default=(0.0, 0.0))


def memory(record: Record, chip: Accelerator) -> dict[str, Numbers]:
    """Bandwidth of each operation, from memory and from cache."""
    sheet, found = printed(chip, "memory.bandwidth"), {}
    for op in ("read", "write", "copy", "triad"):
        best, size = bandwidth_best(record, op)
        cached, _ = bandwidth_best(record, op, cached=True)
        if best or cached:
            found[op] = {
                "bytes_per_second": best or None, "share_of_datasheet": share(best, sheet),
                "buffer_bytes": size or None, "cache_bytes_per_second": cached or None,
            }  # fmt: skip
    return found


def rate_unit(top: float) -> tuple[float, str]:
    """The unit that suits a table of rates whose largest this is."""
    return (units.TERA, say("TFLOP/s")) if top >= units.TERA else (units.GIGA, "GFLOP/s")


def _products(record: Record) -> list[Row]:
    return [row for t in ("matmul", "other_products") for row in record.tables.get(t, ())]


def draw_roofs(record: Record, chip: Accelerator, columns: int) -> list[Text]:
    """Lines of text, at most 80 columns; none where too little was measured."""
    bandwidth, sheet = bandwidth_best(record)[0], printed(chip, "memory.bandwidth")
    roofs: list[Ceiling] = []
    for each in ceilings(record, chip):
        apart = all(max(r.burst, each.burst) / min(r.burst, each.burst) > APART for r in roofs)
        if each.dtype in COLORS and apart and len(roofs) < DRAWN:
            roofs.append(each)
    if not bandwidth or not roofs:
        return []
    ridges = [roof.burst / bandwidth for roof in roofs]
    left, right = log10(min(ridges)) - 0.6, log10(max(ridges)) + 0.5
    top = max(roof.datasheet or roof.burst for roof in roofs)
    axes = Axes(left, right, left + log10(bandwidth) - 0.02, log10(top) + 0.03)
    width = plot_width(columns)
    cells = [[0] * width for _ in range(HEIGHT)]
    for column, intensity in axes.intensities(width):
        slope = intensity * bandwidth
        for roof in roofs:
            put_dot(cells, column, axes.y(min(roof.burst, slope)))
            if roof.datasheet and sheet and column % 4 == 0:  # dotted: on paper only
                put_dot(cells, column, axes.y(min(roof.datasheet, intensity * sheet)))
            if roof.sustained and slope > roof.burst and column % 8 < 4:
                put_dot(cells, column, axes.y(roof.sustained))
    return _framed(cells, axes, roofs, min(ridges), sheet is not None)


def _framed(
    cells: list[list[int]], axes: Axes, roofs: Sequence[Ceiling], ridge: float, has_sheet: bool
) -> list[Text]:
    size, unit = rate_unit(max(roof.burst for roof in roofs))

    def row_of(rate: float) -> int:
        return HEIGHT - 1 - min(int(axes.y(rate) * HEIGHT), HEIGHT - 1)

    here = {row_of(roof.burst): roof for roof in reversed(roofs)}  # the first where two meet
    marks = {row: units.digits(roof.burst / size) for row, roof in here.items()}
    width = len(cells[0])
    said = [*(["⠄⠠⠄⠠ datasheet"] if has_sheet else []), "⠤⠤⠤ burst", "⠤⠤  ⠤⠤ sustained"]
    lines = legend(unit, said, width)
    for row, dots in enumerate(cells):
        line = Text(f"{marks.get(row, ''):>{MARGIN - 1}} ", style="dim", no_wrap=True)
        line.append("┤" if row in marks else "│", style="dim")
        line.append("".join(chr(0x2800 + each) if each else " " for each in dots))
        line.append(f" {here[row].dtype}" if row in here else "", style="dim")
        line.rstrip()
        lines.append(line)
    powers = range(floor(axes.left), floor(axes.right) + 1)
    ticks = [step * 10.0**power for power in powers for step in (1, 2, 5)]
    ticks = [tick for tick in ticks if 0.0 <= axes.x(tick) < 1.0]
    says = f"▲ lowest measured ridge {units.digits(ridge)}"
    return [*lines, *ruler(axes, ticks, ridge, width), *legend("flop/byte", [says], width)]


def timed_products(record: Record, dtype: str) -> Iterator[tuple[float, float]]:
    """Flop per byte that must move, flop per second: every product whose weights were cold."""
    for row in _products(record):
        if row["dtype"] == dtype and cell(row, "copies") > 1:
            m, n, k = shape(row)
            yield 2.0 * m * n * k / moved_bytes(dtype, m, n, k), rate(row)


@speaking(ENGLISH)  # the font of pictures has no other letters
def plot_measured(profile: Profile, record: Record, chip: Accelerator, path: Path) -> None:
    """The roofline with the datasheet's roofs, the measured ones and every product timed."""
    check_name(path)
    roofs = [each for each in ceilings(record, chip) if each.dtype in COLORS]
    bandwidth, _ = bandwidth_best(record)
    if not roofs or not bandwidth:
        raise BadInput(f"{profile.name}: neither products nor bandwidth were measured; resume it")
    sheet = printed(chip, "memory.bandwidth") or 0.0
    size, unit = rate_unit(max(roof.burst for roof in roofs))
    points = {roof.dtype: list(timed_products(record, roof.dtype)) for roof in roofs}
    every = [point for of in points.values() for point in of]
    across = [*(x for x, _ in every), *(roof.burst / bandwidth for roof in roofs)]
    left, right = min(across) / 1.3, max(across) * 1.6
    figure, axes = load_pyplot().subplots(figsize=(10.0, 7.0))
    for roof in sorted(roofs, key=lambda r: r.burst, reverse=True):
        _plot_roof(axes, roof, roofs, (sheet, bandwidth), right, size)
        xs, ys = zip(*points[roof.dtype], strict=True) if points[roof.dtype] else ((), ())
        axes.scatter(xs, [y / size for y in ys], s=5, color=COLORS[roof.dtype], alpha=0.45,
                     linewidths=0)  # fmt: skip
    top = max(max(r.datasheet or 0.0, r.burst) for r in roofs)
    for speed, style, color, name in (
        (sheet, "--", FADED, "datasheet"), (bandwidth, "-", INK, "best measured")
    ):  # fmt: skip
        if speed:
            peak = max((r.datasheet or r.burst) if style == "--" else r.burst for r in roofs)
            said = f"memory, {name}: {units.show(speed, 'bytes_per_second')}"
            axes.plot([left, peak / speed], [left * speed / size, peak / size], style, color=color,
                      linewidth=1.6, label=said, zorder=4)  # fmt: skip
    slow = quantiles([top, top, *(y for _, y in every)], n=100, method="inclusive")[0]
    axes.set(xscale="log", yscale="log", xlim=(left, right),
             ylim=(min(slow, left * bandwidth) / size / 1.3, top / size * 1.6))  # fmt: skip
    dashed = "dashed datasheet" if sheet else "no datasheet"
    lines = f"{dashed}, solid burst, dotted sustained; dots are the products timed"
    name = printable(str(record.device.get("name", "?")), 60)
    title = f"{name}: what it delivers, {record.started.partition('T')[0]}\n"
    _dress(axes, unit, title, lines)
    figure.tight_layout()
    save(figure, path)


def _plot_roof(
    axes: Any, roof: Ceiling, roofs: Sequence[Ceiling], bandwidths: tuple[float, float],
    right: float, size: float,
) -> None:  # fmt: skip
    sheet, bandwidth = bandwidths
    color = COLORS[roof.dtype]
    alike = [other.dtype for other in roofs if other.datasheet == roof.datasheet]
    dashes = (6 * alike.index(roof.dtype), (5, 6 * max(2, len(alike)) - 5))  # one each in turn
    says = f"{roof.dtype}: burst {units.digits(roof.burst / size)}"
    if roof.datasheet and sheet:
        axes.plot([roof.datasheet / sheet, right], [roof.datasheet / size] * 2, color=color,
                  linestyle=dashes, linewidth=1.2)  # fmt: skip
        says += f" of {units.digits(roof.datasheet / size)}"
        says += f" ({100 * roof.burst / roof.datasheet:.0f} %)"
    if roof.sustained:
        axes.plot([roof.sustained / bandwidth, right], [roof.sustained / size] * 2, ":",
                  color=color, linewidth=1.8)  # fmt: skip
        says += f", sustained {units.digits(roof.sustained / size)}"
    axes.plot([roof.burst / bandwidth, right], [roof.burst / size] * 2, "-", color=color,
              linewidth=1.8, label=says if roof.laps else f"{says}, not confirmed")  # fmt: skip


def _dress(axes: Any, unit: str, title: str, lines: str) -> None:
    axes.set_xlabel("flop per byte that must move", color=INK)
    axes.set_ylabel(unit, color=INK)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.grid(color=LOSS, linewidth=0.5, zorder=0)
    open_frame(axes)
    axes.legend(loc="lower right", fontsize=9, edgecolor=LOSS, framealpha=0.95)
    axes.set_title(title, loc="left", fontsize=12, fontweight="bold", color=INK, pad=4)
    axes.text(0, 1.008, lines, transform=axes.transAxes, fontsize=9, color=FADED)
