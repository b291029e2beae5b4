"""The tree of errors. Each carries its exit code and says what to write instead.

An answer of "no" (does not fit, no plan) is an answer, not an error: it exits with 1.

TrueflopsError          101  our bug, if it reaches a user as this very class
└── BadInput              2  something the user wrote cannot be used
    ├── UnknownName       2  no such chip, model, link …; did you mean …
    ├── BadQuantity       2  a text that is not a number with the right unit
    ├── BadConfig         2  a config.json that is truncated, hostile or unsupported
    ├── BadCatalog        2  a catalog file with a value that has no source
    ├── MissingFact       2  the catalog does not know this value; names where to add it
    └── ImpossiblePlan    2  a plan that breaks a rule; carries a code and what would fit
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from trueflops.language import say, word

MOST_NAMES_LISTED = 40  # in an error, where none is near what was typed


class TrueflopsError(Exception):
    """Base of everything the package raises on purpose.

    >>> import trueflops as tf
    >>> try:
    ...     tf.accelerator("H1OO")
    ... except tf.TrueflopsError as error:
    ...     print(error.code, "H100" in str(error))
    UNKNOWN_NAME True
    """

    exit_code = 101
    code = "BUG"


class BadInput(TrueflopsError):
    """The user's input cannot be used; the message says what to write instead."""

    exit_code = 2
    code = "BAD_INPUT"


class UnknownName(BadInput):
    """A name that is in no list; offers the nearest ones."""

    code = "UNKNOWN_NAME"

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        self.name = name
        names = list(known)
        near = [known_as for known_as in nearest(name, names) if known_as != name]
        given = {"kind": kind, "name": shorten(name)}
        if near:
            said = say(
                "unknown {kind} {name!r}; did you mean {names}?", names=join_or(near), **given
            )
        elif 0 < len(names) <= MOST_NAMES_LISTED:
            listed = ", ".join(sorted(names))
            said = say("unknown {kind} {name!r}; known: {names}", names=listed, **given)
        else:
            said = say("unknown {kind} {name!r}", **given)
        super().__init__(f"{said}{' ' + word(hint) if hint else ''}")


class BadQuantity(BadInput):
    """A text that should hold a number and a unit, and does not."""

    code = "BAD_QUANTITY"


class BadConfig(BadInput):
    """A model config that cannot be read."""

    code = "BAD_CONFIG"


class BadCatalog(BadInput):
    """A catalog file that breaks the catalog's own rules."""

    code = "BAD_CATALOG"


class MissingFact(BadInput):
    """The catalog holds no value for something a prediction needs."""

    code = "MISSING_FACT"


class ImpossiblePlan(BadInput):
    """A plan that breaks a rule. `code` names the rule; the message says what would fit."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


def nearest(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Return the known names that look most like this one, best first."""
    by_fold = {_unmistakable(k): k for k in known}
    folded = _unmistakable(name[:80])
    cutoff = 0.6 if len(folded) > 5 else 0.7  # short names resemble each other too easily
    close = difflib.get_close_matches(folded, by_fold, n=most, cutoff=cutoff)
    inside = sorted((k for k in by_fold if folded and folded in k and k not in close), key=len)
    return [by_fold[k] for k in (*close, *inside)][:most]


def _unmistakable(name: str) -> str:
    """H1OO and H100 look alike; so do l and 1."""
    return name.casefold().replace("o", "0").replace("l", "1")


def join_or(words: Iterable[object]) -> str:
    """'a', 'a or b', 'a, b or c'."""
    texts = [str(w) for w in words]
    if len(texts) == 1:
        return texts[0]
    return say("{others} or {last}", others=say(", ").join(texts[:-1]), last=texts[-1])


def shorten(text: str, width: int = 60) -> str:
    """Cut what a user wrote to a length that an error line can hold."""
    return text if len(text) <= width else text[: width - 1] + "…"


def printable(text: str, width: int = 120) -> str:
    """What a user wrote, safe for a terminal: one line, no control characters, not endless."""
    return shorten("".join(ch if ch.isprintable() else "?" for ch in text), width)


def visible(text: str) -> str:
    """A text of several lines without what moves a terminal's cursor or hides what it shows."""
    return "".join(ch if ch.isprintable() or ch in "\n\t" else "?" for ch in text)
