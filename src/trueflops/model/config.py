"""A config.json as untrusted text: every field is checked for type and range when it is read.

In: bytes or a mapping. Out: a Config whose getters either return a sane value or raise BadConfig
naming the file, the field and what was expected. Nothing in a config is ever executed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from trueflops.errors import BadConfig, BadInput, printable, shorten
from trueflops.files import is_file, is_folder, read_file
from trueflops.language import say

LARGEST_SIZE: Final = 100_000_000  # Llama 4 has 10⁷ positions; above this is an error or an attack
MOST_LAYERS: Final = 4096


def decode_json(raw: bytes, file: Path) -> dict[str, Any]:
    """JSON, one object: NaN, endless digits and endless nesting are refused.

    Infinity is none of JSON's words, but Python writes it, and released configs have it for "no
    limit" (`time_step_limit` of Nemotron-H): it is read as null.
    """

    def constant(word: str) -> None:
        if word == "NaN":
            raise ValueError(f"{word} is not a number")

    where = printable(str(file))
    try:
        fields = json.loads(raw, parse_constant=constant)
    except RecursionError:
        raise BadConfig(say("{where}: not valid JSON (nested too deeply)", where=where)) from None
    except ValueError as error:
        reason = "a number of too many digits" if "set_int_max_str" in str(error) else str(error)
        raise BadConfig(
            say("{where}: not valid JSON ({reason})", where=where, reason=shorten(reason, 120))
        ) from None
    if not isinstance(fields, dict):
        raise BadConfig(
            say('{where}: must hold an object of fields: {{"model_type": …}}', where=where)
        )
    return fields


class Config:
    """Typed, bounded access to the fields of one config."""

    def __init__(self, fields: Mapping[str, Any], where: str) -> None:
        self.fields, self.where = fields, where

    @classmethod
    def read(cls, path: Path) -> Config:
        """Read a config.json, or the one inside a folder."""
        file = path / "config.json" if is_folder(path) else path
        if not is_file(file):
            where = printable(str(path)) or "MODEL"
            raise BadInput(
                say(
                    "{where}: no config.json there; give a catalog name, a file or a folder",
                    where=where,
                )
            )
        raw = read_file(file)
        return cls(decode_json(raw, file), printable(str(file)))

    def has(self, *names: str) -> bool:
        """Whether one of the names is given and not null."""
        return any(self.fields.get(n) is not None for n in names)

    def nested(self, name: str) -> Config:
        """Step into an object field, such as text_config."""
        inner = self.fields.get(name)
        if not isinstance(inner, Mapping):
            raise self._wrong(name, "an object")
        return Config(inner, f"{self.where}: {name}")

    def besides(self, outer: Config, *names: str) -> Config:
        """With fields that only the object around it has."""
        given = {name: outer.fields[name] for name in names if outer.has(name)}
        return Config({**given, **self.fields}, self.where)

    def objects(self, name: str) -> list[Config]:
        """A list of objects, empty when absent."""
        found = self._list(name, dict, "a list of objects")
        return [Config(inner, f"{self.where}: {name}[{i}]") for i, inner in enumerate(found)]

    def size(
        self, *names: str, default: int | None = None, least: int = 1, most: int = LARGEST_SIZE
    ) -> int:
        """A whole number, under whichever of the spellings the family uses."""
        name, value = self._find(names, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
            raise self._wrong(name, "a whole number")
        if not least <= value <= most:
            raise self._wrong(name, say("between {least:,} and {most:,}", least=least, most=most))
        return int(value)

    def number(self, *names: str, default: float, least: float = 0.0, most: float = 1.0) -> float:
        """A real number within bounds."""
        name, value = self._find(names, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(name, "a number")
        if not least <= value <= most:
            raise self._wrong(name, say("between {least:g} and {most:g}", least=least, most=most))
        return float(value)

    def flag(self, *names: str, default: bool) -> bool:
        """True or false."""
        name, value = self._find(names, default)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false")
        return value

    def text(self, *names: str, default: str | None = None) -> str:
        """A string."""
        name, value = self._find(names, default)
        if not isinstance(value, str):
            raise self._wrong(name, "a text")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings, empty when absent."""
        return self._list(name, str, "a list of texts")

    def sizes(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers, empty when absent."""
        return self._list(name, int, "a list of whole numbers")

    def layers(self, *names: str) -> int:
        """The number of layers, bounded so that a hostile file cannot make us build millions."""
        return self.size(*names, most=MOST_LAYERS)

    def _list(self, name: str, kind: type, expected: str) -> tuple[Any, ...]:
        value = self.fields.get(name)
        if value is None:
            return ()
        if (
            not isinstance(value, list | tuple)
            or len(value) > MOST_LAYERS
            or not all(isinstance(v, kind) for v in value)
        ):
            raise self._wrong(name, expected)
        return tuple(value)

    def _find(self, names: tuple[str, ...], default: object) -> tuple[str, Any]:
        for name in names:
            if self.fields.get(name) is not None:
                return name, self.fields[name]
        if default is None:
            spelled = " or ".join(repr(n) for n in names)
            raise BadConfig(
                say("{where}: the field {spelled} is missing", where=self.where, spelled=spelled)
            )
        return names[0], default

    def _wrong(self, name: str, expected: str) -> BadConfig:
        seen = shorten(repr(self.fields.get(name)), 40)
        return BadConfig(
            say(
                "{where}: {name!r} must be {expected}, not {seen}",
                where=self.where,
                name=name,
                expected=expected,
                seen=seen,
            )
        )
