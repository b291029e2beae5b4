"""From measured steps that wait for the host to the constants of `dispatch` (assumed.toml).

    python benchmarks/host_law.py

Needs no GPU. One session is fitted to (truth/h200/programs.csv, families of split fit: the host was
slow, but evenly so): host seconds = issue · Σ alone + view · views + listed · listed + launch ·
repeated, by non-negative least squares of relative errors, each program left out once. Other
sessions, and Llamas (truth/h200/llama_steps.csv, llama_launch_bound.csv), say what share of it is
usual: the one that misses programs and Llamas, each half, by least.
"""

from __future__ import annotations

import csv
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

from captured_steps import case_of, program
from judged import clock_for
from programs import PROGRAMS
from trueflops.capture.pretend.machine import Machine
from trueflops.capture.program import capture
from trueflops.clock import Clock
from trueflops.predict.captured.lowering import Lowering
from trueflops.predict.captured.step import captured_step
from trueflops.profile import CurveKey
from trueflops.records.recording import Call, Waited
from trueflops.units import MICRO

TRUTH = Path(__file__).parent.parent / "truth" / "h200"
SESSION = "3"  # in which the host was evenly slow
BEHIND = 0.97  # of the step: the host was issuing nearly all the time
FITS_THE_QUEUE = 700  # kernels that no device holds up
FEW_WAITS = 4  # a loss that is printed, a mask that is looked at
TERMS = ("issue", "view", "listed", "launch")


class Work(NamedTuple):
    """What a step asks of the host: what each constant is multiplied by, and kernels."""

    terms: list[float]
    kernels: int


def work_of(build: Callable[[], Callable[[], Any]], clock: Clock) -> Work | None:
    """Of a captured step; None where compiled code or a CUDA graph issues parts of it.

    None as well where the host often waits for values: its time is then the device's too. A host's
    time is linear in its constants: each term is the step on a host that has one of them alone.
    """
    recording = capture(lambda: build, Machine.like(clock.chip))
    events, lowering = recording.step(), Lowering()
    calls = [event for event in events if isinstance(event, Call)]
    waits = sum(isinstance(e, Waited) and e.waiting < 0 for e in events)
    if waits > FEW_WAITS or any(call.region >= 0 or call.graph >= 0 for call in calls):
        return None
    law, key = clock.profile.curve("dispatch"), CurveKey("dispatch")
    steps = []
    for term in TERMS:
        alone = dict.fromkeys(law.values, 0.0) | {term: 1.0 if term == "issue" else MICRO}
        host = clock.profile.having({key: replace(law, values=alone)})
        steps.append(captured_step(recording, Clock(clock.cluster, host), lowering))
    return Work([step.host_seconds / MICRO for step in steps], len(steps[0].ran))


def rows_of(*names: str) -> Iterator[dict[str, str]]:
    """Rows of measured steps."""
    for name in names:
        yield from csv.DictReader((TRUTH / name).open())


def main() -> None:
    """Fit, and print what goes into assumed.toml."""
    clock = clock_for("H200", None)
    rows = [row for row in rows_of("programs.csv") if row["split"] == "fit"]
    behind = {r["program"] for r in rows if r["session"] == SESSION and _is_behind(r)}
    names = {row["program"] for row in rows}
    found = {name: work_of(PROGRAMS[name].build, clock) for name in names}
    works = {name: work for name, work in found.items() if work is not None}
    sessions: dict[str, dict[str, float]] = defaultdict(dict)
    for row in rows:
        name = row["program"]
        if name not in works or not (name in behind or works[name].kernels < FITS_THE_QUEUE):
            continue
        if row["host_seconds"] or name in behind:  # the first session noted whole steps only
            sessions[row["session"]][name] = float(row["host_seconds"] or row["step_seconds"])
    constants = _fitted(works, sessions[SESSION])
    print("fitted to session", SESSION, dict(zip(TERMS, constants.round(3).tolist(), strict=True)))
    programs = [
        seconds / MICRO / float(np.dot(constants, works[name].terms))
        for steps in sessions.values() for name, seconds in steps.items()
    ]  # fmt: skip
    llamas = list(_shares_of_llamas(constants, clock))
    for what, shares in (("programs", programs), ("Llamas", llamas)):
        print(f"{what}: {len(shares)} steps take {statistics.median(shares):.2f} of it (median)")
    usual = min(np.arange(0.4, 1.2, 0.01), key=lambda f: _missed(f, programs) + _missed(f, llamas))
    print(f"usual: {usual:.2f} of it, which misses programs by {_missed(usual, programs):.1%} and "
          f"Llamas by {_missed(usual, llamas):.1%}")  # fmt: skip
    print("dispatch", dict(zip(TERMS, (constants * usual).round(2).tolist(), strict=True)))


def _is_behind(row: dict[str, str]) -> bool:
    return float(row["host_seconds"]) > BEHIND * float(row["step_seconds"])


def _fitted(works: dict[str, Work], host: dict[str, float]) -> np.ndarray:
    names = sorted(host)
    taken = np.array([host[name] / MICRO for name in names])
    terms = np.array([works[name].terms for name in names]) / taken[:, None]
    left_out = []
    for i in range(len(names)):
        others = np.arange(len(names)) != i
        left_out.append(abs(float(terms[i] @ nnls(terms[others], np.ones(len(names) - 1))[0]) - 1))
    print(f"{len(names)} programs, each left out once: missed by {statistics.mean(left_out):.1%}")
    return np.asarray(nnls(terms, np.ones(len(names)))[0])


def _shares_of_llamas(constants: np.ndarray, clock: Clock) -> Iterator[float]:
    """Of small ones without checkpoints, which have a cost of their own."""
    found: dict[Any, list[float]] = defaultdict(list)
    for row in rows_of("llama_steps.csv", "llama_launch_bound.csv"):
        case = case_of(row)
        small = case.model == "160M" and case.batch * case.seq <= 4096
        if small and not case.checkpoint and not case.compiled:
            found[case].append(float(row["step_seconds"]))
    for case, steps in found.items():
        work = work_of(lambda case=case: program(case), clock)  # type: ignore[misc]
        if work is not None:
            yield from (s / MICRO / float(np.dot(constants, work.terms)) for s in steps)


def _missed(share: float, shares: Iterable[float]) -> float:
    return statistics.mean(abs(share / each - 1) for each in shares)


if __name__ == "__main__":
    main()
