"""What `trueflops run` says while it goes on, the trace it writes, and what a full disk leaves."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import trueflops as tf
from patience import HUNG
from run_ranks import job_of, model_of
from trueflops.cli import main
from trueflops.report.run_log import log_notes, step_line
from trueflops.run.checkpoint import latest
from trueflops.run.expected import expect
from trueflops.run.loop import asked_to_stop
from trueflops.run.peak import Peak, peak_of
from trueflops.run.ran import StepRan


def words(folder: Path, plan: dict[str, Any], *more: str) -> list[str]:
    model_of("llama", folder)
    path = folder / "plan.json"
    path.write_text(json.dumps({"micro_batch": 2} | plan))
    given = ["--model", str(folder / "llama"), "--seq", "16", "--global-batch", "8", *more]
    return [sys.executable, "-m", "trueflops", "run", str(path), *given]


def test_a_line_is_that_of_torchtitan(tmp_path: Path) -> None:
    """Of a rank: tokens, flop and their share of a peak, each with its prediction."""
    job = job_of(model_of("llama", tmp_path), {"dp_replicate": 2})
    where = tf.cluster("2xH100")
    expected = expect(job, where, None)
    step = StepRan(step=7, loss=2.5, seconds=0.5, counted=False)
    flop = expected.model_flop
    line = step_line(job, step, expected, Peak(8.0 * flop, "made up"))
    wanted = float(expected.step.step.value) if expected.step else 0.0
    assert line.startswith("step:    7  loss:  2.50000  tps: 128 (")
    assert f"tps: 128 ({64 / wanted:,.0f})" in line
    assert f"tflops: {flop / 0.5 / 1e12:,.3g} (" in line
    assert "mfu: 25.00% (" in line
    assert "slower" not in line


def test_flop_are_three_times_the_forwards_products(tmp_path: Path) -> None:
    """6 a token and weight of the layers and the head, and causal attention: 6 · seq · hidden."""
    model = model_of("llama", tmp_path)
    job = job_of(model, {"dp_replicate": 2})
    products = model.parameter_count - 64 * 32 - 9 * 32  # no table of embeddings, no gains
    a_token = 6 * products + 4 * 6 * 16 * 32
    assert expect(job, None, None).model_flop == pytest.approx(a_token * 8 * 16 / 2, rel=0.02)


def test_who_says_what_the_peak_is() -> None:
    named = peak_of(None, "NVIDIA H100 80GB HBM3", "bf16")
    assert named is not None
    assert named.flop_per_second == pytest.approx(989.4e12, rel=1e-3)
    assert "datasheet" in log_notes(named)[-1]
    assert peak_of(None, "cpu", "fp32") is None
    assert "no mfu" in log_notes(None)[-1]


def test_a_trace_that_diagnose_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.json.gz"
    command = words(tmp_path, {}, "--steps", "7", "--trace", str(trace))
    ran = subprocess.run(command, capture_output=True, text=True, timeout=HUNG, check=True)
    assert ran.stderr.count("(traced: slower)") == 3
    assert "profiler_start" not in ran.stderr
    assert main(["diagnose", str(trace), "--on", "H100", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    products = [k for k in answer["kernels"] if k["kernel"].startswith("mm ")]
    # Four micro-batches, 7 products a layer and the head, each once forward and twice backward.
    assert sum(k["count"] for k in products) == 4 * (4 * 7 + 1) * 3


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--trace", "t.txt"), "ends in .json or .json.gz"),
        (("--trace", "nowhere/t.json"), "no such folder"),
        (("--trace", "t.json", "--steps", "5"), "needs --steps 6"),
    ],
)
def test_a_trace_that_cannot_be_written_is_refused_at_once(
    more: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(tmp_path, {}, *more)[3:]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_full_disk_loses_nothing_saved(tmp_path: Path) -> None:
    """No file may grow beyond a few bytes, as on a disk without room."""
    kept = tmp_path / "kept"
    plan = {"dp_shard": 2, "zero": 1}
    saving = ("--checkpoint", str(kept), "--save-every", "4")
    subprocess.run(words(tmp_path, plan, *saving, "--steps", "4"), check=True, timeout=HUNG,
                   capture_output=True)  # fmt: skip
    whole = {path: path.read_bytes() for path in kept.rglob("*") if path.is_file()}
    assert latest(kept) == kept / "step-4"

    def fill() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    again = words(tmp_path, plan, *saving, "--steps", "8")
    ran = subprocess.run(
        again, preexec_fn=fill, capture_output=True, text=True, timeout=HUNG, check=False
    )
    assert ran.returncode == 1, ran.stderr
    assert "step 8 could not be saved" in ran.stderr
    assert "inline_container" not in ran.stderr
    assert "step-4 is whole" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert {path: path.read_bytes() for path in kept.rglob("*") if path.is_file()} == whole


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_leaves(sent: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C as a terminal sends it: to the launcher, to torchrun and to every rank at once. `kill`
    sends SIGTERM to the launcher alone.
    """
    kept = tmp_path / "kept"
    command = words(tmp_path, {"dp_replicate": 2}, "--steps", "1000000", "--checkpoint", str(kept),
                    "--save-every", "1000000")  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               text=True, start_new_session=True)  # fmt: skip
    assert process.stderr is not None
    seen = 0
    for line in process.stderr:
        seen += line.startswith("step:")
        if seen == 5:
            break
    if sent == signal.SIGINT:
        os.killpg(process.pid, sent)
    else:
        process.send_signal(sent)
    rest = process.stderr.read()
    assert process.wait(HUNG) == 130, rest
    assert "stopped after step" in rest
    assert "Traceback" not in rest
    found = latest(kept)
    assert found is not None
    assert int(found.name.partition("-")[2]) >= 5
    steps = str(int(found.name.partition("-")[2]) + 1)
    onward = words(tmp_path, {}, "--checkpoint", str(kept), "--steps", steps, "--json")
    ran = subprocess.run(onward, capture_output=True, text=True, timeout=HUNG, check=True)
    assert json.loads(ran.stdout)["begun_at_step"] == int(steps) - 1


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_who_was_asked_to_leave_is_not_disturbed_again(sent: signal.Signals) -> None:
    """What the terminal has told a rank already, torchrun passes on, however late."""
    before = {kind: signal.getsignal(kind) for kind in (signal.SIGINT, signal.SIGTERM)}
    try:
        with asked_to_stop() as asked:
            assert not asked
        assert {kind: signal.getsignal(kind) for kind in before} == before
        with asked_to_stop() as asked:
            signal.raise_signal(sent)
        assert asked == [sent]
        signal.raise_signal(sent)
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
