"""The page's strings in a language: English text -> the same in it, out of the one table.

In: `language/<lang>/*.toml`: the page's own and, for what an answer says (names of parts, notes),
the command line's. Out: a mapping; empty for English, whose texts are the keys.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from trueflops.errors import BadInput, printable
from trueflops.files import read_file

LANGUAGES: Final = ("en", "zh")
TABLES: Final = Path(__file__).parents[1] / "language"


@cache
def page_words(language: str) -> Mapping[str, str]:
    """What the page calls words(text) with, in a language; a text that is missing stays English."""
    if language not in LANGUAGES:
        raise BadInput(f"no language {printable(language, 20)!r}; write en or zh")
    if language == "en":
        return {}
    # The page's own come last: a word may mean something else there than on a terminal.
    files = sorted((TABLES / language).glob("*.toml"), key=lambda file: file.stem == "page")
    return dict(pair for file in files for pair in _texts(tomllib.loads(read_file(file).decode())))


def _texts(table: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Pairs of a table, in whatever sections they stand."""
    found: list[tuple[str, str]] = []
    for key, value in table.items():
        if isinstance(value, str):
            found.append((key, value))
        elif isinstance(value, Mapping):
            found += _texts(value)
    return found
