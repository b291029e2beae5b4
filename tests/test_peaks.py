"""Allocated, reserved, on the device: parts of one prediction, each kind with its own interval."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import trueflops as tf
from framework_memory import Row, cached, rows
from trueflops.cli.main import main
from trueflops.errors import UnknownName
from trueflops.predict.training.peaks import BEYOND, peak_of

# Of DeepSpeed's programs depends on how they begin how much is kept: docs/log.md.
SOME = tuple(row for row in rows() if row.case.engine != "deepspeed")[::3]


def a_step() -> tf.TrainingStep:
    where = tf.cluster("8xH100")
    asked = tf.Training(seq=4096, global_batch=64, tokens=1e9)
    profile = tf.profile_of(where.accelerator, "fsdp2")
    trainer = tf.Trainer(tf.read_model("Llama-3.1-8B"), asked, where, profile)
    return trainer.predict_one(tf.Plan(dp_shard=8, zero=3, implementation="eager"))


def test_each_kind_counts_more_than_the_one_before() -> None:
    step = a_step()
    allocated, reserved, device = (float(step.peak(kind).value) for kind in BEYOND)
    assert allocated < reserved < device
    cached = float(step.peak("device")["cached blocks"].value)
    assert device == pytest.approx(float(step.memory.value) + cached)


def test_blocks_of_other_moments_are_kept_only_while_there_is_room() -> None:
    step = a_step()
    kept = float(step.peak("reserved")["cached blocks"].value)
    assert kept == float(step.cached_bytes) > 0.0
    tight = replace(step, capacity_bytes=float(step.memory.value) + 0.5 * kept)
    assert float(tight.peak("device").value) == pytest.approx(tight.capacity_bytes)
    over = replace(step, capacity_bytes=0.5 * float(step.memory.value))
    assert float(over.peak("device").value) == pytest.approx(float(over.memory.value))


def test_fits_is_asked_of_what_cannot_be_given_back() -> None:
    step = a_step()
    assert replace(step, capacity_bytes=float(step.memory.value)).fits


@pytest.mark.parametrize("row", SOME, ids=lambda row: row.case.name)
def test_captured_programs_reserve_what_is_predicted(row: Row) -> None:
    predicted = row.parts["peak"] + cached(row.case)
    assert predicted == pytest.approx(row.parts["reserved"], rel=0.16)


# ── communicators ────────────────────────────────────────────────────────────────────────────────


def communicators(where: str, framework: str, plan: tf.Plan, model: str = "Llama-3.2-1B") -> float:
    cluster = tf.cluster(where)
    asked = tf.Training(seq=4096, global_batch=64, tokens=1e9)
    profile = tf.profile_of(cluster.accelerator, framework)
    step = tf.Trainer(tf.read_model(model), asked, cluster, profile).predict_one(plan)
    return float(step.memory["communicators"].value) / 2**20


def test_megatron_makes_communicators_even_of_one_rank() -> None:
    assert communicators("1xH100", "transformers", tf.Plan()) == 0.0
    # NCCL's kernels and three communicators, as an H200 showed: truth/h200/device_memory.csv
    assert communicators("1xH100", "megatron", tf.Plan()) == pytest.approx(171 + 3 * 389, rel=0.01)


def test_every_degree_has_a_communicator() -> None:
    alone = communicators("8xH100", "fsdp2", tf.Plan(dp_shard=8, zero=3))
    assert alone == pytest.approx(171 + 389, rel=0.01)
    both = communicators("8xH100", "fsdp2", tf.Plan(tp=2, dp_shard=4, zero=3))
    assert both - alone == pytest.approx(389, rel=0.01)


def test_an_all_to_all_connects_every_pair_of_a_node() -> None:
    spread = tf.Plan(dp_shard=8, zero=1, ep=8)
    ring = tf.Plan(dp_shard=8, zero=1, ep=8, dispatch="deduplicated")
    given = [communicators("8xH100", "megatron", p, "Mixtral-8x7B") for p in (spread, ring)]
    # Seven peers, 32 channels, 10 MiB to receive and 2 to send; one is the communicator's own.
    assert given[0] - given[1] == pytest.approx(6 * 32 * 12)


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
    assert not names & {"communicators", "context", "allocator slack", "cached blocks"}
    assert "library workspaces" in names


def test_another_kind_is_refused() -> None:
    with pytest.raises(UnknownName, match="kind of peak"):
        peak_of(a_step().memory, "virtual")  # type: ignore[arg-type]
