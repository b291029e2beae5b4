"""The flags of a command as data: what a sweep's file and a web page ask by name.

In: the parser. Out: Flags, whose values become the words that one would type.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection

from trueflops.cli.arguments import parser
from trueflops.cli.arguments.hints import flag_instead
from trueflops.errors import BadInput
from trueflops.sweep.flags import Flag, Flags


def flags_of(command: str, only_shown: Collection[str]) -> Flags:
    """The flags of a command that say what is asked, by all of their names."""
    of = parser().command(command)
    named: dict[str, Flag] = {}
    for action in of.arguments():
        if action.dest in only_shown or action.dest == "help":
            continue
        flag = flag_of(action)
        options = [word for word in action.option_strings if word != flag.negated]
        named |= {key_of(word): flag for word in options or [action.dest]}
    return Flags(command, named, frozenset(only_shown), lambda key: flag_instead(key, of.flags()))


def flag_of(action: argparse.Action) -> Flag:
    """One argument of the parser."""
    options = action.option_strings
    negated = [word for word in options if isinstance(action, argparse.BooleanOptionalAction)
               and word.startswith("--no-")]  # fmt: skip

    def read(text: str) -> object:
        try:
            return action.type(text) if callable(action.type) else text
        except argparse.ArgumentTypeError as error:
            raise BadInput(str(error)) from None

    return Flag(
        name=key_of(options[0]) if options else action.dest,
        option=options[0] if options else "",
        read=read,
        choices=tuple(action.choices or ()),
        valued=action.nargs != 0,
        bare=action.nargs in (0, argparse.OPTIONAL),
        negated=negated[0] if negated else "",
    )


def key_of(option: str) -> str:
    """--global-batch as the name of a column or a key: global_batch."""
    return option.lstrip("-").replace("-", "_")
