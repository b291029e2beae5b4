"""Programs of many kinds: real steps on a GPU beside what `trueflops capture` says of them.

    python benchmarks/captured_programs.py measure --out FILE.csv [--only NAME...]
    python benchmarks/captured_programs.py kernels --out FILE.csv [--only NAME...]
    python benchmarks/captured_programs.py compare FILE.csv [--on H200 | --profile PROFILE]
    python benchmarks/captured_programs.py compare-kernels FILE.csv [--top 40]
The first two need a GPU, the others none; all need torch and transformers. `programs/` holds what
is run and captured by the same lines. Half of the families of programs are apart: no law was
fitted to anything of theirs.
"""

from __future__ import annotations

import argparse
import csv
import gc
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from programs import PROGRAMS, Program
from programs.profiled import kernel_rows, profile_step
from steps import measure_step

SETTLE_SECONDS = 0.4
TIMED_SECONDS = 0.8
LEAST_TIMED = 10


def write(
    path: Path, chosen: Iterable[Program], rows_of: Callable[[Program], list[dict[str, Any]]]
) -> None:
    """Run every program on its own memory; rows are written at once, so that none is lost."""
    with path.open("w", newline="") as file:
        writer: csv.DictWriter[str] | None = None
        for each in chosen:
            begun = time.perf_counter()
            try:
                rows = rows_of(each)
            except Exception:  # the next program is measured all the same
                print(f"{each.name}: {traceback.format_exc()}", file=sys.stderr, flush=True)
                rows = []
            finally:
                torch._dynamo.reset()
                gc.collect()
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            if rows and writer is None:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
            if writer is not None:
                writer.writerows(rows)
            file.flush()
            print(f"{each.name}: {time.perf_counter() - begun:.1f} s", file=sys.stderr, flush=True)


def measured(each: Program) -> list[dict[str, Any]]:
    """One row: the median step and its peaks."""
    found = measure_step(each.build(), SETTLE_SECONDS, TIMED_SECONDS, LEAST_TIMED)
    return [{"program": each.name, "family": each.family, "split": each.split, **found}]


def profiled(each: Program) -> list[dict[str, Any]]:
    """A row for every kernel of one step and the op that launched it."""
    trace = profile_step(each.build())
    try:
        return [row._asdict() for row in kernel_rows(each.name, trace)]
    finally:
        trace.unlink()


def main() -> None:
    """Read the command line."""
    words = argparse.ArgumentParser(description=__doc__)
    commands = words.add_subparsers(dest="command", required=True)
    for name in ("measure", "kernels"):
        on_gpu = commands.add_parser(name)
        on_gpu.add_argument("--out", type=Path, required=True)
        on_gpu.add_argument("--only", nargs="+", choices=list(PROGRAMS), default=list(PROGRAMS))
    asked = words.parse_args()
    chosen = [PROGRAMS[name] for name in asked.only]
    write(asked.out, chosen, measured if asked.command == "measure" else profiled)


if __name__ == "__main__":
    main()
