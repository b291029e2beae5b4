"""trueflops ops: price a list of kernels."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trueflops import units
from trueflops.cli.arguments import wrapped
from trueflops.cli.question import cluster_of, profile_for
from trueflops.clock import Clock
from trueflops.errors import BadInput, MissingFact
from trueflops.interop.kernels import Batch, read_kernels
from trueflops.language import say
from trueflops.predict.kernels import KernelPrice, price_batch
from trueflops.predict.provenance import Provenance, table_provenance
from trueflops.profile.frameworks import by_itself
from trueflops.records.tables import Row
from trueflops.report import encode
from trueflops.report.grid import grid
from trueflops.report.provenance import encode_provenance, show_provenance
from trueflops.report.tables import console, plural

LISTED = 60  # rows of the table on a terminal; --json has them all


def run(options: argparse.Namespace) -> int:
    """Price every row of the file, in its order."""
    where = cluster_of(options)
    batches = read_kernels(Path(options.file))
    widest = max(batch.widest for batch in batches)
    if where.count < widest:
        if where.count > 1:
            raise BadInput(
                say(
                    "the file has collectives of {widest} ranks: say --on {widest}x…", widest=widest
                )
            )
        options.on = f"{widest}x{where.accelerator.name}"
        where = cluster_of(options)
    chip = where.accelerator
    clock = Clock(where, profile_for(options, chip, by_itself(chip.vendor)))
    found: list[tuple[Batch, KernelPrice]] = []
    refused: list[dict[str, Any]] = []
    for batch in batches:
        try:
            found.append((batch, price_batch(clock, batch)))
        except MissingFact as error:  # this chip cannot run that format; the others still count
            refused += [{"line": line, "reason": str(error)} for line in batch.lines]
    if not found:
        raise MissingFact(say("no row can be priced: {refused}", refused=refused[0]["reason"]))
    most = None if options.json else LISTED  # no later row of a batch can be among the first
    rows = [row for batch, priced in found for row in records(batch, priced, most)]
    rows = sorted(rows, key=lambda row: row["line"])[:most]
    if options.json:
        answer: dict[str, Any] = {"on": where.name, "rows": rows, "refused": refused}
        if options.provenance:
            answer["provenance"] = encode_provenance(_provenance(clock, found))
        print(encode.to_json(answer))
    else:
        count = sum(len(batch.table.at) for batch, _ in found)
        every = (priced.take(batch.table.at).seconds.value for batch, priced in found)
        show(rows, count, sum(float(np.sum(seconds)) for seconds in every))
        for reason, lines in sorted(Counter(row["reason"] for row in refused).items()):
            print(
                wrapped(
                    say("trueflops: {lines:,} rows refused: {reason}", lines=lines, reason=reason)
                ),
                file=sys.stderr,
            )
        if options.provenance:
            show_provenance(console(), _provenance(clock, found))
    return 0


def _provenance(clock: Clock, found: list[tuple[Batch, KernelPrice]]) -> Provenance:
    return table_provenance(
        clock, ((batch.ops, batch.collective, len(batch.table.at)) for batch, _ in found)
    )


def records(batch: Batch, priced: KernelPrice, most: int | None) -> Iterator[dict[str, Any]]:
    """The answers of the first rows, or of all."""
    first = priced.take(batch.table.at[:most])
    of = first.seconds
    columns = (of.value, of.low, of.high, first.flop, first.moved_bytes, first.bound)
    cells = zip(*(np.broadcast_to(c, first.flop.shape).tolist() for c in columns), strict=True)
    sizes = [
        dict(zip(batch.columns, kernel, strict=True))
        for kernel in zip(*(column.tolist() for column in batch.columns.values()), strict=True)
    ]
    kernels = batch.kernel[batch.table.at].tolist()
    for (line, row), kernel, (seconds, low, high, flop, moved, bound) in zip(
        batch.table.rows, kernels, cells, strict=False
    ):
        yield {
            "line": line,
            "kind": batch.kind,
            "what": describe(batch.kind, row, sizes[kernel]),
            "seconds": seconds,
            "low": low,
            "high": high,
            "origin": of.origin,
            "flop": flop,
            "bytes": moved,
            "bound": bound,
        }


def describe(kind: str, row: Row, size: Mapping[str, float]) -> str:
    """The row in a few words: names as it has them, numbers as they were read."""

    def times(*names: str) -> str:
        return "×".join(f"{size[name]:.0f}" for name in names)

    if "outputs" in row:  # a call of ATen, whose op says what it is
        return f"{row['op']}"
    match kind:
        case "matmul":
            return f"{row.get('dtype') or 'bf16'} {times('m', 'n', 'k')}"
        case "collective":
            return say(
                "{row} {size} on {ranks:.0f}",
                row=row["op"],
                size=units.show(size["bytes"], "bytes"),
                ranks=size["gpus"],
            )
        case "memory":
            return f"{row['kind']} {times('rows', 'columns')}"
        case "eager":
            return f"{row['kernel']} {units.show(size['bytes'], 'bytes')}"
        case "experts":
            return say(
                "{tokens:.0f} tokens, {experts:.0f} experts of {times}, top {top:.0f}",
                tokens=size["num_tokens"],
                experts=size["experts"],
                times=times("hidden", "inter"),
                top=size["topk"],
            )
        case _:
            length = size["isl" if kind == "attention" else "kv_len"]
            heads = say(
                "{heads:.0f}/{kv_heads:.0f} heads",
                heads=size["num_heads"],
                kv_heads=size["num_kv_heads"],
            )
            batch = say("batch {size:.0f}, length {length:.0f}", size=size["batch"], length=length)
            return say(
                "{batch}, {heads} of {size:.0f}", batch=batch, heads=heads, size=size["head_dim"]
            )


def show(rows: list[dict[str, Any]], count: int, seconds_in_all: float) -> None:
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
    for row in rows:
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
    if count > len(rows):
        out.print(
            say("[dim]… {count:,} more rows; --json lists them all[/]", count=count - len(rows))
        )
    whole = units.show(seconds_in_all, "seconds")
    out.print(
        say("{count}, {whole} if run one after another", count=plural(count, "kernel"), whole=whole)
    )
