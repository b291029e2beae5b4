"""Decode context parallelism: ranks that would hold the same keys hold a part of them each."""

from __future__ import annotations

import json

import pytest

import trueflops as tf
from trueflops.cli.main import main
from trueflops.graph import Op, Pass, compile_program
from trueflops.graph.build.layout import SparseKernel
from trueflops.graph.ir import Collective, Node
from trueflops.graph.kinds import CollectiveKind, Kind
from trueflops.graph.rules import work
from trueflops.interop.engines import read_command
from trueflops.interop.engines.commands import flag_words
from trueflops.plan import serving_plan
from trueflops.plan.spread import ways_to_spread
from trueflops.predict import ServingPoint
from trueflops.predict.serving.cache import Cache
from trueflops.profile.engines import engine_of, engine_on
from trueflops.search.configurations import search_configurations
from trueflops.search.serving import Limits

LATENT, HEADS, CHOSEN = "DeepSeek-V3", "Qwen3-235B-A22B", "DeepSeek-V3.2"
BATCH, PAST = 32.0, 8191.0


def nodes(model: str, dcp: int, *, seq: float = 1.0, past: float = PAST) -> list[Node]:
    """The last layer of a rank of tp 8."""
    read = tf.read_model(model)
    sparse = SparseKernel() if model == CHOSEN else None
    run = Pass(BATCH, seq, past, training=False, decoding=seq == 1.0, sparse=sparse)
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
        assert all(n.group == 1.0 for n in sent(nodes(model, dcp, seq=1024.0, past=0.0)))
    latents = sent(nodes(LATENT, 8, seq=1024.0, past=4096.0))
    assert [n.group for n in latents] == [8.0, 8.0]
    assert sum(n.payload.bytes for n in latents) == BATCH * 4096 * (512 + 64) * 2
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
    for others in ("Llama-3.1-8B", "Gemma-3-27B", "DeepSeek-V4-Pro", "Qwen3-Next-80B-A3B"):
        assert ways_to_spread(tf.read_model(others), 8) == [1], others


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((LATENT, "--tp", "8", "--dcp", "3"), "use dcp 1, 2, 4, 8"),
        ((HEADS, "--tp", "4", "--dcp", "2"), "no two ranks hold the same keys"),
        (("Gemma-3-27B", "--tp", "8", "--dcp", "2"), "leave dcp out"),
        ((LATENT, "--tp", "8", "--dcp", "8", "--engine", "trt-llm"), "name vLLM or SGLang"),
    ],
)
def test_what_cannot_be_spread_is_refused(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["infer", *words, "--on", "8xH200"]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


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


def asked(requests: int) -> tf.Server:
    where = tf.cluster("8xH200")
    chip, load = where.accelerator, tf.Serving(32768, 1024, requests)
    engine, profile = engine_on("vllm", chip), tf.profile_of(chip, "vllm")
    return tf.Server(tf.read_model(LATENT), load, where, profile, weights="fp8", engine=engine)


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
