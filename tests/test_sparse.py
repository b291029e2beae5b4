"""Sparse attention: what an indexer adds, what its choice saves, and how engines run it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers

import trueflops as tf
from trueflops.catalog import accelerator
from trueflops.catalog.models import model_record
from trueflops.errors import BadConfig
from trueflops.graph.ir import Op
from trueflops.graph.shapes import attention_shape
from trueflops.model import Model, prediction_module
from trueflops.model.config import Config
from trueflops.model.layers import Attention
from trueflops.model.read import model_from
from trueflops.predict.serving.cache import Cache
from trueflops.predict.serving.passes import Passes
from trueflops.profile import Engine, engine_of, engine_on
from trueflops.serve.step_clock import step_clock

H200 = accelerator("H200-SXM-141GB")
TP = tf.Plan(tp=8)


def passes(model: str, engine: Engine, chips: str = "8xH200") -> Passes:
    where = tf.cluster(chips)
    profile = tf.profile_of(where.accelerator, engine.name)
    return Passes(tf.read_model(model), where, profile, "fp8", 16.0, engine=engine)


def attention_seconds(made: Passes, plan: tf.Plan, seq: float, past: float = 0.0) -> float:
    costs = made.costs(plan, 1.0, seq, past)
    return float(sum(b.of_cause("forward", "attention") for b in costs.blocks))


def cores(made: Passes, seq: float, past: float) -> list[Op]:
    program = made.program(TP, 4.0, seq, past)
    nodes = [n for graph in program.blocks for n in graph.forward if isinstance(n, Op)]
    return [n for n in nodes if n.kind.value.startswith("attention")]


@pytest.mark.parametrize(("bits", "latent"), [(16.0, 1152.0), (8.0, 656.0)])
def test_a_token_keeps_its_latent_and_an_index_key(bits: float, latent: float) -> None:
    """vLLM: 656 bytes of fp8_ds_mla, and an index key of 128 bytes with a scale of 4."""
    model = tf.read_model("DeepSeek-V3.2")
    cache = Cache.of(model, TP, engine_of("vllm"), bits)
    assert cache.token_bytes == 61 * (latent + 132.0)


def test_a_prompt_that_would_be_chosen_whole_is_dense_where_the_engine_does_so() -> None:
    dense, sparse = engine_on("vllm", H200), engine_on("vllm", H200, "0.13.0")
    short = [cores(passes("DeepSeek-V3.2", e), 2000.0, 0.0) for e in (dense, sparse)]
    assert {op.name for op in short[0]} == {"attention.core"}
    assert {op.name for op in short[1]} == {"attention.core", "attention.index_scores"}
    assert len(cores(passes("DeepSeek-V3.2", dense), 2000.0, 100.0)) == len(short[1])


def test_heads_are_padded_to_what_the_kernel_is_built_for() -> None:
    """16 heads a rank run as 64, over all 2,048 keys that could be chosen, of the 128 there are."""
    core = next(
        op
        for op in cores(passes("DeepSeek-V3.2", engine_on("vllm", H200, "0.13.0")), 128.0, 0.0)
        if op.name == "attention.core"
    )
    shape = attention_shape(core)
    assert (shape.heads, shape.seen, shape.batch) == (64.0, 2048.0, 4.0 * 128.0)
    paged = cores(passes("DeepSeek-V3.2", engine_on("sglang", H200)), 1.0, 5000.0)
    shapes = {op.name: attention_shape(op) for op in paged}
    assert (shapes["attention.core"].heads, shapes["attention.core"].seen) == (16.0, 2048.0)
    assert shapes["attention.index_scores"].heads == 64.0  # every rank scores all of them


def test_what_the_choice_costs_and_saves() -> None:
    """Short prompts pay for padded heads under tensor parallelism; long ones save by far more."""
    old = engine_on("vllm", H200, "0.13.0")
    v3, v32 = (passes(name, old) for name in ("DeepSeek-V3", "DeepSeek-V3.2"))
    assert attention_seconds(v32, TP, 1024.0) > 3.0 * attention_seconds(v3, TP, 1024.0)
    whole = tf.Plan(dp_replicate=8, etp=8)
    far = [attention_seconds(made, whole, 1024.0, 128_000.0) for made in (v3, v32)]
    assert far[1] < 0.3 * far[0]


def test_passes_of_both_kinds_are_priced_together_as_alone() -> None:
    made = passes("DeepSeek-V3.2", engine_on("sglang", H200))
    pasts = np.array([0.0, 30_000.0, 1024.0, 3000.0])
    together = made.costs(TP, 1.0, 1024.0, pasts)
    for i, past in enumerate(pasts.tolist()):
        alone = made.costs(TP, 1.0, 1024.0, past)
        for one, all_of_them in zip(alone.blocks, together.blocks, strict=True):
            for key, seconds in one.seconds.items():
                assert np.broadcast_to(all_of_them.seconds[key], 4)[i] == pytest.approx(seconds)


def test_the_last_chunk_of_a_long_prompt_takes_what_its_pass_takes() -> None:
    """A pair of query and key costs what it does on the way to the end, not in the first chunks."""
    engine = engine_on("sglang", H200)
    where = tf.cluster("8xH200")
    server = tf.Server(
        tf.read_model("DeepSeek-V3.2"), tf.Serving(32_768, 100, 1), where,
        tf.profile_of(where.accelerator, "sglang"), weights="fp8", engine=engine,
    )  # fmt: skip
    clock = step_clock(server, TP, 4, 33_000.0, 8192)
    past = 32_768.0 - 8192.0
    costs = server.passes.costs(TP, 1.0, 8192.0, past)
    asked = server.passes.time("prefill", costs, TP, graphs=False)
    found = clock.prompts(8192.0, 8192.0 * (past + 4096.0))
    assert found == pytest.approx(float(asked.value), rel=0.02)


def glm(**fields: Any) -> Model:
    small = {"num_hidden_layers": 8, "vocab_size": 1024, "n_routed_experts": 8}
    config = model_record("GLM-5")["config"] | small | fields
    return model_from(Config(config, "config.json"), "GLM-5 with shared choices")


SAID = ["full", "full", "full", "shared", "shared", "shared", "full", "shared"]


@pytest.mark.parametrize(
    "fields",
    [
        {"index_topk_freq": 4, "index_skip_topk_offset": 3},
        {"index_topk_pattern": "FFFSSSFS"},
        {"indexer_types": SAID},
    ],
)
def test_layers_that_share_a_choice_have_no_indexer_of_their_own(fields: dict[str, Any]) -> None:
    model = glm(**fields)
    chosen = [model.blocks[i].attention for i in model.pattern]
    assert [a.indexer.shared for a in chosen if a and a.indexer] == [k == "shared" for k in SAID]
    settings = transformers.AutoConfig.for_model(
        **model_record("GLM-5")["config"]
        | {"num_hidden_layers": 8, "vocab_size": 1024, "n_routed_experts": 8}
        | fields
    )
    with torch.device("meta"):
        theirs = transformers.AutoModelForCausalLM.from_config(settings)
    assert model.parameter_count == sum(p.numel() for p in theirs.parameters())


def test_a_shared_choice_is_seen_through_and_kept_once() -> None:
    """Every layer attends to 2,048 keys; four of eight score them and keep keys to score."""
    model = glm(indexer_types=SAID)
    where, engine = tf.cluster("8xH200"), engine_on("sglang", H200)
    profile = tf.profile_of(where.accelerator, "sglang")
    made = Passes(model, where, profile, "fp8", 16.0, engine=engine)
    program = made.program(TP, 4.0, 1.0, 9000.0)
    for block, graph in zip(made.model.blocks, program.blocks, strict=True):
        ops = {n.name: n for n in graph.forward if isinstance(n, Op)}
        assert block.attention
        assert block.attention.indexer
        assert ("attention.index_scores" in ops) != block.attention.indexer.shared
        assert attention_shape(ops["attention.core"]).seen == 2048.0
    assert Cache.of(model, TP, engine_of("vllm"), 16.0).token_bytes == 8 * 1152.0 + 4 * 132.0


def test_a_module_behind_a_layer_that_shares_chooses_for_itself() -> None:
    layer = prediction_module(glm(indexer_types=SAID)).blocks[0]
    assert layer.attention
    assert layer.attention.indexer
    assert not layer.attention.indexer.shared


@pytest.mark.parametrize("said", [["shared", *SAID[1:]], ["none", *SAID[1:]]])
def test_a_choice_that_nobody_made_is_refused_in_words(said: list[str]) -> None:
    with pytest.raises(BadConfig, match=r"says full or shared, of the first full"):
        glm(indexer_types=said)


def test_a_model_without_an_indexer_has_none_of_it() -> None:
    attention = tf.read_model("DeepSeek-V3").blocks[0].attention
    assert isinstance(attention, Attention)
    assert attention.indexer is None
    assert {op.name for op in cores(passes("DeepSeek-V3", engine_of("vllm")), 64.0, 9000.0)} == {
        "attention.core"
    }
