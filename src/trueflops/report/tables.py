"""How numbers, bars and tables look: 80 columns, three digits, an interval behind each value."""

from __future__ import annotations

from typing import Literal

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from trueflops import units
from trueflops.predict import Estimate

Justify = Literal["left", "right"]
Column = str | tuple[str, Justify]
BLOCKS = " ▏▎▍▌▋▊▉█"


def console(*, stderr: bool = False) -> Console:
    """Where answers (or, on stderr, progress and errors) are written."""
    return Console(stderr=stderr, highlight=False, soft_wrap=False)


def bar(share: float, width: int) -> str:
    """A bar of eighths of a character."""
    eighths = round(max(0.0, min(share, 1.0)) * width * 8)
    full, rest = divmod(eighths, 8)
    return "█" * full + (BLOCKS[rest] if rest else "")


class Grid:
    """A table without lines whose columns keep their width; only one, the last, gives way."""

    def __init__(
        self, *columns: Column, title: str = "", gives_way: int = -1, gap: int = 2
    ) -> None:
        self.title, self.gap = title, gap
        self.gives_way = gives_way % len(columns)
        self.heads: list[tuple[str, Justify]] = [
            c if isinstance(c, tuple) else (c, "left") for c in columns
        ]
        self.rows: list[list[Text]] = []

    def add_row(self, *cells: str | Text) -> None:
        """Append a row; plain texts may hold markup."""
        self.rows.append([c if isinstance(c, Text) else Text.from_markup(c) for c in cells])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.title:
            yield Text(self.title, style="bold")
        headed = any(name for name, _ in self.heads)
        table = Table(
            box=None,
            pad_edge=False,
            show_edge=False,
            header_style="dim",
            show_header=headed,
            padding=(0, self.gap, 0, 0),
        )
        widths = [
            max([cell_len(name), *(cell_len(row[i].plain) for row in self.rows)])
            for i, (name, _) in enumerate(self.heads)
        ]
        others = sum(widths) - widths[self.gives_way] + self.gap * (len(widths) - 1)
        room = max(options.max_width - others, 8)
        widths[self.gives_way] = min(widths[self.gives_way], room)
        for (name, justify), width in zip(self.heads, widths, strict=True):
            table.add_column(
                name,
                justify=justify,
                no_wrap=True,
                overflow="ellipsis",
                width=width,
            )
        for row in self.rows:
            table.add_row(*row)
        yield table


def grid(*columns: Column, title: str = "", **layout: int) -> Grid:
    """A Grid; a column is a heading, or a heading and 'right'."""
    return Grid(*columns, title=title, **layout)


def ranged(estimate: Estimate, dimension: str) -> tuple[str, str]:
    """A value and its 90 % interval, as two texts."""
    low, high = (units.show(float(x), dimension) for x in (estimate.low, estimate.high))
    value = units.show(float(estimate.value), dimension)
    return value, _join(low, high)


def _join(low: str, high: str) -> str:
    """'43 – 64 s': the unit once if both share it."""
    low_number, _, low_unit = low.partition(" ")
    _, _, high_unit = high.partition(" ")
    return f"{low_number if low_unit == high_unit else low} – {high}"


def percent(estimate: Estimate) -> tuple[str, str]:
    """A share and its interval."""
    low, high = 100.0 * float(estimate.low), 100.0 * float(estimate.high)
    return f"{100.0 * float(estimate.value):.1f} %", f"{low:.0f} – {high:.0f} %"


def count(number: float) -> str:
    """Whole numbers with separators, large ones with a suffix."""
    return f"{number:,.0f}" if number < units.MILLION else units.show(number, "count")
