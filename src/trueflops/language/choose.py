"""Which language is asked for: --lang, then TRUEFLOPS_LANG, then the locale; else English.

In: the words of a command line and the environment. Out: one of LANGUAGES.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

ENGLISH: Final = "en"
LANGUAGES: Final = (ENGLISH, "zh")  # a folder of tables beside this file for each but English
# POSIX, section 8.2: the first of these that is set and not empty decides on messages.
LOCALE: Final = ("LC_ALL", "LC_MESSAGES", "LANG")


def asked_for(words: Sequence[str], environment: Mapping[str, str]) -> str:
    """The language of a command line; one that argparse will refuse is left for it to refuse."""
    stated = _stated(words)
    if stated in LANGUAGES:
        return stated
    named = environment.get("TRUEFLOPS_LANG", "")
    if named:
        return _known(named)
    return _known(next(filter(None, map(environment.get, LOCALE)), ""))


def _stated(words: Sequence[str]) -> str:
    """What --lang says; it is read before argparse, which prints help and errors in it.

    What follows -- belongs to a program of the user's own.
    """
    ours = words[: words.index("--")] if "--" in words else words
    for at, each in enumerate(ours):
        if each.startswith("--lang="):
            return each.removeprefix("--lang=")
        if each == "--lang":
            return ours[at + 1] if at + 1 < len(ours) else ""
    return ""


def _known(locale: str) -> str:
    """'zh_CN.UTF-8' and 'zh-Hans' are zh; C, POSIX and every other locale are English."""
    first = locale.replace("-", "_").partition("_")[0].partition(".")[0].casefold()
    return first if first in LANGUAGES else ENGLISH
