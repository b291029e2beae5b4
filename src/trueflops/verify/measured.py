"""Kernels that a measured profile never saw, judged under it: what `measure` is worth."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from trueflops.records.tables import Table
from trueflops.verify.findings import Findings, KernelRow
from trueflops.verify.profiles import profiles_from
from trueflops.verify.recognise import verify_tables


def judge_measured(tables: Iterable[Table], profile: str) -> Findings:
    """Findings of kernels under a profile of the library, which say so."""
    found = verify_tables(list(tables), profiles_from(profile))
    found.rows = [
        row._replace(about=replace(row.about, under_measured_profile=True))
        for row in found.rows
        if isinstance(row.about, KernelRow)
    ]
    return found
