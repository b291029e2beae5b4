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
from trueflops.predict import Estimate

MARK = "†"  # beside a figure of the catalog for which no source is at hand
FOOTNOTE = f"{MARK} unconfirmed: no source at hand"
NO_PRICE = "no price known"
NARROWEST = 40  # below this a terminal does not know its width


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


def show_list(out: Console, title: str, rows: Sequence[tuple[str, str]]) -> None:
    """A column of figures and a column of sentences that may take several lines."""
    if not rows:
        return
    out.print(Text(title, style="bold"))
    wide = max(len(figure) for figure, _ in rows)
    for figure, sentence in rows:
        lines = textwrap.wrap(sentence, max(out.width - wide - 2, 20), break_on_hyphens=False)
        for i, line in enumerate(lines):
            out.print(Text(f"{figure if i == 0 else '':>{wide}}  {line}"))
    out.print()


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
