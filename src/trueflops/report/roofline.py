"""The roofline of a product in a terminal: log-log, in braille dots, two roofs and one point."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log10

from rich.text import Text

from trueflops import units
from trueflops.predict.explain import MatmulExplained

WIDTH, HEIGHT, MARGIN = 64, 14, 9  # cells of the plot, columns of its labels
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # of a braille cell, by column, row


@dataclass(frozen=True)
class Axes:
    """Ranges of the plot as powers of ten."""

    left: float
    right: float
    bottom: float
    top: float

    @classmethod
    def around(cls, product: MatmulExplained) -> Axes:
        """Wide enough for both ridges and the point."""
        flat = [product.intensity, product.ridge, product.delivered_ridge]
        left, right = log10(min(flat)) - 0.8, log10(max(flat)) + 0.8
        rate = float(product.flop_per_second.low)
        least = min(rate, product.delivered_bandwidth * 10**left)
        return cls(left, right, log10(least) - 0.15, log10(product.peak) + 0.08)

    def x(self, intensity: float) -> float:
        """Where an intensity lies between the sides, 0 to 1."""
        return (log10(intensity) - self.left) / (self.right - self.left)

    def y(self, rate: float) -> float:
        """Where a rate lies, 0 at the bottom and 1 at the top."""
        return (log10(rate) - self.bottom) / (self.top - self.bottom)


def draw_roofline(product: MatmulExplained) -> list[Text]:
    """Lines of text, at most 80 columns."""
    axes = Axes.around(product)
    cells = [[0] * WIDTH for _ in range(HEIGHT)]
    for column in range(2 * WIDTH):
        intensity = 10 ** (axes.left + (axes.right - axes.left) * (column + 0.5) / (2 * WIDTH))
        sheet = min(product.peak, intensity * product.bandwidth)
        real = min(product.delivered_peak, intensity * product.delivered_bandwidth)
        if column % 4 == 0:  # dotted: on paper only
            put_dot(cells, column, axes.y(sheet))
        put_dot(cells, column, axes.y(real))
    across = min(int(axes.x(product.intensity) * WIDTH), WIDTH - 1)
    down = HEIGHT - 1 - min(int(axes.y(float(product.flop_per_second.value)) * HEIGHT), HEIGHT - 1)
    labels = {
        HEIGHT - 1 - int(axes.y(10.0**power) * HEIGHT): _tera(10.0**power)
        for power in range(ceil(axes.bottom), floor(axes.top) + 1)
    }
    sheet_peak, real_peak = (
        units.digits(peak / units.TERA) for peak in (product.peak, product.delivered_peak)
    )
    roofs = f"⠄⠠⠄⠠ datasheet {sheet_peak}   ⠤⠤⠤ delivered {real_peak}"
    lines = [Text(f"{'TFLOP/s':>{MARGIN - 1}}  {roofs:>{WIDTH}}", style="dim", no_wrap=True)]
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
    return [*lines, *_bottom(product, axes)]


def _bottom(product: MatmulExplained, axes: Axes) -> list[Text]:
    rule, names = ["─"] * WIDTH, [" "] * (WIDTH + 4)
    for power in range(ceil(axes.left), floor(axes.right) + 1):
        at = min(int(axes.x(10.0**power) * WIDTH), WIDTH - 1)
        rule[at] = "┬"
        name = _count(10.0**power)
        at = min(at, len(names) - len(name))
        names[at : at + len(name)] = name
    rule[min(int(axes.x(product.ridge) * WIDTH), WIDTH - 1)] = "▲"
    said = f"● this product   ▲ ridge {units.digits(product.ridge)}"
    return [
        Text(" " * MARGIN + "└" + "".join(rule), style="dim", no_wrap=True),
        Text((" " * (MARGIN + 1) + "".join(names)).rstrip(), style="dim", no_wrap=True),
        Text(f"flop/byte{' ' * (MARGIN - 8)}{said:>{WIDTH}}", style="dim", no_wrap=True),
    ]


def put_dot(cells: list[list[int]], column: int, height: float) -> None:
    row = 4 * HEIGHT - 1 - int(height * 4 * HEIGHT)
    if 0 <= row < 4 * HEIGHT:
        cells[row // 4][column // 2] |= _DOTS[column % 2][row % 4]


def _tera(rate: float) -> str:
    value = rate / units.TERA
    return _count(value) if value >= 1 else f"{value:g}"


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"
