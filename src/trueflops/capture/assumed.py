"""Values that a program asks for and nobody knows, as the user gives them: --assume NAME=VALUE.

NAME is `mask`, for the share of true elements of every mask, or a line of the program (or of a
library), such as train.py:14. VALUE is a share (0.25, 25%), a count, true or false, or numbers with
commas between them. Free of torch, so that a wrong word is refused at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from trueflops.errors import BadInput, printable
from trueflops.language import say

USUAL_SHARE: Final = 0.5
"""Of elements that are true, in a mask of which nothing is known."""
_TRUTHS: Final = {"true": True, "false": False}
_PLACE: Final = re.compile(r"(?:.*/)?([^/]+\.py):([1-9]\d*)")
Number = int | float | bool
Value = Number | list[Number]


@dataclass(frozen=True)
class Assumptions:
    """What the user says of values, by place."""

    mask: float | None = None
    places: dict[str, Value] = field(default_factory=dict)  # "train.py:14" -> value

    @classmethod
    def of(cls, words: Iterable[str]) -> Assumptions:
        """Read NAME=VALUE, each."""
        mask, places = None, {}
        for word in words:
            name, equals, text = (part.strip() for part in word.rpartition("="))
            at = _PLACE.fullmatch(name)
            if not equals or (name != "mask" and at is None):
                raise BadInput(
                    say(
                        "--assume {said}: write mask=0.5 for the share of true elements of masks, "
                        "or a line and its value, such as train.py:14=true",
                        said=printable(word),
                    )
                )
            if at is None:
                mask = _share(word, _value(word, text))
            else:
                places[f"{at[1]}:{at[2]}"] = _value(word, text)
        return cls(mask, places)

    def at(self, places: Iterable[str]) -> Value | None:
        """The value that is given for one of these places, the innermost first."""
        return next((self.places[place] for place in places if place in self.places), None)

    def count(self, places: Iterable[str], of: int) -> int | None:
        """How many of so many elements, given as a count or as a share; None: nothing is given."""
        given = self.at(places)
        if given is None or isinstance(given, (bool, list)):
            return None
        return min(given, of) if isinstance(given, int) else round(given * of)


def _value(word: str, text: str) -> Value:
    parts = [_number(word, part.strip()) for part in text.split(",")]
    return parts if len(parts) > 1 else parts[0]


def _number(word: str, text: str) -> Number:
    if text.lower() in _TRUTHS:
        return _TRUTHS[text.lower()]
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    if re.fullmatch(r"-?\d+\.\d*|-?\.\d+", text):
        return float(text)
    if re.fullmatch(r"\d+(\.\d*)?%", text):
        return float(text[:-1]) / 100.0
    raise BadInput(
        say(
            "--assume {said}: {text} is not a value: write a share (0.25 or 25%), a count, true or "
            "false",
            said=printable(word),
            text=printable(text),
        )
    )


def _share(word: str, value: Value) -> float:
    if isinstance(value, (bool, list)) or not 0 <= value <= 1:
        raise BadInput(
            say("--assume {said}: a share lies between 0 and 1, such as 0.25", said=printable(word))
        )
    return float(value)


_current = Assumptions()


def assumptions() -> Assumptions:
    """Those of the capture that is running."""
    return _current


@contextmanager
def assuming(given: Assumptions) -> Iterator[None]:
    """Inside this context, these are assumed."""
    global _current
    outer, _current = _current, given
    try:
        yield
    finally:
        _current = outer
