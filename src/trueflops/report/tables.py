"""How numbers look: three digits, an interval behind each value; and where answers are written."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from trueflops import units
from trueflops.errors import visible
from trueflops.language import ENGLISH, columns, lines, mark, spoken, word
from trueflops.predict import Estimate
from trueflops.report.grid import wrapped_cell

MARK = "†"  # beside a figure of the catalog for which no source is at hand
FOOTNOTE = mark("† unconfirmed: no source at hand")
NO_PRICE = mark("no price known")
NARROWEST = 40  # below this a terminal does not know its width


class Terminal(Console):
    """A console that shows control characters of names and cells as ?, and obeys none of them."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """As rich does, but for what no terminal should get to see."""
        if isinstance(renderable, Text) and spoken() != ENGLISH and not renderable.no_wrap:
            width = (options or self.options).max_width
            lined = (wrapped_cell(line, width) for line in renderable.split("\n", allow_blank=True))
            renderable = Text("\n").join(line for each in lined for line in each)
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


def show_list(out: Console, title: str, rows: Sequence[tuple[str, str]]) -> None:
    """A column of figures and a column of sentences that may take several lines."""
    if not rows:
        return
    out.print(Text(word(title), style="bold"))
    wide = max(columns(word(figure)) for figure, _ in rows)
    for figure, sentence in rows:
        for i, line in enumerate(lines(word(sentence), max(out.width - wide - 2, 20))):
            begin = word(figure) if i == 0 else ""
            out.print(Text(f"{' ' * (wide - columns(begin))}{begin}  {line}"))
    out.print()


def filled(out: Console, text: str) -> str:
    """A text in lines of a terminal; one in another language is broken where it is printed."""
    return textwrap.fill(text, out.width) if spoken() == ENGLISH else text


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
    """'1 replica', '8 replicas'; a table has the plural, "{number} replicas", for any number."""
    english = f"{{number}} {what}{'' if number == 1 else 's'}"
    said = english if spoken() == ENGLISH else word(f"{{number}} {what}s")
    return said.format(number=count(number))
