"""Lines of a text in which Chinese characters are two columns wide and may be parted anywhere.

In: a text and a width in columns. Out: lines. For English, these are textwrap's.
"""

from __future__ import annotations

import re
import textwrap
from typing import Final
from unicodedata import east_asian_width

# A character of Chinese text with the marks that may not begin a line, an opening mark with what
# it opens, or a word. GB/T 15834-2011, section 5.1: no line begins with a mark but an opening one.
WIDE: Final = r"\u3400-\u4dbf\u4e00-\u9fff"
CLOSING: Final = r"，。、；：？！）》」』”’…％"
OPENING: Final = r"（《「『“‘"
UNIT: Final = re.compile(
    rf" *(?:[{OPENING}]*[{WIDE}][{CLOSING}]*"
    rf"|[{OPENING}]*[^\s{WIDE}{CLOSING}{OPENING}]+[{CLOSING}]*|[{OPENING}{CLOSING}]+)"
)


def columns(text: str) -> int:
    """How many columns a text takes in a terminal."""
    if text.isascii():
        return len(text)
    return sum(2 if east_asian_width(ch) in "WF" else 1 for ch in text)


def lines(text: str, width: int, *, indent: str = "", long_words: bool = True) -> list[str]:
    """Lines of at most so many columns; those after the first begin with `indent`.

    `long_words`: a word that is longer than a line is cut.
    """
    if columns(text) == len(text):
        return textwrap.wrap(
            text,
            width,
            subsequent_indent=indent,
            break_on_hyphens=False,
            break_long_words=long_words,
        )
    found = [""]
    for unit in UNIT.findall(" ".join(text.split())):
        if found[-1].strip() and columns(found[-1] + unit) > width:
            found.append(indent + unit.lstrip())
        else:
            found[-1] += unit
    return found
