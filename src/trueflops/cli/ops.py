"""trueflops ops: price a list of kernels."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from trueflops import units
from trueflops.cli.arguments import wrapped
from trueflops.cli.question import cluster_of, profile_for
from trueflops.clock import Clock
from trueflops.errors import BadInput, MissingFact
from trueflops.interop.kernels import Batch, read_kernels
from trueflops.predict.kernels import KernelPrice, price_kernels
from trueflops.report import encode
from trueflops.report.grid import grid
from trueflops.report.tables import console, plural

LISTED = 60  # rows of the table on a terminal; --json has them all


def run(options: argparse.Namespace) -> int:
    """Price every row of the file, in its order."""
    where = cluster_of(options)
    batches = read_kernels(Path(options.file))
    if any(batch.collective for batch in batches):
        widest = max(int(np.max(b.collective.group)) for b in batches if b.collective)
        if where.count < widest:
            if where.count > 1:
                raise BadInput(f"the file has collectives of {widest} ranks: say --on {widest}x…")
            options.on = f"{widest}x{where.accelerator.name}"
            where = cluster_of(options)
    clock = Clock(where, profile_for(options, where.accelerator))
    rows: list[dict[str, Any]] = []
    refused: list[dict[str, Any]] = []
    for batch in batches:
        try:
            priced = price_kernels(clock, batch.ops, batch.collective, len(batch.lines))
        except MissingFact as error:  # this chip cannot run that format; the others still count
            refused += [{"line": line, "reason": str(error)} for line in batch.lines]
            continue
        rows += [record(batch, priced, i) for i in range(len(batch.lines))]
    rows.sort(key=lambda row: row["line"])
    if options.json:
        print(encode.to_json({"on": where.name, "rows": rows, "refused": refused}))
    else:
        show(rows)
        for reason in sorted({row["reason"] for row in refused}):
            lines = sum(row["reason"] == reason for row in refused)
            print(wrapped(f"trueflops: {lines:,} rows refused: {reason}"), file=sys.stderr)
    return 0 if rows else 2


def record(batch: Batch, priced: KernelPrice, i: int) -> dict[str, Any]:
    """One row's answer."""
    estimate = priced.seconds.pick(i)
    return {
        "line": batch.lines[i],
        "kind": batch.kind,
        "what": describe(batch, i),
        "seconds": float(estimate.value),
        "low": float(estimate.low),
        "high": float(estimate.high),
        "origin": estimate.origin,
        "flop": float(priced.flop[i]),
        "bytes": float(priced.moved_bytes[i]),
        "bound": priced.bound[i],
    }


def describe(batch: Batch, i: int) -> str:
    """The row in a few words."""
    row = batch.rows[i]
    match batch.kind:
        case "matmul":
            return f"{row.get('dtype') or 'bf16'} {row['m']}×{row['n']}×{row['k']}"
        case "collective":
            return f"{row['op']} {units.show(float(row['bytes']), 'bytes')} on {row['gpus']}"
        case "memory":
            return f"{row['kind']} {row['rows']}×{row['columns']}"
        case "experts":
            return (
                f"{row['num_tokens']} tokens, {row['experts']} experts of "
                f"{row['hidden']}×{row['inter']}, top {row['topk']}"
            )
        case _:
            length = row.get("isl") or row.get("kv_len")
            heads = f"{row['num_heads']}/{row['num_kv_heads']} heads of {row['head_dim']}"
            return f"batch {row['batch']}, length {length}, {heads}"


def show(rows: list[dict[str, Any]]) -> None:
    """A table of the first rows and a total."""
    table = grid(
        "kernel",
        ("time", "right"),
        ("90 % interval", "right"),
        ("TFLOP/s", "right"),
        ("GB/s", "right"),
        "bound by",
        gives_way=0,
    )
    for row in rows[:LISTED]:
        seconds = row["seconds"] or 1e-30
        between = units.show_between(row["low"], row["seconds"], row["high"], "seconds")
        table.add_row(
            row["what"],
            units.show(row["seconds"], "seconds"),
            between,
            units.digits(row["flop"] / seconds / units.TERA) if row["flop"] else "",
            units.digits(row["bytes"] / seconds / units.GIGA) if row["seconds"] else "–",
            row["bound"],
        )
    out = console()
    out.print(table)
    if len(rows) > LISTED:
        out.print(f"[dim]… {len(rows) - LISTED:,} more rows; --json lists them all[/]")
    total = sum(row["seconds"] for row in rows)
    whole = units.show(total, "seconds")
    out.print(f"{plural(len(rows), 'kernel')}, {whole} if run one after another")
