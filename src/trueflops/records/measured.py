"""A measurement as a file: rows with their conditions, inside the profile that is fitted to them.

{"schema_version": 1, "name": …, "accelerator": …, "measured": {"method_version": 1, "device": {…},
"software": {…}, "tables": {"matmul": {"columns": […], "rows": [[…], …]}, …}, …}, "curves": {…}}
Columns are those of kernel tables (`trueflops ops --help`), so that what is measured here is
fitted, verified and priced as any other table is. Times are medians, with their quantiles beside.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Final

from trueflops.files import own_path, write_file

SCHEMA: Final = 1
METHOD: Final = 1  # how things are timed; figures of two methods are never mixed
MEASURED: Final = "latency_us"
LARGEST: Final = 32 * 2**20  # bytes; an hour's profile has a few
SAVE_EVERY: Final = 1.0  # seconds; a killed run loses at most so much
FITTED: Final = ("name", "accelerator", "chip", "curves")
Cell = str | int | float
Row = dict[str, Cell]


@dataclass
class Record:
    """Everything that was measured on one device."""

    device: dict[str, Any]
    software: dict[str, str]
    tables: dict[str, list[Row]] = field(default_factory=dict)
    states: list[list[float]] = field(default_factory=list)  # see state.COLUMNS
    warnings: list[str] = field(default_factory=list)
    started: str = ""
    spent_seconds: float = 0.0
    budget_seconds: float = 0.0
    finished: bool = False
    method: int = METHOD
    path: Path | None = None
    fitted: dict[str, Any] = field(default_factory=dict)  # curves of an earlier fit, with its chip
    _saved: float = field(default=0.0, repr=False)

    def add(self, table: str, row: Row) -> None:
        """Keep a row; it is on disk within a second, or before the next one is measured."""
        self.tables.setdefault(table, []).append(row)
        self.save_if_due()

    def save_if_due(self) -> None:
        """Save what is new since the last time, at most once a second."""
        if time.monotonic() - self._saved > SAVE_EVERY:
            self.save()

    def find(self, table: str, row: Mapping[str, Cell]) -> Row | None:
        """The measured row that has these cells, if there is one."""
        for known in self.tables.get(table, ()):
            if all(known.get(name) == cell for name, cell in row.items()):
                return known
        return None

    def warn(self, text: str) -> None:
        """Keep a warning, once."""
        if text not in self.warnings:
            self.warnings.append(text)

    def save(self) -> None:
        """Write the file, whole or not at all; what was fitted to fewer rows stays usable."""
        if self.path is None:
            return
        write_file(self.path, json.dumps(self.encoded()))
        self._saved = time.monotonic()

    def encoded(self) -> dict[str, Any]:
        """The file's content."""
        name = str(self.device.get("name", "?"))
        return {
            "schema_version": SCHEMA,
            "name": f"{name}, measured",
            "accelerator": name,
            **self.fitted,
            "measured": self.section(),
        }

    def section(self) -> dict[str, Any]:
        """The part of a profile that holds what was measured."""
        return {
            "method_version": self.method,
            "device": self.device,
            "software": self.software,
            "started": self.started,
            "spent_seconds": round(self.spent_seconds, 1),
            "budget_seconds": self.budget_seconds,
            "finished": self.finished,
            "warnings": self.warnings,
            "states": self.states,
            "tables": {name: _packed(rows) for name, rows in self.tables.items() if rows},
        }


def decode(raw: Mapping[str, Any], path: Path | None = None) -> Record | None:
    """The record inside a profile's JSON; None where it holds none. ValueError says what is odd."""
    if not isinstance(raw, dict):
        raise ValueError("it is not an object")
    if "measured" not in raw:
        return None
    try:
        said = raw["measured"]
        return Record(
            device=dict(said["device"]),
            software={str(k): str(v) for k, v in said["software"].items()},
            tables={str(name): _unpacked(table) for name, table in said["tables"].items()},
            states=[[float(x) for x in row] for row in said.get("states", ())],
            warnings=[str(w) for w in said.get("warnings", ())],
            started=str(said.get("started", "")),
            spent_seconds=float(said.get("spent_seconds", 0.0)),
            budget_seconds=float(said.get("budget_seconds", 0.0)),
            finished=bool(said.get("finished", False)),
            method=int(said["method_version"]),
            path=path,
            fitted={k: raw[k] for k in FITTED if k in raw} if "curves" in raw else {},
        )
    except KeyError as error:
        raise ValueError(f"measured: {error.args[0]!r} is missing") from None
    except (TypeError, AttributeError, OverflowError):
        raise ValueError("measured: not what trueflops measure writes") from None


def _packed(rows: list[Row]) -> dict[str, Any]:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return {"columns": columns, "rows": [[row.get(name, "") for name in columns] for row in rows]}


def _unpacked(table: Mapping[str, Any]) -> list[Row]:
    columns = [str(name) for name in table["columns"]]
    rows = []
    for cells in table["rows"]:
        if len(cells) != len(columns):
            raise ValueError(f"a row of {len(cells)} cells under {len(columns)} columns")
        row = {name: cell for name, cell in zip(columns, cells, strict=True) if cell != ""}
        if not 0.0 < float(row.get(MEASURED, 1.0)) < inf:
            raise ValueError(f"{MEASURED} = {row[MEASURED]} is not a time")
        rows.append(row)
    return rows


def data_folder() -> Path | None:
    """Where a user's profiles lie: $TRUEFLOPS_PROFILES, else the platform's data folder.

    None for a user without a home, as in a container that runs under a bare number.
    """
    if given := os.environ.get("TRUEFLOPS_PROFILES"):
        return own_path(given)
    said = {"win32": "LOCALAPPDATA", "darwin": ""}.get(sys.platform, "XDG_DATA_HOME")
    if base := os.environ.get(said):
        return Path(base) / "trueflops" / "profiles"
    usual = {"win32": "AppData/Local", "darwin": "Library/Application Support"}
    home = own_path("~")
    if not home.is_absolute():
        return None
    return home / usual.get(sys.platform, ".local/share") / "trueflops" / "profiles"
