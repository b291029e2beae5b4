"""Tables of measured kernels: every row priced by the clock, one call for all rows of a form."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from trueflops.catalog import Accelerator, accelerator, cluster
from trueflops.clock import Clock
from trueflops.errors import BadInput, TrueflopsError, shorten
from trueflops.interop.kernels import Batch, batch_kernels
from trueflops.interop.tables import Row, Table
from trueflops.profile import Profile
from trueflops.units import MICRO, read_number
from trueflops.verify.findings import Finding, Findings, KernelRow, Refusal
from trueflops.verify.profiles import Profiles

MEASURED: Final = "latency_us"
COLUMNS: Final = ("gpu", MEASURED)


_TIMING: Final = (
    "p10_us", "p90_us", "p99_us", "lap", "slowest_rank", "slowest_us", "algbw", "busbw",
)  # fmt: skip
_ASIDE: Final = (
    MEASURED, *_TIMING, "backend", "version", "kernel", "library", "layout", "copies", "cast",
)  # fmt: skip


_UNSAID: Final = ("causal", "1")  # what rows of a table without that column are


def identity(row: Row) -> str:
    """What a measured kernel is, whatever it took, whichever release ran it, and however fully
    its table says so: a column of what goes without saying makes it no other one.
    """
    said = [(k, row[k].strip()) for k in sorted(row) if k not in _ASIDE]
    return " ".join([f"{k}={v}" for k, v in said if (k, v) != _UNSAID])


def by_chip(table: Table) -> Iterator[tuple[str, Table]]:
    """The rows of each chip, as a table of its own."""
    rows: dict[str, list[int]] = defaultdict(list)
    for at, row in enumerate(table.distinct):
        rows[row["gpu"].strip()].append(at)
    for chip, members in rows.items():
        yield chip, table.take(members)


def verify_kernels(table: Table, profiles: Profiles) -> Findings:
    """Every kernel predicted on the chip that its row names."""
    findings = Findings()
    for name, rows in by_chip(table):
        try:
            chip = accelerator(name)
            profile = profiles(chip, "")
            batches, refused = batch_kernels(rows)
        except TrueflopsError as error:
            findings.refused += [
                Refusal(table.where, identity(row), str(error)) for _, row in rows.rows
            ]
            continue
        findings.refused += [Refusal(table.where, identity(r.row), r.reason) for r in refused]
        for batch in batches:
            _judge(findings, table.where, name, chip, profile, batch)
    return findings


def _judge(
    findings: Findings, file: str, name: str, chip: Accelerator, profile: Profile, batch: Batch
) -> None:
    try:
        priced = batch.price(Clock(cluster(f"{batch.widest}x{chip.name}"), profile)).seconds
    except TrueflopsError as error:
        findings.refused += [Refusal(file, identity(row), str(error)) for row in batch.rows]
        return
    rows = batch.table.distinct
    about = KernelRow(name, batch.form.name, batch.kind)
    abouts = [about] * len(rows)
    if batch.kind == "matmul":
        sizes = zip(*(batch.columns[c][batch.kernel].tolist() for c in ("n", "k")), strict=True)
        abouts = [replace(about, n=n, k=k) for n, k in sizes]
    ends = (priced.value, priced.low, priced.high)
    columns = (np.broadcast_to(a, len(rows)).tolist() for a in ends)
    judged: list[Finding | Refusal] = []
    for row, about, *found in zip(rows, abouts, *columns, strict=True):
        try:
            seconds = measured_seconds(row)
            judged.append(Finding(file, identity(row), about, "op_seconds", seconds, *found))
        except BadInput as error:
            judged.append(Refusal(file, identity(row), str(error)))
    for each in map(judged.__getitem__, batch.table.at.tolist()):
        if isinstance(each, Finding):
            findings.rows.append(each)
        else:
            findings.refused.append(each)


def measured_seconds(row: Row) -> float:
    """What a row took; BadInput where its cell is not a time."""
    try:
        seconds = read_number(row[MEASURED]) * MICRO
    except BadInput:
        seconds = 0.0
    if not seconds > 0.0:
        raise BadInput(f"{MEASURED} = {shorten(row[MEASURED], 30)!r} is not a time")
    return seconds
