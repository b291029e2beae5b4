"""A plan in a JSON file: an answer of `train --json`, which has it under "plan", or fields alone.

In: a path. Out: the fields that were given, each of the type that Plan has, and the model and the
workload where an answer names them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import inf
from pathlib import Path
from typing import Any

from trueflops.errors import BadInput, UnknownName, printable
from trueflops.files import read_file
from trueflops.language import say
from trueflops.model.config import decode_json
from trueflops.plan.plan import NUMERIC, Plan

_WHOLE = ("tp", "cp", "pp", "vpp", "dp_replicate", "dp_shard", "zero", "ep", "etp", "micro_batch",
          "dcp")  # fmt: skip


@dataclass(frozen=True)
class PlanFile:
    """What a file says."""

    given: dict[str, Any]
    arguments: tuple[str, ...] = ()  # of the command whose answer it is

    def after(self, flag: str) -> str | None:
        """The value of a flag of that command."""
        if flag not in self.arguments[:-1]:
            return None
        return self.arguments[self.arguments.index(flag) + 1]


def read_plan(path: Path) -> PlanFile:
    """Read and check a plan file."""
    raw = decode_json(read_file(path), path)
    where = printable(str(path))
    given = raw.get("plan", raw)
    if not isinstance(given, dict):
        raise BadInput(
            say(
                '{where}: "plan" must be an object, such as {{"tp": 2, "dp_shard": 2}}', where=where
            )
        )
    question = raw.get("question")
    asked = question.get("arguments", ()) if isinstance(question, dict) else ()
    if question is not None and (not isinstance(question, dict) or "plan" not in raw):
        raise BadInput(
            say("{where}: an answer without a plan; run takes one of train --json", where=where)
        )
    return PlanFile(fields_of(given, where), tuple(map(str, asked)))


def fields_of(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Fields of a Plan as JSON has them, checked; `where` they stand."""
    known = {field.name: type(field.default) for field in fields(Plan)}
    return {name: _value(where, name, value, known) for name, value in given.items()}


def as_json(given: Mapping[str, Any]) -> dict[str, Any]:
    """The way back: JSON has no infinity."""
    return {name: None if value == inf else value for name, value in given.items()}


def _value(where: str, name: str, value: Any, known: dict[str, type]) -> Any:
    if name not in known:
        raise UnknownName("field of a plan", name, known, f"({where})")
    if name == "recompute_layers" and value is None:
        return inf  # all of them
    if name in _WHOLE:
        fine = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        wanted = "a whole number"
    elif name in NUMERIC or known[name] in (int, float):
        fine = isinstance(value, (int, float)) and not isinstance(value, bool)
        wanted = "a number"
    else:
        fine = isinstance(value, known[name])
        wanted = "true or false" if known[name] is bool else "a word in quotes"
    if not fine:
        raise BadInput(
            say(
                "{where}: {name} must be {wanted}, not {seen}",
                where=where,
                name=name,
                wanted=wanted,
                seen=printable(repr(value), 40),
            )
        )
    return value
