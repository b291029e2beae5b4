"""All devices of a node at once: one process each, then how far they differ.

Neighbours share power and air, so that each is measured while the others are busy too. The
profile is that of the device in the middle; those of all lie in a folder beside it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from statistics import median

from trueflops.errors import BadInput
from trueflops.measure.resume import read
from trueflops.records.ceilings import sustained, winners
from trueflops.records.measured import Record, Row


def measure_all(names: list[str], path: Path, options: argparse.Namespace) -> Record:
    """Measure these devices side by side; the record of the middle one, with a row for each."""
    if path.exists() and not options.fresh:
        raise BadInput(f"{path}: is there already; write to another file with -o, or give --fresh")
    beside = path.with_name(f"{path.stem}.each")
    try:
        beside.mkdir(exist_ok=True)
    except OSError as error:
        raise BadInput(f"{beside}: cannot be made ({error.strerror})") from None
    parts = [beside / f"{i}.json" for i in range(len(names))]
    words = [sys.executable, "-m", "trueflops.measure", "-q"]
    words += ["--fresh"] if options.fresh else []
    words += ["--budget", f"{options.budget:g}s"] if options.budget else []
    words += ["--dtypes", ",".join(options.dtypes)] if options.dtypes else []
    running = [
        subprocess.Popen(
            [*words, *(("--device", name) if name else ()), "-o", str(part)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for name, part in zip(names, parts, strict=True)
        if options.fresh or not _is_finished(part)
    ]  # fmt: skip
    try:
        for process in running:
            process.wait()
    except KeyboardInterrupt:  # reaches them too: they save what they have
        for process in running:
            process.wait()
        raise
    if wrong := [name for name, part in zip(names, parts, strict=True) if not _is_finished(part)]:
        raise BadInput(
            f"measuring {', '.join(wrong)} failed; what the others gave lies in {beside}"
        )
    records = [read(part) for part in parts]
    rows = [_row(name, record) for name, record in zip(names, records, strict=True)]
    chosen = records[median_of([float(row["burst"]) for row in rows])]
    chosen.path = path
    chosen.tables["gpus"] = rows
    chosen.save()
    return chosen


def _is_finished(part: Path) -> bool:
    try:
        return part.exists() and read(part).finished
    except BadInput:
        return False


def median_of(values: list[float]) -> int:
    """Which of them is in the middle."""
    centre = median(values)
    return min(range(len(values)), key=lambda i: abs(values[i] - centre))


def _row(name: str, record: Record) -> Row:
    """One device in five figures: of its main format, burst and sustained, and its memory."""
    best, lasting = winners(record), sustained(record)
    main = next((dtype for dtype in ("bf16", "fp32", *best) if dtype in best), "")
    copies = [
        float(r["bandwidth"]) for r in record.tables.get("bandwidth", ()) if r["op"] == "copy"
    ]
    return {
        "gpu": name or "0",
        "uuid": str(record.device.get("uuid") or "?"),
        "dtype": main or "?",
        "burst": best[main].flop_per_second if main else 0.0,
        "sustained": lasting[main].flop_per_second if main in lasting else 0.0,
        "bandwidth": copies[0] if copies else 0.0,  # the largest comes first
        "celsius": max((state[3] for state in record.states), default=0.0),
    }
