"""Capture, predict with this CPU's own measured profile, run for real, compare."""

from __future__ import annotations

from pathlib import Path

import pytest

from captured_on_cpu import PROGRAMS, predicted, real
from trueflops.cli import main

TRIES = 2
STEADY = (
    1.25  # how far the same step may differ before and after for the machine to be judged by it
)


def test_small_models_run_as_captured_on_this_cpu(tmp_path: Path) -> None:
    profile = tmp_path / "cpu.json"
    for _ in range(TRIES):
        before = {name: real(build) for name, build in PROGRAMS.items()}
        words = ["measure", "--device", "cpu", "--budget", "75s", "-q", "--fresh"]
        assert main([*words, "-o", str(profile)]) == 0
        after = {name: real(build) for name, build in PROGRAMS.items()}
        pairs = [(before[name].seconds, after[name].seconds) for name in PROGRAMS]
        if all(max(pair) < STEADY * min(pair) for pair in pairs):
            break
    else:
        pytest.skip(f"this machine is busy: the same steps took {pairs} s")
    for name, build in PROGRAMS.items():
        said = predicted(build, profile)
        taken = (before[name].seconds * after[name].seconds) ** 0.5
        assert said.seconds == pytest.approx(taken, rel=0.30), name
        assert said.peak_bytes == pytest.approx(after[name].peak_bytes, rel=0.10), name
