"""Energy of work, fitted to sustained loads whose power and clock were recorded.

    watts = static + busy share · (flop·e(dtype)·r^γ + bytes·e(byte)) / seconds
with r the recorded clock over the highest seen. `clocked`, the part of a matmul that follows the
clock, comes from the same product run at several clocks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from scipy.optimize import least_squares

from trueflops import units
from trueflops.calibrate.datasets import Dataset, RowSource, row_sources, rows_of, source_of
from trueflops.calibrate.kernels import summarise
from trueflops.catalog import Accelerator, accelerator
from trueflops.errors import BadInput, shorten
from trueflops.profile import Curve, CurveKey, read_profile
from trueflops.profile.stored import DATA, shipped
from trueflops.records.rows import by_chip
from trueflops.records.tables import Row, Table, number_in
from trueflops.sizes import Array

POWER_COLUMNS: Final = ("gpu", "load", "seconds_per_launch", "watts", "clock_mhz", "idle_share")

LARGE_FLOP: Final = units.TERA
SAME_CLOCK: Final = 0.03  # clocks nearer than this, of the highest, tell no slope
OTHER_CAP: Final = 0.01
PULL: Final = 0.1  # a parameter off by half counts as one load off by 5 %
FEWEST_CLOCKS: Final = 3  # at which products ran: fewer do not tell how energy follows the clock


def power_curves(table: Table) -> dict[str, dict[CurveKey, Curve]]:
    """Chip → the curve "power"."""
    return {
        accelerator(name).name: power_curve(accelerator(name), rows)
        for name, rows in by_chip(table)
    }


def power_curve(
    chip: Accelerator,
    table: Table,
    dataset: Dataset | None = None,
    like: Curve | None = None,
    cap: float = 0.0,
) -> dict[CurveKey, Curve]:
    """The curve "power" of one chip; none where too few loads tell energies apart.

    Parameters that the loads do not determine (a rest changes both the clock and the static draw)
    stay near the curve `like` it.
    """
    rows = [_averaged(row) for _, row in table.rows if _tells(row)]
    loads = {row["load"] for row in rows}
    clocks = {row["clock_mhz"] for row in rows if row["load"] == "matmul"}
    if loads != {"matmul", "copy"} or len(clocks) < FEWEST_CLOCKS:
        return {}
    curve = _curve(chip, rows, row_sources(table, rows, chip.name, dataset), like)
    if cap and abs(cap / chip.need("power.tdp") - 1.0) > OTHER_CAP:  # someone has lowered it
        curve = replace(curve, values={**curve.values, "cap_watts": cap})
    return {CurveKey("power"): curve}


def _averaged(row: Row) -> Row:
    """Power by the energy counter, where there is one: samples alias with loads that rest."""
    return {**row, "watts": row.get("mean_watts") or row["watts"]}


def _tells(row: Row) -> bool:
    """Large products and copies: small ones live in caches, whose energy is not modelled."""
    if not row.get("watts") or not row.get("clock_mhz"):
        return False
    large = _figure(row, "flop") >= LARGE_FLOP and row["load"] == "matmul"
    return large or row["load"] == "copy"


def _figure(row: Row, column: str) -> float:
    """A cell of at least 0, or above it where it divides; an empty one is 0."""
    cell = row.get(column, "")
    value = number_in(cell) if str(cell).strip() else 0.0
    if value < 0.0 or (value == 0.0 and column in ("seconds_per_launch", "watts", "clock_mhz")):
        raise BadInput(f"{column} = {shorten(str(cell), 30)!r} must be above 0")
    return value


def _curve(
    chip: Accelerator, rows: list[Row], sources: tuple[RowSource, ...], like: Curve | None
) -> Curve:
    cap, bandwidth = chip.need("power.tdp"), chip.need("memory.bandwidth")
    dtypes = sorted({str(row["dtype"]) for row in rows if _figure(row, "flop") > 0})
    which = np.array([dtypes.index(str(d)) if (d := row["dtype"]) in dtypes else 0 for row in rows])
    flop, moved, seconds, watts, clock, idle = (
        np.array([_figure(row, c) for row in rows])
        for c in ("flop", "bytes", "seconds_per_launch", "watts", "clock_mhz", "idle_share")
    )
    peaks = np.array([chip.peak_flop_per_second(d) for d in dtypes])
    ratio = clock / clock.max()

    def drawn(point: Array) -> Array:
        static, byte, exponent, *shares = point
        compute = np.array(shares)[which] * flop / peaks[which] * ratio**exponent
        busy = (1.0 - idle) * (compute + byte * moved / bandwidth) / seconds
        return cap * (static + busy)

    start = np.array([0.15, 0.7, 1.1, *(1.5 for _ in dtypes)])
    pull = 0.0
    if like is not None:
        names = ("static", "byte", "exponent", *(f"flop_{d}" for d in dtypes))
        start = np.array(
            [like.values.get(name, usual) for name, usual in zip(names, start, strict=True)]
        )
        pull = PULL
    best = least_squares(
        lambda p: np.concatenate([np.log(drawn(p) / watts), pull * (p / start - 1.0)]),
        start,
        bounds=(0.0, 6.0),
    )
    static, byte, exponent, *shares = best.x.tolist()
    _, error = summarise(np.log(drawn(best.x) / watts))  # of the loads themselves: all are needed
    values = {
        "static": static,
        "byte": byte,
        "exponent": exponent,
        "clocked": _clocked(rows, ratio, seconds, like),
        **{f"flop_{dtype}": share for dtype, share in zip(dtypes, shares, strict=True)},
    }
    source, told = source_of(sources), rows_of(sources)
    error = max(error, 0.05)
    return Curve(values, error, "measured", source, None, len(rows), rows=told)


def _clocked(rows: list[Row], ratio: Array, seconds: Array, like: Curve | None) -> float:
    """The share c in t ∝ c/r + 1 − c, from the product that was run at most clocks."""
    shapes = [(row["dtype"], row["m"], row["n"], row["k"]) for row in rows]
    most = max(shapes, key=shapes.count)
    same = np.array([shape == most for shape in shapes])
    if like is not None and np.ptp(ratio[same]) < SAME_CLOCK:
        return like["clocked"]
    slope, whole = np.polyfit(1.0 / ratio[same], seconds[same], 1)
    return float(np.clip(slope / (slope + whole), 0.0, 1.0))


def shipped_power(chip: Accelerator) -> Curve | None:
    """The power curve that is shipped for the chip, or for any, as shares of the cap."""
    known = shipped(chip.name)
    across = read_profile(DATA / "transfer.json").curves.get(CurveKey("power"))
    return known.curves.get(CurveKey("power"), across) if known else across
