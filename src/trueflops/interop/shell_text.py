"""Lines of a shell script: the commands that stand on one, and the words of a command.

As far as scripts that start training or serving use it: operators that end a command, redirections,
remarks, quotes, substitutions (bash's manual, 3.1.2 to 3.6). Nothing is run.
"""

from __future__ import annotations

import re
from typing import Final

_SUBSTITUTED: Final = r"\$\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|\$\{[^{}]*\}"
_QUOTED: Final = r""""(?:[^"\\]|\\.)*(?:"|\\?$)|'[^']*(?:'|$)"""
_TARGET: Final = rf"""(?:&[\d-]|\s*(?:{_QUOTED}|>?\([^()]*\)|[^\s;|&<>"'()])+)"""
_PARTS: Final = re.compile(
    rf"""(?P<remark>(?:^|(?<=\s))\#.*)
    |(?P<kept>\\.|{_SUBSTITUTED}|{_QUOTED})
    |(?P<redirected>(?:(?<!\S)\d+)?(?:&>>?|>>?|<{{1,3}}){_TARGET}?)
    |(?P<end>&&|\|\||;;?|\|&?|&)""",
    re.VERBOSE,
)
_OPEN: Final = re.compile(r"(?:=|-c\s+)$")  # a quote after this may go on for several lines
_ENDS: Final = re.compile(
    r"-[A-Za-z].*"  # of a launcher, such as -m
    r"|\$[@*]|\$\{[@*][^}]*\}|\$\{\w+\[[@*]\]\}"  # other words, which are not known
    r"|;;?|&&?|\|[|&]?"  # within quotes: the command of another shell
    r"|\d*(?:&>>?|>>?|<)(?:&[\d-])?[^\s>]*"
)
_HIDDEN: Final = str.maketrans(" \t()", "\x00\x01\x02\x03")  # in substitutions, which are one word
_SHOWN: Final = str.maketrans("\x00\x01\x02\x03", " \t()")


class Lines:
    """Lines of one script, one after another: a quote that one opens another may close."""

    def __init__(self) -> None:
        self._quote = ""

    def commands(self, line: str) -> list[str]:
        """The commands on a line, without redirections and remarks; quotes stay."""
        if line.lstrip().startswith("#"):
            return []
        whole, begun, self._quote = self._quote + line, bool(self._quote), ""

        def part(found: re.Match[str]) -> str:
            kept = found["kept"]
            if kept is None:
                return "\n" if found["end"] else " "
            # An apostrophe in a text opens nothing; the value of a variable may go on.
            if kept[0] in "\"'" and (len(kept) == 1 or kept[-1] != kept[0]):
                on = _OPEN.search(whole[: found.start()]) or (begun and not found.start())
                self._quote = kept[0] if on else ""
            return kept

        parts = [each.strip() for each in _PARTS.sub(part, whole).split("\n")]
        return [each for each in parts if each]


def words(command: str) -> list[str]:
    """The words of a command. A quoted text is several, as it may hold flags."""
    one = re.sub(_SUBSTITUTED, lambda found: found[0].translate(_HIDDEN), command)
    apart = re.sub(r"""(^|\s)(\w+\+?=)(?=["'])""", r"\1\2 ", one)  # X="--a 1" is not one word
    bare = apart.replace('"', "").replace("'", "")
    # Inside a word brackets are the word's own: a layout such as E|(tt|)*4L.
    plain = re.sub(r"(?<![^\s=])[()\\]|[()\\](?=\s|$)", " ", bare)
    return [word.translate(_SHOWN) for word in plain.split()]


def ends_values(word: str) -> bool:
    """Whether a word, and what follows it, cannot be values of the flag before."""
    return _ENDS.fullmatch(word) is not None
