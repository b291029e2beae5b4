"""What a question may be made of: the flags of one command, and how a value is typed after them.

In: what TOML can hold. Out: words of a command line, checked one by one before any is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from trueflops.errors import BadInput, join_or, nearest, printable
from trueflops.language import say

Value = str | int | float | bool
UNSET: Final = "default"
"""The value of a flag that is not given: what a command takes where nobody says it."""


@dataclass(frozen=True)
class Flag:
    """One flag of train or infer."""

    name: str  # its column in the table
    option: str  # as it is typed; "" of the model, which is typed without one
    read: Callable[[str], object]  # raises BadInput
    choices: tuple[object, ...] = ()
    valued: bool = True
    bare: bool = False  # may be typed without a value: true
    negated: str = ""  # --no-sp: false

    def words(self, value: Value) -> tuple[str, ...]:
        """As it is typed; raises BadInput where the command would refuse it."""
        if value == UNSET and self.option:
            return ()
        words = self.typed(value)
        if isinstance(value, bool):
            return words
        text = text_of(value)
        if self.choices and self.read(text) not in self.choices:
            known = [str(choice) for choice in self.choices]
            near = nearest(text, known)
            ask = say("write {known}", known=join_or(known))
            if near:
                ask = say("did you mean {near}?", near=near[0])
            raise BadInput(say("{shown} is no choice; {ask}", shown=shown(value), ask=ask))
        self.read(text)
        return words

    def typed(self, value: Value) -> tuple[str, ...]:
        """The same words, whatever the command will say of the value."""
        if isinstance(value, bool):
            return self._switched(value)
        text = text_of(value)
        if not self.valued:
            raise BadInput(say("{shown} is neither; write true or false", shown=shown(value)))
        if not text or (not self.option and (text.startswith("-") or text == UNSET)):
            raise BadInput(say("{shown} cannot be a {name}", shown=shown(value), name=self.name))
        if not self.option:
            return (text,)
        # Behind a space, argparse takes what begins with a dash for another flag.
        return (f"{self.option}={text}",) if text.startswith("-") else (self.option, text)

    def _switched(self, on: bool) -> tuple[str, ...]:
        if not self.bare:
            raise BadInput(
                say(
                    "{on} is no value; a flag that is not given is {unset!r}",
                    on=shown(on),
                    unset=UNSET,
                )
            )
        if on:
            return (self.option,)
        return (self.negated,) if self.negated else ()


@dataclass(frozen=True)
class Flags:
    """All flags of one command that say what is asked, by every name that they have."""

    command: str
    named: Mapping[str, Flag]
    only_shown: frozenset[str]  # those that change how one answer looks
    instead: Callable[[str], str | None]  # the flag that was probably meant

    def find(self, key: str) -> Flag:
        """The flag of a key; global-batch and global_batch are the same."""
        name = key.replace("-", "_")
        if name in self.named:
            return self.named[name]
        if name in self.only_shown:
            raise BadInput(say("{name} only changes how one answer looks; leave it out", name=name))
        meant = (self.instead(key) or "").lstrip("-").replace("-", "_")
        if meant not in self.named:
            meant = next(iter(nearest(name, self.named, most=1)), "")
        hint = say("see trueflops {command} --help", command=self.command)
        if meant:
            hint = say("did you mean {near}?", near=meant)
        raise BadInput(
            say(
                "{key!r} is no flag of {command}; {hint}",
                key=printable(key, 60),
                command=self.command,
                hint=hint,
            )
        )


def text_of(value: Value) -> str:
    """A value as it is typed: 4096, 1.5, true; whole floats (15e12) with every digit."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    return str(value)


def shown(value: object) -> str:
    """A value as TOML writes it, for errors."""
    if isinstance(value, bool | int | float):
        return text_of(value)
    return printable(repr(value), 60)
