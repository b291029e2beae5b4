"""What nanotron holds, and how it deals layers out, from its code of July 2024."""

from __future__ import annotations

import pytest

import trueflops as tf
from trueflops.plan.pieces import deal, deal_by_cost
from trueflops.verify.training.runs import read_case


def _memory(plan: tf.Plan, framework: str = "nanotron") -> dict[str, float]:
    where = tf.cluster("8xH100")
    asked = tf.Training(seq=4096, global_batch=64, tokens=1e9)
    profile = tf.profile_of(where.accelerator, framework)
    memory = tf.Trainer(tf.read_model("Llama-2-7B"), asked, where, profile).predict_one(plan).memory
    return {part.name: float(part.value) for part in memory.parts}


def test_stages_are_filled_by_cost_and_the_head_costs_too() -> None:
    """24 layers of 41.9 million weights and a head of 102.9: the last of eight stages has that."""
    assert deal_by_cost(24, 8, 41.9, 102.9) == [4, 3, 3, 4, 3, 3, 4, 0]
    assert deal_by_cost(24, 2, 41.9, 102.9) == [14, 10]
    assert deal_by_cost(24, 4, 1.0, 0.0) != deal(24, 4)  # the layer that passes a share stays there
    assert sum(deal_by_cost(31, 4, 3.0, 7.0)) == 31


def test_gradients_have_one_fp32_place_and_a_narrow_one_in_the_backward() -> None:
    numbers = tf.read_model("Llama-2-7B").parameter_count
    shared = tf.Plan(dp_shard=8, zero=1, gradient_dtype="fp32", fused=False, recompute="full")
    found = _memory(shared)
    assert 4.0 * numbers <= found["gradients"] <= 6.0 * numbers
    assert found["optimizer states"] == pytest.approx(12.0 * numbers / 8, rel=1e-3)


def test_what_was_gathered_stays_and_attention_keeps_copies() -> None:
    """Three tensors as large as the queries, and two inputs of all ranks instead of this one's."""
    one, ranks = (
        tf.Plan(tp=tp, sp=tp > 1, dp_shard=8 // tp, gradient_dtype="fp32", fused=False)
        for tp in (1, 4)
    )
    tensor = 4096 * 4096 * 2.0  # of one layer and all ranks
    for plan, more in ((one, 3.0), (ranks, 3.0 / 4 + 2.0 * 3 / 4)):
        beside = _memory(plan)["activations"] - _memory(plan, "internevo")["activations"]
        assert beside == pytest.approx(32 * more * tensor, rel=0.1)


def test_a_row_of_nanotron_is_dealt_out_so() -> None:
    row = {
        "id": "a", "model": "llama-1B", "layers": "24", "hidden": "2048", "heads": "32",
        "kv_heads": "32", "ffn": "4096", "vocab": "50257", "seq_len": "4096", "accelerator": "H100",
        "n_devices": "8", "dtype": "bf16", "pp": "8", "micro_batch": "4", "global_batch": "1024",
        "framework": "nanotron", "step_time_s": "20",
    }  # fmt: skip
    plan = read_case(row, "a").plan
    assert (plan.first_stage_layers, plan.last_stage_layers) == (4, 1)
    others = read_case({**row, "framework": "Megatron-LM"}, "a").plan
    assert (others.first_stage_layers, others.last_stage_layers) == (0, 0)
