"""Which profile a run is predicted with: the one place that chooses it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from trueflops.catalog import Accelerator, accelerator
from trueflops.catalog.facts import read_toml
from trueflops.errors import BadInput, UnknownName, printable
from trueflops.profile import Curve, Profile, from_datasheet

Profiles = Callable[[Accelerator, str], Profile]
"""A chip and a framework's key (see frameworks.py) in, the profile to predict with out."""


def profile_of(chip: Accelerator, framework: str) -> Profile:
    """By datasheet, whatever the framework."""
    return _by_datasheet(chip.name)


def profiles_from(path: str | None) -> Profiles:
    """The profile of a file for the chip that it names, and `profile_of` for all others."""
    if path is None:
        return profile_of
    given = read_profile(Path(path))

    def choose(chip: Accelerator, framework: str) -> Profile:
        return given if chip.name == given.accelerator else profile_of(chip, framework)

    return choose


def read_profile(path: Path) -> Profile:
    """A TOML file: `accelerator`, and one table [curves.matmul] … with `error` and its numbers.

    Curves and numbers that the file leaves out are those of the chip's datasheet.
    """
    raw, where = read_toml(path), printable(str(path))
    if not isinstance(raw.get("accelerator"), str) or not isinstance(raw.get("curves"), Mapping):
        raise BadInput(
            f'{where}: a profile needs accelerator = "H100" and tables [curves.matmul] …'
        )
    chip = accelerator(raw["accelerator"])
    curves = dict(from_datasheet(chip).curves)
    for name, fields in raw["curves"].items():
        if name not in curves:
            raise UnknownName(f"curve in {where}", name, curves)
        curves[name] = _curve(curves[name], fields, f"{where}: curves.{name}", where)
    return Profile(str(raw.get("name", path.stem)), chip.name, curves)


def _curve(usual: Curve, fields: Any, what: str, where: str) -> Curve:
    if not isinstance(fields, Mapping) or not isinstance(fields.get("error"), int | float):
        raise BadInput(f"{what} needs numbers and an error (of log time, one standard deviation)")
    values = {k: v for k, v in fields.items() if k not in ("error", "origin", "source")}
    if not all(isinstance(v, int | float) for v in values.values()):
        raise BadInput(f"{what}: all values must be numbers, in SI units")
    source = str(fields.get("source", where))
    numbers = {**usual.values, **{k: float(v) for k, v in values.items()}}
    return Curve(numbers, float(fields["error"]), "fitted", source)


@cache
def _by_datasheet(name: str) -> Profile:
    """One object a chip, so that rows of the same chip share what was computed for it."""
    return from_datasheet(accelerator(name))
