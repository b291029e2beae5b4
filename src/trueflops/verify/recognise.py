"""Which reader a table of measured results needs: known by its header alone.

A new kind of table is one line of READERS. The first whose columns are all there reads the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from trueflops.errors import BadInput, shorten
from trueflops.records.split import held_out
from trueflops.records.tables import Table
from trueflops.verify import bus, kernels
from trueflops.verify.findings import Findings, Refusal
from trueflops.verify.profiles import Profiles
from trueflops.verify.serving import inference, kv_cache, latency, passes, points, speculative
from trueflops.verify.training import runs, vtrain


class Reader(NamedTuple):
    """The columns that tell a kind of table, and what predicts its rows."""

    what: str
    columns: tuple[str, ...]
    read: Callable[[Table, Profiles], Findings]


def _acceptance(table: Table, profiles: Profiles) -> Findings:
    """Acceptance lengths of speculative decoding are what a prediction is given, not a time."""
    reason = "an acceptance length is an input: no time or memory was measured"
    return Findings([], [Refusal(table.where, f"line {line}", reason) for line, _ in table.rows])


READERS: Final[tuple[Reader, ...]] = (
    Reader("training runs", runs.COLUMNS, runs.verify_training),
    Reader("iteration times of vTrain", vtrain.COLUMNS, vtrain.verify_vtrain),
    Reader("collectives over PCIe", bus.COLUMNS, bus.bus_findings),
    Reader("passes of decoding", passes.COLUMNS, passes.passes_findings),
    Reader("kernels", kernels.COLUMNS, kernels.verify_kernels),
    Reader("inference runs", inference.COLUMNS, inference.inference_findings),
    Reader("latencies under a load", latency.COLUMNS, latency.latency_findings),
    Reader("points of loaded servers", points.COLUMNS, points.serving_findings),
    Reader("memory of engines at start", kv_cache.COLUMNS, kv_cache.kv_cache_findings),
    Reader("speed-ups by drafts", speculative.COLUMNS, speculative.speculative_findings),
    Reader("acceptance lengths", ("num_draft_tokens", "mean_accept_len"), _acceptance),
)


def verify_tables(
    tables: Iterable[Table], profiles: Profiles, *, only_held_out: bool = False
) -> Findings:
    """Predict every row of every table; with `only_held_out`, keep the rows that are held out."""
    read = [(table, reader_of(table)) for table in tables]
    if not any(reader for _, reader in read):
        raise _unknown(read[0][0])
    whole = Findings().extend([_findings(*each, profiles) for each in read])
    if not only_held_out:
        return whole
    return Findings(
        [row for row in whole.rows if held_out(row.id)],
        [row for row in whole.refused if held_out(row.id)],
    )


def _findings(table: Table, reader: Reader | None, profiles: Profiles) -> Findings:
    """What one table gives; among others, one of an unknown header costs only itself."""
    if reader is None:
        reason = f"{table.where}: its columns are of no known kind"
        return Findings([], [Refusal(table.where, "header", reason)])
    return reader.read(table, profiles)


def reader_of(table: Table) -> Reader | None:
    """The reader of a table, by its header; None where there is none."""
    there = set(table.columns)
    return next((reader for reader in READERS if there.issuperset(reader.columns)), None)


def _unknown(table: Table) -> BadInput:
    """An error that names the headers which are known."""
    known = "; ".join(f"{r.what} ({', '.join(r.columns)})" for r in READERS)
    seen = shorten(", ".join(table.columns))
    return BadInput(f"{table.where}: the header {seen!r} is none of those known: {known}")
