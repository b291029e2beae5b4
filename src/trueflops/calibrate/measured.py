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

from trueflops.calibrate.collectives import fitted_collectives
from trueflops.calibrate.datasets import Dataset, record_dataset, row_sources, rows_of, source_of
from trueflops.calibrate.device import host_curve, sound_device
from trueflops.calibrate.fit import Fitted, Sample, fit_landmarks, fit_values, join
from trueflops.calibrate.kernels import FEWEST_OF_A_STREAM, Detail, log_error, summarise
from trueflops.calibrate.power import power_curve, shipped_power
from trueflops.calibrate.samples import sample_of, taught
from trueflops.catalog import Accelerator, cluster_of
from trueflops.catalog.measured import cluster_measured
from trueflops.clock.silicon import Silicon
from trueflops.clock.works import MOVING, curve_key, law_of, op_class
from trueflops.errors import BadInput
from trueflops.interop.kernels import batch_kernels
from trueflops.profile import Curve, CurveKey, Landmarks, Profile, of_host, profile_of
from trueflops.records.ceilings import cell
from trueflops.records.measured import Record
from trueflops.records.rows import identity
from trueflops.records.tables import Table

# `eager` and `convolution` are of files that an earlier release measured.
KERNELS: Final = (
    "matmul", "attention", "attention_decode", "memory", "call", "eager", "convolution",
)  # fmt: skip
FOLDS: Final = 5
FEWEST_ROWS_OF_A_CURVE: Final = 12  # with fewer, no curve is fitted
FEWEST_ROWS_OF_A_CORRECTION: Final = 6  # of a shipped curve that is the chip's own
ENOUGH: Final = 40  # rows; with fewer, landmarks overfit
# One machine's own rows are consistent: a landmark for each of them.
DETAILS: Final[Mapping[str, Detail]] = {
    "matmul": Detail(1000, 0.2),
    "attention": Detail(400, 0.1),
    "attention_backward": Detail(400, 0.1),
    "attention_decode": Detail(400, 0.1),
    "memory": Detail(400, 0.2),
    "eager": Detail(400, 0.05),
}


def fit_record(record: Record, say: Callable[[str], None] = lambda _: None) -> Profile:
    """Fit every curve for which there are enough rows."""
    chip = sound_device(record)
    known = profile_of(chip)
    dataset = record_dataset(record)
    curves: dict[CurveKey, Curve] = {}
    by_name = sorted(_samples(record, chip, dataset).items(), key=lambda item: str(item[0]))
    for key, rows in by_name:
        like = known.curves.get(key) or curves.get(CurveKey(key.kind))
        if (found := fitted_curve(rows, like)) is not None:
            curves[key] = found
            say(str(key))
    kernel = str(record.device.get("attention_kernel", ""))
    curves |= _usual_attention(curves, kernel, known.curve("attention_decode"))
    curves |= host_curve(record, chip, known.curve("host"), dataset)
    if loop := float(record.device.get("python_loop_seconds") or 0.0):
        curves[CurveKey("dispatch")] = of_host(known.curve("dispatch"), loop)
    if "power" in record.tables and chip.get("power.tdp"):
        table = Table.of("power", record.tables["power"])
        cap = float(record.device.get("power_cap_watts") or 0.0)
        curves |= power_curve(chip, table, dataset, like=shipped_power(chip), cap=cap)
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
    where = cluster_of(chip, widest) if known else cluster_measured(chip, widest)
    batches, _ = batch_kernels(Table.of("collective", sent))
    return fitted_collectives(batches, where.tiers, chip.name, dataset)


@dataclass(frozen=True)
class Rows:
    """Samples of one curve, and the fold of each: a kernel cold and hot is in one fold."""

    kind: str
    key: CurveKey
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
            sources = row_sources(batch.table, batch.rows, chip.name, dataset)
            for main in taught(batch):
                _, samples, folds = found[curve_key(main)]
                samples.append(sample_of(batch, main, silicon, sources))
                folds += [crc32(identity(row).encode()) % FOLDS for row in batch.rows]
                found[curve_key(main)] = (op_class(main), samples, folds)
    return {
        curve: Rows(kind, curve, join(samples), np.array(folds))
        for curve, (kind, samples, folds) in found.items()
    }


def fitted_curve(rows: Rows, like: Curve | None) -> Curve | None:
    """Parameters and landmarks of all rows, with the error of fits that left some out.

    Where the chip's own curve is shipped with landmarks, it may only need to be corrected, for
    which fewer rows will do: of the ways, the one that misses rows left out by less. None where
    there are too few rows, or where the shipped one misses them by less than any.
    """
    count = len(rows.folds)
    ways = []
    if count >= FEWEST_ROWS_OF_A_CURVE:
        ways.append(_Way(rows, like.values if like else {}, None))
    shipped = like if like and like.landmarks is not None and like.origin == "measured" else None
    if shipped is not None and count >= FEWEST_ROWS_OF_A_CORRECTION:
        ways.append(_Way(rows, shipped.values, shipped.landmarks))
    if not ways:
        return None
    missed = [way.missed() for way in ways]
    best = int(np.argmin([np.abs(errors).mean() for errors in missed]))
    if shipped is not None and shipped.fitted_rows > count:
        as_it_is = log_error(
            law_of(rows.key), rows.sample, Fitted(dict(shipped.values), {}), shipped.landmarks
        )
        if np.abs(as_it_is).mean() <= np.abs(missed[best]).mean():
            return None
    held, error = summarise(missed[best])
    values, marks = ways[best].fit(rows.sample)
    sources = rows.sample.sources
    return Curve(
        values.values, error, "measured", source_of(sources), marks, count, held,
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
        law, detail = law_of(self.rows.key), DETAILS[self.rows.kind]
        fitted = fit_values(law, [sample], self.near)
        if self.known is not None:
            fitted = Fitted(dict(self.near), fitted.cast)
        enough = FEWEST_OF_A_STREAM if self.rows.kind in MOVING else ENOUGH
        if self.known is not None and self.rows.kind in MOVING:
            enough = FEWEST_ROWS_OF_A_CORRECTION - 1  # a fold leaves one or two out
        count = detail.landmarks if len(sample.seconds) >= enough else 0
        return fitted, fit_landmarks(law, sample, fitted, count, detail.noise, self.known)

    def missed(self) -> NDArray[np.float64]:
        """log(predicted / measured) of every row, by a fit that left its fold out."""
        law, rows = law_of(self.rows.key), self.rows
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
