"""The roofline of a kernel in a terminal: log-log, in braille dots, two roofs and one point."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from rich.text import Text

from trueflops import units
from trueflops.language import columns, say
from trueflops.predict.explain import KernelExplained

WIDEST, HEIGHT, MARGIN = 64, 14, 9  # cells of the plot, columns of its labels
BESIDE = 6  # columns to the right of the plot, for the name of a roof
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # of a braille cell, by column, row


@dataclass(frozen=True)
class Axes:
    """Ranges of the plot as powers of ten."""

    left: float
    right: float
    bottom: float
    top: float

    @classmethod
    def around(cls, kernel: KernelExplained) -> Axes:
        """Wide enough for both ridges and the point."""
        flat = [kernel.intensity, kernel.ridge, kernel.delivered_ridge]
        left, right = log10(min(flat)) - 0.8, log10(max(flat)) + 0.8
        rate = float(kernel.flop_per_second.low)
        least = min(rate, kernel.delivered_bandwidth * 10**left)
        return cls(left, right, log10(least) - 0.15, log10(kernel.peak) + 0.08)

    def x(self, intensity: float) -> float:
        """Where an intensity lies between the sides, 0 to 1."""
        return (log10(intensity) - self.left) / (self.right - self.left)

    def y(self, rate: float) -> float:
        """Where a rate lies, 0 at the bottom and 1 at the top."""
        return (log10(rate) - self.bottom) / (self.top - self.bottom)

    def intensities(self, width: int) -> Iterable[tuple[int, float]]:
        """Every column of dots, two to a cell, and the intensity in its middle."""
        for column in range(2 * width):
            yield column, 10 ** (self.left + (self.right - self.left) * (column + 0.5) / 2 / width)


def plot_width(columns: int) -> int:
    """Cells of a plot that fits a terminal of so many columns."""
    return min(WIDEST, columns - MARGIN - 1 - BESIDE)


def draw_roofline(kernel: KernelExplained, columns: int) -> list[Text]:
    """Lines of text that fit so many columns."""
    axes, width = Axes.around(kernel), plot_width(columns)
    cells = [[0] * width for _ in range(HEIGHT)]
    for column, intensity in axes.intensities(width):
        sheet = min(kernel.peak, intensity * kernel.bandwidth)
        real = min(kernel.delivered_peak, intensity * kernel.delivered_bandwidth)
        if column % 4 == 0:  # dotted: on paper only
            put_dot(cells, column, axes.y(sheet))
        put_dot(cells, column, axes.y(real))
    across = min(int(axes.x(kernel.intensity) * width), width - 1)
    down = HEIGHT - 1 - min(int(axes.y(float(kernel.flop_per_second.value)) * HEIGHT), HEIGHT - 1)
    labels = {
        HEIGHT - 1 - int(axes.y(10.0**power) * HEIGHT): _tera(10.0**power)
        for power in range(ceil(axes.bottom), floor(axes.top) + 1)
    }
    sheet_peak, real_peak = (
        units.digits(peak / units.TERA) for peak in (kernel.peak, kernel.delivered_peak)
    )
    lines = legend(
        "TFLOP/s",
        [
            say("⠄⠠⠄⠠ datasheet {sheet_peak}", sheet_peak=sheet_peak),
            say("⠤⠤⠤ delivered {real_peak}", real_peak=real_peak),
        ],
        width,
    )
    for row in range(HEIGHT):
        line = Text(f"{labels.get(row, ''):>{MARGIN - 1}} ", style="dim", no_wrap=True)
        line.append("┤" if row in labels else "│", style="dim")
        text = "".join(chr(0x2800 + dots) if dots else " " for dots in cells[row])
        if row == down:
            line.append(text[:across])
            line.append("●", style="bold green")
            line.append(text[across + 1 :])
        else:
            line.append(text)
        line.rstrip()
        lines.append(line)
    ticks = [10.0**power for power in range(ceil(axes.left), floor(axes.right) + 1)]
    said = [say("● this kernel"), say("▲ ridge {ridge}", ridge=units.digits(kernel.ridge))]
    return [*lines, *ruler(axes, ticks, kernel.ridge, width), *legend("flop/byte", said, width)]


def legend(label: str, said: Sequence[str], width: int) -> list[Text]:
    """What the marks mean, beside the name of an axis or, where that is too long, under it."""
    whole = "   ".join(said)
    if columns(whole) <= width:
        line = f"{label:>{MARGIN - 1}}{' ' * (MARGIN + 1 - max(MARGIN - 1, len(label)))}"
        space = " " * (width - columns(whole))
        return [Text(f"{line}{space}{whole}", style="dim", no_wrap=True)]
    return [
        Text(line, style="dim", no_wrap=True)
        for line in (f"{label:>{MARGIN - 1}}", *(f"{' ' * MARGIN} {each}" for each in said))
    ]


def ruler(axes: Axes, ticks: Iterable[float], ridge: float, width: int) -> list[Text]:
    """The lower axis: a rule with the ridge, and as many ticks with a name as there is room for."""
    rule, names, free = ["─"] * width, [" "] * (width + 4), 0
    for tick in ticks:
        at, name = min(int(axes.x(tick) * width), width - 1), _count(tick)
        rule[at] = "┬"
        if at >= free and at + len(name) <= len(names):
            names[at : at + len(name)] = name
            free = at + len(name) + 1
    rule[min(int(axes.x(ridge) * width), width - 1)] = "▲"
    return [
        Text(" " * MARGIN + "└" + "".join(rule), style="dim", no_wrap=True),
        Text((" " * (MARGIN + 1) + "".join(names)).rstrip(), style="dim", no_wrap=True),
    ]


def put_dot(cells: list[list[int]], column: int, height: float) -> None:
    """Set one dot of the braille cells, if it lies inside them."""
    row = 4 * HEIGHT - 1 - int(height * 4 * HEIGHT)
    if 0 <= row < 4 * HEIGHT:
        cells[row // 4][column // 2] |= _DOTS[column % 2][row % 4]


def _tera(rate: float) -> str:
    value = rate / units.TERA
    return _count(value) if value >= 1 else f"{value:g}"


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"
