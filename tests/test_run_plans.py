"""What `trueflops run` takes and refuses, before any rank starts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import trueflops as tf
from patience import HUNG
from run_ranks import job_of, model_of
from trueflops.cli import main
from trueflops.errors import BadInput
from trueflops.plan.file import read_plan
from trueflops.predict.training.sent import sent_bytes


def written(folder: Path, plan: dict[str, Any]) -> Path:
    path = folder / "plan.json"
    path.write_text(json.dumps(plan))
    return path


def test_an_answer_of_train_is_a_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "Llama-3.1-8B", "--on", "8xH100", "--dp", "8", "--zero", "3", "--json"]
    assert main(words) == 0
    path = tmp_path / "answer.json"
    path.write_text(capsys.readouterr().out)
    found = read_plan(path)
    assert tf.Plan(**found.given).dp_shard == 8
    assert found.arguments[0] == "Llama-3.1-8B"


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ({"tpp": 2}, "did you mean"),
        ({"tp": "2"}, "tp must be a whole number"),
        ({"tp": True}, "tp must be a whole number"),
        ({"sp": 1}, "sp must be true or false"),
        ({"plan": 3}, '"plan" must be an object'),
        ({"question": {}, "tp": 2}, "an answer without a plan"),
    ],
)
def test_a_wrong_file_is_refused(plan: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=said):
        read_plan(written(tmp_path, plan))


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ({"pp": 2, "schedule": "dualpipe"}, "write gpipe, 1f1b, zb-h1 or zb-v"),
        ({"pp": 2, "schedule": "zb-v", "dp_shard": 2, "zero": 3}, "loses gradients"),
        ({"cp": 2, "cp_kind": "all-to-all"}, "cp_kind"),
        ({"pp": 2, "micro_batch": 8}, "1 micro-batches for 2 stages"),
        ({"tp": 4}, "repeats no key/value heads"),
        ({"offload_optimizer": 1.0}, "offload"),
        ({"compute": "tf32"}, "compute tf32"),
    ],
)
def test_what_torch_cannot_do_is_refused(plan: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=said):
        job_of(model_of("llama", tmp_path), plan)


def test_a_ring_sends_twice_n_minus_one_nths(tmp_path: Path) -> None:
    job = job_of(model_of("llama", tmp_path), {"dp_replicate": 4})
    (gradients,) = sent_bytes(job.model, job.plan, job.workload)
    assert gradients.payload == 4 * job.model.parameter_count
    assert gradients.sent == gradients.payload * 2 * 3 / 4


def test_uneven_rows_are_padded(tmp_path: Path) -> None:
    """FSDP2 pads the first dimension: of 32 rows by 3 ranks to 33."""
    model = model_of("llama", tmp_path)
    plan = tf.Plan(dp_shard=3, zero=3, parameter_dtype="fp32", compute="fp32",
                   gradient_dtype="fp32")  # fmt: skip
    sent = sent_bytes(model, plan, tf.Training(seq=16, global_batch=9, tokens=1e4))
    scattered = next(each for each in sent if each.kind == "reduce_scatter")
    assert scattered.payload > 3 * 4 * model.parameter_count
    assert scattered.payload < 3 * 4 * model.parameter_count * 1.1


FULL = """
import sys, torch
import trueflops.run.loop as loop
from trueflops.cli import main

def full(*_):
    raise torch.OutOfMemoryError("as CUDA says it")

loop.run_job = full
raise SystemExit(main(["run", sys.argv[1], "--model", sys.argv[2], "--device", "cpu"]))
"""


def test_out_of_memory_is_one_sentence(tmp_path: Path) -> None:
    model_of("llama", tmp_path)
    words = [sys.executable, "-c", FULL, str(written(tmp_path, {})), str(tmp_path / "llama")]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=HUNG)
    assert ran.returncode == 1
    assert "rank 0: out of memory;" in ran.stderr
    assert "of tensors were predicted" in ran.stderr
