"""Linear attention beside full: what is read of a config.json, what runs, what a request keeps."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import trueflops as tf
from trueflops.errors import BadConfig
from trueflops.graph import Op, Pass, compile_program
from trueflops.graph.formats import format_named
from trueflops.graph.kinds import Kind
from trueflops.graph.rules import work
from trueflops.model import Model
from trueflops.model.config import Config
from trueflops.model.read import model_from
from trueflops.plan import Plan, serving_plan
from trueflops.predict import Server
from trueflops.predict.serving.cache import Cache
from trueflops.profile.engines import engine_of
from trueflops.verify.serving.served_model import model_of
from trueflops.workload import Serving

TRUTH = Path(__file__).parents[1] / "truth" / "h200"
LINEAR = {
    "linear_num_value_heads": 32,
    "linear_num_key_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
}
SHARED = {"vocab_size": 4096, "hidden_size": 2048, "num_attention_heads": 16} | LINEAR
SHARED |= {"num_key_value_heads": 2, "head_dim": 256, "num_hidden_layers": 8}
EXPERTS = {"num_experts": 64, "num_experts_per_tok": 10, "moe_intermediate_size": 512}
EXPERTS |= {"shared_expert_intermediate_size": 512}
DENSE = {"intermediate_size": 5120}
CLASSES = {
    "qwen3_next": "Qwen3NextForCausalLM",
    "qwen3_5_text": "Qwen3_5ForCausalLM",
    "qwen3_5_moe_text": "Qwen3_5MoeForCausalLM",
}


def read(kind: str = "qwen3_5_text", **fields: Any) -> Model:
    own = DENSE if kind == "qwen3_5_text" else EXPERTS
    config = {"model_type": kind} | SHARED | own | fields
    return model_from(Config(config, "config.json"), "a hybrid")


def server(model: Model, requests: int = 8, past: int = 1024) -> Server:
    where = tf.cluster("8xH200")
    profile = tf.profile_of(where.accelerator, "vllm")
    load = Serving(past, 64, requests)
    return Server(model, load, where, profile, engine=engine_of("vllm"))


@pytest.mark.parametrize("kind", CLASSES)
def test_parameters_are_those_of_transformers(kind: str) -> None:
    own = DENSE if kind == "qwen3_5_text" else EXPERTS
    settings = transformers.AutoConfig.for_model(kind, **SHARED, **own)
    with torch.device("meta"):
        theirs = getattr(transformers, CLASSES[kind])(settings)
    assert read(kind).parameter_count == sum(p.numel() for p in theirs.parameters())


def test_layers_are_as_the_config_says() -> None:
    assert [bool(b.recurrent) for b in every_layer(read())] == [True, True, True, False] * 2
    types = ["full_attention"] + ["linear_attention"] * 7
    said = read(layer_types=types)
    assert [bool(b.recurrent) for b in every_layer(said)] == [False] + [True] * 7


def every_layer(model: Model) -> list[Any]:
    return [model.blocks[i] for i in model.pattern]


def test_a_layer_of_another_kind_is_refused() -> None:
    with pytest.raises(BadConfig, match=r"sliding_attention.*linear_attention"):
        read(layer_types=["sliding_attention"] * 8)
    with pytest.raises(BadConfig, match="2 entries for 8 layers"):
        read(layer_types=["full_attention"] * 2)


def test_a_step_reads_and_writes_every_state_whatever_the_context() -> None:
    model = read()
    states = 2 * 8 * 32 * 128 * 128 * 4.0  # of eight requests, there and back

    def moved(past: int) -> float:
        of = server(model, past=past)
        program = of.decode_program(serving_plan(model, of.dtype, tp=1), 8)
        ops = [node for node in program.blocks[0].forward if isinstance(node, Op)]
        (step,) = of.clock.price_ops([op for op in ops if op.name == "recurrent.state"])
        return float(step.work.bytes_read + step.work.bytes_written)

    assert states < moved(1024) < 1.01 * states
    assert moved(1024) == moved(65536)


def test_no_step_is_faster_than_its_bytes() -> None:
    model = read("qwen3_next")
    of = server(model)
    plan = serving_plan(model, of.dtype, tp=1)
    chosen = model.active_parameter_count - model.vocab * model.hidden  # of one token, at least
    states = 2 * 8 * 6 * 32 * 128 * 128 * 4.0
    least = (2.0 * chosen + states) / of.clock.silicon.bandwidth
    assert float(of.decode(plan).value) > least


def test_a_prompt_is_read_in_chunks_by_kernels_of_its_own() -> None:
    of = server(read())
    program = of.prefill_program(serving_plan(of.model, of.dtype, tp=1))
    names = [node.name for node in program.blocks[0].forward if isinstance(node, Op)]
    assert [name for name in names if "chunk" in name] == [
        "recurrent.chunk_products", "recurrent.chunk_solve", "recurrent.chunk_rewrite",
        "recurrent.chunk_states", "recurrent.chunk_mix",
    ]  # fmt: skip


@pytest.mark.parametrize("tp", [1, 4])
def test_a_request_keeps_its_states_once_and_full_layers_by_the_token(tp: int) -> None:
    cache = Cache.of(read(), Plan(tp=tp), engine_of("sglang"), 16.0)
    state = 6 * (32 * 128 * 128 * 4 + 3 * (2 * 16 + 32) * 128 * 2) / tp
    token = 2 * max(2 / tp, 1) * 2 * 256 * 2.0
    assert cache.state_bytes == state
    assert cache.request_bytes(16) == state + 16 * token
    assert cache.request_bytes(1600) == state + 1600 * token
    assert cache.tokens(100 * cache.longest_bytes(1600), 1600) == 160_000


@pytest.mark.parametrize(
    ("name", "bits", "block"), [("Qwen3.5-27B", 16.0, 784), ("Qwen3.5-35B-A3B", 8.0, 2096)]
)
def test_blocks_of_vllm_grow_until_a_state_fits(name: str, bits: float, block: int) -> None:
    """As it printed: 290,864 tokens are 371 blocks of 784, and 134,144 and 44,016 are 64 and 21 of
    2,096 (models of Qwen3.5 on vLLM 0.17 and nearby).
    """
    cache = Cache.of(model_of(name), Plan(), engine_of("vllm", "0.17.0"), bits)
    assert cache.block == block
    attends, keeps = cache.kinds
    assert (keeps.state, keeps.layers) == (True, 3 * attends.layers)
    # Three groups of layers keep a state, each one block of a request.
    page = attends.layers * attends.token_bytes * block
    assert cache.block_bytes == page
    assert cache.request_bytes(1) == cache.request_bytes(block) == 4 * page
    assert cache.request_bytes(block + 1) == 5 * page


def test_vllm_prints_tokens_of_a_hybrid_by_its_groups() -> None:
    """Of Qwen3.5-27B it printed 290,864 tokens, and 33.04 requests of 32,768."""
    older, newer = (
        Cache.of(model_of("Qwen3.5-27B"), Plan(), engine_of("vllm", release), 16.0)
        for release in ("0.17.0", "0.25.1")
    )
    pool = 1487 * older.block_bytes
    assert older.tokens(pool, 32768) == 290_864
    assert older.concurrency(pool, 32768) == pytest.approx(33.04, abs=0.01)
    assert newer.tokens(pool, 32768) == int(33.0444444 * 32768)


def test_a_training_step_has_the_gradients_of_its_kernels() -> None:
    run = Pass(batch=1.0, seq=2048.0)
    layer = compile_program(read(), Plan(), run).blocks[0]
    forward = {node.name for node in layer.forward if isinstance(node, Op)}
    backward = {node.of.name for node in layer.backward if isinstance(node, Op) and node.of}
    kernels = {name for name in forward if "chunk" in name or name.endswith("conv")}
    assert len(kernels) == 6
    assert kernels <= backward


def test_kernels_of_linear_attention_start_as_triton_kernels_do() -> None:
    """About 3 us for few sequences on an H200, whatever they move (vLLM's pull request 35777)."""
    of = server(read(), requests=1)
    program = of.decode_program(serving_plan(of.model, of.dtype, tp=8), 1)
    ops = [node for node in program.blocks[0].forward if isinstance(node, Op)]
    kernels = [op for op in ops if op.kind == "recurrence"]
    assert [op.name.partition(".")[2] for op in kernels] == ["split", "conv", "state"]
    for priced in of.clock.price_ops(kernels):
        assert str(priced.pricing.key) == "memory.recurrence"
        assert 2.9e-6 < float(priced.seconds) < 4e-6


def test_a_decode_step_takes_what_an_h200_took() -> None:
    """The step alone, by blocks of 32 columns as vLLM has them (benchmarks/delta_rule.py)."""
    of = server(read(), requests=1)
    plan = serving_plan(of.model, of.dtype, tp=1)
    with (TRUTH / "delta_rule.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["columns"] == "32"]
    own = [row for row in rows if (row["key_heads"], row["value_heads"]) == ("16", "32")]
    assert len(own) == 10
    for row in own:
        program = of.decode_program(plan, int(row["sequences"]))
        step = next(node for node in program.blocks[0].forward if node.name == "recurrent.state")
        assert isinstance(step, Op)
        (priced,) = of.clock.price_ops([step])
        assert 1e6 * float(priced.seconds) == pytest.approx(float(row["latency_us"]), rel=0.15), row


def test_a_short_filter_keeps_two_tokens_and_no_state() -> None:
    """LFM2-1.2B: ten layers of a filter of three taps, six of attention."""
    model = model_of("LFM2-1.2B")
    cache = Cache.of(model, Plan(), engine_of("tgi"), 16.0)
    assert cache.token_bytes == 6 * 2 * 8 * 64 * 2.0
    assert cache.state_bytes == 10 * 2 * 2048 * 2.0
    program = compile_program(model, Plan(), Pass(1.0, 256.0), format_named("bf16"))
    ops = {n.name: n for n in program.blocks[0].forward if isinstance(n, Op)}
    assert work(ops["recurrent.q"]).flop == 2.0 * 256 * 3 * 2048 * 2048
    assert not any(n.kind is Kind.ATTENTION for n in ops.values())
