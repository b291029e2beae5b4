"""Tables without lines that fit any terminal and never cut a number.

A column keeps its width while there is room. Where there is not, bars become shorter, then texts
take several lines, then headings do; then bars are left out; then each row is stacked: its label,
and under it its cells with their headings. What is shown at 40 columns is what is shown at 120.
The title, headings and cells that are plain strings are said in the language spoken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from trueflops.language import word
from trueflops.language.lines import CLOSING, OPENING, WIDE

Justify = Literal["left", "right"]
Column = str | tuple[str, Justify]
BLOCKS: Final = " ▏▎▍▌▋▊▉█"
TEXT_LEAST: Final = 12  # columns of a text that takes several lines
BAR_LEAST: Final = 6  # below this a bar tells nothing
INDENT: Final = 2  # of the cells of a stacked row
HANG: Final = 2  # of the further lines of a label
# A number is one piece, whatever stands around it; so is a word, with the mark behind it.
# So is each character of Chinese.
_PIECES: Final = re.compile(
    rf"\d+(?:[.,]\d+)*[^\w\s]*|[{WIDE}][{CLOSING}]*|[^\W\d{WIDE}]+[^\w\s]*|[^\w\s]+"
)
# A flag stays with its number, and no line begins with a dot.
_WORDS: Final = re.compile(
    rf"[{OPENING}]*[{WIDE}][{CLOSING}]*|[^\s{WIDE}]+(?: [\d.]+(?= ·|$))?(?: ·)?"
)


class Bar(NamedTuple):
    """A share as a bar, `width` characters long at one where there is room for it."""

    share: float
    width: int
    style: str = "cyan"

    def drawn(self, scale: float = 1.0) -> Text:
        """Eighths of a character."""
        eighths = round(max(0.0, min(self.share, 1.0)) * self.width * scale * 8)
        full, rest = divmod(eighths, 8)
        return Text("█" * full + (BLOCKS[rest] if rest else ""), style=self.style)


Cell = Text | Bar


class Grid:
    """Rows of cells under headings; `gives_way` is the text that takes several lines first."""

    def __init__(
        self, *columns: Column, title: str = "", gives_way: int = -1, gap: int = 2
    ) -> None:
        self.title, self.gap = word(title), gap
        self.gives_way = gives_way % len(columns)
        heads = [c if isinstance(c, tuple) else (c, "left") for c in columns]
        self.heads: list[tuple[str, Justify]] = [(word(head), side) for head, side in heads]
        self.rows: list[list[Cell]] = []

    def add_row(self, *cells: str | Cell) -> None:
        """Append a row; plain texts may hold markup."""
        self.rows.append([Text.from_markup(_said(c)) if isinstance(c, str) else c for c in cells])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.title:
            yield Text(self.title, style="bold")
        every = list(range(len(self.heads)))
        without_bars = [i for i in every if not self._only_bars(i)]
        for visible in (every, without_bars):
            widths = self._widths(visible, options.max_width)
            if widths is not None:
                yield from self._lines(visible, widths)
                return
        for row in self.rows:
            yield from self._stacked(row, options.max_width)

    def _cells(self, column: int) -> list[Cell]:
        return [row[column] for row in self.rows]

    def _only_bars(self, column: int) -> bool:
        """Whether a column can be left out: it says nothing that another does not."""
        cells = self._cells(column)
        return any(isinstance(c, Bar) for c in cells) and all(
            isinstance(c, Bar) or not c.plain for c in cells
        )

    def _widths(self, visible: Sequence[int], most: int) -> list[int] | None:
        """Widths at which these columns fit the terminal; None where nothing does."""
        widths = [self._natural(i) for i in visible]
        over = sum(widths) + self.gap * (len(widths) - 1) - most
        for i in self._yielding(visible):
            if over <= 0:
                break
            at = visible.index(i)
            less = min(over, widths[at] - min(widths[at], self._least(i)))
            widths[at] -= less
            over -= less
        return widths if over <= 0 else None

    def _yielding(self, visible: Sequence[int]) -> list[int]:
        """Columns in the order in which they become narrower."""
        bars = [i for i in visible if any(isinstance(c, Bar) for c in self._cells(i))]
        texts = [i for i in reversed(visible) if self.heads[i][1] == "left" and i not in bars]
        first = [self.gives_way] if self.gives_way in texts else []
        rest = [i for i in visible if i not in bars and i not in texts]
        return [*bars, *first, *(i for i in texts if i not in first), *rest]

    def _natural(self, column: int) -> int:
        cells = [_text(cell).plain for cell in self._cells(column)]
        return max(map(cell_len, (self.heads[column][0], *cells)))

    def _least(self, column: int) -> int:
        """The narrowest that cuts no number; figures stay on one line, their headings need not."""
        head, justify = self.heads[column]
        texts = [c.plain for c in self._cells(column) if isinstance(c, Text)]
        if justify == "right":
            return max(map(cell_len, (*texts, *head.split())), default=0)
        numbers = [p for text in (head, *texts) for p in _PIECES.findall(text) if p[0].isdigit()]
        floor = TEXT_LEAST if any(texts) else BAR_LEAST
        return max([floor, *(cell_len(number) + HANG for number in numbers)])

    def _lines(self, visible: Sequence[int], widths: Sequence[int]) -> Iterator[Text]:
        heads: list[Cell] = [Text(self.heads[i][0], style="dim") for i in visible]
        rows = [[row[i] for i in visible] for row in self.rows]
        if any(self.heads[i][0] for i in visible):
            rows.insert(0, heads)
        scales = [
            min(1.0, w / max(self._natural(i), 1)) for i, w in zip(visible, widths, strict=True)
        ]
        for row in rows:
            cells = [
                wrapped_cell(_text(cell, scale), width, 0 if i else HANG)
                for i, cell, scale, width in zip(visible, row, scales, widths, strict=True)
            ]
            for depth in range(max(map(len, cells))):
                line = Text(no_wrap=True)
                for i, lines, width in zip(visible, cells, widths, strict=True):
                    piece = lines[depth] if depth < len(lines) else Text()
                    space = Text(" " * (width - cell_len(piece.plain)))
                    right = self.heads[i][1] == "right"
                    line.append_text(space + piece if right else piece + space)
                    line.append(" " * self.gap)
                line.rstrip()
                yield line

    def _stacked(self, row: Sequence[Cell], most: int) -> Iterator[Text]:
        """The label, then every cell behind its heading, as many to a line as fit."""
        label = _text(row[0]).plain
        under = " " * (INDENT + len(label) - len(label.lstrip()))
        line = Text(no_wrap=True)
        for i, (cell, (head, justify)) in enumerate(zip(row, self.heads, strict=True)):
            if isinstance(cell, Bar) or cell.plain.strip() in (("", "–") if i else ("",)):
                continue
            labels_itself = not head or (i == 0 and justify == "left")
            item = cell.copy()
            item.rstrip()
            if not labels_itself:
                item = Text.assemble((f"{head.strip()} ", "dim"), item)
            if line.plain and cell_len(line.plain) + 2 + cell_len(item.plain) <= most:
                line = Text.assemble(line, "  ", item, no_wrap=True)
                continue
            if line.plain:
                yield line
            before = under if i else ""
            *full, last = wrapped_cell(item, most - len(before), 0 if i else HANG)
            for each in full:
                yield Text.assemble(before, each, no_wrap=True)
            line = Text.assemble(before, last, no_wrap=True)
        if line.plain:
            yield line


def grid(*columns: Column, title: str = "", **layout: int) -> Grid:
    """A Grid; a column is a heading, or a heading and 'right'."""
    return Grid(*columns, title=title, **layout)


def _said(cell: str) -> str:
    """A cell in the language spoken; depth in a tree is spaces before a name."""
    name = cell.lstrip(" ")
    return cell[: len(cell) - len(name)] + word(name)


def _text(cell: Cell, scale: float = 1.0) -> Text:
    return cell.drawn(scale) if isinstance(cell, Bar) else cell


def wrapped_cell(text: Text, width: int, hang: int = 0) -> list[Text]:
    """Lines of at most so many columns: broken between words, in a long word between its pieces.

    Lines after the first stand `hang` columns further in than it.
    """
    plain, indent = text.plain, len(text.plain) - len(text.plain.lstrip())
    if cell_len(plain) <= width:
        return [text]
    before = " " * (indent + hang if hang else 0)
    spans: list[tuple[int, int]] = []
    for each in _WORDS.finditer(plain):
        pieces = [(each.start(), each.end())]
        if cell_len(each[0]) > width - len(before):
            pieces = [
                part
                for piece in _PIECES.finditer(each[0])
                for part in _parts(
                    each.start() + piece.start(), each.start() + piece.end(), width - len(before)
                )
            ]
        for start, end in pieces:
            begun = spans[-1][0] if spans else 0
            room = width - (len(before) if len(spans) > 1 else 0)
            whole = len(pieces) == 1 or start > each.start()  # a long word begins a line
            if spans and whole and cell_len(plain[begun:end]) <= room:
                spans[-1] = (begun, end)
            else:
                spans.append((start if spans else max(0, start - indent), end))
    first, *rest = [text[start:end] for start, end in spans] or [Text()]
    return [first, *(Text(before) + line for line in rest)]


def _parts(start: int, end: int, width: int) -> list[tuple[int, int]]:
    """A piece that is itself too long, such as a hash, in parts."""
    return [(at, min(at + width, end)) for at in range(start, end, width)]
