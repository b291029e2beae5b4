"""Checkpoints of a run: reloaded under another plan, after a death, beside a half-written one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from patience import HUNG
from run_ranks import job_of, model_of, run
from trueflops.run import agent
from trueflops.run.checkpoint import latest

STEPS = 10
TOLERANCE = 2e-6
Fields = dict[str, Any]
PLANS: list[Fields] = [
    {"dp_shard": 2, "zero": 1},
    {"tp": 2, "dp_shard": 2, "zero": 3},
    {"pp": 2, "vpp": 2},
    {},
    {"dp_shard": 2, "zero": 2},
]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    model = model_of("llama", tmp_path_factory.mktemp("models"))
    return [step.loss for step in run(job_of(model, {}, steps=STEPS)).steps]


def test_a_checkpoint_reloads_under_another_plan(tmp_path: Path, undisturbed: list[float]) -> None:
    """Two steps by each of five plans, one after another, are ten of one process."""
    model, losses = model_of("llama", tmp_path), list[float]()
    for number, plan in enumerate(PLANS, 1):
        ran = run(job_of(model, plan, steps=2 * number, checkpoint=tmp_path / "kept"))
        assert ran.begun_at == 2 * (number - 1)
        losses += [step.loss for step in ran.steps]
    assert losses == pytest.approx(undisturbed, rel=TOLERANCE)


def test_experts_reload_on_other_ranks(tmp_path: Path) -> None:
    model = model_of("mixtral", tmp_path)
    whole = [step.loss for step in run(job_of(model, {}, steps=4)).steps]
    spread = {"dp_shard": 2, "ep": 2, "zero": 3}
    first = run(job_of(model, spread, steps=2, checkpoint=tmp_path / "kept"))
    then = run(job_of(model, {"dp_shard": 2, "zero": 1}, steps=4, checkpoint=tmp_path / "kept"))
    losses = [step.loss for step in (*first.steps, *then.steps)]
    assert losses == pytest.approx(whole, rel=TOLERANCE)


def test_a_death_loses_no_more_than_the_steps_since_the_last_checkpoint(
    tmp_path: Path, undisturbed: list[float]
) -> None:
    model, kept = model_of("llama", tmp_path), tmp_path / "kept"
    job = job_of(model, {"dp_shard": 2, "zero": 3}, steps=STEPS, checkpoint=kept, save_every=4)
    with pytest.raises(AssertionError, match=r"died|rank 0"):
        run(job, dies_at=8)
    found = latest(kept)
    assert found is not None
    assert found.name == "step-4"
    (kept / "half-8").mkdir()  # as a death while writing leaves one
    (kept / "step-6").mkdir()  # and a folder that somebody emptied
    ran = run(job)
    assert ran.begun_at == 4
    assert [step.loss for step in ran.steps] == pytest.approx(undisturbed[4:], rel=TOLERANCE)


def test_torchrun_restarts_a_killed_rank(tmp_path: Path) -> None:
    model_of("llama", tmp_path)
    plan, kept = tmp_path / "plan.json", tmp_path / "kept"
    plan.write_text(json.dumps({"dp_replicate": 2, "micro_batch": 2}))
    steps = 60
    words = ["--model", str(tmp_path / "llama"), "--seq", "16", "--global-batch", "8", "--json"]
    words += ["--steps", str(steps), "--checkpoint", str(kept), "--save-every", "5"]
    command = [sys.executable, "-m", "trueflops", "run", str(plan), *words, "--max-restarts", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + HUNG
    while latest(kept) is None and process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    victim = max(_ranks(process.pid))
    os.kill(victim, signal.SIGKILL)
    out, error = process.communicate(timeout=HUNG)
    assert process.returncode == 0, error
    answer = json.loads(out)
    assert answer["begun_at_step"] >= 5
    alone = job_of(model_of("llama", tmp_path), {}, steps=steps)
    whole = [step.loss for step in run(alone).steps]
    assert answer["losses"] == pytest.approx(whole[answer["begun_at_step"] :], rel=1e-5)


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("ddp", "with --checkpoint and --max-restarts a run goes on"),
        ("parameter-server", "engine parameter-server saves nothing"),
    ],
)
def test_a_death_is_told_what_its_engine_can_do(
    engine: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """As torchrun tells it when a signal ends rank 2."""

    def dies(words: list[str]) -> None:
        failure = ProcessFailure(2, 4711, -signal.SIGKILL, str(tmp_path / "none"))
        raise ChildFailedError("trueflops", {2: failure})

    monkeypatch.setattr("logging.disable", lambda level: None)  # of this process, it would last
    monkeypatch.setattr(agent, "main", dies)
    assert agent.run(engine, ["--standalone"]) == 1
    assert f"rank 2 was killed by signal 9; {said}" in capsys.readouterr().err


def _ranks(launcher: int) -> list[int]:
    """Processes of torchrun, which is the launcher's child."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended since
            continue
        children.setdefault(int(words[1]), []).append(int(stat.parent.name))
    return [rank for torchrun in children[launcher] for rank in children[torchrun]]
