"""A step as it was accepted: the file that `trueflops guard` writes once and compares with later.

The same program gives the same bytes on every machine: no dates and no paths, rows sorted, seconds
rounded to what arithmetic keeps everywhere, a row to a line so that a review shows what moved.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from trueflops.errors import BadInput, printable, shorten
from trueflops.files import check_writable, is_file, read_file, write_file
from trueflops.model.config import decode_json
from trueflops.units import MICRO

SCHEMA: Final = 1
"""Of the file. A reader of another number refuses it; raise it with every change of the fields."""
MARK: Final = "trueflops_baseline"  # the field by which a file is known
DIGITS: Final = 6  # of seconds: libraries of different machines agree to about fifteen
LEAST: Final = 0.001 * MICRO  # of seconds: no kernel and no wait is shorter
UNWRITTEN: Final = "source"  # lines move with every edit, and would move the file with them


class KernelRow(NamedTuple):
    """Kernels of one op, phase and module, layers of a model together."""

    kernel: str
    phase: str
    module: str
    shapes: str  # operands of the costliest
    calls: int
    seconds: float
    source: str = ""  # the user's line, of a step just captured


class TensorRow(NamedTuple):
    """Storages alive at the peak, of one category and place."""

    category: str
    where: str
    storages: int
    size_bytes: int
    source: str = ""


@dataclass(frozen=True)
class Baseline:
    """One step on one chip, and what it consists of."""

    program: str  # "train.py:build"
    arguments: tuple[str, ...]
    assumed: tuple[str, ...]  # values that the user gave: "mask=0.25"
    on: str
    world: int
    rank: int
    profile: str
    trueflops: str  # releases of what predicted it and of what ran it
    torch: str
    step_seconds: float
    peak_allocated_bytes: int
    parts: Mapping[str, float]  # of the step, in seconds
    kernels: tuple[KernelRow, ...]
    tensors: tuple[TensorRow, ...]

    @property
    def question(self) -> dict[str, Any]:
        """What two baselines must share to be compared."""
        return {
            "program": self.program,
            "arguments": list(self.arguments),
            "assumed": list(self.assumed),
            "on": self.on,
            "world": self.world,
            "rank": self.rank,
            "profile": self.profile,
        }

    def text(self) -> str:
        """The file: JSON, a row of kernels or tensors to a line."""
        head = {
            MARK: SCHEMA,
            **self.question,
            "trueflops": self.trueflops,
            "torch": self.torch,
            "step_seconds": rounded(self.step_seconds),
            "peak_allocated_bytes": self.peak_allocated_bytes,
            "parts_seconds": {name: rounded(s) for name, s in sorted(self.parts.items())},
        }
        rows: dict[str, list[KernelRow] | list[TensorRow]] = {
            "kernels": sorted(self.kernels), "tensors": sorted(self.tensors),
        }  # fmt: skip
        lines = [f"  {json.dumps(key)}: {_dump(value)}" for key, value in head.items()]
        for name, listed in rows.items():
            inside = ",\n".join(f"    {_dump(_written(row))}" for row in listed)
            lines.append(f'  "{name}": [\n{inside}\n  ]' if inside else f'  "{name}": []')
        return "{\n" + ",\n".join(lines) + "\n}\n"


def rounded(seconds: float) -> float:
    """To as many digits as every machine agrees on; what is left of a difference of equals is 0."""
    return float(f"{seconds:.{DIGITS}g}") if abs(seconds) >= LEAST else 0.0


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _written(row: KernelRow | TensorRow) -> dict[str, Any]:
    return {
        name: rounded(value) if isinstance(value, float) else value
        for name, value in row._asdict().items()
        if name != UNWRITTEN
    }


def plain_name(text: str) -> str:
    """A text as part of a file's name."""
    return re.sub(r"[^\w.-]+", "-", text).strip("-")


def write_baseline(path: Path, baseline: Baseline) -> None:
    """Write the file, whole or not at all."""
    write_file(path, baseline.text())


def accepted(path: Path, *, update: bool, may_write: bool) -> Baseline | None:
    """The baseline to compare with; None where the step is to be written down as one.

    Asked before a program runs: what cannot be read is said at once, and is never overwritten.
    """
    if not update and is_file(path):
        return read_baseline(path)
    if not may_write:
        raise BadInput(
            f"{printable(str(path))}: no such baseline; run once where it may be written, and "
            "commit the file"
        )
    if is_file(path) and f'"{MARK}"'.encode() not in read_file(path):
        raise BadInput(f"{printable(str(path))}: not a baseline, so --update leaves it as it is")
    check_writable(path)
    return None


def read_baseline(path: Path) -> Baseline:
    """The file as it was written; BadInput where it is no baseline, or one of another schema."""
    where = printable(str(path))
    fields = decode_json(read_file(path), path)
    schema = fields.get(MARK)
    if schema is None:
        raise BadInput(f"{where}: not a baseline of trueflops guard; name another --baseline FILE")
    if schema != SCHEMA:
        raise BadInput(
            f"{where}: a baseline of schema {shorten(str(schema), 20)}, and this trueflops reads "
            f"schema {SCHEMA}; write it again with --update"
        )
    try:
        return Baseline(
            program=_of(fields, "program", str),
            arguments=tuple(map(str, _of(fields, "arguments", list))),
            assumed=tuple(map(str, _of(fields, "assumed", list))),
            on=_of(fields, "on", str),
            world=_of(fields, "world", int),
            rank=_of(fields, "rank", int),
            profile=_of(fields, "profile", str),
            trueflops=_of(fields, "trueflops", str),
            torch=_of(fields, "torch", str),
            step_seconds=_number(fields, "step_seconds"),
            peak_allocated_bytes=_of(fields, "peak_allocated_bytes", int),
            parts={str(k): float(v) for k, v in _of(fields, "parts_seconds", dict).items()},
            kernels=tuple(_kernel(row) for row in _of(fields, "kernels", list)),
            tensors=tuple(_tensor(row) for row in _of(fields, "tensors", list)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(
            f"{where}: a broken baseline ({shorten(str(error), 80)}); restore it, or write it "
            "again with --update"
        ) from None


def _kernel(row: Mapping[str, Any]) -> KernelRow:
    return KernelRow(
        _of(row, "kernel", str),
        _of(row, "phase", str),
        _of(row, "module", str),
        _of(row, "shapes", str),
        _of(row, "calls", int),
        _number(row, "seconds"),
    )


def _tensor(row: Mapping[str, Any]) -> TensorRow:
    return TensorRow(
        _of(row, "category", str),
        _of(row, "where", str),
        _of(row, "storages", int),
        _of(row, "size_bytes", int),
    )


T = TypeVar("T")


def _of(fields: Mapping[str, Any], name: str, kind: type[T]) -> T:
    """A field of this type, a whole number not below 0."""
    value = fields[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{name} must be {_KINDS[kind]}")
    if isinstance(value, int) and value < 0:
        raise ValueError(f"{name} must not be below 0")
    return value


def _number(fields: Mapping[str, Any], name: str) -> float:
    value = fields[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0.0:
        raise ValueError(f"{name} must be a number ≥ 0")
    return float(value)


_KINDS: Final[Mapping[type, str]] = {
    str: "a text", int: "a whole number", list: "a list", dict: "an object",
}  # fmt: skip
