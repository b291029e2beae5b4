"""Frozen weights: what is trained is counted, kept, computed, held and sent; nothing else is."""

from __future__ import annotations

from functools import cache

import pytest

import trueflops as tf
from trueflops.errors import ImpossiblePlan, UnknownName
from trueflops.graph.ir import Graph, Op
from trueflops.graph.kinds import Kind, Role
from trueflops.graph.passes import PACKED
from trueflops.graph.program import Program, compile_program
from trueflops.graph.rules import total_bytes
from trueflops.model import adapter_count, freeze_first, read_targets, trained_count
from trueflops.model.adapters import TARGETS
from trueflops.predict.costs import training_pass
from trueflops.predict.money.checkpoint import trained_parameters
from trueflops.report.tuning import describe_tuning

NAME, SEQ = "Llama-3.1-8B", 1024
FP32, BF16 = 4.0, 2.0
LORA = tf.Plan(adapters="lora")
QLORA = tf.Plan(adapters="qlora")


def model() -> tf.Model:
    return tf.read_model(NAME)


@cache
def program(plan: tf.Plan, name: str = NAME) -> Program:
    of = freeze_first(tf.read_model(name), plan.freeze_layers)
    return compile_program(of, plan, training_pass(plan, SEQ))


def ops(graph: Graph, *kinds: Kind) -> list[Op]:
    nodes = [node for _, node in graph.phases()]
    return [node for node in nodes if isinstance(node, Op) and node.kind in kinds]


@cache
def predicted(
    plan: tf.Plan, on: str = "1xA100-80GB", framework: str = "plain", name: str = NAME
) -> tf.TrainingStep:
    where = tf.cluster(on)
    asked = tf.Training(seq=SEQ, global_batch=8 * where.count, tokens=1e6)
    profile = tf.profile_of(where.accelerator, framework)
    return tf.Trainer(tf.read_model(name), asked, where, profile).predict_one(plan)


def part(step: tf.TrainingStep, name: str) -> float:
    return float(step.memory[name].value)


# ── counts ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "rank", "targets", "printed"),
    [
        # as PEFT's print_trainable_parameters says
        ("Llama-3.1-8B", 16, "all-linear", 41_943_040),
        ("Llama-3.1-8B", 8, "q,v", 3_407_872),
        ("GPT-2", 8, "qkv", 294_912),  # c_attn
    ],
)
def test_adapters_are_counted_as_peft_does(
    name: str, rank: int, targets: str, printed: int
) -> None:
    of, plan = tf.read_model(name), tf.Plan(adapters="lora", lora_rank=rank, lora_targets=targets)
    assert adapter_count(of, rank, read_targets(targets)) == printed
    built = program(plan, name)
    trained = [
        float(weight.elements)
        for graph in (*(built.blocks[kind] for kind in of.pattern), built.embedding, built.head)
        for weight in graph.weights
        if weight.role is Role.WEIGHT
    ]
    assert sum(trained) == printed


def test_targets_are_read() -> None:
    assert read_targets("q_proj, v_proj") == ("q", "v")
    assert read_targets("attention,gate") == ("q", "k", "v", "o", "gate")
    assert set(read_targets("all-linear")) == set(TARGETS) - {"qkv"}
    with pytest.raises(UnknownName, match="layer for adapters"):
        read_targets("q,everything")


def test_frozen_layers_are_kinds_of_their_own() -> None:
    of = freeze_first(model(), 8)
    assert of.parameter_count == model().parameter_count
    assert of.layers == 32
    assert sum(of.blocks[kind].frozen for kind in of.pattern) == 8
    each = sum(p.elements for p in of.blocks[0].parameters(of.hidden))
    ends = model().vocab * model().hidden + model().hidden  # head and last norm
    assert trained_count(of) == 24 * each + ends


# ── the graph ────────────────────────────────────────────────────────────────────────────────────


def test_frozen_weights_have_no_gradient_and_keep_nothing() -> None:
    whole, tuned = program(tf.Plan(fused=False)).blocks[0], program(LORA.but(fused=False)).blocks[0]
    made = {op.outputs[0].name for op in ops(tuned, Kind.WGRAD)}
    assert made
    assert all(".lora_" in name for name in made)
    kept = {tensor.name for tensor in tuned.kept_tensors}
    assert {"gated", "ffn.norm.out"} & {t.name for t in whole.kept_tensors} - kept
    assert not [t for t in tuned.kept_tensors if t.name == "ffn.norm.out"]
    assert not ops(program(LORA).embedding, Kind.STREAM)  # no gradient of a table
    assert not ops(program(LORA).head, Kind.WGRAD)
    assert ops(program(LORA).head, Kind.DGRAD)


def test_an_adapter_is_four_kernels_and_fused_two() -> None:
    def forward(plan: tf.Plan) -> int:
        return len([n for n in program(plan).blocks[0].forward if "lora" in n.name])

    plain = tf.Plan(adapters="lora", fused=False, adapter_dtype="bf16", lora_targets="q")
    assert forward(plain) == 4  # A, B, scaling, sum
    assert forward(plain.but(adapter_dtype="fp32")) == 6  # widened, and narrowed by autocast
    assert forward(plain.but(lora_dropout=0.1)) == 5
    assert forward(plain.but(lora_fused=True)) == 2


def test_frozen_layers_have_no_backward() -> None:
    frozen = program(tf.Plan(freeze_layers=4, recompute="full"))
    trained, still = frozen.recomputing
    assert trained.backward
    assert trained.recompute
    assert not still.backward
    assert not still.recompute
    assert not still.kept
    assert not frozen.embedding.backward


@pytest.mark.parametrize("name", PACKED)
def test_packed_weights_are_written_out(name: str) -> None:
    block = program(QLORA.but(base_format=name)).blocks[0]
    linear = [w for w in block.weights if w.role is Role.FROZEN and len(w.dims) > 1]
    assert {w.bits for w in linear} == {PACKED[name].bits}
    made = ops(block, Kind.DEQUANTISE)
    saved = PACKED[name].saved
    assert len(made) == (7 if saved else 14)  # a layer's, and again for the gradients
    kept = [t for t in block.kept_tensors if t.name.endswith(".dequantised")]
    wide = sum(float(w.elements) for w in linear) * BF16
    assert float(total_bytes(tuple(kept))) == (wide if saved else 0.0)


def test_nf4_takes_4_127_bits() -> None:
    assert PACKED["nf4"].bits == pytest.approx(4.127, abs=5e-4)  # arXiv 2305.14314 §3


def test_peft_lifts_the_stream_of_a_packed_model() -> None:
    lifted, left = QLORA, QLORA.but(residual_dtype="bf16")
    assert program(lifted).blocks[0].result.bits == 32.0
    assert program(left).blocks[0].result.bits == 16.0
    assert program(QLORA.but(base_format="gptq-int4")).blocks[0].result.bits == 16.0


def test_fp8_casts_nothing_for_gradients_that_are_not_computed() -> None:
    tuned = program(LORA.but(compute="fp8", fused=False)).blocks[0]
    turned = [t.name for op in ops(tuned, Kind.CAST, Kind.STREAM) for t in op.outputs]
    assert not [name for name in turned if name == "ffn.norm.out.fp8.transposed"]


# ── what a rank holds and sends ──────────────────────────────────────────────────────────────────


def test_only_adapters_have_gradients_and_states() -> None:
    step, adapters = predicted(LORA), adapter_count(model(), 16, read_targets("attention"))
    base = model().parameter_count * BF16
    assert part(step, "weights") == base + adapters * FP32
    assert part(step, "optimizer states") == adapters * 8.0
    assert part(step, "gradients") == adapters * FP32


def test_packed_weights_are_held_packed() -> None:
    step, of = predicted(QLORA.but(residual_dtype="bf16")), model()
    adapters = adapter_count(of, 16, read_targets("attention"))
    linear = 32 * sum(p.elements for p in of.blocks[0].parameters(of.hidden) if len(p.dims) > 1)
    wide = of.parameter_count - linear
    expected = linear * PACKED["nf4"].bits / 8.0 + wide * BF16 + adapters * FP32
    assert part(step, "weights") == pytest.approx(expected, rel=1e-12)


def test_replicas_exchange_adapters_alone() -> None:
    def sent(plan: tf.Plan) -> float:
        tree = predicted(plan, "8xA100-80GB").step["exposed communication"]
        return float(tree["data parallel"].value)

    whole, tuned = (sent(tf.Plan(dp_replicate=8, adapters=a)) for a in ("", "lora"))
    assert tuned < 0.02 * whole
    gathered, packed = (
        sent(tf.Plan(dp_shard=8, zero=3, adapters=a, overlap=False)) for a in ("lora", "qlora")
    )
    assert gathered > 100.0 * tuned  # ZeRO-3 gathers what is frozen too, packed as it is
    assert packed < 0.6 * gathered


def test_the_head_and_a_layer_are_not_full_at_once() -> None:
    """Nothing that frozen weights make outlives its layer, so that the larger moment counts."""
    parts = [part(predicted(LORA), name) for name in ("logits and loss", "working tensors")]
    assert sorted(parts)[0] == 0.0 < sorted(parts)[1]


def test_fsdp_holds_the_inputs_of_frozen_layers() -> None:
    """Measured: +1 tensor a layer in the backward, where memory falls by one without."""
    sharded = tf.Plan(adapters="lora", dp_shard=2, zero=3, recompute="full", micro_batch=8)
    lean, held = (
        predicted(sharded, "2xA100-80GB", framework, "Mistral-7B")
        for framework in ("torchtitan", "fsdp")
    )
    inputs = 32 * 8 * SEQ * 4096 * BF16
    assert part(lean, "activations") < 1.1 * inputs
    # Both stay: inputs, and as many gradients of them.
    assert part(held, "activations") == pytest.approx(2.0 * inputs, rel=0.05)


def test_less_is_computed() -> None:
    whole, tuned, half = (predicted(p) for p in (tf.Plan(), LORA, tf.Plan(freeze_layers=16)))
    assert float(tuned.work.hardware_flop) == pytest.approx(
        float(whole.work.hardware_flop) * 2.0 / 3.0, rel=0.05
    )
    assert float(half.work.hardware_flop) < 0.75 * float(whole.work.hardware_flop)
    for step in (tuned, half):
        assert float(step.work.model_flop) <= float(step.work.hardware_flop)
        assert float(step.step.value) < float(whole.step.value)


# ── words and rules ──────────────────────────────────────────────────────────────────────────────


def test_the_answer_says_what_is_trained() -> None:
    plan = tf.Plan(adapters="lora", lora_targets="all-linear")
    said = "41.9 M of 8.03 B parameters are trained (LoRA rank 16 on all linear layers)"
    assert describe_tuning(model(), plan) == said
    assert describe_tuning(model(), tf.Plan()) == ""
    assert "first 8 layers frozen" in describe_tuning(model(), tf.Plan(freeze_layers=8))
    assert "nf4" in describe_tuning(model(), QLORA)
    assert trained_parameters(model(), tf.Plan()) == model().parameter_count


@pytest.mark.parametrize(
    ("plan", "code"),
    [
        (LORA.but(lora_rank=0), "ADAPTERS"),
        (LORA.but(lora_dropout=1.0), "ADAPTERS"),
        (LORA.but(optimizer="muon"), "ADAPTER_OPTIMIZER"),
        (QLORA.but(compute="fp8"), "PACKED_COMPUTE"),
        (tf.Plan(freeze_layers=32), "FREEZE_LAYERS"),
    ],
)
def test_impossible_tuning_is_refused(plan: tf.Plan, code: str) -> None:
    with pytest.raises(ImpossiblePlan) as error:
        tf.check_plan(plan, model(), 1)
    assert error.value.code == code


def test_a_model_without_the_layer_says_which_it_has() -> None:
    with pytest.raises(ImpossiblePlan, match=r"GPT-2 has no layer gate .* try q, k, v"):
        tf.check_plan(LORA.but(lora_targets="gate"), tf.read_model("GPT-2"), 1)
