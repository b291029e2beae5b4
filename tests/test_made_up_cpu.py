"""A prediction that comes true: a CPU is measured, and how long it trains is predicted.

The CPU is made up, so the truth is known and load cannot move it. The same on a real CPU, which
must be quiet for it: `make bench-cpu`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import made_up_cpu
from captured_on_cpu import Step, llama, peak_bytes, predicted, resnet, vit
from made_up_cpu import MadeUpCPU
from small_llamas import Case, config_of, predicted_seconds, training_step
from trueflops.cli import main
from trueflops.errors import BadInput
from trueflops.measure.__main__ import main as bare_door
from trueflops.measure.node import measure_all, median_of
from trueflops.measure.resume import read
from trueflops.profile import read_profile
from trueflops.records.ceilings import from_memory, winners
from trueflops.records.measured import Record

BUDGET = 30.0  # seconds of the made-up CPU
SMALL = Case(hidden=256, ffn=688, layers=2, heads=4, kv_heads=2, batch=2, seq=256)


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Measured in two goes, as if it had been asked for more the second time."""
    path = tmp_path_factory.mktemp("made up") / "cpu.json"
    words = ["--device", "cpu", "--dtypes", "fp32", "-q", "-o", str(path)]
    with made_up_cpu.in_place_of_this_one():
        assert bare_door([*words, "--budget", f"{BUDGET / 3}s"]) == 0
        assert main(["measure", *words, "--budget", f"{BUDGET}s"]) == 0
    return path


@pytest.fixture(scope="module")
def record(profile: Path) -> Record:
    return read(profile)


def taken_seconds(step: Step) -> float:
    """Of a step that is not the first: that one also makes what the optimizer keeps."""
    cpu = MadeUpCPU()
    with cpu:
        step()
        before = cpu.now
        step()
    return cpu.now - before


def test_the_budget_is_spent_and_kept(record: Record) -> None:
    """By both goes together. The job that is under way may finish; none takes a fifth of it."""
    assert record.finished
    assert BUDGET <= record.spent_seconds <= 1.2 * BUDGET
    assert not record.warnings


def test_a_second_go_measures_no_shape_again(record: Record) -> None:
    shapes = [tuple(row[k] for k in ("m", "n", "k", "layout", "copies"))
              for row in record.tables["matmul"]]  # fmt: skip
    assert len(shapes) == len(set(shapes))


def test_ceilings_are_found(record: Record) -> None:
    (best,) = winners(record).values()
    assert best.flop_per_second == pytest.approx(made_up_cpu.FLOP_PER_SECOND, rel=0.01)
    fastest = max(rate for rate, _ in from_memory(record))
    assert fastest == pytest.approx(made_up_cpu.BYTES_PER_SECOND, rel=0.01)


def test_quantiles_are_those_of_a_machine_without_noise(record: Record) -> None:
    for table in ("matmul", "memory", "call", "attention"):
        rows: list[dict[str, Any]] = record.tables[table]
        assert rows, table
        for row in rows:
            assert row["p10_us"] == pytest.approx(row["latency_us"], rel=1e-3)
            assert row["p90_us"] == pytest.approx(row["latency_us"], rel=1e-3)


def test_shapes_that_were_left_out_are_known(profile: Path) -> None:
    for name, curve in read_profile(profile).curves.items():
        if curve.fitted_rows:
            assert curve.held_out is not None, name
            assert curve.held_out.median < 0.05, name


def test_the_profile_can_be_shown(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", "show", str(profile)]) == 0
    shown = capsys.readouterr().out
    assert "a made-up CPU" in shown
    assert "no datasheet" in shown


def test_a_config_is_predicted_as_it_runs(profile: Path) -> None:
    config = config_of(SMALL)
    taken = taken_seconds(training_step(config, SMALL))
    assert predicted_seconds(config, SMALL, str(profile)) == pytest.approx(taken, rel=0.10)


@pytest.mark.parametrize(
    "build", [lambda: llama(layers=2, batch=2), resnet, lambda: vit(layers=2)],
    ids=["llama", "resnet", "vit"],
)  # fmt: skip
def test_a_program_is_predicted_as_it_runs(profile: Path, build: Callable[[], Step]) -> None:
    """Its peak of memory is that of what torch really allocates, which no load moves."""
    said = predicted(build, profile)
    assert said.seconds == pytest.approx(taken_seconds(build()), rel=0.20)
    assert said.peak_bytes == pytest.approx(peak_bytes(build), rel=0.10)


def test_devices_side_by_side_say_how_far_they_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three of different speed; the profile is that of the one in the middle."""
    speeds = iter((1.0, 0.8, 0.9))

    class Measured(SimpleNamespace):
        """As a process that has ended already."""

        def __init__(self, words: list[str], **streams: Any) -> None:
            super().__init__(wait=lambda: None)
            with made_up_cpu.in_place_of_this_one(next(speeds)):
                assert words[:3] == [sys.executable, "-m", "trueflops.measure"]
                assert bare_door(words[3:]) == 0

    monkeypatch.setattr("trueflops.measure.node.subprocess.Popen", Measured)
    asked = argparse.Namespace(budget=12.0, fresh=False, dtypes=("fp32",))
    record = measure_all(["cpu"] * 3, tmp_path / "node.json", asked)
    rows = record.tables["gpus"]
    assert [row["gpu"] for row in rows] == ["cpu"] * 3
    assert [float(row["burst"]) for row in rows] == pytest.approx([2e10, 1.6e10, 1.8e10], rel=0.02)
    assert record.tables["matmul"] == read(tmp_path / "node.each" / "2.json").tables["matmul"]
    assert read(tmp_path / "node.json").tables["gpus"] == rows
    with pytest.raises(BadInput, match="--fresh"):
        measure_all(["cpu"] * 3, tmp_path / "node.json", asked)
    assert median_of([3.0, 1.0, 2.0]) == 2
