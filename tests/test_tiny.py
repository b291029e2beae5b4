"""The whole spine in a few seconds: from a config and a cluster to time, memory, money, energy."""

from __future__ import annotations

import json

import pytest

import trueflops as tf
from trueflops.cli import main


def test_train_predicts_time_memory_money_and_energy() -> None:
    model, cluster = tf.read_model("Llama-3.1-8B"), tf.cluster("8xH100")
    asked = tf.Training(seq=8192, global_batch=64, tokens=1e12)
    trainer = tf.Trainer(model, asked, cluster, tf.profile_of(cluster.accelerator))
    step = trainer.predict_one(tf.Plan(dp_shard=8, zero=3, recompute="full"))
    bill = tf.training_bill(step)
    assert step.fits
    assert 0.2 < bill.mfu.value < 0.7
    assert bill.mfu.low < bill.mfu.value < bill.mfu.high
    assert bill.hfu.value > bill.mfu.value
    assert bill.usd is not None
    assert bill.kwh is not None
    assert step.step.value == pytest.approx(sum(p.value for p in step.step.parts))


def test_infer_predicts_latency_and_throughput() -> None:
    model, cluster = tf.read_model("Llama-3.1-8B"), tf.cluster("H100")
    server = tf.Server(
        model, tf.Serving(1024, 256, 16), cluster, tf.profile_of(cluster.accelerator)
    )
    point = server.predict(tf.Plan())
    assert point.fits
    floor = 2 * model.parameter_count / 3.35e12  # weights must pass once a step
    assert floor < point.decode.value < 4 * floor


def test_search_finds_a_plan_that_fits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "Llama-3.1-8B", "--on", "8xH100", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema_version"] == 1
    assert answer["fits"]
    assert answer["memory"]["bytes"] <= answer["capacity_bytes"]
    assert answer["best"][0]["step_seconds"] == pytest.approx(answer["step_seconds"]["value"])


def test_a_plan_that_does_not_fit_says_so_and_what_would(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["train", "Llama-3.1-70B", "--on", "8xH100", "--tp", "8"]) == 1
    said = capsys.readouterr().out
    assert "Does not fit" in said


def test_bad_input_is_one_line_and_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "Llama-3.1-70B", "--on", "64xH1000"]) == 2
    said = capsys.readouterr().err
    assert "did you mean" in said
    assert "Traceback" not in said
