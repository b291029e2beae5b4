"""A number that a flag of train or infer says; several of them are a question for sweep."""

from __future__ import annotations

import re
from typing import Any, Final

from trueflops import units
from trueflops.errors import BadInput, shorten
from trueflops.language import say

_SEVERAL: Final = re.compile(r"\s*[\d.]+\s*[a-zA-Z]*(\s*,\s*[\d.]+\s*[a-zA-Z]*)+\s*,?\s*")


def count_of(said: Any, flag: str) -> int:
    """A whole number of at least one, as 4k or 15T."""
    text = str(said)
    if _SEVERAL.fullmatch(text):
        raise BadInput(
            say(
                "{flag} {said}: one number is wanted here, without a comma; trueflops sweep asks "
                "several: {key} = [{listed}] under [axes] of its file",
                flag=flag,
                said=shorten(text),
                key=flag.removeprefix("--").replace("-", "_"),
                listed=shorten(_listed(text)),
            )
        )
    return units.parse_count(text, what=flag)


def _listed(text: str) -> str:
    """The numbers as TOML: '1k' with its unit is a text there."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return ", ".join(part if part.isdecimal() else f'"{part}"' for part in parts)
