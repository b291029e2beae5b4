"""DeepSeek-V4: pooled keys, several residual streams; what is read, what runs, what is kept."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from trueflops.catalog import accelerator
from trueflops.catalog.models import model_record
from trueflops.errors import BadConfig
from trueflops.graph import Op, Pass, compile_program
from trueflops.graph.build import SparseKernel, build_block, build_embedding, build_head
from trueflops.graph.formats import format_named
from trueflops.graph.rules import RULES, work
from trueflops.graph.shapes import attention_shape
from trueflops.model import Model, prediction_module, read_model
from trueflops.model.config import Config
from trueflops.model.read import model_from
from trueflops.plan import Plan
from trueflops.predict.released import served_weights
from trueflops.predict.serving.cache import Cache
from trueflops.profile.engines import engine_of

FLASH = model_record("DeepSeek-V4-Flash")["config"]
SMALL: dict[str, Any] = {
    "num_hidden_layers": 4,
    "vocab_size": 1024,
    "n_routed_experts": 8,
    "hidden_size": 512,
}
SMALL |= {"compress_ratios": [0, 128, 4, 128, 0]}  # the last is the prediction module's
MILLION = 2.0**20


def read(**fields: Any) -> Model:
    return model_from(Config(FLASH | SMALL | fields, "config.json"), "V4")


def steps(model: Model, past: float, plan: Plan | None = None, seq: float = 1.0) -> list[list[Op]]:
    """Ops of every layer in a pass of a server."""
    run = Pass(1.0, seq, past, training=False, decoding=seq == 1.0, sparse=SparseKernel())
    program = compile_program(model, plan or Plan(), run, format_named("bf16"))
    own = [[n for n in graph.forward if isinstance(n, Op)] for graph in program.blocks]
    return [own[i] for i in model.pattern]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"compress_ratios": [4, 4, 128, 0], "hc_mult": 2, "o_groups": 4, "index_n_heads": 16},
        {"compress_ratios": None},
    ],
)
def test_parameters_are_those_of_transformers(fields: dict[str, Any]) -> None:
    said = {k: v for k, v in (FLASH | SMALL | fields).items() if k != "architectures"}
    settings = transformers.AutoConfig.for_model(**said)
    with torch.device("meta"):
        theirs = transformers.AutoModelForCausalLM.from_config(settings)
    assert read(**fields).parameter_count == sum(p.numel() for p in theirs.parameters())


def test_another_name_of_the_type_is_the_same_model() -> None:
    assert read(model_type="deepseek_ref").blocks == read().blocks


def test_queries_see_a_window_and_pools_of_two_kinds() -> None:
    """512 pools of 4 are chosen of all there are; of pools of 128 every one is seen."""
    layers = steps(read(), 102_400.0 - 1.0)
    seen = [attention_shape(op).seen for ops in layers for op in ops if op.name == "attention.core"]
    assert seen == [128.0, 128.0 + 800.0, 128.0 + 512.0, 128.0 + 800.0]
    scored = [op.facts["keys"] for ops in layers for op in ops if op.name.endswith("index_scores")]
    assert scored == [25_600.0]


def test_ranks_hold_heads_by_groups_and_run_as_many_as_the_kernel_does() -> None:
    """8 of 64 heads on each of 8 ranks, padded to 64; prompts, too."""
    for seq, past in ((1.0, 999.0), (512.0, 0.0)):
        ops = {op.name: op for op in steps(read(), past, Plan(tp=8), seq)[1]}
        shape = attention_shape(ops["attention.core"])
        assert (shape.heads, shape.kv_heads, shape.queries) == (64.0, 1.0, 1.0)
        low = work(ops["attention.out_low"]).flop
        assert low == 2.0 * seq * 8 * 512 * 1024  # heads of a rank, their width, the low rank


@pytest.mark.parametrize(("bits", "key"), [(16.0, 1024.0), (8.0, 584.0)])
def test_a_token_keeps_shares_of_pools(bits: float, key: float) -> None:
    """vLLM: 448 + 2 · 64 + 8 bytes of a key in 8 bits, an index key of 128 with a scale of 4."""
    cache = Cache.of(read(), Plan(), engine_of("vllm"), bits)
    kinds = {(kind.window, kind.token_bytes): kind.layers for kind in cache.kinds}
    assert kinds == {(128, key): 4, (0, key / 128): 2, (0, (key + 132.0) / 4): 1}
    heavy, sparse = 128 * 2 * 512 * 4.0, 8 * 4 * (512 + 128) * 4.0
    assert cache.state_bytes == 2 * heavy + sparse


def test_pro_keeps_and_computes_what_its_makers_say() -> None:
    """At 2²⁰ tokens 9.62 GiB with index keys in 16 bits, and 27 % of DeepSeek-V3.2's flop."""
    pro = read_model("DeepSeek-V4-Pro")
    kinds = Cache.of(pro, Plan(), engine_of("vllm"), 16.0).kinds
    pools = sum(k.layers * k.token_bytes for k in kinds if not k.window)
    wider_index = 30 * (256.0 - 132.0) / 4.0
    assert (pools + wider_index) * MILLION / 2**30 == pytest.approx(9.62, abs=0.01)
    flop = [
        sum(work(op).flop for ops in steps(m, MILLION - 1.0) for op in ops if RULES[op.kind].matrix)
        for m in (pro, read_model("DeepSeek-V3.2"))
    ]
    assert flop[0] / flop[1] == pytest.approx(0.27, abs=0.02)


def test_layers_hand_on_every_stream() -> None:
    model, run = read(), Pass(1.0, 128.0)
    for made in (build_embedding(model, run), build_block(model, model.blocks[0], run)):
        assert dict(made.result.dims)["streams"] == 4.0
    read_by_norm = next(n for n in build_head(model, run).forward if n.name == "head.norm")
    assert "streams" not in dict(read_by_norm.inputs[0].dims)


def test_a_step_of_training_counts_pools_and_streams() -> None:
    """Whatever is trained has a gradient: as many weights as the model has."""
    model = read()
    program = compile_program(model, Plan(), Pass(1.0, 512.0), format_named("bf16"))
    names = {w.name for graph in program.blocks for n in graph.forward for w in _weights(n)}
    own = {p.name for block in model.blocks for p in block.parameters(model.hidden)}
    assert own <= names


def _weights(node: Any) -> tuple[Any, ...]:
    return node.weights if isinstance(node, Op) else ()


def test_a_prediction_module_sees_its_window_alone() -> None:
    module = prediction_module(read())
    attention = module.blocks[0].attention
    assert attention
    assert attention.pooled
    assert (attention.pooled.rate, attention.indexer, module.streams) == (0, None, 4)
    ops = {op.name: op for op in steps(module, 5000.0)[0]}
    assert work(ops["join.stream"]).flop == 4.0 * work(ops["join.embedding"]).flop


def test_experts_are_released_narrower_than_the_rest() -> None:
    model = read_model("DeepSeek-V4-Flash")
    assert model.released.format == "mxfp4-experts-fp8"
    run = Pass(8.0, 1.0, 999.0, training=False, decoding=True, sparse=SparseKernel())
    program = compile_program(model, Plan(), run, format_named("mxfp4-experts-fp8"))
    bits = {w.name: w.bits for n in program.blocks[0].forward for w in _weights(n)}
    assert bits["experts.down"] == 4.25
    assert bits["attention.q_up"] == bits["shared.down"] == 8.002
    assert bits["attention.mix"] == bits["experts.router"] == 16.0


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"compress_ratios": [0, 4, 128, 7]}, "compress_ratios has '7'"),
        ({"layer_types": ["full_attention"] * 4}, "layer_types has 'full_attention'"),
        ({"compress_ratios": [0, 4]}, "compress_ratios has 2 entries for 4 layers"),
        ({"o_groups": 7}, "64 heads do not divide into 7 groups"),
    ],
)
def test_what_is_not_known_is_refused_in_words(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(BadConfig, match=said):
        read(**fields)


@pytest.mark.parametrize(
    ("chip", "weights"),
    [("H200-SXM-141GB", "mxfp4-experts-fp8"), ("A100-SXM4-80GB", "mxfp4-experts-w8a16")],
)
def test_a_chip_without_fp8_keeps_the_rest_in_eight_bits(chip: str, weights: str) -> None:
    assert served_weights(read_model("DeepSeek-V4-Flash"), accelerator(chip)).name == weights
