"""Commands as forms: the flags that `trueflops web` lets a page ask, read off the parser."""

from __future__ import annotations

import argparse
import contextlib
import io
from collections.abc import Sequence
from functools import cache
from typing import Any

from trueflops.cli.arguments import parse, parser
from trueflops.cli.arguments.flags import flag_of, key_of
from trueflops.cli.arguments.links import rounds, slower, thinner
from trueflops.cli.arguments.several import Several, degrees, degrees_or_largest, zero_stages
from trueflops.cli.arguments.shared import integer, natural, percentage, real, share, whole
from trueflops.errors import BadInput, printable
from trueflops.language import say
from trueflops.web.allowed import COMMANDS, may_be_asked
from trueflops.web.forms import Field, Form

# Types that read a number, and refuse all else but for a word of their own.
_NUMBERS = (
    whole, integer, real, share, percentage, degrees, degrees_or_largest, zero_stages, natural,
    rounds, slower, thinner,
)  # fmt: skip


@cache
def form_of(command: str) -> Form:
    """All that may be asked of a command."""
    of = parser().command(command)
    words = of._get_formatter()  # which fills %(choices)s in
    groups = {a.dest: g.title or "" for g in of._action_groups for a in g._group_actions}
    fields = [
        _field(action, groups[action.dest], words._expand_help(action) if action.help else "")
        for action in of.arguments()
        if not isinstance(action, argparse._HelpAction)
    ]
    asked = tuple(field for field in fields if may_be_asked(field))
    return Form(command, parser().about(command), asked)


def body_of(command: str, words: Sequence[str]) -> dict[str, Any]:
    """What words ask, as a page asks it: the inverse of web/asked.py, for an answer's question."""
    if command not in COMMANDS:
        raise BadInput(
            say("questions of {command!r} are not asked here", command=printable(command, 40))
        )
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            options = vars(parse([command, *words]))
    except SystemExit:
        why = " ".join(said.getvalue().split()).partition(" [BAD_INPUT]")[0]
        raise BadInput(say("its question cannot be asked: {why}", why=why)) from None
    asked: dict[str, Any] = {}
    for action in form_actions(command):
        value = options[action.dest]
        if value in (None, [], action.default):
            continue
        bare = action.nargs == argparse.OPTIONAL and value == action.const
        asked[action.dest] = True if bare else str(value) if isinstance(value, Several) else value
    return asked


def form_actions(command: str) -> list[argparse.Action]:
    """The parser's arguments behind a form."""
    names = {field.name for field in form_of(command).fields}
    return [action for action in parser().command(command).arguments() if action.dest in names]


def _field(action: argparse.Action, group: str, about: str) -> Field:
    options = action.option_strings
    flag = flag_of(action)
    metavar = action.metavar[0] if isinstance(action.metavar, tuple) else action.metavar
    several = action.nargs in ("*", "+")
    return Field(
        name=action.dest,
        names=tuple(key_of(word) for word in options if word != flag.negated),
        flag=flag,
        group=group if options else "",
        about=about,
        metavar=metavar or "",
        default=action.default if isinstance(action.default, int | float | str) else None,
        number=action.type in _NUMBERS,
        several=several,
        required=action.required if options else action.nargs != "*",
    )
