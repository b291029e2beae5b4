"""A real step beside what a capture of the same lines predicts: the one way of comparing them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from trueflops.capture.pretend.machine import Machine
from trueflops.capture.program import capture
from trueflops.catalog import cluster
from trueflops.clock import Clock
from trueflops.predict.captured.program import CapturedProgram, predict_program
from trueflops.profile import profile_of, read_profile
from trueflops.profile.library import find_profile


class Judged(NamedTuple):
    """How far a prediction is off, as predicted / measured − 1."""

    real_seconds: float
    time: float
    memory: float
    reserved: float
    inside: bool  # whether the interval holds the measured time

    def __str__(self) -> str:
        """The measured step and how far off each prediction is."""
        off = {name: getattr(self, name) for name in ("time", "memory", "reserved")}
        shown = "  ".join(f"{name} {value:+6.1%}" for name, value in off.items())
        return f"{self.real_seconds:8.4f} s  {shown}  {'inside' if self.inside else 'OUTSIDE'}"


def clock_for(on: str, profile: str | None) -> Clock:
    """The clock of a chip, under a profile of one's own where one is given."""
    where = cluster(on)
    given = read_profile(find_profile(profile)) if profile else None
    return Clock(where, profile_of(where.accelerator, "plain", given))


def predicted(build: Callable[[], Callable[[], Any]], clock: Clock) -> CapturedProgram:
    """Capture a program and predict it."""
    return predict_program(capture(lambda: build, Machine.like(clock.chip)), clock)


def judge(found: CapturedProgram, row: Mapping[str, Any]) -> Judged:
    """A prediction beside the row that was measured of the same program."""
    told, real = found.step.seconds, float(row["step_seconds"])
    return Judged(
        real,
        float(told.value) / real - 1.0,
        found.memory.peak_allocated_bytes / int(row["peak_allocated_bytes"]) - 1.0,
        found.memory.peak_reserved_bytes / int(row["peak_reserved_bytes"]) - 1.0,
        bool(told.low <= real <= told.high),
    )


def summary(judged: Iterable[Judged]) -> str:
    """Mean and worst error of each kind, and how many intervals hold the truth."""
    rows = list(judged)
    inside = sum(row.inside for row in rows)
    parts = []
    for name in ("time", "memory", "reserved"):
        off = [abs(getattr(row, name)) for row in rows]
        parts.append(f"{name} {statistics.mean(off):.1%} (worst {max(off):.1%})")
    return f"{len(rows)} steps, {inside} within their interval; {'; '.join(parts)}"
