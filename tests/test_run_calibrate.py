"""Real steps that correct a profile: logs of other programs, the fit, the file it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import trueflops as tf
from trueflops.cli import main
from trueflops.clock.given import given_profile
from trueflops.errors import BadInput
from trueflops.profile import CurveKey, Profile, of_host, write_profile
from trueflops.run.correction import Observed, correct, missed, predicted
from trueflops.run.logs import read_log

COLOURED = (
    "\x1b[31mstep: {:2}  \x1b[32mloss: 10.1  \x1b[33mmemory: {:5.2f}GiB(59.93%)  \x1b[34mtps: {:,}"
)
TITAN = (
    "step: {:2}  loss:  8.1000  grad_norm:  1.2  memory: {:5.2f}GiB(59.93%)  tps: {:,}  mfu: 36.7%"
)
MEGATRON = (
    " [2025-01-01 00:00:00] iteration {:8d}/     100 | consumed samples:          640 | "
    "elapsed time per iteration (ms): {:.1f} | throughput per GPU (TFLOP/s/GPU): 401.2 | "
    "learning rate: 1.500000E-04 | global batch size:    64 | lm loss: 8.1E+00 |"
)
MEMORY = (
    "[Rank 0] (after 2 iterations) memory (MB) | allocated: 30000.1 | max allocated: 50000.2 | "
    "reserved: 60000.0 | max reserved: 61440.0"
)
TRUTH = {"compute": 1.3, "host": 1.0, "links": 1.6, "reserve": 0.0}
PLANS: list[dict[str, Any]] = [
    {"dp_shard": 8, "zero": 3, "micro_batch": 1},
    {"dp_shard": 8, "zero": 3, "micro_batch": 2, "recompute": "full"},
    {"tp": 8, "sp": True, "recompute": "full"},
    {"tp": 4, "sp": True, "dp_shard": 2, "zero": 1, "recompute": "full"},
    {"tp": 2, "sp": True, "dp_shard": 4, "zero": 3},
]


def written(folder: Path, *lines: str) -> Path:
    path = folder / "train.log"
    path.write_text("\n".join(["something else", *lines]))
    return path


def test_a_log_of_torchtitan(tmp_path: Path) -> None:
    """The first two do not count: kernels are chosen in them."""
    lines = [COLOURED.format(1, 40.0, 100), TITAN.format(10, 47.37, 3000)]
    lines += [TITAN.format(step, 47.37, tps) for step, tps in ((20, 6000), (30, 6400), (40, 8000))]
    found = read_log(written(tmp_path, *lines), tokens_per_step=8 * 6400.0, ranks=8)
    assert found.framework == "torchtitan"
    assert found.seconds == pytest.approx(1.0)
    assert found.reserved_bytes == pytest.approx(47.37 * 2**30)


def test_a_log_of_megatron(tmp_path: Path) -> None:
    times = (9000.0, 2000.0, 1250.5, 1240.5, 1260.5)
    lines = [MEGATRON.format(step, ms) for step, ms in enumerate(times, 1)]
    found = read_log(written(tmp_path, *lines, MEMORY), tokens_per_step=1.0, ranks=8)
    assert (found.framework, found.steps) == ("megatron", 3)
    assert found.seconds == pytest.approx(1.2505)
    assert found.reserved_bytes == pytest.approx(60 * 2**30)


def test_other_logs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no lines of torchtitan"):
        read_log(written(tmp_path, "epoch 1"), 1.0, 8)
    with pytest.raises(BadInput, match="log more"):
        read_log(written(tmp_path, TITAN.format(1, 40.0, 100)), 1.0, 8)


def made_up(plan: dict[str, Any]) -> Observed:
    """A step of a machine whose kernels and links are slower than the profile says."""
    each = Observed(
        model=tf.read_model("Llama-3.1-8B"), plan=tf.Plan(**plan), where=tf.cluster("8xH100"),
        workload=tf.Training(seq=4096, global_batch=32, tokens=1e9), framework="megatron",
        seconds=1.0, said={"plan": plan},
    )  # fmt: skip
    took = float(predicted(each, None, TRUTH).step.value)
    return Observed(**{**vars(each), "seconds": took})


def test_a_correction_helps_plans_that_it_has_not_seen() -> None:
    every = [made_up(plan) for plan in PLANS]
    fit = correct(every[:4], None)
    assert fit.values["compute"] == pytest.approx(TRUTH["compute"], rel=0.1)
    before = float(predicted(every[4], None, dict.fromkeys(TRUTH, 1.0)).step.value)
    after = float(predicted(every[4], None, fit.values).step.value)
    off = [abs(seconds / every[4].seconds - 1.0) for seconds in (before, after)]
    assert off[0] > 0.15
    assert off[1] < 0.35 * off[0]
    assert missed(fit.left_out, every[:4]) < 0.3 * missed(fit.before, every[:4])


def test_log_to_profile_to_prediction(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = written(tmp_path, *(MEGATRON.format(step, 9000.0) for step in range(1, 6)))
    asked = ["Llama-3.1-8B", "--on", "8xH100", "--seq", "4096", "--global-batch", "32"]
    plan, profile = tmp_path / "plan.json", tmp_path / "own.json"
    shape = ["--tp", "4", "--dp", "2", "--zero", "1", "--framework", "megatron", "--json"]
    assert main(["train", *asked, *shape]) == 0
    before = json.loads(capsys.readouterr().out)
    plan.write_text(json.dumps(before))
    words = [*asked[1:], "--model", asked[0], "--log", str(log), "--calibrate", str(profile)]
    assert main(["run", str(plan), *words]) == 0
    said = capsys.readouterr().out
    assert f"use it with --profile {profile}" in " ".join(said.split())
    assert main(["train", *asked, *shape, "--profile", str(profile)]) == 0
    after = json.loads(capsys.readouterr().out)
    errors = [abs(each["step_seconds"]["value"] / 9.0 - 1.0) for each in (before, after)]
    assert errors[1] < 0.5 * errors[0]
    assert main(["verify", str(profile), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["quantity"], row["measured"]) == ("step_seconds", 9.0)
    assert row["predicted"] == pytest.approx(before["step_seconds"]["value"], rel=1e-9)
    assert main(["run", str(plan), *words]) == 0  # a second one adds to it
    assert len(json.loads(profile.read_text())["runs"]) == 2


def test_verify_shows_what_a_correction_does_for_other_plans(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four plans correct a profile; a fifth, kept in another file, is judged with and without."""
    monkeypatch.chdir(tmp_path)
    for number, plan in enumerate(PLANS):
        Path("plan.json").write_text(json.dumps(plan))
        took = made_up(plan).seconds
        written(tmp_path, *(MEGATRON.format(step, 1e3 * took) for step in range(1, 6)))
        file = "own.json" if number < 4 else "other.json"
        words = "--model Llama-3.1-8B --on 8xH100 --seq 4096 --global-batch 32 --log train.log"
        assert main(["run", "plan.json", *words.split(), "--calibrate", file]) == 0
    capsys.readouterr()
    assert main(["verify", "own.json", "other.json", "--profile", "own.json", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [row["group"].endswith("(fitted)") for row in answer["rows"]] == [True] * 4 + [False]
    assert "tp 2" in answer["rows"][4]["group"]
    (total,), (before,) = answer["overall"], answer["overall_without_profile"]
    assert total["rows"] == before["rows"] == 1  # what was fitted does not count
    assert before["median"] > 0.15
    assert total["median"] < 0.35 * before["median"]
    assert main(["verify", "own.json", "other.json", "--profile", "own.json", "--held-out"]) == 0
    shown = capsys.readouterr().out
    assert "nan" not in shown
    assert "fitted" not in shown


def test_verify_says_what_is_no_file_of_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chip = tf.accelerator("H100")
    bare, broken = tmp_path / "bare.json", tmp_path / "broken.json"
    dispatch = CurveKey("dispatch")
    write_profile(Profile("own", chip.name, {dispatch: tf.profile_of(chip).curve(dispatch)}), bare)
    run = {"model": "Llama-3.1-8B", "plan": {}, "seq": 1, "global_batch": 1, "on": "H100"}
    runs = {"runs": [{**run, "framework": "megatron", "seconds": 0.0}]}
    broken.write_text(json.dumps(json.loads(bare.read_text()) | runs))
    for file, said in {
        bare: "a profile without runs",
        broken: "not as --calibrate writes it (seconds 0)",
        tmp_path / "none.json": "no such file",
    }.items():
        assert main(["verify", str(file)]) == 2
        assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--log", "x.log"], "say with --calibrate"),
        (["--calibrate", "x.json"], "say with --on or --profile"),
        (["--calibrate", "x.txt", "--on", "H100"], "ending in .json"),
        (["--calibrate", "plan.json", "--on", "8xH100", "--log", "train.log", "--seq", "64",
          "--global-batch", "8"], "not written by --calibrate"),
    ],
)  # fmt: skip
def test_what_cannot_be_corrected_is_refused(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    written(tmp_path, *(TITAN.format(step, 40.0, 6000) for step in range(4)))
    Path("plan.json").write_text(json.dumps({"dp_shard": 8, "zero": 3}))
    assert main(["run", "plan.json", "--model", "Llama-3.1-8B", *words]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_measured_host_is_read_back(tmp_path: Path) -> None:
    """`trueflops measure` on a GPU writes what its host needs for a call."""
    chip = tf.accelerator("H100")
    dispatch = CurveKey("dispatch")
    measured = of_host(tf.profile_of(chip).curve(dispatch), loop_seconds=2e-3)
    path = tmp_path / "own.json"
    write_profile(Profile("own", chip.name, {dispatch: measured}), path)
    assert given_profile(path).curve(dispatch)["view"] == pytest.approx(measured["view"], rel=1e-3)
