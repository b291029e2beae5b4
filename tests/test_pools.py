"""Two pools: limits in which their closed loop is known, and deployments that were published."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import Ask
from trueflops.catalog import cluster
from trueflops.cli import main
from trueflops.clock import Placement
from trueflops.errors import BadInput
from trueflops.graph.ir import Collective
from trueflops.model import add_copies, read_model
from trueflops.plan import Plan, check_plan, serving_plan
from trueflops.predict import Pool, PooledPoint, Pools, Server
from trueflops.predict.serving.flow import Stations, steady_flow
from trueflops.predict.serving.ranks import fullest_rank
from trueflops.profile import engine_of, profile_of
from trueflops.search import Limits, pareto, search_configurations
from trueflops.search.pooled import PoolSearch
from trueflops.search.serving import serving_plans
from trueflops.workload import Serving

Capture = pytest.CaptureFixture[str]


def server(
    model: str,
    on: str,
    load: Serving,
    weights: str = "bf16",
    copies: int = 0,
    engine: str = "sglang",
    **how: Any,
) -> Server:
    where = cluster(on)
    profile = profile_of(where.accelerator, engine)
    kept = engine_of(engine).but(**how)
    served = add_copies(read_model(model), copies)
    return Server(served, load, where, profile, weights=weights, engine=kept)


def halves(asked: Server, prefill: tuple[int, int], decode: tuple[int, int]) -> tuple[Pool, Pool]:
    made = [
        Pool(serving_plan(asked.model, asked.dtype, tp=tp), workers)
        for workers, tp in (prefill, decode)
    ]
    return made[0], made[1]


# ── the closed loop ──────────────────────────────────────────────────────────────────────────────

LOOP = Stations(
    concurrency=1.0, output=100.0, apart=0.5, prefill=0.4, readers=1.0, link=0.001, writers=1.0,
    room=1000.0,
)  # fmt: skip


def step(batch: np.ndarray) -> np.ndarray:
    return 0.01 + 0.0001 * batch


def test_one_request_never_waits() -> None:
    flow = steady_flow(LOOP, step)
    alone = 0.5 + 100.5 * 0.0101
    assert float(flow.rate) == pytest.approx(1.0 / alone, rel=1e-6)
    assert float(flow.wait) == float(flow.full) == 0.0


def test_many_requests_are_as_fast_as_the_pool_that_is_full() -> None:
    crowd = steady_flow(replace(LOOP, concurrency=500.0), step)
    assert float(crowd.rate) == pytest.approx(1.0 / 0.4, rel=1e-3)  # prefill's own rate
    small = steady_flow(replace(LOOP, concurrency=500.0, readers=100.0, room=16.0), step)
    assert float(small.batch) == pytest.approx(16.0, rel=1e-3)
    assert float(small.rate) == pytest.approx(16.0 / (100.5 * 0.0116), rel=1e-3)
    thin = steady_flow(replace(LOOP, concurrency=500.0, readers=100.0, link=2.0), step)
    assert float(thin.rate) == pytest.approx(0.5, rel=1e-3)


def test_requests_in_flight_are_all_somewhere() -> None:
    """Little's law, at every load and ratio at once."""
    loads = np.array([1.0, 3.0, 10.0, 40.0, 200.0])[:, None]
    at = replace(LOOP, concurrency=loads, readers=np.array([1.0, 4.0, 16.0]))
    flow = steady_flow(at, step)
    cycle = at.apart + flow.wait + flow.full + 100.5 * step(np.maximum(flow.batch, 1.0))
    inside = np.maximum(flow.batch, flow.rate * 100.5 * step(np.maximum(flow.batch, 1.0)))
    held = flow.rate * (cycle - 100.5 * step(np.maximum(flow.batch, 1.0))) + inside
    assert held == pytest.approx(np.broadcast_to(loads, held.shape), rel=1e-3)
    assert (np.diff(flow.rate, axis=0) > -1e-9).all()


def test_a_queue_of_one_server_at_half_load_is_an_m_d_1() -> None:
    """With endless customers: ρ·s / 2(1 − ρ)."""
    at = replace(LOOP, concurrency=1e6, apart=1e6 / 1.25 - 1.0)
    flow = steady_flow(at, step)
    assert float(flow.busy) == pytest.approx(0.5, rel=1e-2)
    assert float(flow.wait) == pytest.approx(0.5 * 0.4 / (2 * 0.5), rel=0.03)


# ── a pair of pools ──────────────────────────────────────────────────────────────────────────────


def test_no_prefill_comes_between_two_tokens() -> None:
    asked = server("Llama-3.1-70B", "16xH100", Serving(4096, 256, 16), engine="vllm")
    point = Pools(asked).predict(*halves(asked, (2, 4), (1, 8)))
    assert float(point.tpot.value) == float(point.decode.value)
    parts = float(point.prefill.value) + float(point.transfer.value) + float(point.decode.value)
    assert float(point.ttft.value) > parts
    whole = asked.predict(serving_plan(asked.model, asked.dtype, tp=8, replicas=2))
    assert float(point.tpot.value) < float(whole.tpot.value)


def test_the_cache_goes_over_the_link_that_is_there() -> None:
    """80 layers of 8 key heads, keys and values of 128 in 16 bits, 4096 tokens: 1.34 GB by tp 8."""
    sent = 80 * 8 * 2 * 128 * 2 * 4097 / 8
    near = server("Llama-3.1-70B", "8xH100", Serving(4096, 256, 8))
    far = server("Llama-3.1-70B", "16xH100", Serving(4096, 256, 8))
    plans = [serving_plan(near.model, near.dtype, tp=8)] * 2
    fast, slow = (float(Pools(s).transfer(plans[0], plans[1])[0].value) for s in (near, far))
    assert sent / 450e9 < fast < 4 * sent / 450e9  # NVLink, one direction
    assert sent / 50e9 < slow < 2 * sent / 50e9  # one 400 Gb/s adapter for each accelerator
    wide = serving_plan(near.model, near.dtype, tp=1)
    assert Pools(far).transfer(wide, plans[0])[0].value > 4 * slow  # one rank sends it all


def test_too_few_readers_limit_and_more_of_them_help() -> None:
    asked = server("Llama-3.1-8B", "8xH100", Serving(8192, 64, 256), engine="vllm")
    few = Pools(asked).predict(*halves(asked, (1, 1), (7, 1)))
    more = Pools(asked).predict(*halves(asked, (6, 1), (2, 1)))
    assert few.limited_by == "prefill"
    assert few.prefill_busy == pytest.approx(1.0, abs=0.02)
    assert float(more.tokens_per_second.value) > 3 * float(few.tokens_per_second.value)
    assert float(more.ttft.value) < float(few.ttft.value)


def test_dollars_of_both_pools_are_all_dollars() -> None:
    asked = server("Llama-3.1-70B", "16xH100", Serving(4096, 256, 16))
    for point in (
        Pools(asked).predict(*halves(asked, (2, 4), (1, 8))),
        asked.predict(serving_plan(asked.model, asked.dtype, tp=8, replicas=2)),
    ):
        apart, usd = point.usd_apart, point.usd_per_million_tokens
        assert apart is not None
        assert usd is not None
        paid = float(apart.read.value) * 4096 / 256 + float(apart.written.value)
        assert paid == pytest.approx(float(usd.value), rel=1e-6)
        assert 0 < float(apart.read.value) < float(apart.written.value)


# ── wide expert parallelism, as published; nothing was fitted to these ───────────────────────────

LOW_LATENCY = {8: (77, 114), 16: (118, 195), 32: (155, 273), 64: (173, 314), 128: (192, 369)}
"""Microseconds of dispatch and combine by ranks on H800 with 400 Gb/s each, 128 tokens a rank
(deepseek-ai/DeepEP, docs/legacy.md, 'Low-latency kernels with pure RDMA')."""


@pytest.mark.parametrize("ranks", LOW_LATENCY)
def test_exchanges_of_a_decode_step_take_what_deepep_measured(ranks: int) -> None:
    asked = server("DeepSeek-V3", f"{ranks}xH800", Serving(4096, 2, 1), "fp8")
    plan = serving_plan(asked.model, asked.dtype, replicas=ranks, ep=ranks)
    nodes = asked.passes.program(plan, 128.0, 1.0, 4096.0).blocks[-1].forward
    sent = [node for node in nodes if isinstance(node, Collective) and node.axis == "ep"]
    took = [float(each.seconds) * 1e6 for each in asked.clock.transfers(sent, Placement.of(plan))]
    assert took == pytest.approx(list(LOW_LATENCY[ranks]), rel=0.15)


def test_sglang_on_96_h100() -> None:
    """DeepSeek-V3, 2,000 tokens in and 100 out, two-batch overlap: 52.3 k tokens/s read by a node
    (of 4, EP32) and 22.3 k written (of 9, EP72 with 32 redundant experts), with 256 requests a GPU
    (lmsys.org/blog/2025-05-05-large-scale-ep).
    """
    how: dict[str, Any] = {"two_batches": True, "step_tokens": 16384}
    asked = server("DeepSeek-V3", "32xH100", Serving(2000, 100, 512), "fp8", **how)
    plan = serving_plan(asked.model, asked.dtype, replicas=32, ep=32)
    busy = Pools(asked).reading(plan, most_together=8).busy(plan)
    assert 8 * 2000 / busy == pytest.approx(52300, rel=0.15)
    asked = server("DeepSeek-V3", "72xH100", Serving(2000, 100, 72 * 256), "fp8", 32, **how)
    plan = serving_plan(asked.model, asked.dtype, replicas=72, ep=72)
    check_plan(plan, asked.model, 72)
    assert 8 * 256 / float(Pools(asked).step(plan, 256).value) == pytest.approx(22300, rel=0.15)


def test_ranks_in_step_wait_for_the_fullest() -> None:
    """By as much as the fullest of many random ones is fuller; a replica alone waits for nobody."""
    load, rng = Serving(1024, 8192, 64 * 64), np.random.default_rng(1)
    wide, alone = Plan(dp_replicate=64, ep=64), Plan(tp=8, ep=8)
    assert fullest_rank(alone, 64, load) == 1.0
    contexts = 1024 + 8192 * rng.random((200, 64, 64))  # tries, ranks, requests
    seen = contexts.sum(axis=2).max(axis=1).mean() / contexts.sum(axis=2).mean()
    assert fullest_rank(wide, 64, load) == pytest.approx(seen, abs=0.02)


def test_redundant_experts_take_room_and_let_more_ranks_share() -> None:
    own, more = (add_copies(read_model("DeepSeek-V3"), copies) for copies in (0, 32))
    each = 3 * 7168 * 2048
    assert more.parameter_count - own.parameter_count == pytest.approx(58 * 32 * each, rel=1e-3)
    with pytest.raises(BadInput, match="no experts"):
        add_copies(read_model("Llama-3.1-8B"), 1)


def test_two_batches_help_where_experts_are_far() -> None:
    """Inside a node weights that are read twice cost more than the exchange."""
    loads = Serving(2000, 100, 64 * 256)
    for on, ranks in (("64xH100", 64), ("8xH200", 8)):
        asked = server("DeepSeek-V3", on, loads, "fp8")
        other = server("DeepSeek-V3", on, loads, "fp8", two_batches=True)
        plan = serving_plan(asked.model, asked.dtype, replicas=ranks, ep=ranks)
        alone, overlapped = (float(Pools(s).step(plan, 256).value) for s in (asked, other))
        assert overlapped < 0.8 * alone if ranks == 64 else overlapped > alone
        one = (float(Pools(s).step(plan, 1).value) for s in (asked, other))
        assert next(one) == next(one)  # one token has no halves


# ── the search ───────────────────────────────────────────────────────────────────────────────────


def test_passes_of_many_plans_are_priced_as_alone() -> None:
    one, many = (server("DeepSeek-V3", "16xH200", Serving(2048, 512, 64), "fp8") for _ in "ab")
    plans = serving_plans(one)
    sizes = [(1.0, 1.0, 2304.0), (16.0, 1.0, 2304.0), (200.0, 1.0, 2500.0), (1.0, 2048.0, 0.0)]
    shapes = [(plan, *size) for plan in plans for size in sizes]
    many.passes.prepare(shapes)
    for plan, *size in shapes[::7]:
        costs = (each.passes.costs(plan, *size) for each in (one, many))
        alone, found = (one.passes.time("step", each, plan, graphs=True) for each in costs)
        assert float(found.value) == pytest.approx(float(alone.value), rel=1e-12)


@pytest.mark.parametrize(("ttft", "tpot"), [(2.0, 0.05), (0.6, 0.02), (30.0, 0.2)])
def test_whatever_is_returned_keeps_the_goals(ttft: float, tpot: float) -> None:
    asked = server("Llama-3.1-70B", "8xH100", Serving(2048, 256, 64), engine="vllm")
    limits = Limits(ttft, tpot)
    found = search_configurations(asked, limits, any_load=True)
    assert found.points
    assert all(limits.met(point) and point.fits for point in found.points)
    assert any(isinstance(point, PooledPoint) for point in found.points)
    assert all(point.cluster.count == 8 for point in found.points)
    more = search_configurations(asked, Limits(2 * ttft, 2 * tpot), any_load=True).points[0]
    best = found.points[0]
    assert float(more.tokens_per_second.value) >= float(best.tokens_per_second.value)


def test_the_ratio_that_is_found_is_the_best() -> None:
    asked = server("Llama-3.1-8B", "8xH100", Serving(4096, 128, 128), engine="vllm")
    (best, *_) = PoolSearch(asked, any_load=False).best(Limits(), Counter())
    workers = best.prefill_pool.plan, best.decode_pool.plan
    sizes = [int(plan.world) for plan in workers]
    for reading in range(1, 8):
        writing = (8 - reading * sizes[0]) // sizes[1]
        if writing >= 1:
            pools = Pool(workers[0], reading), Pool(workers[1], writing)
            other = Pools(asked).predict(*pools)
            assert float(other.tokens_per_second.value) <= 1.02 * float(
                best.tokens_per_second.value
            )


def test_nothing_in_time_says_what_came_nearest() -> None:
    asked = server("Llama-3.1-70B", "8xH100", Serving(1024, 256, 64), engine="vllm")
    found = search_configurations(asked, Limits(tpot_seconds=0.001), any_load=True)
    assert not found.points
    assert found.nearest is not None
    assert found.refused["time per token"] > 0
    assert found.tried >= sum(found.refused.values())


def test_nobody_on_the_front_is_beaten() -> None:
    asked = server("Llama-3.1-8B", "4xH100", Serving(1024, 256, 64), engine="vllm")
    front = pareto(asked, Limits(ttft_seconds=2.0))
    speeds = [1.0 / float(point.tpot.value) for point in front]
    rates = [float(point.tokens_per_second.value) for point in front]
    assert len(front) > 3
    assert speeds == sorted(speeds, reverse=True)
    assert rates == sorted(rates)
    assert all(float(point.ttft.value) <= 2.0 for point in front)


# ── the door ─────────────────────────────────────────────────────────────────────────────────────


GOALS = ("infer", "Llama-3.1-70B", "--on", "8xH100", "--ttft", "2s", "--tpot", "30ms")


def test_pools_that_were_found_can_be_typed(ask: Ask) -> None:
    found = ask(*GOALS, "--input", "2048")
    assert found["pools"]["prefill"]["accelerators"] + found["pools"]["decode"]["accelerators"] == 8
    load = str(found["cuts"][0]["concurrency"])
    words = (*GOALS, "--input", "2048", "--concurrency", load, *found["plan_flags"].split())
    typed = ask(*words)
    assert typed["in_time"]
    assert typed["pools"] == found["pools"]
    rates = [each["tokens_per_second"]["value"] for each in (found, typed)]
    assert rates[0] == pytest.approx(rates[1], rel=1e-9)


def test_accelerators_for_users(ask: Ask) -> None:
    users = ask(*GOALS, "--users", "5k")["users"]
    assert users["accelerators"] == 8 * users["clusters"]
    twice = ask(*GOALS, "--users", "10k")["users"]
    assert users["clusters"] < twice["clusters"] <= 2 * users["clusters"]


def test_no_user_waits_for_room(ask: Ask) -> None:
    """2,000 users were once offered two H100, on which they stood in a queue for 43 seconds."""
    words = ("infer", "Llama-3.1-8B", "--on", "H100,B200", "--users", "2k", "--tpot", "30ms")
    offers = ask(*words)["offers"]
    assert len(offers) == 2
    for offer in offers:
        assert offer["ttft_seconds"] < 2.0
        assert offer["plan"]["dp_replicate"] * 256 >= 2000  # as many as each replica runs at once


def test_files_for_a_goal_are_of_replicas_that_keep_it(
    ask: Ask, capsys: Capture, tmp_path: Path
) -> None:
    words = ("infer", "Llama-3.1-70B", "--on", "16xH100", "--engine", "vllm", "--ttft", "1s")
    emit = ("--emit", "dynamo", str(tmp_path / "files"))
    late = ask(*words, "--input", "4096", "--tpot", "30ms", *emit, code=1)
    assert late["written"] == ["--emit dynamo: nothing was written, as it is not in time"]
    assert not (tmp_path / "files").exists()
    found = ask(*words, "--tpot", "60ms", *emit)
    assert any("pools of workers are left out" in note for note in found["notes"])
    assert (tmp_path / "files" / "graph.yaml").exists()
    simulated = ("--rate", "50/s", "--requests", "50", "--tpot", "1ms", *emit, "--force")
    assert main([*words, *simulated]) == 1
    assert "nothing was written" in capsys.readouterr().out


def test_any_format_is_at_least_as_fast(ask: Ask) -> None:
    words = ("infer", "Llama-3.1-8B", "--on", "2xH100", "--tpot", "20ms")
    own, best = (ask(*words, *more) for more in ((), ("--weights", "any")))
    rates = [each["tokens_per_second"]["value"] for each in (own, best)]
    assert rates[1] > rates[0]
    assert best["weights"] != own["weights"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--users", "100"), "--ttft"),
        (("--prefill", "2xtp2"), "give --decode too"),
        (("--prefill", "2xtp2", "--decode", "9"), "as 2xtp4"),
        (("--prefill", "2xtp2", "--decode", "tp2tp4"), "given twice"),
        (("--prefill", "2xtp2", "--decode", "2xtp4"), "12 accelerators"),
        (("--tpot", "30ms", "--plot", "front.pdf"), "ends in .png"),
    ],
)
def test_what_cannot_be_answered_is_said(
    capsys: Capture, words: tuple[str, ...], said: str
) -> None:
    assert main(["infer", "Llama-3.1-70B", "--on", "8xH100", *words]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_front_is_drawn_in_the_terminal(capsys: Capture) -> None:
    assert main(["infer", "Llama-3.1-8B", "--on", "2xH100", "--pareto"]) == 0
    text = capsys.readouterr().out
    assert "tokens/s for one user" in text
    assert "●" in text


def test_a_plan_of_a_pool_is_one_worker() -> None:
    pool = Pool(Plan(tp=2, dp_replicate=4, ep=8), workers=3)
    assert (pool.accelerators, pool.replicas) == (24, 12)


def test_an_engine_lets_no_more_in_where_pools_are_apart() -> None:
    """Requests beyond --max-num-seqs wait for a turn, in given pools and in those of a search."""
    load = Serving(1024, 256, 64)
    few, many = (
        server("Llama-3.1-8B", "4xH100", load, most_sequences=most) for most in (8, 2048)
    )  # fmt: skip
    apart = halves(few, (2, 1), (2, 1))
    slow, fast = (Pools(each).predict(*apart) for each in (few, many))
    assert slow.running == 8 < fast.running
    assert slow.fits
    assert slow.limited_by == "decode"
    assert slow.tokens_per_second.value < fast.tokens_per_second.value
    for point in PoolSearch(few, any_load=False).best(Limits(), Counter()):
        assert point.running <= 8
