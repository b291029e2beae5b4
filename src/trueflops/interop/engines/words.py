"""A script as words: lines joined, remarks left out, variables filled in, a shell's text opened.

`bash -c "vllm serve …"` holds a script in one word; it is read as the script that it is.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Final

from trueflops.errors import BadInput, shorten
from trueflops.interop.variables import Variables
from trueflops.language import say

END: Final = ";"
ENDING: Final = (END, "&", "&&", "||", "|", ">", "2>&1")  # what ends a command
_SHELLS: Final = ("sh", "bash", "dash", "ash", "zsh")
_LONGEST: Final = 200  # lines of one quoted text


def words_of(text: str, where: str) -> Iterator[str]:
    """The words of a script; END where another command begins."""
    yield from _read(text, where, Variables())


def until_end(words: list[str]) -> list[str]:
    """Those of one command."""
    ends = (at for at, word in enumerate(words) if word in ENDING)
    return words[: next(ends, len(words))]


def commands_of(words: list[str]) -> Iterator[list[str]]:
    """Command by command; what stands behind a redirection is one that starts nothing."""
    begin = 0
    for at, word in enumerate([*words, END]):
        if word in ENDING:
            yield words[begin:at]
            begin = at + 1


def _read(text: str, where: str, variables: Variables) -> Iterator[str]:
    begun = ""  # a quote that the line before left open
    for line in re.sub(r"\\\s*\n", " ", text).splitlines():
        if not begun and variables.takes(line):
            continue
        whole = f"{begun}\n{line}" if begun else line
        parts = _split(whole)
        begun = whole if parts is None else ""
        if begun.count("\n") > _LONGEST:
            break
        if parts is None:
            continue
        if whole.strip()[:1] not in ("", "-", "#"):  # flags alone go on with the line before
            yield END
        yield from _opened(parts, where, variables)
    if begun:
        raise BadInput(
            say(
                "{where}: a quote is not closed in {line!r}; close it",
                where=where,
                line=shorten(begun.splitlines()[0], 60),
            )
        )


def _split(line: str) -> list[str] | None:
    """The words of a line; none where a quote is open at its end."""
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return None


def _opened(parts: list[str], where: str, variables: Variables) -> Iterator[str]:
    """The words of a line, with the commands that a shell is given as one of them."""
    in_shell = False
    for before, part in zip(["", *parts], parts, strict=False):
        if in_shell and re.fullmatch(r"-[a-z]*c", before) and re.search(r"\s", part):
            yield END
            yield from _read(part, where, variables)
            yield END
            continue
        in_shell = in_shell or is_shell(part)
        yield from variables.words(part)


def is_shell(word: str) -> bool:
    """Whether a word names a shell, as docker's --entrypoint=/bin/bash does, too."""
    return word.rpartition("=")[2].rpartition("/")[2] in _SHELLS
