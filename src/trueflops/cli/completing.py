"""What may stand at the end of a command line: commands, flags, their choices, catalog names.

In: the words so far, the last of them unfinished. Out: words that begin like it, each with what it
means, and whether a file may stand there. Read off the parser and the catalog's file names, so that
nothing is listed twice and an answer takes no longer than --help.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from trueflops.catalog.names import fold, known
from trueflops.cli.arguments import Parser, parser
from trueflops.cli.arguments.several import ANY, LAST_STAGE, OneOrMore, zero_stages
from trueflops.cli.arguments.software import ENGINES, FRAMEWORKS
from trueflops.cli.arguments.speculation import METHODS
from trueflops.language import columns, lines, say

LONGEST: Final = 72  # columns of a meaning: a line of a terminal
_COUNT: Final = re.compile(r"(\d+x)+")


class Candidate(NamedTuple):
    """A word that may be typed, and what it means."""

    word: str
    meaning: str = ""


class Candidates(NamedTuple):
    """All that may stand there."""

    words: list[Candidate]
    files: bool = False


def candidates(words: Sequence[str]) -> Candidates:
    """What the last of the words may become."""
    typed = [word for word in words[:-1] if word != "="]  # which bash cuts off from --on=64xH100
    last = "" if not words or words[-1] == "=" else words[-1]
    if not typed:
        return Candidates(_alike(_commands(), last))
    if typed[0] not in _names():
        return Candidates([])
    command = parser().command(typed[0])
    if "--" in typed:  # a program's own words follow
        return Candidates([], files=True)
    waiting, places = _read(command, typed[1:])
    flag, sign, value = last.partition("=")
    if sign and flag.startswith("--"):
        of = _by_option(command).get(flag)
        found = _values(typed[0], of, value) if of else Candidates([])
        return found._replace(words=[c._replace(word=f"{flag}={c.word}") for c in found.words])
    if waiting:
        return _values(typed[0], waiting, last)
    if last.startswith("-"):
        return Candidates(_alike(_flags(command, typed), last))
    place = next(iter(places), None)
    found = _values(typed[0], place, last) if place else Candidates([])
    if not last and not found.words and not found.files:
        return Candidates(list(_flags(command, typed)))
    return found


def _names() -> list[str]:
    return [candidate.word for candidate in _commands()]


def _commands() -> list[Candidate]:
    for action in parser().arguments():
        if isinstance(action, argparse._SubParsersAction):
            found = [Candidate(each.dest, _short(each.help)) for each in action._choices_actions]
            return [*found, Candidate("--help"), Candidate("--version")]
    return []


def _read(
    command: Parser, typed: Sequence[str]
) -> tuple[argparse.Action | None, list[argparse.Action]]:
    """The flag whose value comes next, if one does, and the places that are still empty."""
    options = _by_option(command)
    places = [action for action in command.arguments() if not action.option_strings]
    waiting: argparse.Action | None = None
    left = 0
    for word in typed:
        if waiting and not word.startswith("-"):
            left -= 1
            waiting = waiting if left else None
            continue
        waiting = None
        if word.startswith("-"):
            action = options.get(word)
            if action and action.nargs != 0:
                waiting, left = action, action.nargs if isinstance(action.nargs, int) else 1
        elif places and places[0].nargs not in ("*", "+"):
            places.pop(0)
    return waiting, places


def _by_option(command: Parser) -> dict[str, argparse.Action]:
    return {option: each for each in command.arguments() for option in each.option_strings}


def _flags(command: Parser, typed: Iterable[str]) -> Iterator[Candidate]:
    """Flags that are not given yet, by their first name and their opposite."""
    given = {word.partition("=")[0] for word in typed}
    for action in command.arguments():
        if given & set(action.option_strings) or action.help == argparse.SUPPRESS:
            continue
        longs = [option for option in action.option_strings if option.startswith("--")]
        opposite = isinstance(action, argparse.BooleanOptionalAction)
        for option in longs if opposite else longs[:1]:
            yield Candidate(option, _short(action.help))


def _values(command: str, action: argparse.Action, last: str) -> Candidates:
    """What a flag may be given, or what may stand at a place."""
    chosen = action.type
    if action.choices:
        choices = (Candidate(str(choice)) for choice in action.choices)
        return Candidates(_alike(choices, last))
    if chosen is zero_stages:
        return Candidates(_alike((Candidate(str(n)) for n in range(LAST_STAGE + 1)), last))
    if isinstance(chosen, OneOrMore):
        return Candidates(_listed((*chosen.choices, ANY), last))
    metavar = action.metavar[0] if isinstance(action.metavar, tuple) else action.metavar or ""
    if metavar in ("CLUSTER", "CHIP"):
        words = _counted(last)
        return Candidates(words, files=metavar == "CLUSTER" and not words)
    named = _NAMED.get(action.dest) or _NAMED.get(metavar)
    if action.dest == "framework":
        named = (lambda: ENGINES) if command == "infer" else (lambda: FRAMEWORKS)
    if named:
        found = _alike(map(Candidate, named()), last)
        return Candidates(found, files=metavar in ("MODEL", "PROFILE") and not found)
    return Candidates([], files="." in metavar or metavar in ("FILE", "DIR", "FOLDER", "TABLE"))


def _counted(last: str) -> list[Candidate]:
    """Chips, nodes and clusters behind the count that is typed: 64xH100."""
    count = found[0] if (found := _COUNT.match(last)) else ""
    names = known("accelerators", "nodes", *(() if count else ("clusters",)))
    return _alike((Candidate(count + name) for name in names), last)


def _listed(choices: Iterable[str], last: str) -> list[Candidate]:
    """Choices behind those that are typed: bf16,fp8."""
    before, comma, _ = last.rpartition(",")
    given = before.split(",")
    words = (before + comma + each for each in choices if each not in given)
    return _alike(map(Candidate, words), last)


def _profiles() -> list[str]:
    from trueflops.profile.library import profiles  # needs numpy

    return [profile.name for profile in profiles()]


def _optimizers() -> list[str]:
    from trueflops.plan import OPTIMIZERS  # likewise

    return list(OPTIMIZERS)


def _vendors() -> list[str]:
    from trueflops.catalog import accelerators  # reads every file

    return sorted({chip.vendor for chip in accelerators()})


_NAMED: Final[dict[str, Callable[[], Iterable[str]]]] = {
    "MODEL": lambda: known("models"),
    "PROFILE": _profiles,
    "METHOD": lambda: METHODS,
    "optimizer": _optimizers,
    "vendor": _vendors,
    "name": lambda: known("accelerators", "nodes", "clusters", "models"),
}
"""Names that are data, by what a flag is called or by what --help calls its value."""


def _alike(all_of: Iterable[Candidate], last: str) -> list[Candidate]:
    """Those that begin like what was typed; where none does, as the catalog finds a name."""
    found = [each for each in all_of if " " not in each.word]  # which a shell would cut
    exact = [each for each in found if each.word.startswith(last)]
    if exact or not fold(last) or last.startswith("-"):
        return exact
    return [each for each in found if fold(each.word).startswith(fold(last))]


def _short(meaning: str | None) -> str:
    """A meaning on one line."""
    text = " ".join(say(meaning or "").split()).replace("%%", "%")
    return text if columns(text) <= LONGEST else lines(text, LONGEST - 2)[0] + " …"
