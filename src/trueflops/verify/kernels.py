"""Tables of measured kernels: every row priced by the clock, one call for all rows of a form."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import numpy as np

from trueflops.catalog import Accelerator, accelerator, cluster
from trueflops.clock import Clock
from trueflops.errors import TrueflopsError
from trueflops.interop.kernels import Batch, batch_kernels
from trueflops.interop.tables import Row, Table
from trueflops.predict.kernels import price_kernels
from trueflops.profile import Profile
from trueflops.units import MICRO
from trueflops.verify.findings import Finding, Findings, Refusal
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
    said = ((k, v.strip()) for k, v in sorted(row.items()) if k not in _ASIDE)
    return " ".join(f"{k}={v}" for k, v in said if (k, v) != _UNSAID)


def by_chip(table: Table) -> Iterator[tuple[str, Table]]:
    """The rows of each chip, as a table of its own."""
    rows: dict[str, list[tuple[int, Row]]] = defaultdict(list)
    for line, row in table.rows:
        rows[row["gpu"].strip()].append((line, row))
    for chip, members in rows.items():
        yield chip, Table(table.path, table.columns, tuple(members))


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
    measured = [_measured(row) for row in batch.rows]
    try:
        widest = 1 if batch.collective is None else int(np.max(batch.collective.group))
        clock = Clock(cluster(f"{widest}x{chip.name}"), profile)
        priced = price_kernels(clock, batch.ops, batch.collective, len(batch.rows)).seconds
    except TrueflopsError as error:
        findings.refused += [Refusal(file, identity(row), str(error)) for row in batch.rows]
        return
    group = f"{name} {batch.form.name} {batch.kind}"
    predicted, low, high = (
        np.broadcast_to(a, len(measured)) for a in (priced.value, priced.low, priced.high)
    )
    for i, row in enumerate(batch.rows):
        seconds = measured[i]
        if seconds is None:
            reason = f"{MEASURED} = {row[MEASURED]!r} is not a time"
            findings.refused.append(Refusal(file, identity(row), reason))
            continue
        found = (float(predicted[i]), float(low[i]), float(high[i]))
        findings.rows.append(Finding(file, identity(row), group, "op_seconds", seconds, *found))


def _measured(row: Row) -> float | None:
    try:
        seconds = float(row[MEASURED]) * MICRO
    except ValueError:
        return None
    return seconds if 0.0 < seconds < np.inf else None
