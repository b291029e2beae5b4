"""The device that was measured: which chip of the catalog it is, or one made of what it reached.

Rows that no such chip can have are rejected before anything is fitted to them.
"""

from __future__ import annotations

from collections.abc import Mapping

from trueflops.calibrate.collectives import plain_tiers
from trueflops.calibrate.datasets import Dataset
from trueflops.catalog import Accelerator, accelerator, host_bandwidth
from trueflops.catalog.accelerators import accelerator_measured
from trueflops.errors import BadInput, UnknownName
from trueflops.profile import Curve, CurveKey
from trueflops.records.ceilings import cell, from_memory, rate
from trueflops.records.chips import chip_of
from trueflops.records.limits import beyond
from trueflops.records.measured import Record
from trueflops.records.rows import identity
from trueflops.units import MILLION


def sound_device(record: Record) -> Accelerator:
    """The chip of a record, from which rows that physics forbids are dropped."""
    chip = device_chip(record)
    _reject(record, limits_of(chip))
    return chip


def device_chip(record: Record) -> Accelerator:
    """The catalog's chip that was measured, or one made of its measured ceilings."""
    said = record.device
    if said.get("kind") != "cpu":
        try:
            return accelerator(chip_of(str(said["name"])).whole)
        except UnknownName:
            pass
    return accelerator_measured(
        str(said["name"]), str(said.get("kind", "")), _ceilings(record), "trueflops measure"
    )


def limits_of(chip: Accelerator) -> dict[str, float]:
    """What no measurement may exceed: the datasheet's figures, nothing for measured ceilings."""
    if chip.status == "measured":
        return {}
    found = {path: value for path, value in chip.values.items() if value}
    if chip.vendor == "AMD":  # the catalog has rates of vector units, which matrix cores exceed
        found = {p: v for p, v in found.items() if p not in ("peak.fp32", "peak.fp64")}
    link = host_bandwidth(chip)
    return found | ({"host.bandwidth": link} if link else {})


def _ceilings(record: Record) -> dict[str, float]:
    """Rates that a device reached, as if they were its datasheet's."""
    values: dict[str, float] = {}
    for row in (r for t in ("matmul", "other_products") for r in record.tables.get(t, ())):
        path = f"peak.{row['dtype']}"
        values[path] = max(values.get(path, 0.0), rate(row))
    rates = [speed for speed, _ in from_memory(record)]
    if not rates or not values:
        raise BadInput(
            f"no products and no bandwidth of {record.device.get('name')} were measured, and no "
            "catalog knows it: run trueflops measure -o FILE, which adds them to the same file"
        )
    values["memory.bandwidth"] = max(rates)
    clock = float(record.device.get("max_mhz") or 0.0) * MILLION
    known = {
        "memory.capacity": float(record.device.get("memory_bytes") or 0.0),
        "memory.l2": float(record.device.get("l2_bytes") or 0.0),
        "compute.units": float(record.device.get("units") or 0.0),
        "compute.clock": clock,
        "power.tdp": float(record.device.get("power_cap_watts") or 0.0),
    }
    for tier in plain_tiers(record.tables.get("collective", ())):
        known["links.scale_up_bandwidth"] = tier.bandwidth
        known["links.latency"] = tier.latency["simple"]
    return values | {path: value for path, value in known.items() if value > 0.0}


def _reject(record: Record, limits: Mapping[str, float]) -> None:
    """Drop every row that physics forbids: a bare node has no datasheet to hold them against."""
    for name, rows in record.tables.items():
        wrong = [(row, why) for row in rows if (why := beyond(name, row, limits))]
        for row, why in wrong:
            record.warn(f"rejected: {name} {identity(row)}: {why}")
            rows.remove(row)


def host_curve(
    record: Record, chip: Accelerator, usual: Curve, dataset: Dataset
) -> dict[CurveKey, Curve]:
    """What pinned copies reach of the host link, the slower way; how surely is not measured."""
    link = host_bandwidth(chip) if chip.status != "measured" else None
    ways = {
        way: max(
            (cell(row, "bandwidth") for row in record.tables.get("host", ())
             if row["way"] == way and row["pinned"]), default=0.0,
        )
        for way in ("to_device", "to_host")
    }  # fmt: skip
    if not link or not all(ways.values()):
        return {}
    share = min(ways.values()) / link
    values = {"efficiency": min(share, 1.0)}
    return {CurveKey("host"): Curve(values, usual.error, "measured", dataset.what)}
