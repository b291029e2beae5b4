"""Flags that a kind of question does not read are refused: an answer without them is another's."""

from __future__ import annotations

import argparse
from collections.abc import Collection

from trueflops.cli.arguments import parser
from trueflops.errors import BadInput
from trueflops.language import say


def typed_flags(options: argparse.Namespace) -> dict[str, str]:
    """What was typed: each flag as its command spells it, by the name that options know it by."""
    return {
        action.dest: action.option_strings[0]
        for action in parser().command(options.command).arguments()
        if action.option_strings
        and getattr(options, action.dest, None) not in (None, action.default)
    }


def refuse_unread(
    options: argparse.Namespace, question: str, instead: str,
    unread: Collection[str] | None = None, *, read: Collection[str] = (),
) -> None:  # fmt: skip
    """Refuse the first flag that a question does not read: one of `unread`, or all but `read`."""
    for name, flag in typed_flags(options).items():
        if name in unread if unread is not None else name not in read:
            raise BadInput(
                say(
                    "{question} does not read {flag}: leave it out, or {instead}",
                    question=question,
                    flag=flag,
                    instead=instead,
                )
            )
