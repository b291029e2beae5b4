"""All devices of a node at once: one process each, then how far they differ.

Neighbours share power and air, so that each is measured while the others are busy too. The
profile is that of the device in the middle; those of the others lie beside it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from statistics import median

from trueflops.measure.ceilings import sustained, winners
from trueflops.measure.record import Record, Refused, Row, read


def measure_all(names: list[str], path: Path, options: argparse.Namespace) -> Record:
    """Measure these devices side by side; the record of the middle one, with a row for each."""
    parts = [path.with_name(f"{path.stem}.{i}.json") for i in range(len(names))]
    words = [sys.executable, "-m", "trueflops.measure", "-q"]
    words += ["--fresh"] if options.fresh else []
    words += ["--budget", f"{options.budget:g}s"] if options.budget else []
    words += ["--dtypes", ",".join(options.dtypes)] if options.dtypes else []
    running = [
        subprocess.Popen([*words, "--device", name, "-o", str(part)], stdout=subprocess.DEVNULL)
        for name, part in zip(names, parts, strict=True)
    ]
    try:
        codes = [process.wait() for process in running]
    finally:  # Ctrl-C reaches them too; what they have is kept
        for process in running:
            process.terminate()
    if any(codes):
        wrong = ", ".join(name for name, code in zip(names, codes, strict=True) if code)
        raise Refused(f"measuring {wrong} failed; what the others gave lies beside {path}")
    records = [read(part) for part in parts]
    rows = [_row(name, record) for name, record in zip(names, records, strict=True)]
    middle = median_of([float(row["burst"]) for row in rows])
    chosen = records[middle]
    chosen.path = path
    chosen.tables["gpus"] = rows
    chosen.save()
    return chosen


def median_of(values: list[float]) -> int:
    """Which of them is in the middle."""
    centre = median(values)
    return min(range(len(values)), key=lambda i: abs(values[i] - centre))


def _row(name: str, record: Record) -> Row:
    """One device in five figures: of its main format, burst and sustained, and its memory."""
    best = winners(record)
    main = next((dtype for dtype in ("bf16", "fp32", *best) if dtype in best), "")
    copies = [
        float(r["bandwidth"]) for r in record.tables.get("bandwidth", ()) if r["op"] == "copy"
    ]
    return {
        "gpu": name,
        "uuid": str(record.device.get("uuid") or "?"),
        "dtype": main or "?",
        "burst": best[main].flop_per_second if main else 0.0,
        "sustained": sustained(record).get(main, 0.0),
        "bandwidth": copies[0] if copies else 0.0,  # the largest comes first
        "celsius": max((state[3] for state in record.states), default=0.0),
    }
