"""Say a text in the language that is spoken.

In: an English text and the values for its {places}. Out: a text. A language is spoken within a
block (`speaking`), by the thread that entered it; outside every block it is English.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from string import Formatter
from typing import Any

from trueflops.language.choose import ENGLISH, LANGUAGES
from trueflops.language.lines import WIDE
from trueflops.language.table import table

# A value that ends in Chinese, such as 3 天, needs no space before what follows in Chinese.
_BETWEEN = re.compile(rf"(?<=[{WIDE}]) (?=[{WIDE}])")
_spoken: ContextVar[str] = ContextVar("language", default=ENGLISH)


def say(text: str, /, **values: Any) -> str:
    """A text, with its values in place; a test finds every literal that is said.

    >>> say("{number} GiB too many", number=3)
    '3 GiB too many'
    >>> with speaking("zh"):
    ...     say("weights")
    '权重'
    """
    if spoken() == ENGLISH:
        return text.format(**values) if values else text
    if not values:
        return word(text)
    return _BETWEEN.sub("", _Said().vformat(word(text), (), values))


def mark(text: str) -> str:
    """The English text itself, to be translated by `word` where it is shown: a constant's value."""
    return text


def word(text: str) -> str:
    """A name or a marked text in the language spoken; English where the table has none."""
    language = spoken()
    return text if language == ENGLISH else table(language).get(text, text)


def spoken() -> str:
    """The language that is spoken here."""
    return _spoken.get()


class _Said(Formatter):
    """Values that are names of ours, such as a term's, are said in the same language.

    What a user wrote stands in quotes, {name!r}, and stays as it was written.
    """

    def format_field(self, value: Any, format_spec: str) -> str:
        text: str = super().format_field(value, format_spec)
        return word(text) if isinstance(value, str) else text


@contextmanager
def speaking(language: str) -> Iterator[None]:
    """Speak a language within this block."""
    if language not in LANGUAGES:
        raise ValueError(f"no texts in the language {language!r}; there are {', '.join(LANGUAGES)}")
    before = _spoken.set(language)
    try:
        yield
    finally:
        _spoken.reset(before)
