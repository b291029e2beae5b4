"""What frameworks hold beside activations, where it was read off their code and not captured."""

from __future__ import annotations

import pytest

import trueflops as tf


def held(framework: str, plan: tf.Plan, model: str = "Llama-3.1-8B") -> dict[str, float]:
    where = tf.cluster("4xB200")
    asked = tf.Training(seq=512, global_batch=4, tokens=1e9)
    profile = tf.profile_of(where.accelerator, framework)
    memory = tf.Trainer(tf.read_model(model), asked, where, profile).predict_one(plan).memory
    return {part.name: float(part.value) for part in memory.parts}


@pytest.mark.parametrize(("compute", "each"), [("fp8", 2.0), ("fp4", 1.0)])
def test_transformer_engine_keeps_narrow_weights_and_their_transposes(
    compute: str, each: float
) -> None:
    model = tf.read_model("Llama-3.1-8B")
    blocks = model.parameter_count - 2 * model.vocab * model.hidden
    wide = held("megatron", tf.Plan(dp_replicate=4))["weights"]
    narrow = held("megatron", tf.Plan(dp_replicate=4, compute=compute))["weights"]
    assert narrow - wide == pytest.approx(each * blocks, rel=1e-3)


def test_weights_in_fp8_have_their_transposes_alone() -> None:
    model = tf.read_model("Llama-3.1-8B")
    blocks = model.parameter_count - 2 * model.vocab * model.hidden
    narrow = tf.Plan(dp_replicate=4, compute="fp8", parameter_dtype="fp8")
    found = held("megatron", narrow)["weights"]
    assert found == pytest.approx(model.parameter_count + blocks, rel=1e-3)


def test_zero_3_updates_a_billion_parameters_at_a_time() -> None:
    shared = tf.Plan(dp_shard=4, zero=3, recompute="full", reduce_bucket=5e7)
    found = held("deepspeed", shared)
    own = tf.read_model("Llama-3.1-8B").parameter_count / 4
    assert own > 1e9
    # A share of 16-bit gradients, and of a billion of them a flat and a wide copy.
    assert found["gradients"] == pytest.approx(2.0 * own + 6e9, rel=1e-3)


def test_deepspeed_keeps_a_copy_of_the_weights_however_narrow() -> None:
    """DeepSpeedExamples, training/bf16_master_weight: 2N of master weights and 4N of moments."""
    narrow = tf.Plan(dp_shard=4, zero=3, recompute="full", optimizer="adamw-bf16")
    own = tf.read_model("Llama-3.1-8B").parameter_count / 4
    assert held("deepspeed", narrow)["optimizer states"] == pytest.approx(6.0 * own, rel=1e-3)
    assert held("fsdp2", narrow)["optimizer states"] == pytest.approx(4.0 * own, rel=1e-3)


def test_deepspeed_has_two_buckets_where_it_reduces_beside_the_backward() -> None:
    """stage_1_and_2.py, setup_buckets: of 5e8 elements each; stage 3 has one whatever is said."""

    def buffers(zero: int, *, overlap: bool) -> float:
        # Without states on the device the backward is the fullest moment, which has the buckets.
        plan = tf.Plan(dp_shard=4, zero=zero, overlap=overlap, offload_optimizer=1.0)
        return held("deepspeed", plan)["communication buffers"]

    for zero, more in ((1, 5e8 * 2), (2, 5e8 * 2), (3, 0.0)):
        found = buffers(zero, overlap=True) - buffers(zero, overlap=False)
        assert found == pytest.approx(more), zero


def test_megatron_fsdp_divides_weights_and_gradients() -> None:
    model = tf.read_model("Llama-3.1-8B")
    own = model.parameter_count / 4
    whole = held("megatron", tf.Plan(dp_shard=4, zero=1))
    shared = held("megatron", tf.Plan(dp_shard=4, zero=3))
    for part in ("weights", "gradients"):
        assert whole[part] == pytest.approx(2.0 * model.parameter_count, rel=1e-3), part
        assert shared[part] == pytest.approx(2.0 * own, rel=1e-3), part
    # The ends, a layer and half a billion elements ahead; gradients of head and layer wait.
    ends = 2 * model.vocab * model.hidden
    layer = (model.parameter_count - ends) / model.layers
    at_work = 2.0 * (ends + layer + 5e8) + 2.0 * (ends / 2 + layer)
    assert shared["communication buffers"] == pytest.approx(at_work, rel=1e-3)
    only_gradients = held("megatron", tf.Plan(dp_shard=4, zero=2))
    assert only_gradients["weights"] == whole["weights"]
    assert only_gradients["gradients"] == shared["gradients"]


def test_a_published_run_under_megatron_fsdp_needs_no_recomputation() -> None:
    """Megatron-Bridge's Llama-3-70B on 64 GB200: undivided weights would not have fitted."""
    where = tf.cluster("64xGB200")
    asked = tf.Training(seq=8192, global_batch=128, tokens=1e9)
    profile = tf.profile_of(where.accelerator, "nemo")
    trainer = tf.Trainer(tf.read_model("Llama-3-70B"), asked, where, profile)
    assert trainer.predict_one(tf.Plan(dp_shard=64, zero=3, compute="fp8")).fits


@pytest.mark.parametrize(
    ("framework", "plan"),
    [
        ("plain", tf.Plan(dp_replicate=4, optimizer="adamw-bf16", zero=0)),
        ("torchtune", tf.Plan(dp_shard=4, zero=3, optimizer="adamw-bf16")),
        ("usual", tf.Plan(dp_shard=4, zero=3)),
    ],
)
def test_gradients_of_weights_that_are_updated_in_the_backward(
    framework: str, plan: tf.Plan
) -> None:
    """One weight's, or one unit's, instead of all that were made."""
    stay, go = (
        held(framework, plan.but(update_in_backward=how))["gradients"] for how in (False, True)
    )
    assert go < 0.6 * stay


def test_gradients_that_are_added_up_stay() -> None:
    where, asked = tf.cluster("1xB200"), tf.Training(seq=512, global_batch=4, tokens=1e9)
    trainer = tf.Trainer(
        tf.read_model("Llama-3.1-8B"), asked, where, tf.profile_of(where.accelerator, "plain")
    )
    bytes_held = [
        float(trainer.predict_one(tf.Plan(update_in_backward=how, micro_batch=2)).memory.value)
        for how in (False, True)
    ]
    assert bytes_held[0] == bytes_held[1]


def test_paged_states_are_not_on_the_device() -> None:
    """Unified memory of bitsandbytes: neither PyTorch's allocator nor a plan's fit counts it."""
    paged = tf.Plan(dp_replicate=4, optimizer="adamw-8bit-bf16", paged_states=True)
    assert held("plain", paged)["optimizer states"] == 0.0
    assert held("plain", paged.but(paged_states=False))["optimizer states"] > 0.0
