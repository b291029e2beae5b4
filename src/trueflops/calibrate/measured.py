"""A profile from one machine's own measurements: curves, and how far they miss rows left out.

In: a Record of `measure/`. Out: a Profile. Every row serves the final fit; the error beside each
curve is that of five fits which each left a fifth of the shapes out (cross-validation), since a
few hundred rows are too few to give a fifth away.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from trueflops.calibrate.collectives import fitted_collectives, plain_tiers
from trueflops.calibrate.datasets import Dataset, row_sources, rows_of, source_of
from trueflops.calibrate.fit import Fitted, Sample, fit_landmarks, fit_values, join
from trueflops.calibrate.kernels import Detail, log_error, summarise
from trueflops.calibrate.power import power_curve
from trueflops.calibrate.samples import sample_of
from trueflops.catalog import Accelerator, accelerator, cluster
from trueflops.catalog.accelerators import accelerator_measured
from trueflops.catalog.clusters import cluster_measured
from trueflops.clock.silicon import Silicon
from trueflops.clock.works import LAWS, curve_key, op_class
from trueflops.errors import BadInput, UnknownName
from trueflops.interop.kernels import batch_kernels
from trueflops.profile import Curve, CurveKey, Landmarks, Profile, profile_of, read_profile
from trueflops.profile.stored import DATA, shipped
from trueflops.records.ceilings import cell, from_memory, rate
from trueflops.records.chips import chip_of
from trueflops.records.limits import beyond
from trueflops.records.measured import Record
from trueflops.records.rows import identity
from trueflops.records.tables import Table
from trueflops.units import MILLION

KERNELS: Final = ("matmul", "attention", "attention_decode", "memory", "eager", "convolution")
FOLDS: Final = 5
FEWEST_ROWS_OF_A_CURVE: Final = 12  # with fewer, no curve is fitted
ENOUGH: Final = 40  # rows; with fewer, landmarks overfit
# One machine's own rows are consistent: a landmark for each of them.
DETAILS: Final[Mapping[str, Detail]] = {
    "matmul": Detail(1000, 0.2),
    "attention": Detail(400, 0.1),
    "attention_backward": Detail(400, 0.1),
    "attention_decode": Detail(400, 0.1),
    "memory": Detail(400, 0.2),
    "eager": Detail(400, 0.2),
}


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
    link = cluster(chip.name).host_bandwidth
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


def fit_record(record: Record, say: Callable[[str], None] = lambda _: None) -> Profile:
    """Fit every curve for which there are enough rows."""
    chip = device_chip(record)
    reject(record, limits_of(chip))
    known = profile_of(chip)
    dataset = _dataset(record)
    curves: dict[CurveKey, Curve] = {}
    by_name = sorted(_samples(record, chip, dataset).items(), key=lambda item: str(item[0]))
    for key, rows in by_name:
        if len(rows.sample.seconds) >= FEWEST_ROWS_OF_A_CURVE:
            like = known.curves.get(key) or curves.get(CurveKey(key.kind))
            curves[key] = fitted_curve(rows, like)
            say(str(key))
    kernel = str(record.device.get("attention_kernel", ""))
    curves |= _usual_attention(curves, kernel, known.curve("attention_decode"))
    curves |= _host(record, chip, known.curve("host"), dataset)
    if "power" in record.tables and chip.get("power.tdp"):
        table = Table.of("power", record.tables["power"])
        cap = float(record.device.get("power_cap_watts") or 0.0)
        curves |= power_curve(chip, table, dataset, _relative_power(chip), cap)
    curves |= _collectives(record, chip, dataset)
    if not curves:
        raise BadInput("too little was measured to fit anything; resume it with a larger --budget")
    own = chip if chip.status == "measured" else None
    return Profile(f"{chip.name}, measured", chip.name, curves, own)


def _collectives(record: Record, chip: Accelerator, dataset: Dataset) -> dict[CurveKey, Curve]:
    """Inside one node, on the tiers that the clock will price them on."""
    sent = [row for row in record.tables.get("collective", ()) if cell(row, "nodes") <= 1.0]
    if not sent:
        return {}
    widest = int(max(cell(row, "gpus") for row in sent))
    known = chip.status != "measured"
    where = cluster(f"{widest}x{chip.name}") if known else cluster_measured(chip, widest)
    batches, _ = batch_kernels(Table.of("collective", sent))
    return fitted_collectives(batches, where.tiers, chip.name, dataset)


def _dataset(record: Record) -> Dataset:
    """Under which conditions: the words that stand beside every curve."""
    said = record.software
    versions = ", ".join(f"{name} {said[name]}" for name in ("torch", "cuda", "hip", "driver")
                         if name in said)  # fmt: skip
    when = record.started.partition("T")[0]
    what = f"measured on {record.device['name']}, {versions}, {when}, method {record.method}"
    return Dataset(what, versions, when)


@dataclass(frozen=True)
class Rows:
    """Samples of one curve, and the fold of each: a kernel cold and hot is in one fold."""

    kind: str
    sample: Sample
    folds: NDArray[np.intp]


def _samples(record: Record, chip: Accelerator, dataset: Dataset) -> dict[CurveKey, Rows]:
    silicon = Silicon.of(chip)
    found: dict[CurveKey, tuple[str, list[Sample], list[int]]] = defaultdict(lambda: ("", [], []))
    for name in KERNELS:
        rows = record.tables.get(name)
        if not rows:
            continue
        batches, _ = batch_kernels(Table.of(name, rows))
        for batch in batches:
            main = batch.ops[-1]
            _, samples, folds = found[curve_key(main)]
            sources = row_sources(batch.table, batch.rows, chip.name, dataset)
            samples.append(sample_of(batch, silicon, sources))
            folds += [crc32(identity(row).encode()) % FOLDS for row in batch.rows]
            found[curve_key(main)] = (op_class(main), samples, folds)
    return {
        curve: Rows(kind, join(samples), np.array(folds))
        for curve, (kind, samples, folds) in found.items()
    }


def fitted_curve(rows: Rows, like: Curve | None) -> Curve:
    """Parameters and landmarks of all rows, with the error of fits that left some out.

    Where the chip's own curve is shipped with landmarks, it may only need to be corrected: of the
    two ways, the one that misses rows left out by less.
    """
    ways = [_Way(rows, like.values if like else {}, None)]
    if like is not None and like.landmarks is not None and like.origin == "measured":
        ways.append(_Way(rows, like.values, like.landmarks))
    missed = [way.missed() for way in ways]
    best = int(np.argmin([np.median(np.abs(errors)) for errors in missed]))
    held, error = summarise(missed[best])
    values, marks = ways[best].fit(rows.sample)
    sources = rows.sample.sources
    return Curve(
        values.values, error, "measured", source_of(sources), marks, len(missed[best]), held,
        rows=rows_of(sources),
    )  # fmt: skip


@dataclass(frozen=True)
class _Way:
    """How a curve is fitted: anew, near some parameters, or as a correction of a known one."""

    rows: Rows
    near: Mapping[str, float]
    known: Landmarks | None

    def fit(self, sample: Sample) -> tuple[Fitted, Landmarks | None]:
        """Parameters and landmarks of some rows."""
        law, detail = LAWS[self.rows.kind], DETAILS[self.rows.kind]
        fitted = fit_values(law, [sample], self.near)
        if self.known is not None:
            fitted = Fitted(dict(self.near), fitted.cast)
        count = detail.landmarks if len(sample.seconds) >= ENOUGH else 0
        return fitted, fit_landmarks(law, sample, fitted, count, detail.noise, self.known)

    def missed(self) -> NDArray[np.float64]:
        """log(predicted / measured) of every row, by a fit that left its fold out."""
        law, rows = LAWS[self.rows.kind], self.rows
        found = np.zeros(len(rows.folds))
        for fold in range(FOLDS):
            apart, rest = (np.flatnonzero(rows.folds == fold), np.flatnonzero(rows.folds != fold))
            if len(apart) and len(rest):
                fitted = self.fit(rows.sample.take(rest))
                found[apart] = log_error(law, rows.sample.take(apart), *fitted)
        return found


def _usual_attention(
    curves: Mapping[CurveKey, Curve], kernel: str, decode: Curve
) -> dict[CurveKey, Curve]:
    """Attention without a name is by the kernel that the library itself picks.

    A decode step of a serving engine is by kernels of its own: torch's stands for them only where
    nobody has measured those on this chip.
    """
    kinds = ("attention", "attention_backward")
    named = {CurveKey(kind): CurveKey(kind, kernel=kernel) for kind in kinds}
    found = {plain: curves[its] for plain, its in named.items() if its in curves}
    own = curves.get(CurveKey("attention_decode", kernel="fa2"))
    if own and decode.origin != "measured":
        found[CurveKey("attention_decode")] = own
    return found


def _relative_power(chip: Accelerator) -> Curve | None:
    """The power curve that is shipped for the chip, or for any, as shares of the cap."""
    known = shipped(chip.name)
    across = read_profile(DATA / "transfer.json").curves.get(CurveKey("power"))
    return known.curves.get(CurveKey("power"), across) if known else across


def reject(record: Record, limits: Mapping[str, float]) -> None:
    """Drop every row that physics forbids: a bare node has no datasheet to hold them against."""
    for name, rows in record.tables.items():
        wrong = [(row, why) for row in rows if (why := beyond(name, row, limits))]
        for row, why in wrong:
            record.warn(f"rejected: {name} {identity(row)}: {why}")
            rows.remove(row)


def _host(
    record: Record, chip: Accelerator, usual: Curve, dataset: Dataset
) -> dict[CurveKey, Curve]:
    """What pinned copies reach of the host link, the slower way; how surely is not measured."""
    link = cluster(chip.name).host_bandwidth if chip.status != "measured" else None
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
