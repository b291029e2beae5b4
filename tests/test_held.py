"""What frameworks hold beside activations, where it was read off their code and not captured."""

from __future__ import annotations

import pytest

import trueflops as tf


def held(
    framework: str, plan: tf.Plan, model: str = "Llama-3.1-8B", seq: int = 512
) -> dict[str, float]:
    where = tf.cluster("4xB200")
    asked = tf.Training(seq=seq, global_batch=4, tokens=1e9)
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
    assert whole["weights"] == pytest.approx(2.0 * model.parameter_count, rel=1e-3)
    widened = 4.0 * own  # of this rank's share, in the optimizer's step
    assert whole["gradients"] == pytest.approx(2.0 * model.parameter_count + widened, rel=1e-3)
    for part in ("weights", "gradients"):
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


@pytest.mark.parametrize("framework", ["plain", "usual"])
def test_gradients_that_are_added_up_stay(framework: str) -> None:
    where, asked = tf.cluster("1xB200"), tf.Training(seq=512, global_batch=4, tokens=1e9)
    trainer = tf.Trainer(
        tf.read_model("Llama-3.1-8B"), asked, where, tf.profile_of(where.accelerator, framework)
    )
    bytes_held = [
        float(trainer.predict_one(tf.Plan(update_in_backward=how, micro_batch=2)).memory.value)
        for how in (False, True)
    ]
    assert bytes_held[0] == bytes_held[1]


def test_what_is_divided_and_kept_outside_is_here_where_it_is_at_work() -> None:
    """Gathered pieces are buffers already; no weight stands beside them."""
    kept = held("usual", tf.Plan(dp_shard=4, zero=3, offload_parameters=1.0))
    stays = held("usual", tf.Plan(dp_shard=4, zero=3))
    assert kept.get("weights", 0.0) == 0.0 < stays["weights"]
    assert kept["communication buffers"] == stays["communication buffers"]


def test_paged_states_are_not_on_the_device() -> None:
    """Unified memory of bitsandbytes: neither PyTorch's allocator nor a plan's fit counts it."""
    paged = tf.Plan(dp_replicate=4, optimizer="adamw-8bit-bf16", paged_states=True)
    assert held("plain", paged)["optimizer states"] == 0.0
    assert held("plain", paged.but(paged_states=False))["optimizer states"] > 0.0


@pytest.mark.parametrize(
    ("plan", "own"), [(tf.Plan(dp_replicate=4), 1), (tf.Plan(dp_shard=4, zero=1), 4)]
)
def test_megatron_copies_narrow_gradients_to_fp32_for_its_step(plan: tf.Plan, own: int) -> None:
    """Where nothing is kept for the backward, that is the fullest moment."""
    few = plan.but(recompute="full")
    all_of_them = tf.read_model("Llama-3.1-8B").parameter_count
    narrow = held("megatron", few)["gradients"]
    assert narrow == pytest.approx((2.0 + 4.0 / own) * all_of_them, rel=1e-3)
    assert held("megatron", few.but(gradient_dtype="fp32"))["gradients"] == pytest.approx(
        4.0 * all_of_them, rel=1e-3
    )


@pytest.mark.parametrize("framework", ["deepspeed", "megatron-deepspeed"])
def test_deepspeed_without_zero_widens_all_gradients_twice(framework: str) -> None:
    """FP16_Optimizer.step: p.grad.to(fp32) of all, which _flatten_dense_tensors then joins."""
    found = held(framework, tf.Plan(dp_replicate=4, recompute="full"))
    all_of_them = tf.read_model("Llama-3.1-8B").parameter_count
    assert found["gradients"] == pytest.approx((2.0 + 4.0 + 4.0) * all_of_them, rel=1e-3)
    assert found["communication buffers"] == 0.0


def test_a_loop_of_ones_own_keeps_logits_and_no_buffer_of_gradients() -> None:
    """Beside log-softmax, its gradient and theirs, all fp32, the 16-bit logits that it named."""
    plan, model = tf.Plan(dp_replicate=4, optimizer="adamw-bf16"), tf.read_model("Llama-3.1-8B")
    own, plain = (held(by, plan, seq=8192) for by in ("megatron-core", "plain"))
    assert own["logits and loss"] - plain["logits and loss"] == 2.0 * 8192 * model.vocab
    assert own["gradients"] < held("megatron", plan)["gradients"]
    narrow, own = plan.but(compute="fp8"), held("megatron-core", plan)
    more = held("megatron-core", narrow)["weights"] - own["weights"]
    assert more == held("megatron", narrow)["weights"] - held("megatron", plan)["weights"] > 0.0


@pytest.mark.parametrize("implementation", ["library", "eager"])
def test_a_loss_over_narrow_logits_holds_three_of_them(implementation: str) -> None:
    """log-softmax, its gradient and theirs, as wide as the logits: half of what fp32 takes."""
    plan = tf.Plan(dp_replicate=4, optimizer="adamw-bf16", implementation=implementation)
    narrow, plain = (
        held("plain", plan.but(loss=loss), seq=8192)["logits and loss"]
        for loss in ("narrow", "plain")
    )
    head = 2 * 8192 * 4096 * 2.0  # its inputs, before and after the norm
    vocab = tf.read_model("Llama-3.1-8B").vocab
    assert narrow == pytest.approx(3 * 2.0 * 8192 * vocab, abs=4.0 * head)
    assert plain == pytest.approx(3 * 4.0 * 8192 * vocab, abs=4.0 * head)


def test_apexs_optimizer_reads_narrow_gradients_as_they_are() -> None:
    plan = tf.Plan(dp_shard=4, zero=1, recompute="full")
    own = tf.read_model("Llama-3.1-8B").parameter_count / 4
    gap = held("megatron", plan)["gradients"] - held("nemo", plan)["gradients"]
    assert gap == pytest.approx(4.0 * own, rel=1e-3)
