"""How numbers, bars and tables look: 80 columns, three digits, an interval behind each value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal, TextIO

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text

from trueflops import units
from trueflops.errors import visible
from trueflops.predict import Estimate

Justify = Literal["left", "right"]
Column = str | tuple[str, Justify]
NARROWEST = 40  # below this a terminal does not know its width
BLOCKS = " ▏▎▍▌▋▊▉█"


class Terminal(Console):
    """A console that shows control characters of names and cells as ?, and obeys none of them."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """As rich does, but for what no terminal should get to see."""
        for segment in super().render(renderable, options):
            plain = segment.control or segment.text.isprintable()
            yield segment if plain else segment._replace(text=visible(segment.text))

    def on_broken_pipe(self) -> None:
        """`trueflops … | head`: the entry point decides what that means."""
        raise BrokenPipeError


def console(*, stderr: bool = False) -> Console:
    """Where answers (or, on stderr, progress and errors) are written."""
    file = None if stderr else _answers
    out = Terminal(stderr=stderr, file=file, highlight=False, soft_wrap=False)
    if out.width >= NARROWEST:
        return out
    return Terminal(stderr=stderr, file=file, highlight=False, width=80)


_answers: TextIO | None = None  # None: standard output


@contextmanager
def answers_on(stream: TextIO) -> Iterator[None]:
    """Answers go to this stream, whoever else writes to standard output meanwhile."""
    global _answers
    before, _answers = _answers, stream
    try:
        yield
    finally:
        _answers = before


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
        heads = [Text(name, style="dim") for name, _ in self.heads]
        rows = [heads, *self.rows] if any(name for name, _ in self.heads) else self.rows
        widths = [max(cell_len(row[i].plain) for row in rows) for i in range(len(heads))]
        others = sum(widths) - widths[self.gives_way] + self.gap * (len(widths) - 1)
        room = max(options.max_width - others, 8)
        widths[self.gives_way] = min(widths[self.gives_way], room)
        for row in rows:
            line = Text(no_wrap=True)
            for cell, (_, justify), width in zip(row, self.heads, widths, strict=True):
                piece = cell.copy()
                piece.truncate(width, overflow="ellipsis")
                space = " " * (width - cell_len(piece.plain))
                line.append_text(Text(space) + piece if justify == "right" else piece + Text(space))
                line.append(" " * self.gap)
            line.rstrip()
            yield line


def grid(*columns: Column, title: str = "", **layout: int) -> Grid:
    """A Grid; a column is a heading, or a heading and 'right'."""
    return Grid(*columns, title=title, **layout)


def ranged(estimate: Estimate, dimension: str) -> tuple[str, str]:
    """A value and its 90 % interval, as two texts in one unit."""
    low, value, high = (float(x) for x in (estimate.low, estimate.value, estimate.high))
    return units.show(value, dimension), units.show_between(low, value, high, dimension)


def percent(estimate: Estimate) -> tuple[str, str]:
    """A share and its interval."""
    low, high = 100.0 * float(estimate.low), 100.0 * float(estimate.high)
    return f"{100.0 * float(estimate.value):.1f} %", f"{low:.0f} – {high:.0f} %"


def count(number: float) -> str:
    """Whole numbers with separators; large ones with a suffix, small ones with digits."""
    if number < 10:
        return units.digits(number) if number != int(number) else f"{number:.0f}"
    return f"{number:,.0f}" if number < units.MILLION else units.show(number, "count")


def plural(number: float, what: str) -> str:
    """'1 replica', '8 replicas'."""
    return f"{count(number)} {what}{'' if number == 1 else 's'}"
