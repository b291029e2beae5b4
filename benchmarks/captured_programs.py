"""Programs of many kinds: real steps on a GPU beside what `trueflops capture` says of them.

    python benchmarks/captured_programs.py measure --out FILE.csv [--only NAME...]
    python benchmarks/captured_programs.py kernels --out FILE.csv [--only NAME...]
    python benchmarks/captured_programs.py compare FILE.csv [--on H200 | --profile PROFILE]
    python benchmarks/captured_programs.py compare-kernels FILE.csv [--split fit] [--top 40]
The first two need a GPU, the others none; all need torch and transformers. `programs/` holds what
is run and captured by the same lines. Half of the families of programs are apart: no law may be
fitted to anything of theirs, so whoever works on one looks at `--split fit` alone.
"""

from __future__ import annotations

import argparse
import csv
import gc
import statistics
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
import transformers

from judged import clock_for, judge, predicted, summary
from programs import PROGRAMS, Program
from programs.matched import Beside, beside
from programs.profiled import kernel_rows, profile_step
from steps import measure_step
from trueflops.capture.assumed import Assumptions, assuming
from trueflops.errors import TrueflopsError, shorten

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
    """One row: the median step and its peaks; releases of transformers launch other kernels."""
    found = measure_step(each.build(), SETTLE_SECONDS, TIMED_SECONDS, LEAST_TIMED)
    kind = {"program": each.name, "family": each.family, "split": each.split}
    return [{**kind, **found, "transformers": transformers.__version__}]


def profiled(each: Program) -> list[dict[str, Any]]:
    """A row for every kernel of one step and the op that launched it."""
    trace = profile_step(each.build())
    try:
        return [row._asdict() for row in kernel_rows(each.name, trace)]
    finally:
        trace.unlink()


def compare(path: Path, chosen: Iterable[str], on: str, profile: str | None) -> None:
    """Capture every measured program and print how far each prediction is off.

    A program that was measured in several sessions is held against the median of its steps: those
    that wait for the host differ by half from one session to the next.
    """
    clock, judged = clock_for(on, profile), []
    rows = (row for row in csv.DictReader(path.open()) if row["program"] in chosen)
    for name, sessions in groupby(rows, lambda row: row["program"]):
        measured_rows = sorted(sessions, key=lambda row: float(row["step_seconds"]))
        program = PROGRAMS[name]
        try:
            with assuming(Assumptions.of(program.assume)):
                found = predicted(program.build, clock)
        except TrueflopsError as refused:
            print(f"{name:26} {program.split:5} refused: {shorten(str(refused), 200)}")
            continue
        middle = statistics.median(float(row["step_seconds"]) for row in measured_rows)
        judged.append((program.split, judge(found, {**measured_rows[-1], "step_seconds": middle})))
        print(f"{name:26} {program.split:5} {judged[-1][1]}", flush=True)
    for split in ("fit", "apart"):
        if half := [each for at, each in judged if at == split]:
            print(f"{split}: {summary(half)}")
    if judged:
        print(f"all: {summary(each for _, each in judged)}")


def compare_kernels(
    path: Path, chosen: Iterable[str], on: str, profile: str | None, top: int
) -> None:
    """Print the groups of kernels that miss most seconds, by program, by op and over all."""
    clock, groups = clock_for(on, profile), []
    for name, rows in groupby(csv.DictReader(path.open()), lambda row: row["program"]):
        if name not in chosen:
            continue
        try:
            with assuming(Assumptions.of(PROGRAMS[name].assume)):
                found = predicted(PROGRAMS[name].build, clock)
        except TrueflopsError as refused:
            print(f"{name} refused: {shorten(str(refused), 200)}")
            continue
        found_groups = beside(name, rows, (ran.kernel for ran in found.step.ran))
        groups += found_groups
        real, told = (sum(getattr(g, side).seconds for g in found_groups)
                      for side in ("measured", "predicted"))  # fmt: skip
        print(f"{name}: kernels {real * 1e3:.2f} ms, predicted {told * 1e3:.2f} ms")
        for group in found_groups[:5]:
            print(f"  {group}")
    ops: dict[str, list[Beside]] = defaultdict(list)
    for group in groups:
        ops[group.op].append(group)
    print("\nby op: seconds missed either way, as a share of what was measured")
    by_op = sorted(ops.items(), key=lambda item: -sum(abs(g.missed) for g in item[1]))
    for op, members in by_op[:top]:
        missed, real = sum(abs(g.missed) for g in members), sum(g.measured.seconds for g in members)
        net = sum(g.missed for g in members)
        print(
            f"  {op:42} missed {missed * 1e3:8.2f} ms (net {net * 1e3:+8.2f}) of {real * 1e3:8.2f}"
        )
    print("\nover all")
    for group in sorted(groups, key=lambda g: -abs(g.missed))[:top]:
        print(f"  {group}")


def main() -> None:
    """Read the command line."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("command", choices=("measure", "kernels", "compare", "compare-kernels"))
    words.add_argument("file", type=Path, nargs="?", help="what was measured")
    words.add_argument("--out", type=Path, help="where to write what is measured")
    words.add_argument("--only", nargs="+", choices=list(PROGRAMS), default=list(PROGRAMS))
    words.add_argument("--split", choices=("fit", "apart"), help="only this half of the families")
    words.add_argument("--on", default="H200")
    words.add_argument("--profile")
    words.add_argument("--top", type=int, default=40)
    asked = words.parse_args()
    path = asked.out if asked.command in ("measure", "kernels") else asked.file
    if path is None:
        words.error(f"{asked.command} needs a file: --out FILE.csv to measure, FILE.csv to compare")
    chosen = [PROGRAMS[n] for n in asked.only if asked.split in (None, PROGRAMS[n].split)]
    names = [each.name for each in chosen]
    if asked.command == "measure":
        write(path, chosen, measured)
    elif asked.command == "kernels":
        write(path, chosen, profiled)
    elif asked.command == "compare":
        compare(path, names, asked.on, asked.profile)
    else:
        compare_kernels(path, names, asked.on, asked.profile, asked.top)


if __name__ == "__main__":
    main()
