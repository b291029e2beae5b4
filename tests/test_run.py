"""Plans carried out on CPUs: each has the loss curve of one process, and sends what is said."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from run_ranks import job_of, model_of, run
from trueflops.report.ran import lines
from trueflops.run.expected import expect
from trueflops.run.job import Job
from trueflops.workload import Training

STEPS = 20
TOLERANCE = 2e-6
"""Of a loss: sums of a few thousand fp32 numbers in another order differ by some 1e-7."""

RATES = {"sgd": 0.03, "adamw": 1e-3, "adafactor": 0.05}
"""Adam forgives a gradient that is too large by a factor: most plans are run with SGD."""

CLOSE = 0.05
"""Of the peak of tensors, predicted against counted."""
SOCKETS = 0.01
"""Of what passes a socket: gloo puts a few words before each message."""

Fields = dict[str, Any]
LLAMA: list[Fields] = [
    {"dp_replicate": 2},
    {"dp_shard": 2, "zero": 1, "optimizer": "adamw"},
    {"dp_shard": 2, "zero": 1, "optimizer": "adafactor"},
    {"dp_shard": 2, "zero": 2},
    {"dp_shard": 4, "zero": 3, "micro_batch": 1},
    {"dp_replicate": 2, "dp_shard": 2, "zero": 3, "optimizer": "adamw"},
    {"tp": 2},
    {"tp": 2, "sp": True, "dp_shard": 2, "zero": 3},
    {"cp": 2, "dp_shard": 2, "zero": 2},
    {"pp": 2, "schedule": "gpipe", "recompute": "full"},
    {"pp": 2, "dp_replicate": 2},
    {"pp": 2, "vpp": 2, "tp": 2, "sp": True},
    {"pp": 2, "dp_shard": 2, "zero": 3},
    {"pp": 2, "schedule": "zb-h1"},
    {"pp": 2, "schedule": "zb-v", "dp_shard": 2, "zero": 1},
    {"pp": 2, "tp": 2, "sp": True, "dp_shard": 2, "zero": 1},
    {"tp": 2, "cp": 2, "dp_shard": 2, "zero": 3},
]
MIXTRAL: list[Fields] = [
    {"dp_shard": 4, "ep": 2, "zero": 3},
    {"pp": 2, "dp_shard": 2, "ep": 2},
    {"pp": 2, "dp_shard": 4, "ep": 2, "zero": 3, "micro_batch": 1},
    {"dp_shard": 2, "ep": 2, "cp": 2},
]
GPT2: list[Fields] = [{"tp": 2, "sp": True}, {"dp_shard": 2, "zero": 3}]
MATRIX = [
    *(("llama", plan) for plan in LLAMA),
    *(("mixtral", plan) for plan in MIXTRAL),
    *(("gpt2", plan) for plan in GPT2),
]


def named(case: tuple[str, Fields] | Fields | str) -> str:
    return str(case).replace(" ", "").replace("'", "")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def alone(folder: Path) -> dict[str, list[float]]:
    """The loss curve of one process, by model."""
    return {
        f"{name} {optimizer}": [step.loss for step in run(made(folder, name, optimizer, {})).steps]
        for name in ("llama", "mixtral", "gpt2")
        for optimizer in RATES
    }


def made(folder: Path, name: str, optimizer: str, plan: Fields) -> Job:
    rate = RATES[optimizer]
    plan = {"optimizer": optimizer} | plan
    return job_of(model_of(name, folder), plan, steps=STEPS, learning_rate=rate)


def test_one_process_learns(alone: dict[str, list[float]]) -> None:
    for name, losses in alone.items():
        assert losses[-1] < losses[0] - 0.3, name


@pytest.mark.parametrize(("name", "plan"), MATRIX, ids=named)
def test_a_plan_is_the_same_training(
    name: str, plan: Fields, folder: Path, alone: dict[str, list[float]]
) -> None:
    optimizer = plan.get("optimizer", "sgd")
    job = made(folder, name, optimizer, plan)
    ran, expected = run(job), expect(job, None, None)
    curve = alone[f"{name} {optimizer}"]
    assert [step.loss for step in ran.steps] == pytest.approx(curve, rel=TOLERANCE)
    for line in lines(expected, ran):
        assert line.exact, line
    for count in ran.ranks:
        wanted = expected.ranks[count.rank]
        assert count.weight_bytes == wanted.weight_bytes
        assert count.gradient_bytes == wanted.gradient_bytes
        assert count.state_bytes == wanted.state_bytes


PEAKS: list[Fields] = [
    {},
    *(plan for plan in LLAMA if plan.get("zero") != 3),
    {"tp": 2, "sp": True},
    {"cp": 2},
    {"pp": 4, "micro_batch": 1},
]
"""How many units FSDP has gathered ahead of a late rank depends on how busy the machine is."""


@pytest.mark.parametrize("plan", PEAKS, ids=named)
def test_the_peak_of_a_rank(plan: Fields, tmp_path: Path) -> None:
    """Of a model wide enough that its tensors, and not single numbers, fill the memory."""
    model = model_of("llama", tmp_path, hidden_size=128, intermediate_size=352, vocab_size=512)
    job = job_of(model, plan, Training(64, 8, 1e4), steps=3)
    ran, expected = run(job), expect(job, None, None)
    for count in ran.ranks:
        wanted = expected.ranks[count.rank].peak_bytes
        assert wanted == pytest.approx(count.peak_bytes, rel=CLOSE)


def test_padding_is_counted(folder: Path) -> None:
    """FSDP2 cuts 32 rows into 3 pieces of 11, of which the last has 10."""
    plan = {"dp_shard": 3, "zero": 3, "micro_batch": 1}
    job = job_of(model_of("llama", folder), plan, Training(16, 9, 1e4), steps=3)
    ran, expected = run(job), expect(job, None, None)
    assert all(line.exact for line in lines(expected, ran))
    for count in ran.ranks:
        assert count.weight_bytes == expected.ranks[count.rank].weight_bytes
    assert len({count.weight_bytes for count in ran.ranks}) > 1


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux counts bytes of sockets")
def test_a_sum_passes_twice_n_minus_one_nths_of_itself(folder: Path) -> None:
    """Seen by the kernel, not assumed: gloo's ring of four."""
    job = job_of(model_of("llama", folder), {"dp_replicate": 4}, steps=3)
    ran = run(job)
    gradients = 4 * job.model.parameter_count
    for count in ran.ranks:
        assert count.wire_bytes == pytest.approx(gradients * 2 * 3 / 4, rel=SOCKETS)
