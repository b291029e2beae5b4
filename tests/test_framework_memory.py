"""What frameworks' own code was captured to hold, and what `train` says of the same plans.

Bytes are those of truth/captured/memory.csv; benchmarks/framework_memory.py compares all of them.
"""

from __future__ import annotations

from typing import Final

import pytest

import trueflops as tf
from framework_memory import Row, cases, predicted, rows

PEAK: Final = 0.05
LASTING: Final = 0.01  # of the peak: what a part that lasts may be off by
NAMING: Final = ("automodel", "prime-rl")  # both under fully_shard: the second's loop has the name
SOME: Final = tuple(rows()[::5])


def test_every_case_of_the_benchmark_is_in_the_table() -> None:
    assert {row.case for row in rows()} == set(cases())
    assert all(row.software for row in rows())


@pytest.mark.parametrize("row", SOME, ids=lambda row: row.case.name)
def test_peaks_are_those_of_the_frameworks(row: Row) -> None:
    ours = predicted(row.case)
    assert ours["peak"] == pytest.approx(row.parts["peak"], rel=PEAK)
    for part in ("weights", "states"):
        assert ours[part] == pytest.approx(row.parts[part], abs=LASTING * row.parts["peak"])


def test_a_loop_that_names_what_it_lifted_holds_a_wide_copy_of_the_logits() -> None:
    """prime-rl's supervised trainer still has the model's output while the backward runs."""
    model, cluster = tf.read_model("Qwen3-0.6B"), tf.cluster("1xH100")
    plan = tf.Plan(recompute="full", parameter_dtype="fp32", mixed="engine", gradient_dtype="fp32")
    asked = tf.Training(seq=8192, global_batch=2, tokens=16384.0)
    peaks = [
        float(tf.Trainer(model, asked, cluster, profile).predict_one(plan).peak("allocated").value)
        for profile in (tf.profile_of(tf.accelerator("H100"), name) for name in NAMING)
    ]
    assert peaks[1] - peaks[0] == pytest.approx(8192 * model.vocab * 4.0, rel=0.01)


def test_amd_had_no_expandable_segments() -> None:
    """PyTorch pull request 173330 brought them in 2026: till then blocks are PyTorch's default."""
    for framework in ("torchtitan", "torchtune", "torchtune-compiled"):
        grows, usual = (
            tf.profile_of(tf.accelerator(name), framework).curve("allocator")
            for name in ("H100", "MI300X")
        )
        default = tf.profile_of(tf.accelerator("MI300X"), "fsdp2").curve("allocator")
        for share in ("cached", "unshared"):
            assert usual[share] == default[share] > grows[share], (framework, share)
