"""The words behind an engine's start as flags, each with how it was written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from trueflops.interop.engines.deployed import Vocabulary
from trueflops.interop.engines.drafts import JSON_FLAG, keys_of

_ENDS: Final = re.compile(r"--?[A-Za-z]|[&|;>]|\$@")  # where a flag has no value


class Flag(NamedTuple):
    """A flag and its value; a word that stands alone is a value without a name."""

    name: str  # with dashes
    value: str
    written: str  # as the file has it: -fa on

    @property
    def spelt(self) -> str:
        """The flag as the file has it, without its value."""
        return re.split(r"[\s=]", self.written, maxsplit=1)[0]


def flags_in(words: list[str], spoken: Vocabulary) -> Iterator[Flag]:
    """Flags and their values; of one whose value holds several keys, each for itself."""
    for flag in _pairs(words, spoken):
        if flag.name == JSON_FLAG and (several := list(keys_of(flag.value))):
            for key, own in several:
                yield Flag(dashed(key), own, f"--{key} {own}".strip())
        else:
            yield flag


def fields_of(spoken: Vocabulary) -> dict[str, str]:
    """Our field by each spelling of a flag."""
    return {dashed(flag): field for field, flags in spoken.flags.items() for flag in flags}


def dashed(flag: str) -> str:
    """Engines read underscores and dashes alike."""
    return flag.replace("_", "-")


def _pairs(words: list[str], spoken: Vocabulary) -> Iterator[Flag]:
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "$@":
            continue
        if not re.match(r"--?[A-Za-z]", word):
            yield Flag("", word, word)
            continue
        flag, equals, value = word.lstrip("-").partition("=")
        name = dashed(flag)
        if equals:
            yield Flag(name, value, word)
        elif name in spoken.switches or at == len(words) or _ENDS.match(words[at]):
            yield Flag(name, "", word)
        else:
            yield Flag(name, words[at], f"{word} {words[at]}")
            at += 1
