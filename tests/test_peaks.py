"""Allocated, reserved, on the device: parts of one prediction, each kind with its own interval."""

from __future__ import annotations

import json

import pytest

import trueflops as tf
from trueflops.cli.main import main
from trueflops.errors import UnknownName
from trueflops.predict.peaks import BEYOND, peak_of


def a_step() -> tf.TrainingStep:
    where = tf.cluster("8xH100")
    asked = tf.Training(seq=4096, global_batch=64, tokens=1e9)
    profile = tf.profile_of(where.accelerator, "fsdp2")
    trainer = tf.Trainer(tf.read_model("Llama-3.1-8B"), asked, where, profile)
    return trainer.predict_one(tf.Plan(dp_shard=8, zero=3, implementation="eager"))


def test_each_kind_counts_more_than_the_one_before() -> None:
    step = a_step()
    allocated, reserved, device = (float(step.peak(kind).value) for kind in BEYOND)
    assert allocated < reserved < device == float(step.memory.value)


@pytest.mark.parametrize("kind", BEYOND)
def test_a_peak_is_the_sum_of_its_parts_and_has_an_interval(kind: str) -> None:
    peak = next(a_step().peak(each) for each in BEYOND if each == kind)
    assert float(peak.value) == pytest.approx(sum(float(part.value) for part in peak.parts))
    assert peak.estimate.low < peak.value < peak.estimate.high


def test_json_has_all_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    main(
        ["train", "Llama-3.2-1B", "--on", "8xH100", "--dp", "8", "--framework", "trainer", "--json"]
    )
    answer = json.loads(capsys.readouterr().out)
    for kind in BEYOND:
        found = answer[f"peak_{kind}_bytes"]
        assert found["low"] < found["value"] < found["high"]
    # Pure bf16: torch.optim keeps moments as wide as the weights.
    parts = {part["name"]: part["bytes"] for part in answer["memory"]["parts"]}
    assert parts["optimizer states"] == 2.0 * parts["weights"]


def test_communicators_and_the_context_are_no_tensors() -> None:
    names = {part.name for part in a_step().peak("allocated").parts}
    assert not names & {"communicators", "context", "allocator slack"}
    assert "library workspaces" in names


def test_another_kind_is_refused() -> None:
    with pytest.raises(UnknownName, match="kind of peak"):
        peak_of(a_step().memory, "virtual")  # type: ignore[arg-type]
