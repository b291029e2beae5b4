"""Kernels that a measured profile never saw, judged under it: what `measure` is worth."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from trueflops.records.tables import Table
from trueflops.verify.findings import Findings
from trueflops.verify.profiles import profiles_from
from trueflops.verify.recognise import verify_tables

MEASURED: Final = "measured"  # begins the name of every group that is judged so


def judge_measured(tables: Iterable[Table], profile: str) -> Findings:
    """Findings under a profile of the library, in groups that say so."""
    found = verify_tables(list(tables), profiles_from(profile))
    found.rows = [row._replace(group=f"{MEASURED} {row.group}") for row in found.rows]
    return found
