"""Values of a flag that leaves a choice to the search: 1..8, 2,4,8, any."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from trueflops.cli.arguments.shared import integer, whole
from trueflops.errors import join_or, nearest, printable
from trueflops.language import say

ANY: Final = "any"
LARGEST: Final = "largest"
WIDEST: Final = 2**16  # values of one range
LAST_STAGE: Final = 3  # of ZeRO


class Several(tuple[Any, ...]):
    """What may be tried, and how the user wrote it."""

    text: str

    def __new__(cls, values: Iterable[Any], text: str) -> Several:
        """Keep the text, so that a question can be written out again."""
        made = super().__new__(cls, tuple(values))
        made.text = text
        return made

    def __str__(self) -> str:
        return self.text


def degrees(text: str) -> int | Several:
    """A degree, or those that may be tried: 8, 1..8, 2,4,8."""
    return _numbers(text, whole, "1", str(WIDEST))


def degrees_or_largest(text: str) -> int | str | Several:
    """Likewise, or the word for the largest that fits."""
    return text if text == LARGEST else degrees(text)


def zero_stages(text: str) -> int | Several:
    """A stage of ZeRO, or those that may be tried: 1, 1..3, 0,3."""
    return _numbers(text, _zero_stage, "0", str(LAST_STAGE))


def _zero_stage(text: str) -> int:
    stage = integer(text)
    if not 0 <= stage <= LAST_STAGE:
        raise argparse.ArgumentTypeError(
            say(
                "{shown} is no stage of ZeRO; write 0, 1, 2 or 3, or several: 1..3",
                shown=printable(text, 40),
            )
        )
    return stage


def _numbers(text: str, read: Callable[[str], int], least: str, most: str) -> int | Several:
    if ".." in text:
        low, _, high = text.partition("..")
        first, last = read(low or least), read(high or most)
        if first > last or last - first >= WIDEST:
            shown = printable(text, 40)
            raise argparse.ArgumentTypeError(
                say("{shown}: write the smaller one first, as 1..8", shown=shown)
            )
        return Several(range(first, last + 1), text)
    if "," in text:
        return Several(sorted({read(part) for part in text.split(",")}), text)
    return read(text)


@dataclass(frozen=True)
class OneOrMore:
    """One of some words, several of them, or any: 1f1b; 1f1b,zb-h1; any."""

    choices: tuple[str, ...]

    def __call__(self, text: str) -> str | Several:
        """Read what was typed."""
        if text == ANY:
            return Several(self.choices, text)
        found = [part.strip() for part in text.split(",")]
        for part in found:
            if part not in self.choices:
                shown = printable(part, 40)
                near = nearest(part, self.choices)
                ask = (
                    say("did you mean {near}?", near=join_or(near))
                    if near
                    else say("several with commas, or any")
                )
                raise argparse.ArgumentTypeError(
                    say(
                        "{shown!r} is none of {choices}; {ask}",
                        shown=shown,
                        choices=join_or(self.choices),
                        ask=ask,
                    )
                )
        return found[0] if len(found) == 1 else Several(dict.fromkeys(found), text)


def one_or_more(*choices: str) -> OneOrMore:
    """The type of a flag with these choices."""
    return OneOrMore(choices)
