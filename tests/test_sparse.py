"""Sparse attention: what an indexer adds, what its choice saves, and how engines run it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import trueflops as tf
from trueflops.catalog import accelerator
from trueflops.catalog.models import model_record
from trueflops.errors import BadConfig
from trueflops.graph.ir import Op
from trueflops.graph.shapes import attention_shape
from trueflops.model.layers import Attention
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


def test_layers_that_share_a_choice_are_refused_in_words(tmp_path: Path) -> None:
    config = model_record("GLM-5")["config"] | {"index_topk_freq": 4}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadConfig, match="share an indexer's choice are not read yet"):
        tf.read_model(str(tmp_path / "config.json"))


def test_a_model_without_an_indexer_has_none_of_it() -> None:
    attention = tf.read_model("DeepSeek-V3").blocks[0].attention
    assert isinstance(attention, Attention)
    assert attention.indexer is None
    assert {op.name for op in cores(passes("DeepSeek-V3", engine_of("vllm")), 64.0, 9000.0)} == {
        "attention.core"
    }
