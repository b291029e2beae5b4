"""Decode context parallelism: ranks that would hold the same keys hold a part of them each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import trueflops as tf
from trueflops.cli.main import main
from trueflops.graph import Op, Pass, compile_program
from trueflops.graph.build.layout import SparseKernel
from trueflops.graph.ir import Collective, Node
from trueflops.graph.kinds import CollectiveKind, Kind
from trueflops.graph.passes import traffic_bytes
from trueflops.graph.rules import work
from trueflops.interop.engines import read_command
from trueflops.interop.engines.commands import flag_words
from trueflops.plan import serving_plan
from trueflops.plan.spread import ways_to_spread
from trueflops.predict import Pools, ServingPoint
from trueflops.predict.serving.cache import Cache
from trueflops.predict.serving.speculation import Speculation
from trueflops.profile.engines import engine_of, engine_on
from trueflops.search.configurations import search_configurations
from trueflops.search.serving import Limits

LATENT, HEADS, CHOSEN = "DeepSeek-V3", "Qwen3-235B-A22B", "DeepSeek-V3.2"
BATCH, PAST = 32.0, 8191.0


def nodes(
    model: str, dcp: int, *, seq: float = 1.0, past: float = PAST, masks: bool = False,
    cache_bits: float = 16.0,
) -> list[Node]:  # fmt: skip
    """The last layer of a rank of tp 8."""
    read = tf.read_model(model)
    sparse = SparseKernel(masks=masks) if model == CHOSEN else None
    run = Pass(BATCH, seq, past, training=False, decoding=seq == 1.0, sparse=sparse,
               cache_bits=cache_bits)  # fmt: skip
    program = compile_program(read, serving_plan(read, "bf16", tp=8, dcp=dcp), run)
    return list(program.blocks[-1].forward)


def attention(found: list[Node], part: str = "core") -> Op:
    kinds = (Kind.ATTENTION, Kind.ATTENTION_DECODE)
    own = (n for n in found if isinstance(n, Op) and n.kind in kinds)
    return next(n for n in own if n.part == part)


def sent(found: list[Node]) -> list[Collective]:
    return [n for n in found if isinstance(n, Collective) and n.axis == "dcp"]


@pytest.mark.parametrize(("model", "dcp"), [(LATENT, 8), (LATENT, 2), (HEADS, 2)])
def test_a_step_multiplies_as_much_and_reads_less(model: str, dcp: int) -> None:
    alone, spread = attention(nodes(model, 1)), attention(nodes(model, dcp))
    assert work(spread).flop == pytest.approx(work(alone).flop)
    assert dict(spread.inputs[0].dims)["heads"] == dcp * dict(alone.inputs[0].dims)["heads"]
    assert work(spread).streamed_bytes == pytest.approx(work(alone).streamed_bytes / dcp)


def test_a_step_gathers_queries_and_merges_answers() -> None:
    queries, sums, answers = sent(nodes(LATENT, 8))
    assert [n.kind for n in (queries, sums, answers)] == [
        CollectiveKind.ALL_GATHER, CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER,
    ]  # fmt: skip
    assert queries.payload.bytes == BATCH * 128 * (512 + 64) * 2
    assert sums.payload.bytes == 8 * BATCH * 128 * 4
    assert answers.payload.bytes == BATCH * 128 * 512 * 2
    assert dict(answers.outputs[0].dims)["heads"] == 16.0


def test_a_prompt_needs_others_for_the_tokens_before_it_alone() -> None:
    for model, dcp in ((LATENT, 8), (HEADS, 2)):
        alone, spread = (nodes(model, n, seq=1024.0, past=0.0) for n in (1, dcp))
        assert all(n.group == 1.0 for n in sent(spread))
        assert traffic_bytes(spread) == traffic_bytes(alone)
    latents = sent(nodes(LATENT, 8, seq=1024.0, past=4096.0))
    assert [n.group for n in latents] == [8.0, 8.0]
    assert sum(n.payload.bytes for n in latents) == BATCH * 4096 * (512 + 64) * 2
    narrow = sent(nodes(LATENT, 8, seq=1024.0, past=4096.0, cache_bits=8.0))
    assert [n.payload.bytes for n in narrow] == [n.payload.bytes for n in latents]  # widened first
    queries, _, answers = sent(nodes(HEADS, 2, seq=1024.0, past=4096.0))
    assert queries.payload.bytes == answers.payload.bytes == BATCH * 1024 * 16 * 128 * 2


@pytest.mark.parametrize("seq", [1.0, 4096.0])
def test_an_indexer_scores_the_ranks_own_keys_and_shares_the_best(seq: float) -> None:
    alone, spread = (nodes(CHOSEN, dcp, seq=seq) for dcp in (1, 8))
    ours, all_ = (attention(found, "attention") for found in (spread, alone))
    for what in ("keys", "seen", "cache_bytes"):
        assert ours.facts[what] == pytest.approx(all_.facts[what] / 8)
    assert ours.outputs[0].elements == pytest.approx(all_.outputs[0].elements / 8)
    candidates, queries, *_ = sent(spread)
    assert candidates.payload.bytes == BATCH * seq * 8 * 2048 * 8
    assert queries.payload.bytes == BATCH * seq * 128 * (512 + 64) * 2
    assert attention(spread).facts["keys"] == attention(alone).facts["keys"] / 8


def test_a_kernel_that_masks_walks_over_the_keys_of_others() -> None:
    alone, spread = (attention(nodes(CHOSEN, dcp, masks=True)).facts for dcp in (1, 8))
    assert spread["keys"] == alone["keys"]
    assert spread["cache_bytes"] == alone["cache_bytes"] / 8


def test_a_cache_has_room_for_so_many_times_the_tokens() -> None:
    model, engine = tf.read_model(LATENT), engine_of("vllm")
    alone, spread = (
        Cache.of(model, serving_plan(model, "bf16", tp=8, dcp=dcp), engine, 16.0) for dcp in (1, 4)
    )
    assert spread.tokens(1e11, 8192) == pytest.approx(4 * alone.tokens(1e11, 8192), rel=1e-3)
    assert spread.block == 4 * alone.block
    assert spread.block_bytes == alone.block_bytes  # as vLLM counts: blocks of all ranks together


def test_what_ranks_hold_alike_says_how_far_keys_can_be_spread() -> None:
    ways = {name: ways_to_spread(tf.read_model(name), 8) for name in (LATENT, HEADS)}
    assert ways == {LATENT: [1, 2, 4, 8], HEADS: [1, 2]}
    assert ways_to_spread(tf.read_model("Llama-3.1-70B"), 4) == [1]  # two heads on every rank
    for others in ("Llama-3.1-8B", "Gemma-3-27B", "DeepSeek-V4-Pro", "Qwen3-Next-80B-A3B"):
        assert ways_to_spread(tf.read_model(others), 8) == [1], others


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((LATENT, "--tp", "8", "--dcp", "3"), "use dcp 1, 2, 4, 8"),
        ((HEADS, "--tp", "4", "--dcp", "2"), "no two ranks hold the same keys"),
        (("Llama-3.1-70B", "--tp", "4", "--dcp", "2"), "no two ranks hold the same keys"),
        ((LATENT, "--tp", "8", "--dcp", "8", "--engine", "vllm", "--release", "0.8.0"), "newer"),
        (("Gemma-3-27B", "--tp", "8", "--dcp", "2"), "leave dcp out"),
        ((LATENT, "--tp", "8", "--dcp", "8", "--engine", "trt-llm"), "leave dcp out, or use vLLM"),
        ((CHOSEN, "--tp", "8", "--dcp", "8", "--engine", "vllm"), "use --cache fp8"),
        ((CHOSEN, "--tp", "8", "--dcp", "8", "--engine", "sglang"), "or use vLLM"),
        ((LATENT, "--dcp", "8", "--users", "8", "--tpot", "50ms"), "does not read --dcp"),
        ((LATENT, "--dcp", "8", "--prefill", "1xtp4", "--decode", "1xtp4"), "does not read --dcp"),
    ],
)
def test_what_cannot_be_spread_is_refused(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["infer", *words, "--on", "8xH200"]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_question_about_chips_does_not_ignore_it(capsys: pytest.CaptureFixture[str]) -> None:
    for on, goal in (("H200,H100", ("--users", "8", "--tpot", "100ms")), ("H200+H100", ())):
        assert main(["infer", "Llama-3.1-8B", "--on", on, "--dcp", "2", *goal]) == 2
        assert "--dcp" in capsys.readouterr().err


def test_training_has_no_cache_to_spread() -> None:
    model = tf.read_model(HEADS)
    workload = tf.Training(tokens=1e9, seq=4096, global_batch=64)
    with pytest.raises(tf.TrueflopsError, match="training has --cp"):
        tf.check_plan(tf.Plan(tp=8, sp=True, dcp=2), model, 8, workload)


def test_it_is_read_from_commands_and_written() -> None:
    for engine, flag in (("vllm serve", "-dcp 8"), ("sglang serve", "--dcp-size 8")):
        said = read_command(f"{engine} deepseek-ai/DeepSeek-V3 --tp 8 {flag}")
        assert (said.tp, said.dcp, said.ignored) == (8, 8, ())
        again = " ".join(flag_words(said))
        assert read_command(f"{engine} {again}").dcp == 8


def test_it_may_be_typed_beside_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "serve.sh"
    script.write_text("vllm serve deepseek-ai/DeepSeek-V3 -tp 8 -dcp 8\n")
    for typed, plan in ((), "tp 8 · dcp 8,"), (("--dcp", "4"), "tp 8 · dcp 4,"):
        main(["infer", LATENT, "--on", "8xH200", "--from", str(script), *typed])
        assert plan in " ".join(capsys.readouterr().out.split())


def test_an_answer_says_that_spreading_would_make_room(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ["infer", LATENT, "--on", "8xH200", "--tp", "8", "--engine", "vllm", "--input", "32768"]
    assert main([*asked, "--concurrency", "128"]) == 1
    assert "or with --tp 8 --dcp 8." in " ".join(capsys.readouterr().out.split())
    assert main([*asked, "--concurrency", "128", "--dcp", "8", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["plan"]["dcp"] == 8


def test_a_pool_may_spread_its_keys(capsys: pytest.CaptureFixture[str]) -> None:
    pools = ["--prefill", "1xtp8", "--decode", "1xtp8dcp8"]
    main(["infer", LATENT, "--on", "16xH200", "--engine", "vllm", *pools])
    assert "tp 8 · dcp 8" in " ".join(capsys.readouterr().out.split())


def asked(requests: int, read: int = 32768, written: int = 1024) -> tf.Server:
    where = tf.cluster("8xH200")
    chip, load = where.accelerator, tf.Serving(read, written, requests)
    engine, profile = engine_on("vllm", chip), tf.profile_of(chip, "vllm")
    return tf.Server(tf.read_model(LATENT), load, where, profile, weights="fp8", engine=engine)


def point(requests: int, read: int, written: int, dcp: int = 1) -> ServingPoint:
    server = asked(requests, read, written)
    return server.predict(serving_plan(server.model, server.dtype, tp=8, dcp=dcp))


def test_keys_are_spread_as_far_as_requests_need() -> None:
    assert point(128, 32768, 1024).spread_for(64) == 4
    alone = point(1, 900_000, 100)  # not even one has room
    assert (alone.most_requests, alone.spread_for(1)) == (0, 2)
    assert point(1, 900_000, 100, alone.spread_for(1)).fits
    many = point(2200, 700, 100)  # of which the engine lets in 1,024
    assert many.spread_for(2200) == 2
    assert point(2200, 700, 100, 2).fits


def test_a_prompt_that_fits_no_rank_is_searched_with_spread_keys() -> None:
    best = tf.search_serving(asked(1, 900_000, 100), Limits())[0]
    assert best.plan.dcp > 1
    loaded = search_configurations(asked(1, 900_000, 100), Limits(), any_load=True, pools=False)
    assert any(isinstance(p, ServingPoint) and p.plan.dcp > 1 for p in loaded.points)
    assert loaded.tried == len(loaded.points) + loaded.refused.total()


def test_a_drafter_of_its_own_keeps_its_keys() -> None:
    """As its time does: Qwen3-8B on tp 8 has a head of keys on every rank."""
    where = tf.cluster("8xH200")
    model, draft = tf.read_model(HEADS), tf.read_model("Qwen3-8B")
    speculation = Speculation.of(model, "draft", draft=draft, drafted=4)
    profile = tf.profile_of(where.accelerator, "vllm")

    def cache_bytes(dcp: int, drafts: Speculation | None) -> float:
        load = tf.Serving(32768, 1024, 8)
        server = tf.Server(model, load, where, profile, weights="fp8", speculation=drafts)
        plan = serving_plan(model, server.dtype, tp=8, dcp=dcp)
        return server.predict(plan).cache_bytes_per_accelerator

    beside = [cache_bytes(dcp, speculation) - cache_bytes(dcp, None) for dcp in (1, 2)]
    assert beside[0] == pytest.approx(beside[1], rel=1e-3)


def test_a_pool_that_spreads_its_keys_fetches_a_part_on_each_rank() -> None:
    server = asked(8)
    alone, spread = (serving_plan(server.model, server.dtype, tp=8, dcp=dcp) for dcp in (1, 8))
    pools = Pools(server)
    whole, part = (pools.transfer(alone, to)[1] for to in (alone, spread))
    assert part < 0.2 * whole
    assert pools.transfer(spread, alone)[1] == whole


def test_a_search_spreads_keys_where_the_cache_is_full() -> None:
    best, *others = tf.search_serving(asked(128), Limits())
    assert best.plan.dcp > 1
    assert best.fits
    alone = [p for p in others if p.plan.dcp == 1]
    assert all(p.tokens_per_second.value < best.tokens_per_second.value for p in alone)
    assert all(p.plan.dcp == 1 for p in tf.search_serving(asked(8), Limits()))


def test_the_largest_load_in_time_may_need_spread_keys() -> None:
    limits = Limits(tpot_seconds=0.1)
    found = search_configurations(asked(8), limits, any_load=True, pools=False).points
    spread = [p for p in found if isinstance(p, ServingPoint) and p.plan.dcp > 1]
    assert all(map(limits.met, spread))
    loads = [(p.plan.but(dcp=1), int(p.workload.concurrency)) for p in spread]
    assert any(not asked(requests).predict(plan).fits for plan, requests in loads)
