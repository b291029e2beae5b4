"""From a folder of measured kernels to samples, chip by chip and curve by curve."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from trueflops.calibrate.datasets import RowSource, row_sources
from trueflops.calibrate.fit import Sample, join
from trueflops.catalog import accelerator
from trueflops.clock.silicon import Silicon
from trueflops.clock.works import curve_key, law_work, op_class, own_pricing
from trueflops.graph.ir import Op
from trueflops.graph.rules import work
from trueflops.interop.kernels import Batch, batch_kernels
from trueflops.profile import CurveKey
from trueflops.records.rows import by_chip, identity, measured_seconds
from trueflops.records.split import held_out
from trueflops.records.tables import Table, read_table

FEWEST: Final = 5  # rows to fit, of one curve: fewer teach nothing


@dataclass(frozen=True)
class Split:
    """Samples of one curve on one chip: those to fit and those held out."""

    kind: str  # the class of op, hence the law
    fitted: Sample
    held_out: Sample

    @property
    def judged(self) -> Sample:
        """The held-out rows; where there are too few rows to hold any out, the fitted ones."""
        return self.held_out if len(self.held_out.seconds) else self.fitted


def tables_in(*folders: Path) -> list[Table]:
    """Every table in these folders."""
    paths = sorted(path for folder in folders for path in folder.rglob("*.csv"))
    return [read_table(path) for path in paths]


def kernel_samples(tables: Iterable[Table]) -> Mapping[str, Mapping[CurveKey, Split]]:
    """Chip → curve → samples, of all kernels but collectives."""
    found: dict[str, dict[CurveKey, tuple[str, list[Sample], list[Sample]]]] = defaultdict(dict)
    for table in tables:
        for name, rows in by_chip(table):
            chip = accelerator(name)
            batches, _ = batch_kernels(rows)
            for batch in batches:
                if batch.collective is not None:
                    continue
                sources = row_sources(batch.table, batch.rows, chip.name)
                apart = np.array([held_out(identity(row)) for row in batch.rows])
                for main in taught(batch):
                    sample = sample_of(batch, main, Silicon.of(chip), sources)
                    at = found[chip.name].setdefault(curve_key(main), (op_class(main), [], []))
                    for side, chosen in ((at[1], ~apart), (at[2], apart)):
                        if chosen.any():
                            side.append(sample.take(np.flatnonzero(chosen)))
    return {
        chip: {
            curve: _split(kind, join(fitted), apart)
            for curve, (kind, fitted, apart) in curves.items()
            if sum(len(sample.seconds) for sample in fitted) >= FEWEST
        }
        for chip, curves in found.items()
    }


def _split(kind: str, fitted: Sample, apart: list[Sample]) -> Split:
    """One sample of each side."""
    return Split(kind, fitted, join(apart) if apart else fitted.take(np.arange(0)))


def taught(batch: Batch) -> list[Op]:
    """The kernels whose curves a batch's rows teach: their own, and that they stand in for.

    A row of several of torch's kernels teaches none of them.
    """
    if batch.stands_for is None:
        return [batch.ops[-1]]
    alone = [op for op in batch.ops if len(batch.ops) == 1 and op_class(op) == "eager"]
    return [*alone, batch.stands_for]


def sample_of(batch: Batch, main: Op, chip: Silicon, sources: tuple[RowSource, ...]) -> Sample:
    """A batch's rows as the law's work; the casts before it are kept apart."""
    done = work(main)
    asked = law_work(own_pricing(main, done), [main], [done])
    seconds = np.array([measured_seconds(row) for row in batch.rows])
    cast = None
    if len(batch.ops) > 1 and main is batch.ops[-1]:
        done = work(batch.ops[0])
        cast = np.broadcast_to(done.bytes_read + done.bytes_written, seconds.shape)
    return Sample(chip, asked, seconds, cast, sources)
