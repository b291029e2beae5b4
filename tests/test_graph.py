"""The IR: activation memory is derived and equals the literature; flop and weights add up."""

from __future__ import annotations

import pytest

from trueflops.catalog.models import model_names
from trueflops.clock.works import LAWS, op_class
from trueflops.graph import Op, Pass, compile_program
from trueflops.graph.build import build_block, build_embedding, build_head
from trueflops.graph.formats import Format
from trueflops.graph.ir import Collective, Graph
from trueflops.graph.kinds import Kind
from trueflops.graph.passes import (
    Degrees,
    differentiate,
    format_named,
    fuse,
    quantise,
    recompute,
    shard,
    traffic_bytes,
)
from trueflops.graph.rules import RULES, total_bytes, work
from trueflops.graph.variants import Activation, AttentionKernel, ProductKernel
from trueflops.model import read_model
from trueflops.plan import Plan

S, B = 2048, 4
GPT3 = read_model("Megatron-175B")
H, A = GPT3.hidden, GPT3.attentions[0].heads


def kept_bytes(tp: int = 1, sp: bool = False, policy: str = "none", flash: bool = False) -> float:
    """What one GPT block keeps for its backward, derived op by op."""
    graph = shard(build_block(GPT3, GPT3.blocks[0], Pass(B, S)), Degrees(tp=tp, sp=sp))
    graph = differentiate(fuse(graph, flash=flash, chains=False))
    return float(total_bytes(recompute(graph, policy).kept_tensors))  # type: ignore[arg-type]


class TestActivationMemoryOfKorthikanti:
    """arXiv 2205.05198, equations 1 to 5 and table 2."""

    def test_one_accelerator(self) -> None:
        assert kept_bytes() == 34 * S * B * H + 5 * A * S * S * B

    @pytest.mark.parametrize("t", [2, 4, 8])
    def test_tensor_parallel(self, t: int) -> None:
        assert kept_bytes(t) == pytest.approx(S * B * H * (10 + 24 / t + 5 * A * S / (H * t)))

    @pytest.mark.parametrize("t", [2, 4, 8])
    def test_tensor_and_sequence_parallel(self, t: int) -> None:
        assert kept_bytes(t, sp=True) == pytest.approx(S * B * H / t * (34 + 5 * A * S / H))

    @pytest.mark.parametrize("t", [2, 4, 8])
    def test_selective_recomputation(self, t: int) -> None:
        assert kept_bytes(t, policy="selective") == pytest.approx(S * B * H * (10 + 24 / t))
        assert kept_bytes(t, sp=True, policy="selective") == pytest.approx(S * B * H * 34 / t)

    def test_full_recomputation(self) -> None:
        assert kept_bytes(policy="full") == 2 * S * B * H

    def test_flash_attention_keeps_no_square(self) -> None:
        extra = 4 * A * S * B  # the log-sum-exp of each row
        assert kept_bytes(flash=True) == 34 * S * B * H + extra


def whole_graphs(name: str) -> list[tuple[Graph, int]]:
    model, run = read_model(name), Pass(1, 128)
    graphs = [(build_embedding(model, run), 1), (build_head(model, run), 1)]
    return graphs + [
        (build_block(model, block, run), model.pattern.count(kind))
        for kind, block in enumerate(model.blocks)
    ]


@pytest.mark.parametrize("name", model_names())
def test_the_graph_holds_every_parameter_once(name: str) -> None:
    model = read_model(name)
    held = {  # a tied table appears in the embedding and in the head
        (graph.name, weight.name): times * weight.elements
        for graph, times in whole_graphs(name)
        for weight in graph.weights
    }
    if model.tied:
        del held["head", "embedding.tokens"]
    by_block = sum(v for (graph, _), v in held.items() if graph in ("embedding", "head"))
    blocks = sum(
        times * weight.elements
        for graph, times in whole_graphs(name)[2:]
        for weight in graph.weights
    )
    assert by_block + blocks == model.parameter_count


@pytest.mark.parametrize(
    "name", ["GPT-2", "Llama-3.1-8B", "Mixtral-8x7B", "DeepSeek-V3", "Gemma-2-9B"]
)
def test_forward_matmul_flop_is_two_a_parameter_and_token(name: str) -> None:
    """2·N_active·D plus attention: every matrix parameter multiplies every token once."""
    model, seq = read_model(name), 64
    flop = 0.0
    matrices = 0.0
    for kind, block in enumerate(model.blocks):
        graph = build_block(model, block, Pass(1, seq))
        for node in graph.forward:
            if isinstance(node, Op) and node.kind is Kind.MATMUL:
                share = 1.0
                if block.experts and node.inputs[0].has("routed"):
                    share = block.experts.per_token / block.experts.count
                weights = [w for w in node.weights if not w.name.endswith(".bias")]
                matrices += (
                    model.pattern.count(kind) * share * sum(float(w.elements) for w in weights)
                )
                flop += model.pattern.count(kind) * float(work(node).flop)
    assert flop == pytest.approx(2 * matrices * seq)


def test_every_kind_of_op_has_a_rule_and_a_law() -> None:
    assert set(RULES) == set(Kind)
    assert all(type(kind) is Kind for kind in RULES)
    for kind in Kind:
        assert op_class(Op("any", kind)) in LAWS, kind


@pytest.mark.parametrize("weights", [None, "fp8", "int4-experts", "nvfp4", "4.0bpw"])
@pytest.mark.parametrize("name", ["DeepSeek-V3", "OPT-6.7B"])
def test_the_variant_of_an_op_is_of_the_type_that_goes_with_its_kind(
    name: str, weights: str | None
) -> None:
    numbers = format_named(weights) if weights else None
    seen = set()
    for run in (Pass(1, 64), Pass(1, 64, 0, False), Pass(4, 1, 63, training=False, decoding=True)):
        program = compile_program(read_model(name), Plan(), run, numbers)
        for node in (n for g in (*program.blocks, program.head) for _, n in g.phases()):
            if not isinstance(node, Op) or node.variant is None:
                continue
            seen.add(type(node.variant))
            if op_class(node) in ("matmul", "experts") or node.kind is Kind.CAST:
                assert isinstance(node.variant, Format | ProductKernel), node
            elif op_class(node).startswith("attention"):
                assert isinstance(node.variant, AttentionKernel), node
            else:
                assert isinstance(node.variant, Activation), node
    experts = name == "DeepSeek-V3" or weights != "int4-experts"
    assert (Format in seen) == (weights is not None and experts)
    assert (ProductKernel in seen) == (weights == "fp8")


def test_backward_does_twice_the_forward_matmuls() -> None:
    graph = differentiate(build_block(GPT3, GPT3.blocks[0], Pass(B, S)))
    forward = sum(work(n).flop for n in graph.forward if isinstance(n, Op) and RULES[n.kind].matrix)
    backward = sum(
        work(n).flop for n in graph.backward if isinstance(n, Op) and RULES[n.kind].matrix
    )
    assert backward == pytest.approx(2 * forward)


def test_causal_attention_counts_half_of_the_square() -> None:
    run = Pass(batch=3, seq=1000)
    assert run.keys_seen(0) == 500.5
    assert run.keys_seen(100) == pytest.approx(sum(min(i, 100) for i in range(1, 1001)) / 1000)
    decode = Pass(batch=3, seq=1, past=999)
    assert decode.keys_seen(0) == 1000
    assert decode.keys_seen(100) == 100
    assert decode.keys_read(100) == 100


def test_fusion_saves_traffic_and_kernels() -> None:
    graph = shard(build_block(GPT3, GPT3.blocks[0], Pass(B, S)), Degrees())
    plain = differentiate(graph)
    flash = differentiate(fuse(graph, flash=True, chains=False))
    both = differentiate(fuse(graph, flash=True, chains=True))
    assert traffic_bytes(both) < traffic_bytes(flash) < traffic_bytes(plain)
    square = 2 * A * S * S * B
    assert traffic_bytes(plain) - traffic_bytes(flash) > 8 * square
    assert len(both.forward) < len(flash.forward) < len(plain.forward)


def test_a_fused_gate_keeps_its_inputs_and_not_what_lies_between() -> None:
    model = read_model("Llama-3.1-8B")
    graph = build_block(model, model.blocks[0], Pass(1, 64))
    names = {t.name for t in differentiate(graph).kept_tensors}
    fused = {t.name for t in differentiate(fuse(graph, flash=True, chains=True)).kept_tensors}
    assert "ffn.acted" in names
    assert "ffn.acted" not in fused
    assert {"ffn.gate_out", "ffn.up_out", "ffn.gated"} <= fused


def collectives(tp: int, sp: bool, name: str = "Llama-3.1-8B", ep: int = 1) -> list[str]:
    model = read_model(name)
    graph = shard(build_block(model, model.blocks[-1], Pass(1, 4096)), Degrees(tp=tp, sp=sp, ep=ep))
    return [n.kind for n in graph.forward if isinstance(n, Collective)]


def test_tensor_parallel_reduces_twice_a_layer() -> None:
    assert collectives(1, False) == []
    assert collectives(8, False) == ["copy", "all_reduce", "copy", "all_reduce"]
    assert collectives(8, True) == ["all_gather", "reduce_scatter"] * 2


def test_parallel_blocks_reduce_once() -> None:
    assert collectives(8, False, "GPT-NeoX-20B").count("all_reduce") == 1


def test_experts_are_reached_by_two_all_to_alls() -> None:
    kinds = collectives(1, True, "Mixtral-8x7B", ep=8)
    assert kinds == ["all_to_all", "all_to_all"]


def test_quantised_weights_are_read_narrow_and_routers_stay_wide() -> None:
    model = read_model("Mixtral-8x7B")
    graph = quantise(build_block(model, model.blocks[0], Pass(1, 64)), format_named("int4"))
    bits = {w.name: w.bits for w in graph.weights}
    assert bits["experts.up"] == bits["attention.q"] == 4.25
    assert bits["experts.router"] == 16
    fp8 = quantise(build_block(model, model.blocks[0], Pass(1, 64)), format_named("fp8"))
    assert any(n.kind is Kind.CAST for n in fp8.forward if isinstance(n, Op))


def test_arrays_of_plans_give_what_single_plans_give() -> None:
    import numpy as np

    model = read_model("DeepSeek-V2-Lite")
    tps, micros, eps = (
        np.array([1.0, 2.0, 4.0]),
        np.array([1.0, 2.0, 1.0]),
        np.array([1.0, 4.0, 8.0]),
    )
    many = compile_program(
        model, Plan(tp=tps, sp=True, ep=eps, micro_batch=micros), Pass(micros, 4096)
    )
    for i in range(3):
        one = compile_program(
            model,
            Plan(tp=tps[i], sp=True, ep=eps[i], micro_batch=micros[i]),
            Pass(float(micros[i]), 4096),
        )
        for a, b in zip(many.blocks, one.blocks, strict=True):
            kept = np.broadcast_to(total_bytes(a.kept_tensors), (3,))[i]
            assert kept == pytest.approx(float(total_bytes(b.kept_tensors)))


def test_few_tokens_touch_few_experts() -> None:
    model = read_model("Mixtral-8x7B")
    one = build_block(model, model.blocks[0], Pass(1, 1, past=100, training=False, decoding=True))
    up = next(n for n in one.forward if isinstance(n, Op) and n.name == "experts.gate")
    weights = float(total_bytes(up.weights))
    assert work(up).bytes_read == pytest.approx(weights * 2 / 8, rel=0.01)  # two of eight


def test_torchtitans_selective_policy_keeps_every_second_product_and_the_attention() -> None:
    """Of a Llama block's seven products q, v, gate and down stay, beside its input and attention.

    In bytes a token of hidden h, 16 bits, kv heads h/4, ffn 3.5 h: input 2, q 2, v ½, mixed 2,
    gate 7 = 13½ h, and the normaliser of attention. No gradient needs what `down` made.
    """
    model = read_model("Llama-3.1-8B")
    tokens, hidden, heads = 1024.0, 4096.0, 32.0
    plan = Plan(recompute="products")
    program = compile_program(model, plan, Pass(1.0, tokens))
    (recomputing,) = program.recomputing
    kept = {t.name for t in recomputing.kept_tensors}
    assert {"q", "v", "ffn.gate_out", "mixed", "block.in"} <= kept
    assert not {"k", "ffn.up_out", "attention.out.y", "q.rotated", "ffn.gated"} & kept
    normaliser = 4.0 * heads * tokens
    assert total_bytes(recomputing.kept_tensors) == pytest.approx(
        13.5 * hidden * tokens + normaliser
    )
    again = {t.name for node in recomputing.recompute for t in node.outputs}
    assert {"k", "attention.out.y", "ffn.up_out"} <= again
    assert not {"q", "v", "mixed", "ffn.gate_out", "ffn.y"} & again


def test_a_compiled_loss_keeps_the_logits_as_they_came() -> None:
    model = read_model("Llama-3.1-8B")
    tokens, vocab = 1024.0, 128256.0
    plain, fused = (
        compile_program(model, plan, Pass(1.0, tokens)).head
        for plan in (Plan(), Plan(loss="fused"))
    )
    wide = {t.name: t.bytes for t in plain.kept_tensors}
    narrow = {t.name: t.bytes for t in fused.kept_tensors}
    assert wide["head.softmax"] == 4.0 * tokens * vocab
    assert "head.softmax" not in narrow
    assert narrow["head.scores"] == 2.0 * tokens * vocab
    assert narrow["loss.logsumexp"] == 4.0 * tokens
