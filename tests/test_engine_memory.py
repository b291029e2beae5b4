"""The memory of engines: what each may fill, what a pass holds, how the cache is laid out."""

from __future__ import annotations

from math import ceil

import pytest

import trueflops as tf
from trueflops.catalog.visible import visible_bytes
from trueflops.predict.serving.cache import CACHE_BITS, Cache
from trueflops.predict.serving.memory import ServerMemory
from trueflops.predict.serving.passes import Passes
from trueflops.predict.serving.trial import trial_bytes
from trueflops.profile.engines import engine_of, engine_on, release_on
from trueflops.units import GIBI


def _cache(model: str, tp: int = 1, engine: str = "vllm", release: str = "") -> Cache:
    return Cache.of(tf.read_model(model), tf.Plan(tp=tp), engine_of(engine, release), 16.0)


def _memory(engine: str, chip: str, model: str = "Llama-3.1-8B", release: str = "") -> ServerMemory:
    where = tf.cluster(chip)
    passes = Passes(
        tf.read_model(model), where, tf.profile_of(where.accelerator, engine), "bf16", 16.0
    )
    settings = engine_on(engine, where.accelerator, release)
    return ServerMemory(passes, settings, tf.Serving(1024, 1024, 1), length=8192)


@pytest.mark.parametrize(
    ("chip", "gib"),
    [("T4", 14.56), ("RTX 4090", 23.55), ("A100-40GB", 39.39), ("L40S", 44.4), ("H100", 79.19),
     ("H200", 139.80), ("MI300X", 191.45), ("M1-Max", 48.0)],
)  # fmt: skip
def test_a_program_sees_less_memory_than_is_sold(chip: str, gib: float) -> None:
    assert visible_bytes(tf.accelerator(chip)) / GIBI == pytest.approx(gib, rel=0.01)


def test_a_token_takes_keys_and_values_of_the_heads_of_a_rank() -> None:
    assert _cache("Llama-3.1-8B").token_bytes == 32 * 8 * 2 * 128 * 2
    assert _cache("Llama-3.1-8B", tp=4).token_bytes == 32 * 2 * 2 * 128 * 2
    assert _cache("Llama-3.1-8B", tp=16).token_bytes == 32 * 1 * 2 * 128 * 2  # a head on two ranks


def test_a_latent_is_on_every_rank_and_was_once_padded() -> None:
    assert _cache("DeepSeek-R1", tp=8).token_bytes == 61 * 576 * 2
    assert _cache("DeepSeek-R1", tp=8, release="0.7.3").token_bytes == 61 * 640 * 2


def test_layers_with_windows_are_grouped_as_vllm_does() -> None:
    """GPT-OSS: 12 layers of each kind; Gemma-3-27B: 10 see all, 52 are padded to six groups."""
    own = _cache("GPT-OSS-20B")
    assert [(kind.layers, bool(kind.window)) for kind in own.kinds] in (
        [(12, True), (12, False)],
        [(12, False), (12, True)],
    )
    page, block, length = 8 * 2 * 64 * 2, 16, 131072
    step = own.engine.step_tokens
    blocks = ceil(length / block) + ceil((128 - 1 + step) / block) + 1
    assert own.longest_bytes(length) == 12 * page * block * blocks
    writes = ceil(length / block) + ceil(127 / block) + 1
    assert own.block_bytes == 12 * page * block
    assert own.request_bytes(length) == 12 * page * block * writes
    assert sorted(kind.layers for kind in _cache("Gemma-3-27B").kinds) == [10, 60]
    assert len(_cache("Gemma-3-27B", release="0.9.1").kinds) == 1  # before the hybrid manager


def test_sglang_gives_windows_a_share_of_the_places() -> None:
    full = 24 * 8 * 2 * 64 * 2
    assert _cache("GPT-OSS-20B", engine="sglang").token_bytes == pytest.approx(full * 0.9)
    assert _cache("GPT-OSS-20B", engine="sglang", release="0.4.9").token_bytes == full


def test_printed_tokens_are_whole_blocks() -> None:
    cache = _cache("Llama-3.1-8B")
    block = 16 * cache.token_bytes
    assert cache.tokens(10.9 * block, 8192) == 160
    assert cache.concurrency(1024 * block, 8192) == 2.0


def test_a_trial_pass_holds_the_sampler() -> None:
    """0.11 sorted logits: llm-d-benchmark prints 4.84 GiB for Llama-3.3-70B on H100."""
    engine = engine_on("vllm", tf.accelerator("H100"), "0.11.0")
    held = trial_bytes(tf.read_model("Llama-3.3-70B"), tf.Plan(tp=2), engine)
    assert held == 8192 * 8192 * 2 + 1024 * 128256 * 38.0
    assert held / GIBI == pytest.approx(4.84, rel=0.03)


def test_a_trial_pass_of_many_tokens_is_its_ffn() -> None:
    engine = engine_on("vllm", tf.accelerator("H100")).but(step_tokens=65536, most_sequences=8)
    held = trial_bytes(tf.read_model("Llama-3.1-8B"), tf.Plan(tp=2), engine)
    assert held == 65536 * 2 * (4096 + 3 * 14336 / 2)


def test_experts_need_buffers_for_every_chosen_one() -> None:
    engine = engine_on("vllm", tf.accelerator("H100")).but(most_sequences=1)
    one, split = (
        trial_bytes(tf.read_model("Qwen3-30B-A3B"), tf.Plan(tp=tp, etp=tp), engine) for tp in (1, 4)
    )
    assert one == 8192 * 2 * (3 * 2048 + 8 * (2048 + 768))
    assert split == 8192 * 2 * (3 * 2048 + 8 * (2048 + 192))


def test_defaults_follow_the_chip_and_the_release() -> None:
    assert engine_on("vllm", tf.accelerator("RTX 4090")).step_tokens == 2048
    assert engine_on("vllm", tf.accelerator("A100")).most_sequences == 256  # as vLLM excepts it
    assert engine_on("vllm", tf.accelerator("H100")).most_sequences == 1024
    assert engine_of("vllm").memory_share == 0.92
    assert engine_of("vllm", "0.11.0").memory_share == 0.9
    assert engine_of("vllm", "0.20.0rc1").memory_share == 0.9
    assert engine_of("vllm", "v0.20.1").memory_share == 0.92
    assert engine_of(
        "vllm", release_on("vllm", "2025-07-22")
    ).windows == "whole"  # the day before 0.10  # fmt: skip
    assert release_on("vllm", "2026-09-14") == ""


@pytest.mark.parametrize(
    ("release", "ranks", "share"),
    [("0.4.6", 1, 0.88), ("0.4.6", 8, 0.81), ("0.4.9", 1, 0.875), ("", 1, 0.836), ("", 8, 0.819)],
)
def test_sglang_keeps_what_its_own_rule_says(release: str, ranks: int, share: float) -> None:
    assert engine_on("sglang", tf.accelerator("H100"), release).share(ranks) == share


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trt-llm", "serving", "llama.cpp"])
def test_the_parts_and_the_cache_fill_what_an_engine_may(engine: str) -> None:
    memory, plan = _memory(engine, "H100"), tf.Plan()
    reading = memory.passes.costs(plan, 1.0, 1.0, 0.0)
    fixed = sum(float(part.value) for part in memory.fixed(plan, reading))
    pool = memory.kv_cache(plan, reading)
    assert fixed + float(pool.bytes.value) == pytest.approx(memory.capacity(plan))
    assert float(pool.tokens.value) <= float(pool.bytes.value) / memory.cache(plan).token_bytes
    assert pool.bytes.low < pool.bytes.value < pool.bytes.high


def test_sglang_leaves_its_share_of_what_was_free() -> None:
    memory, plan = _memory("sglang", "H100"), tf.Plan()
    reading = memory.passes.costs(plan, 1.0, 1.0, 0.0)
    free = memory.visible - memory.passes.profile.curve("allocator")["context"]
    left = free - memory.weights(plan, reading) - (1 - memory.engine.share(1)) * free
    assert float(memory.kv_cache(plan, reading).bytes.value) == pytest.approx(left)


def test_tensorrt_takes_nine_tenths_of_what_is_left() -> None:
    memory, plan = _memory("trt-llm", "H100"), tf.Plan()
    reading = memory.passes.costs(plan, 1.0, 1.0, 0.0)
    parts = {part.name: float(part.value) for part in memory.fixed(plan, reading)}
    pool = float(memory.kv_cache(plan, reading).bytes.value)
    assert pool == pytest.approx(9.0 * parts["kept free"])


def test_a_larger_share_and_a_narrower_cache_hold_more() -> None:
    where = tf.cluster("H100")
    model, profile = tf.read_model("Llama-3.1-8B"), tf.profile_of(where.accelerator, "vllm")
    engine = engine_on("vllm", where.accelerator)

    def tokens(share: float, cache: str) -> float:
        server = tf.Server(
            model, tf.Serving(1024, 256, 8), where, profile,
            cache_bits=CACHE_BITS[cache], engine=engine.but(memory_share=share, shares=()),
        )  # fmt: skip
        return float(server.predict(tf.Plan()).kv_cache.tokens.value)

    assert tokens(0.5, "bf16") < tokens(0.9, "bf16")
    assert tokens(0.9, "fp8") == pytest.approx(2 * tokens(0.9, "bf16"), rel=1e-3)
    assert tokens(0.9, "q8_0") == pytest.approx(16 / 8.5 * tokens(0.9, "bf16"), rel=1e-3)


def test_cards_without_nvlink_keep_buffers_in_host_memory() -> None:
    linked, apart = (
        next(
            float(part.value)
            for part in memory.fixed(
                tf.Plan(tp=2), memory.passes.costs(tf.Plan(tp=2), 1.0, 1.0, 0.0)
            )
            if part.name == "communication buffers"
        )
        for memory in (_memory("vllm", "2xH100"), _memory("vllm", "2xRTX4090"))
    )
    assert linked > apart > 0


def test_exllama_looks_tokens_up_on_the_host_and_has_buffers_of_its_own() -> None:
    """On the card is what is multiplied: layers and head; its ranks do not talk by NCCL."""
    model, plan = tf.read_model("Llama-3.1-8B"), tf.Plan(tp=4)
    table = model.vocab * model.hidden * 2.0
    own, other = (_memory(engine, "4xRTX3090") for engine in ("exllamav3", "gpt-fast"))
    held, whole = (
        {
            part.name: float(part.value)
            for part in memory.fixed(plan, memory.passes.costs(plan, 1.0, 1.0, 0.0))
        }
        for memory in (own, other)
    )
    assert whole["weights"] - held["weights"] == pytest.approx(table / 4, rel=1e-6)
    assert held["communication buffers"] == 0.0 < whole["communication buffers"]


def test_a_servers_memory_is_no_surer_than_the_whole_of_a_training_steps() -> None:
    """Weights follow from the model, what an engine holds beside them does not."""
    memory = _memory("exllamav3", "RTX 3090")
    plan, passes = tf.Plan(), memory.passes
    whole = memory.of(plan, passes.costs(plan, 1.0, 1024.0, 0.0), 1)[0].estimate
    doubt = passes.profile.curve("allocator")["whole"]
    assert doubt > 0.0
    assert whole.low < whole.value * (1.0 - doubt) < whole.value * (1.0 + doubt) < whole.high


def test_a_pass_that_is_not_compiled_holds_what_python_still_names() -> None:
    """VLLM 0.6.4 prints 2.07 and 2.99 GiB for prompts of 20,000 and 29,000 tokens (issue 10517)."""
    model, plan = tf.read_model("Llama-3.1-8B"), tf.Plan()
    for tokens, gib in ((20000, 2.07), (29000, 2.99)):
        engine = engine_on("vllm", tf.accelerator("RTX 3090"), "0.6.4").but(step_tokens=tokens)
        held = trial_bytes(model, plan, engine)
        assert held == tokens * 2 * 3 * (4096 + 14336)
        assert held / GIBI == pytest.approx(gib, rel=0.01)
        assert trial_bytes(model, plan, engine.but(eager=False)) < held


@pytest.mark.parametrize(
    ("release", "counted"),
    [
        ("0.2.4", set()),
        ("0.3.3", {"communication buffers", "context"}),
        ("0.6.3", {"communication buffers", "libraries"}),
        ("0.6.4", {"communication buffers", "context"}),
        ("0.6.5", {"communication buffers", "libraries"}),
        ("0.9.2", {"communication buffers", "libraries"}),
    ],
)
def test_releases_of_vllm_count_less_or_more_of_what_is_taken(
    release: str, counted: set[str]
) -> None:
    memory, plan = _memory("vllm", "A100", release=release), tf.Plan()
    parts = {part.name for part in memory.fixed(plan, memory.passes.costs(plan, 1.0, 1.0, 0.0))}
    assert parts == {"weights", "working tensors"} | counted


def test_a_hybrid_that_caches_prefixes_keeps_two_states() -> None:
    """VLLM's MambaSpec.max_memory_usage_bytes: three groups of states, one block more each."""
    before, since = (_cache("Qwen3.5-27B", release=release) for release in ("0.25.1", "0.26"))
    more = since.longest_bytes(131072) - before.longest_bytes(131072)
    assert more == pytest.approx(3 * since.block_bytes)
    assert since.block == 784
