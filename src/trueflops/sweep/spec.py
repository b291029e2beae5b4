"""A sweep as a user writes it: a TOML file, checked key by key before anything is asked.

In: [axes], each a list of values, [fixed], [[exclude]], [[include]]. Out: a Spec.
An axis of a flag's name varies that flag; an axis of any other name varies several flags together,
its values being tables: plan = [{ tp = 8, pp = 2 }, { zero = 3 }].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from trueflops.catalog.facts import read_toml
from trueflops.errors import BadCatalog, BadInput, join_or, nearest, printable
from trueflops.language import say
from trueflops.sweep.flags import Flag, Flags, Value, shown

COMMANDS: Final = ("train", "infer")
KEYS: Final = ("command", "axes", "fixed", "exclude", "include")

Settings = Mapping[str, Value]
"""Flags that are set together, by the name of their column."""


@dataclass(frozen=True)
class Axis:
    """What varies: one of these settings in every question."""

    name: str
    values: tuple[Settings, ...]


@dataclass(frozen=True)
class Spec:
    """A whole sweep."""

    file: str
    command: str
    flags: Flags
    axes: tuple[Axis, ...]
    fixed: Settings
    exclude: tuple[Mapping[str, tuple[Value, ...]], ...]
    include: tuple[tuple[Axis, ...], ...]


def read_spec(path: Path, flags_of: Callable[[str], Flags]) -> Spec:
    """Read and check a file; `flags_of` says which flags a command has."""
    file = printable(str(path))
    try:
        raw = read_toml(path)
    except BadCatalog as error:  # the reader's word for a file of facts
        raise BadInput(str(error)) from None
    for key in raw:
        if key not in KEYS:
            raise BadInput(f"{file}: {_unknown_key(key)}")
    command = raw.get("command", "train")
    if command not in COMMANDS:
        raise BadInput(
            say(
                "{file}: command = {command}; write {repr}",
                file=file,
                command=shown(command),
                repr=join_or(map(repr, COMMANDS)),
            )
        )
    flags = flags_of(command)
    axes = _axes(flags, _table(raw, "axes", file), f"{file}: [axes]")
    varied = {name for axis in axes for settings in axis.values for name in settings}
    fixed = _settings(flags, _table(raw, "fixed", file), f"{file}: [fixed]")
    for name in varied & fixed.keys():
        raise BadInput(
            say(
                "{file}: {name} stands in [axes] and in [fixed]; keep one of them",
                file=file,
                name=name,
            )
        )
    include = tuple(
        _axes(flags, entry, f"{file}: [[include]] {number}")
        for number, entry in _entries(raw, "include", file)
    )
    if not axes and not include:
        raise BadInput(
            say('{file}: asks nothing; write [axes] and under it on = ["8xH100", …]', file=file)
        )
    exclude = tuple(
        _excluded(flags, entry, varied, f"{file}: [[exclude]] {number}")
        for number, entry in _entries(raw, "exclude", file)
    )
    return Spec(file, command, flags, axes, fixed, exclude, include)


def _unknown_key(key: str) -> str:
    near = nearest(key, KEYS, most=1)
    hint = f"did you mean {near[0]}?" if near else "a flag belongs under [axes] or [fixed]"
    return f"{printable(key, 60)!r} is no key of a sweep; {hint}"


def _table(raw: Mapping[str, Any], key: str, file: str) -> Mapping[str, Any]:
    found = raw.get(key, {})
    if not isinstance(found, dict):
        raise BadInput(
            say(
                "{file}: {key} = {found}; write [{key}] and its keys under it",
                file=file,
                key=key,
                found=shown(found),
            )
        )
    return found


def _entries(raw: Mapping[str, Any], key: str, file: str) -> list[tuple[int, Mapping[str, Any]]]:
    found = raw.get(key, [])
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise BadInput(
            say(
                "{file}: {key} must be written as [[{key}]], with its keys under it",
                file=file,
                key=key,
            )
        )
    return list(enumerate(found, start=1))


def _axes(flags: Flags, table: Mapping[str, Any], where: str) -> tuple[Axis, ...]:
    axes: list[Axis] = []
    taken: dict[str, str] = {}
    for key, given in table.items():
        values = given if isinstance(given, list) else [given]
        axis = _axis(flags, key, values, where)
        for name in {name for settings in axis.values for name in settings}:
            if name in taken:
                raise BadInput(
                    say(
                        "{where}: {taken} and {key} both set {name}; keep one",
                        where=where,
                        taken=taken[name],
                        key=key,
                        name=name,
                    )
                )
            taken[name] = key
        axes.append(axis)
    return tuple(axes)


def _axis(flags: Flags, key: str, values: list[Any], above: str) -> Axis:
    where = f"{above} {printable(key, 60)}"
    if not values:
        raise BadInput(say("{where}: has no values; leave it out, or name some", where=where))
    together = [isinstance(value, dict) for value in values]
    if not any(together):
        flag = _flag(flags, key, above)
        settings = [{flag.name: _value(flag, value, where)} for value in values]
    elif all(together):
        if key.replace("-", "_") in flags.named:
            raise BadInput(
                say("{where}: is a flag; give the axis of these tables another name", where=where)
            )
        settings = [dict(_settings(flags, value, where)) for value in values]
    else:
        raise BadInput(say("{where}: holds values and tables; write either", where=where))
    for number, each in enumerate(settings):
        if each in settings[:number]:
            raise BadInput(
                say(
                    "{where}: holds {values} twice; keep one",
                    where=where,
                    values=shown(values[number]),
                )
            )
    return Axis(key, tuple(settings))


def _settings(flags: Flags, table: Mapping[str, Any], where: str) -> Settings:
    found: dict[str, Value] = {}
    for key, value in table.items():
        flag = _flag(flags, key, where)
        if flag.name in found:
            raise BadInput(
                say(
                    "{where}: {key} sets {name} a second time; keep one",
                    where=where,
                    key=key,
                    name=flag.name,
                )
            )
        if isinstance(value, list):
            raise BadInput(
                say("{where} {key}: a list; what varies belongs under [axes]", where=where, key=key)
            )
        found[flag.name] = _value(flag, value, f"{where} {key}")
    return found


def _excluded(
    flags: Flags, table: Mapping[str, Any], varied: set[str], where: str
) -> Mapping[str, tuple[Value, ...]]:
    if not table:
        raise BadInput(say("{where}: is empty, which would leave out every question", where=where))
    found: dict[str, tuple[Value, ...]] = {}
    for key, given in table.items():
        flag = _flag(flags, key, where)
        if flag.name not in varied:
            raise BadInput(
                say(
                    "{where}: {key} does not vary; name one of {names}",
                    where=where,
                    key=key,
                    names=", ".join(sorted(varied)),
                )
            )
        values = given if isinstance(given, list) else [given]
        found[flag.name] = tuple(_value(flag, v, f"{where} {key}") for v in values)
    return found


def _flag(flags: Flags, key: str, where: str) -> Flag:
    try:
        return flags.find(key)
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from None


def _value(flag: Flag, value: Any, where: str) -> Value:
    if not isinstance(value, str | int | float):
        raise BadInput(
            say(
                "{where}: {shown} is no text, number, true or false",
                where=where,
                shown=shown(value),
            )
        )
    try:
        flag.words(value)
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from None
    return value
