"""What a question may be made of: the flags of one command, and how a value is typed after them.

In: what TOML can hold. Out: words of a command line, checked one by one before any is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from trueflops.errors import BadInput, join_or, nearest, printable

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
            ask = f"did you mean {near[0]}?" if near else f"write {join_or(known)}"
            raise BadInput(f"{shown(value)} is no choice; {ask}")
        self.read(text)
        return words

    def typed(self, value: Value) -> tuple[str, ...]:
        """The same words, whatever the command will say of the value."""
        if isinstance(value, bool):
            return self._switched(value)
        text = text_of(value)
        if not self.valued:
            raise BadInput(f"{shown(value)} is neither; write true or false")
        if not text or (not self.option and (text.startswith("-") or text == UNSET)):
            raise BadInput(f"{shown(value)} cannot be a {self.name}")
        if not self.option:
            return (text,)
        # Behind a space, argparse takes what begins with a dash for another flag.
        return (f"{self.option}={text}",) if text.startswith("-") else (self.option, text)

    def _switched(self, on: bool) -> tuple[str, ...]:
        if not self.bare:
            raise BadInput(f"{shown(on)} is no value; a flag that is not given is {UNSET!r}")
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
            raise BadInput(f"{name} only changes how one answer looks; leave it out")
        meant = (self.instead(key) or "").lstrip("-").replace("-", "_")
        if meant not in self.named:
            meant = next(iter(nearest(name, self.named, most=1)), "")
        hint = f"did you mean {meant}?" if meant else f"see trueflops {self.command} --help"
        raise BadInput(f"{printable(key, 60)!r} is no flag of {self.command}; {hint}")


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
