"""Tables of measured kernels: every row priced by the clock, one call for all rows of a form."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from trueflops.catalog import Accelerator, accelerator, cluster
from trueflops.clock import Clock
from trueflops.errors import BadInput, TrueflopsError
from trueflops.interop.kernels import Batch, batch_kernels
from trueflops.predict.kernels import batch_seconds
from trueflops.profile import Profile
from trueflops.profile.frameworks import by_itself
from trueflops.records.measured import MEASURED
from trueflops.records.rows import by_chip, identity, measured_seconds
from trueflops.records.tables import Table
from trueflops.verify.findings import Finding, Findings, KernelRow, Refusal
from trueflops.verify.profiles import Profiles

COLUMNS: Final = ("gpu", MEASURED)


def verify_kernels(table: Table, profiles: Profiles) -> Findings:
    """Every kernel predicted on the chip that its row names."""
    findings, file = Findings(), table.where
    for name, rows in by_chip(table):
        try:
            chip = accelerator(name)
            profile = profiles(chip, by_itself(chip.vendor))
            batches, refused = batch_kernels(rows)
        except TrueflopsError as error:
            findings.refused += [Refusal(file, identity(row), str(error)) for _, row in rows.rows]
            continue
        findings.refused += [Refusal(file, identity(r.row), r.reason) for r in refused]
        for batch in batches:
            _judge(findings, file, name, chip, profile, batch)
    return findings


def _judge(
    findings: Findings, file: str, name: str, chip: Accelerator, profile: Profile, batch: Batch
) -> None:
    try:
        priced = batch_seconds(Clock(cluster(f"{batch.widest}x{chip.name}"), profile), batch)
    except TrueflopsError as error:
        findings.refused += [Refusal(file, identity(row), str(error)) for row in batch.rows]
        return
    rows, ends = batch.table.distinct, (priced.value, priced.low, priced.high)
    about = KernelRow(name, batch.form.name, batch.kind)
    abouts = [about] * len(rows)
    if batch.kind == "matmul":
        sizes = zip(*(batch.columns[c][batch.kernel].tolist() for c in ("n", "k")), strict=True)
        abouts = [replace(about, n=n, k=k) for n, k in sizes]
    columns = (np.broadcast_to(a, len(rows)).tolist() for a in ends)
    judged: list[Finding | Refusal] = []
    for row, about, *found in zip(rows, abouts, *columns, strict=True):
        kernel = identity(row)
        try:
            seconds = measured_seconds(row)
            judged.append(Finding(file, kernel, about, "op_seconds", seconds, *found))
        except BadInput as error:
            judged.append(Refusal(file, kernel, str(error)))
    for each in map(judged.__getitem__, batch.table.at.tolist()):
        if isinstance(each, Finding):
            findings.rows.append(each)
        else:
            findings.refused.append(each)
