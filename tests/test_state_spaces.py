"""State spaces and other layers that keep a state: what is read of a config.json, what runs."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import trueflops as tf
from trueflops.catalog.models import model_record
from trueflops.clock.host import HostLaw
from trueflops.errors import BadConfig, BadInput
from trueflops.graph import Collective, Op, Pass, compile_program
from trueflops.graph.kinds import CollectiveKind, Kind
from trueflops.interop.launch.megatron_model import model_flags
from trueflops.model import (
    Block,
    Model,
    adapter_count,
    predict_further,
    prediction_module,
    read_model,
    read_targets,
)
from trueflops.model.config import Config
from trueflops.model.read import model_from
from trueflops.plan import Plan, serving_plan
from trueflops.predict import Server
from trueflops.predict.serving.cache import Cache
from trueflops.profile.engines import engine_of
from trueflops.run.job import check_runs
from trueflops.workload import Serving

TRUTH = Path(__file__).parents[1] / "truth" / "h200"
HEADS = {"num_attention_heads": 8, "num_key_value_heads": 2}
WIDE = {"vocab_size": 512, "hidden_size": 256}
SPACE = {"mamba_n_heads": 16, "mamba_d_state": 32, "mamba_n_groups": 1}
NEMOTRON = WIDE | HEADS | {
    "hybrid_override_pattern": "M-M*EM", "head_dim": 32, "intermediate_size": 640,
    "ssm_state_size": 32, "mamba_num_heads": 8, "mamba_head_dim": 32, "n_groups": 2,
    "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 96,
    "moe_shared_expert_intermediate_size": 192,
}  # fmt: skip
GRANITE = WIDE | HEADS | SPACE | {
    "intermediate_size": 96, "num_hidden_layers": 4, "num_local_experts": 8,
    "num_experts_per_tok": 3, "shared_intermediate_size": 192,
    "layer_types": ["mamba", "mamba", "attention", "mamba"],
}  # fmt: skip
FALCON = WIDE | HEADS | {
    "intermediate_size": 640, "num_hidden_layers": 3, "mamba_d_ssm": 384, "mamba_n_heads": 12,
    "mamba_d_state": 32,
}  # fmt: skip
KIMI = WIDE | {
    "pad_token_id": 0, "intermediate_size": 640, "moe_intermediate_size": 96,
    "num_hidden_layers": 5, "num_attention_heads": 8, "num_key_value_heads": 8, "num_experts": 8,
    "num_experts_per_token": 3, "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16,
    "v_head_dim": 32, "first_k_dense_replace": 1,
    "linear_attn_config": {
        "full_attn_layers": [4], "kda_layers": [1, 2, 3, 5], "head_dim": 32, "num_heads": 8,
        "short_conv_kernel_size": 4,
    },
}  # fmt: skip
MINIMAX = WIDE | HEADS | {
    "intermediate_size": 96, "num_hidden_layers": 4, "head_dim": 32, "num_local_experts": 8,
    "num_experts_per_tok": 2, "layer_types": ["linear_attention"] * 3 + ["full_attention"],
}  # fmt: skip
JAMBA = WIDE | HEADS | {"intermediate_size": 640, "num_hidden_layers": 8, "num_experts": 4}
BAMBA = WIDE | HEADS | SPACE | {
    "intermediate_size": 640, "num_hidden_layers": 4, "attn_layer_indices": [2],
}  # fmt: skip
MAMBA2 = WIDE | {
    "num_heads": 8, "head_dim": 64, "state_size": 64, "num_hidden_layers": 3, "n_groups": 4,
}  # fmt: skip
MAMBA = WIDE | {"num_hidden_layers": 3}
CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("mamba2", "Mamba2ForCausalLM", MAMBA2),
    ("mamba2", "Mamba2ForCausalLM", MAMBA2 | {"use_bias": True, "use_conv_bias": False}),
    ("mamba", "MambaForCausalLM", MAMBA),
    ("falcon_mamba", "FalconMambaForCausalLM", MAMBA | {"time_step_rank": 8}),
    ("nemotron_h", "NemotronHForCausalLM", NEMOTRON),
    ("nemotron_h", "NemotronHForCausalLM", NEMOTRON | {"moe_latent_size": 64}),
    ("granitemoehybrid", "GraniteMoeHybridForCausalLM", GRANITE),
    ("granitemoehybrid", "GraniteMoeHybridForCausalLM", GRANITE | {"num_local_experts": 0}),
    ("falcon_h1", "FalconH1ForCausalLM", FALCON),
    ("falcon_h1", "FalconH1ForCausalLM", FALCON | {"mamba_rms_norm": True, "mlp_bias": True}),
    ("jamba", "JambaForCausalLM", JAMBA),
    ("bamba", "BambaForCausalLM", BAMBA),
    ("kimi_linear", "KimiLinearForCausalLM", KIMI),
    ("minimax", "MiniMaxForCausalLM", MINIMAX),
]
KINDS = {kind: (name, fields) for kind, name, fields in reversed(CASES)}


def read(kind: str, **fields: Any) -> Model:
    config = {"model_type": kind} | KINDS[kind][1] | fields
    return model_from(Config(config, "config.json"), "a hybrid")


def server(model: Model, requests: int = 8) -> Server:
    where = tf.cluster("8xH200")
    profile = tf.profile_of(where.accelerator, "vllm")
    load = Serving(1024, 64, requests)
    return Server(model, load, where, profile, engine=engine_of("vllm"))


def every_layer(model: Model) -> list[Block]:
    return [model.blocks[i] for i in model.pattern]


def letters(model: Model) -> str:
    """A letter for each part of each layer: attention, recurrence, dense, experts."""

    def of(block: Block) -> str:
        there = (block.attention, block.recurrent, block.ffn, block.experts)
        return "".join(letter for letter, part in zip("arde", there, strict=True) if part)

    return " ".join(of(block) for block in every_layer(model))


@pytest.mark.parametrize(("kind", "name", "fields"), CASES)
def test_parameters_are_those_of_transformers(kind: str, name: str, fields: dict[str, Any]) -> None:
    settings = transformers.AutoConfig.for_model(kind, **fields)
    with torch.device("meta"):
        theirs = getattr(transformers, name)(settings)
    model = model_from(Config({"model_type": kind} | fields, "config.json"), "a hybrid")
    assert model.parameter_count == sum(p.numel() for p in theirs.parameters())


@pytest.mark.parametrize(
    ("kind", "layers"),
    [
        ("mamba2", "r r r"),
        ("nemotron_h", "r d r a e r"),
        ("granitemoehybrid", "re re ae re"),
        ("falcon_h1", "ard ard ard"),
        ("jamba", "rd re rd re ad re rd re"),
        ("bamba", "rd rd ad rd"),
        ("kimi_linear", "rd re re ae re"),
        ("minimax", "re re re ae"),
    ],
)
def test_each_layer_is_what_the_config_says(kind: str, layers: str) -> None:
    assert letters(read(kind)) == layers


def test_a_module_that_predicts_has_both_halves_of_a_layer() -> None:
    for model in (prediction_module(read("nemotron_h")), predict_further(read("nemotron_h"), 1)):
        layer = every_layer(model)[-1]
        assert layer.parts == ("attention", "ffn")
        assert layer.experts
    assert every_layer(prediction_module(read("mamba2")))[-1].parts == ("recurrent",)
    last = every_layer(read("granitemoehybrid"))[-1]
    assert every_layer(prediction_module(read("granitemoehybrid")))[-1].parts == last.parts


def test_adapters_stand_beside_the_projections_of_a_state() -> None:
    model, rank = read("mamba2"), 8
    parts = {p.name: p for p in model.blocks[0].parameters(model.hidden)}
    made = [f"recurrent.{name}" for name in ("q", "k", "v", "gate", "rates")]
    outputs = sum(parts[name].elements // model.hidden for name in made)
    each = rank * (5 * model.hidden + outputs)
    assert adapter_count(model, rank, read_targets("in_proj")) == 3 * each
    both = each + rank * (512 + model.hidden)  # 512 channels in, the stream out
    assert adapter_count(model, rank, read_targets("all-linear")) == 3 * both
    assert adapter_count(model, rank, read_targets("attention")) == 0


def test_experts_may_work_in_a_narrower_width() -> None:
    of = server(read("nemotron_h", moe_latent_size=64))
    program = of.decode_program(serving_plan(of.model, of.dtype, tp=1), 8)
    layer = next(block for block in program.blocks if "experts" in [n.name for n in block.forward])
    names = [node.name for node in layer.forward]
    assert names.index("latent.down") < names.index("experts") < names.index("latent.up")
    (experts,) = (node for node in layer.forward if node.name == "experts")
    assert isinstance(experts, Op)
    held = sum(weight.elements for weight in experts.weights)
    assert held == 8 * 2 * 64 * 96  # up and down of eight experts


def test_tools_without_such_layers_say_so() -> None:
    with pytest.raises(BadInput, match="layers that keep a state"):
        check_runs(read("mamba2"))
    with pytest.raises(BadInput, match="layers that keep a state"):
        model_flags("megatron", read("nemotron_h"), 4096)


def test_layers_are_read_in_the_words_of_any_release() -> None:
    words = ["mamba", "mlp", "linear_attention", "full_attention", "moe", "mamba"]
    model = read("nemotron_h", hybrid_override_pattern=None, layers_block_type=words)
    assert letters(model) == letters(read("nemotron_h"))
    listed = read("minimax", layer_types=None, attn_type_list=[0, 0, 0, 1])
    assert letters(listed) == letters(read("minimax"))
    plain = read("granitemoehybrid", layer_types=["attention"] * 4, mamba_n_heads=7)
    assert letters(plain) == "ae ae ae ae"  # fields of layers that are not there are not read


@pytest.mark.parametrize(
    ("kind", "fields", "said"),
    [
        ("nemotron_h", {"hybrid_override_pattern": "M-X"}, "hybrid_override_pattern has 'X'"),
        ("nemotron_h", {"hybrid_override_pattern": None}, "layers_block_type.* is missing"),
        ("granitemoehybrid", {"layer_types": ["moe"] * 4}, "layer_types has 'moe'"),
        ("granitemoehybrid", {"layer_types": ["mamba"] * 3}, "3 entries for 4 layers"),
        ("granitemoehybrid", {"mamba_d_head": 9}, "16 heads of 9 do not make up the 512 channels"),
        ("mamba2", {"n_groups": 3}, "3 key/value heads do not divide"),
        ("kimi_linear", {"attn_res_block_size": 4}, "attn_res_block_size is not read yet"),
        ("minimax", {"attn_type_list": [0], "layer_types": None}, "1 entries for 4 layers"),
    ],
)
def test_what_is_wrong_in_a_config_is_said(kind: str, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(BadConfig, match=said):
        read(kind, **fields)


@pytest.mark.parametrize("tp", [1, 4])
def test_a_request_keeps_states_once_and_attention_by_the_token(tp: int) -> None:
    def kept(kind: str, **fields: Any) -> Cache:
        return Cache.of(read(kind, **fields), Plan(tp=tp), engine_of("sglang"), 16.0)

    token = 2 * max(2 / tp, 1) * 32 * 2.0  # of one layer of attention: keys and values
    # Eight heads of 32 × 32 in fp32; the convolution looks back at 8 · 32 values, 2 · 2 · 32 keys.
    groups = 2 * max(2 // tp, 1)
    state = 3 * (8 // tp * 32 * 32 * 4 + 3 * (8 // tp * 32 + groups * 32) * 2)
    nemotron = kept("nemotron_h")
    assert nemotron.state_bytes == state
    assert nemotron.request_bytes(1600) == state + 1600 * token
    narrow = kept("nemotron_h", mamba_ssm_cache_dtype="float16")
    assert narrow.state_bytes == state - 3 * (8 // tp * 32 * 32 * 2)
    # Mamba: 512 channels of 16 numbers; queries and keys are not filtered.
    assert kept("mamba").state_bytes == 3 * (512 // tp) * (16 + 3) * 2
    assert kept("mamba").request_bytes(16) == kept("mamba").request_bytes(1600)
    assert kept("minimax").state_bytes == 3 * (8 // tp) * 32 * 32 * 2
    # vLLM gives out blocks of one size, into which a state fits; without attention each is a state.
    before, paged = (
        Cache.of(read("nemotron_h"), Plan(tp=tp), engine_of("vllm", release), 16.0)
        for release in ("0.25.1", "")
    )
    assert paged.block * token >= state / 3 > (paged.block - 16) * token
    assert before.request_bytes(1) == 4 * paged.block * token
    assert paged.request_bytes(1) == 7 * paged.block * token, "since 0.26 two states of a request"
    pool = server(read("mamba")).predict(serving_plan(read("mamba"), "bf16", tp=tp)).kv_cache
    assert pool.block == 1024 + 64
    assert pool.blocks == int(pool.concurrency.value)
    alone = Cache.of(read("mamba"), Plan(tp=tp), engine_of("vllm"), 16.0)
    assert alone.block_bytes == alone.request_bytes(1600) == kept("mamba").state_bytes


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tp", [1, 4])
def test_every_kind_is_served(kind: str, tp: int) -> None:
    of = server(read(kind))
    plan = serving_plan(of.model, of.dtype, tp=tp)
    point = of.predict(plan)
    kept = Cache.of(of.model, plan, engine_of("sglang"), 16.0)
    assert float(point.cache_bytes_per_request) >= kept.state_bytes
    read_at_least = 2.0 * (of.model.active_parameter_count - of.model.vocab * of.model.hidden) / tp
    states = 2.0 * 8 * _states(of.model) / tp
    assert float(of.decode(plan).value) > (read_at_least + states) / of.clock.silicon.bandwidth
    blocks = of.decode_program(plan, 8).blocks
    steps = [
        node for block in blocks for node in block.forward
        if isinstance(node, Op) and node.name == "recurrent.state"
    ]  # fmt: skip
    moved = sum(p.work.bytes_read + p.work.bytes_written for p in of.clock.price_ops(steps))
    distinct = [b.recurrent for b in of.model.blocks if b.recurrent]
    held = 2.0 * 8 * sum(r.heads * r.key_dim * r.value_dim * r.bits / 8 for r in distinct) / tp
    assert held < float(moved) < 2.0 * held


def _states(model: Model) -> float:
    held = (block.recurrent for block in every_layer(model))
    return sum(r.heads * r.key_dim * r.value_dim * r.bits / 8 for r in held if r)


def test_mamba_2_is_laid_out_kernel_by_kernel() -> None:
    of = server(read("mamba2"))
    plan = serving_plan(of.model, of.dtype, tp=1)
    layer = of.decode_program(plan, 8).blocks[0].forward
    own = [
        "recurrent.q",
        "recurrent.conv",
        "recurrent.state",
        "recurrent.out_norm",
        "recurrent.out",
    ]
    assert [node.name for node in layer] == ["recurrent.norm", *own, "recurrent.residual"]
    prompt = [node.name for node in of.prefill_program(plan).blocks[0].forward]
    assert [name for name in prompt if "chunk" in name] == [
        "recurrent.chunk_rates", "recurrent.chunk_states", "recurrent.chunk_pass",
        "recurrent.chunk_products", "recurrent.chunk_mix",
    ]  # fmt: skip


def rows_of(**fields: str) -> list[dict[str, str]]:
    """What was measured on an H200 (benchmarks/state_space.py)."""
    with (TRUTH / "state_space.csv").open() as file:
        every = list(csv.DictReader(file))
    return [row for row in every if fields.items() <= row.items()]


@pytest.mark.parametrize(("state", "bits"), [("bf16", "float16"), ("fp32", "float32")])
def test_a_step_takes_what_an_h200_took(state: str, bits: str) -> None:
    """The law was measured for another rule: of many sequences it holds, for few engines start
    later than our kernels do.
    """
    config = dict(model_record("Nemotron-H-8B")["config"]) | {"mamba_ssm_cache_dtype": bits}
    of = server(model_from(Config(config, "config.json"), "a hybrid"))
    plan = serving_plan(of.model, of.dtype, tp=1)
    own = rows_of(kernel="step", state=state, heads="128", rows="16")
    assert len(own) == 10
    for row in own:
        layer = of.decode_program(plan, int(row["tokens"])).blocks[0].forward
        step = next(node for node in layer if node.name == "recurrent.state")
        assert isinstance(step, Op)
        (priced,) = of.clock.price_ops([step])
        few = int(row["tokens"]) < 64
        off = 1e6 * float(priced.seconds) / float(row["latency_us"]) - 1.0
        assert -0.02 < off < (0.35 if few else 0.05), row


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("core", ["chunk_gated_delta_rule", "mamba_chunk_scan"])
def test_the_host_issues_a_prompt_as_long_as_one_did(engine: str, core: str) -> None:
    """Five kernels, the filter before them and the gated norm behind, in launches of a bare one."""
    with (TRUTH / "recurrent_hosts.csv").open() as file:
        took = {r["op"]: float(r["host_us"]) for r in csv.DictReader(file) if r["tokens"] == "512"}
    whole = (took[core] + took["causal_conv1d"] + took["norm_gated"]) / took["a Triton kernel"]
    law = tf.profile_of(tf.accelerator("H200"), engine).curve("framework")
    assert 5 * law["launches_of_chunked"] == pytest.approx(whole, rel=0.2)
    model = read_model("Qwen3-Next-80B-A3B" if core.startswith("chunk") else "Nemotron-H-8B")
    of = server(model)
    program = of.prefill_program(serving_plan(model, of.dtype, tp=1))
    chunked = [n for b in program.blocks for n in b.forward
               if isinstance(n, Op) and n.kind is Kind.CHUNKED]  # fmt: skip
    host = HostLaw(tf.profile_of(tf.accelerator("H200"), engine))
    waits = {float(host.node_seconds(node, "forward")) for node in chunked}
    assert waits == {law["launches_of_chunked"] * law["launch"]}


@pytest.mark.parametrize("heads", [16, 32, 64, 128])
def test_a_prompt_takes_what_an_h200_took(heads: int) -> None:
    """All kernels of a layer together; those of 16 and 64 heads are what the law was fitted to."""
    for tokens, least, most in ((2048, -0.05, 0.15), (8192, -0.05, 0.10)):
        of = server(read_model("Nemotron-H-8B")).asked(Serving(tokens, 8, 1))
        program = of.prefill_program(serving_plan(of.model, of.dtype, tp=128 // heads))
        names = {row["kernel"]: row for row in rows_of(tokens=str(tokens), heads=str(heads))}
        measured = sum(
            float(row["latency_us"])
            for row in rows_of(tokens=str(tokens), heads=str(heads), groups=str(heads // 16))
            if row["kernel"] != "step"
        )
        kernels = [
            node for node in program.blocks[0].forward
            if isinstance(node, Op) and node.name.partition(".")[2] in names
        ]  # fmt: skip
        assert len(kernels) == 4
        taken = sum(float(priced.seconds) for priced in of.clock.price_ops(kernels))
        assert least < 1e6 * taken / measured - 1.0 < most, (tokens, heads)


@pytest.mark.parametrize(("kind", "gains"), [("mamba", None), ("falcon_mamba", 0), ("jamba", 1)])
def test_what_is_narrow_is_normed_in_some_families(kind: str, gains: int | None) -> None:
    layer = compile_program(read(kind), Plan(fused=False), Pass(batch=1.0, seq=512.0)).blocks[0]
    found = [node for node in layer.forward if node.name == "recurrent.rate_norm"]
    assert [len(node.weights) for node in found if isinstance(node, Op)] == (
        [] if gains is None else [gains]
    )


def test_ranks_sum_the_squares_of_a_norm_that_they_split() -> None:
    def sums(kind: str, **fields: Any) -> int:
        of = server(read(kind, **fields))
        program = of.decode_program(serving_plan(of.model, of.dtype, tp=4), 8)
        nodes = [node for block in program.blocks[:1] for node in block.forward]
        return sum(
            isinstance(node, Collective)
            and node.kind is CollectiveKind.ALL_REDUCE
            and "squares" in node.name
            for node in nodes
        )

    assert sums("mamba2") == 0  # a group for each rank
    assert sums("mamba2", n_groups=1) == 1
    assert sums("falcon_h1") == 0  # no norm
    assert sums("minimax") == 1


def test_ranks_that_share_a_sequence_trade_heads_for_it() -> None:
    """A state passes from token to token: kernels of a layer see whole sequences."""

    def sent(cp: int, kind: str) -> list[str]:
        run = Pass(batch=1.0, seq=8192.0)
        layer = compile_program(read(kind), Plan(cp=cp), run).blocks[0]
        nodes = [node for node in layer.forward if isinstance(node, Collective)]
        assert all(node.kind is CollectiveKind.ALL_TO_ALL for node in nodes)
        return [node.outputs[0].name for node in nodes]

    taken = [f"state.{name}.whole" for name in ("q", "k", "v", "rates")]
    assert sent(1, "mamba2") == []
    assert sent(2, "mamba2") == [*taken, "state.mixed.parted"]
    assert set(sent(2, "kimi_linear")) == {*taken, "state.channels.whole", "state.mixed.parted"}


def test_attention_and_a_state_side_by_side_are_reduced_once() -> None:
    of = server(read("falcon_h1"))
    (layer,) = of.decode_program(serving_plan(of.model, of.dtype, tp=4), 8).blocks
    names = [node.name for node in layer.forward]
    assert names.index("attention.out") < names.index("recurrent.out") < names.index("mixers.add")
    reduced = [name for name in names if name.endswith("all_reduce")]
    assert reduced == ["mixers.sum.reduced.all_reduce", "ffn.y.reduced.all_reduce"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_trained(kind: str) -> None:
    program = compile_program(read(kind), Plan(), Pass(batch=1.0, seq=2048.0))
    for layer in program.blocks:
        forward = {node.name for node in layer.forward if isinstance(node, Op)}
        backward = {node.of.name for node in layer.backward if isinstance(node, Op) and node.of}
        assert {name for name in forward if name.startswith("recurrent")} <= backward | {
            "recurrent.residual"
        }


def test_little_of_what_lies_between_kernels_is_kept() -> None:
    """Mamba-2 keeps what was projected and what came out; delta its solved products as well."""

    def kept(kind: str) -> set[str]:
        layer = compile_program(read(kind), Plan(), Pass(batch=1.0, seq=2048.0)).blocks[0]
        again = [node.name for node in layer.backward if isinstance(node, Op) and not node.of]
        assert again.count("recurrent.chunk_states") == 1
        return {k.tensor.name for k in layer.kept if k.tensor.name.startswith(("state", "chunk"))}

    projected = {f"state.{name}" for name in ("q", "k", "v", "gate", "rates", "mixed", "gated")}
    assert kept("mamba2") == projected
    filtered = {f"state.{name}.filtered" for name in "qkv"}
    low = {"state.channels", "state.gate_low", "state.rate_low"}
    assert kept("kimi_linear") == projected | filtered | low | {"chunk.solved"}
