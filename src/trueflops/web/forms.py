"""The flags of a command as a form has them: a name, a help, choices, where they belong.

In: made from the parser by cli/arguments/forms.py. Out: what GET /api/options lists, what a
question's keys are looked up in, and what openapi.py describes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trueflops.errors import BadInput, nearest, printable
from trueflops.language import say
from trueflops.sweep.flags import Flag


@dataclass(frozen=True)
class Field:
    """One flag, or one word without a flag."""

    name: str  # of its value: the parser's dest
    names: tuple[str, ...]  # by which it may be asked: the parser's, without dashes
    flag: Flag
    group: str
    about: str
    metavar: str
    default: object
    number: bool  # its value is read as one
    several: bool  # a list of words
    required: bool

    @property
    def positional(self) -> bool:
        """Typed without a flag."""
        return not self.flag.option

    def encode(self) -> dict[str, Any]:
        """As a page builds its input from it."""
        return {
            "name": self.name,
            "flag": self.flag.option,
            "group": self.group,
            "help": self.about,
            "metavar": self.metavar,
            "choices": list(self.flag.choices),
            "default": self.default,
            "bare": self.flag.bare,
            "valued": self.flag.valued,
            "number": self.number,
            "several": self.several,
            "required": self.required,
        }


@dataclass(frozen=True)
class Form:
    """All that may be asked of a command, in the order in which it is typed."""

    command: str
    about: str
    fields: tuple[Field, ...]

    @cached_property
    def _named(self) -> Mapping[str, Field]:
        return {name: field for field in self.fields for name in (field.name, *field.names)}

    def find(self, key: str) -> Field:
        """The field of a key; global-batch and global_batch are the same."""
        name = key.replace("-", "_")
        if name in self._named:
            return self._named[name]
        near = nearest(name, self._named, most=1)
        hint = say("GET /api/options lists what may be asked")
        if near:
            hint = say("did you mean {near}?", near=near[0])
        raise BadInput(
            say(
                "{key!r} cannot be asked of {command} here; {hint}",
                key=printable(key, 60),
                command=self.command,
                hint=hint,
            )
        )

    def encode(self) -> dict[str, Any]:
        """For GET /api/options."""
        return {"help": self.about, "flags": [field.encode() for field in self.fields]}
