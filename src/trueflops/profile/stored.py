"""Profiles as JSON files: those that are shipped, and those that a user names with --profile.

{"schema_version": 1, "name": …, "accelerator": …, "curves": {"matmul": {"values": {…},
"error": 0.05, "origin": "measured", "source": …, "fitted_rows": 3520,
"rows": [{"table": "ops/gemm.csv", "chip": …, "software": "vllm 0.24.0", "date": "",
"count": 3520}],
"held_out": {"rows": 880, "median": 0.04, "p90": 0.12},
"landmarks": {"reach": […], "points": [[…], …], "weights": […]}}}}
"at_bounds": ["fill"] are parameters whose fit ended at a bound that is no limit of their meaning;
"used": false says that one of them is the rate itself, so that a more general curve is taken.
A curve's name is its key (keys.py); "rows" say where the rows of its fit come from.
A measured one also holds its rows (`measured`, see records/measured.py) and, where the catalog does
not know the device, what it is: "chip": {"kind": "cpu", "values": {"peak.fp32": 1.2e11, …}}.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from math import inf
from pathlib import Path
from typing import Any, Final, get_args

import numpy as np

from trueflops import units
from trueflops.catalog import Accelerator, Origin
from trueflops.catalog.accelerators import accelerator_measured
from trueflops.errors import BadInput, printable, shorten
from trueflops.files import is_file, read_file, write_file
from trueflops.language import say
from trueflops.profile.keys import CurveKey
from trueflops.profile.profile import Curve, FittedRows, HeldOut, Landmarks, Profile
from trueflops.records.measured import LARGEST, METHOD, SCHEMA, Record, decode
from trueflops.sizes import Array

DATA: Final = Path(__file__).parent / "data"
_DIVISORS: Final = (
    "bandwidth",
    "efficiency",
    "tile_",
    "sharpness",
    "cache_bytes",
    "vector_",
    "rate_",
)
LARGEST_ERROR: Final = 10.0  # of log(time)


@cache
def shipped(accelerator: str) -> Profile | None:
    """The profile that was fitted to this chip's own measurements, if there is one."""
    path = DATA / f"{accelerator}.json"
    return read_profile(path) if is_file(path) else None


def read_profile(path: Path) -> Profile:
    """Read a profile; anything wrong is one error that says where."""
    where = printable(str(path))
    try:
        raw = json.loads(read_file(path, LARGEST))
        if raw["schema_version"] != SCHEMA:
            found = shorten(str(raw["schema_version"]))
            raise BadInput(
                say(
                    "{where}: schema {found}, this version reads {schema}",
                    where=where,
                    found=found,
                    schema=SCHEMA,
                )
            )
        if "curves" not in raw and "measured" in raw:
            raise BadInput(
                say(
                    "{where}: measured, but not fitted yet: trueflops measure fit {where}",
                    where=where,
                )
            )
        curves = {
            CurveKey.parse(name): _curve(curve, name) for name, curve in raw["curves"].items()
        }
        if not curves:
            raise ValueError("it holds no curves")
        name, accelerator = str(raw["name"]), str(raw["accelerator"])
        return Profile(name, accelerator, curves, _chip(accelerator, raw.get("chip"), name))
    except KeyError as error:
        raise BadInput(
            say("{where}: not a profile ({key!r} is missing)", where=where, key=error.args[0])
        ) from None
    except ValueError as error:
        raise BadInput(
            say("{where}: not a profile ({error})", where=where, error=shorten(str(error), 120))
        ) from None
    except (TypeError, AttributeError, OverflowError, RecursionError, IndexError):
        raise BadInput(
            say("{where}: not a profile (not what trueflops writes)", where=where)
        ) from None


def _curve(raw: dict[str, Any], name: str) -> Curve:
    values = {key: _real(value, f"{name}: {key}") for key, value in raw["values"].items()}
    for key, value in values.items():
        if not 0.0 <= value < units.TERA and key != "crowding":
            raise ValueError(f"{name}: {key} = {value:g} is no number of at least 0")
        if value == 0.0 and key.startswith(_DIVISORS):
            raise ValueError(f"{name}: {key} must be above 0")
    error = _real(raw["error"], f"{name}: error")
    if not 0.0 <= error < LARGEST_ERROR:
        raise ValueError(f"{name}: error = {error:g} must lie between 0 and {LARGEST_ERROR:g}")
    if raw["origin"] not in get_args(Origin):
        raise ValueError(f"{name}: origin must be one of {', '.join(get_args(Origin))}")
    marks, held = raw.get("landmarks"), raw.get("held_out")
    landmarks = None
    if marks:
        landmarks = _landmarks(*(np.array(marks[k], float) for k in ("points", "reach", "weights")))
    return Curve(
        values,
        error,
        raw["origin"],
        str(raw["source"]),
        landmarks,
        int(raw.get("fitted_rows", 0)),
        HeldOut(int(held["rows"]), float(held["median"]), float(held["p90"])) if held else None,
        tuple(str(parameter) for parameter in raw.get("at_bounds", ())),
        bool(raw.get("used", True)),
        tuple(_rows(each) for each in raw.get("rows", ())),
    )


def _rows(raw: dict[str, Any]) -> FittedRows:
    table, chip, software, date = (str(raw[k]) for k in ("table", "chip", "software", "date"))
    return FittedRows(table, chip, software, date, int(raw["count"]))


def _real(value: Any, what: str) -> float:
    """A number as JSON has them; a text that looks like one is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{what} = {shorten(repr(value), 30)} is not a number")
    return float(value)


def _landmarks(points: Array, reach: Array, weights: Array) -> Landmarks:
    shapes = (points.shape, reach.shape, weights.shape)
    fitting = points.ndim == 2 and shapes[1:] == (points.shape[1:], points.shape[:1])
    if not fitting or not all(np.isfinite(a).all() for a in (points, reach, weights)):
        raise ValueError("landmarks do not go together")
    if not (reach > 0.0).all():
        raise ValueError("landmarks: a reach must be above 0")
    return Landmarks(points, reach, weights)


def _chip(name: str, raw: dict[str, Any] | None, source: str) -> Accelerator | None:
    if raw is None:
        return None
    values = {str(path): _real(value, f"chip: {path}") for path, value in raw["values"].items()}
    if not all(0.0 < value < inf for value in values.values()):
        raise ValueError("chip: every value must be above 0")
    return accelerator_measured(name, str(raw["kind"]), values, source)


def read_record(path: Path) -> Record:
    """The measurements inside a profile."""
    where = printable(str(path))
    try:
        raw = json.loads(read_file(path, LARGEST))
        found = decode(raw, path)
        if raw["schema_version"] != SCHEMA or (found and found.method != METHOD):
            raise ValueError(f"this version reads schema {SCHEMA}, method {METHOD}")
    except (ValueError, KeyError, RecursionError) as error:
        raise BadInput(
            say("{where}: not a profile ({error})", where=where, error=shorten(str(error), 120))
        ) from None
    if found is None:
        raise BadInput(
            say("{where}: holds no measurements, only curves fitted to other tables", where=where)
        )
    return found


def write_profile(
    profile: Profile,
    path: Path,
    record: Record | None = None,
    runs: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Write a profile, whole or not at all, with the measurements and the runs it was fitted to."""
    curves = {str(key): _record(curve) for key, curve in profile.curves.items()}
    raw: dict[str, Any] = {
        "schema_version": SCHEMA, "name": profile.name, "accelerator": profile.accelerator
    }  # fmt: skip
    if profile.chip is not None:
        values = {path: _short(v) for path, v in profile.chip.values.items() if v}
        raw["chip"] = {"kind": profile.chip.architecture.name, "values": values}
    if record is not None:
        raw["measured"] = record.section()
    if runs:
        raw["runs"] = list(runs)
    lines = [
        f" {json.dumps(name)}: {json.dumps(record)}" for name, record in sorted(curves.items())
    ]
    head = json.dumps(raw)[:-1]
    text = f'{head}, "curves": {{\n' + ",\n".join(lines) + "\n}}\n"
    write_file(path, text)


def _record(curve: Curve) -> dict[str, Any]:
    record: dict[str, Any] = {
        "values": {name: _short(value) for name, value in curve.values.items()},
        "error": _short(curve.error),
        "origin": curve.origin,
        "source": curve.source,
    }
    if curve.fitted_rows:
        record["fitted_rows"] = curve.fitted_rows
    if curve.rows:
        record["rows"] = [asdict(rows) for rows in curve.rows]
    if curve.held_out:
        held = curve.held_out
        record["held_out"] = {
            "rows": held.rows, "median": _short(held.median), "p90": _short(held.p90)
        }  # fmt: skip
    if curve.at_bounds:
        record["at_bounds"] = list(curve.at_bounds)
    if not curve.used:
        record["used"] = False
    if curve.landmarks:
        marks = curve.landmarks
        record["landmarks"] = {
            "reach": marks.reach.tolist(),
            "points": [[_short(x) for x in point] for point in marks.points.tolist()],
            "weights": [round(w, 4) for w in marks.weights.tolist()],
        }
    return record


def _short(value: float) -> float:
    """Four digits are more than any fit knows."""
    return float(f"{value:.4g}")
