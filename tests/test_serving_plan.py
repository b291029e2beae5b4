"""Servers' plans come from one constructor, and no interval of theirs goes below physics."""

from __future__ import annotations

import pytest

from trueflops.catalog import cluster
from trueflops.cli import main
from trueflops.clock import Clock, Placement
from trueflops.clock.clock import Priced
from trueflops.graph import Graph
from trueflops.model import read_model
from trueflops.plan import serving_plan
from trueflops.predict import Server
from trueflops.profile import engine_of, profile_of
from trueflops.search.pooled import worker_plans
from trueflops.search.serving import Limits, search_serving, serving_plans
from trueflops.verify.serving.deployment import Layout
from trueflops.workload import Serving


def server(
    model: str, on: str, load: Serving, weights: str = "bf16", engine: str = "serving"
) -> Server:
    where = cluster(on)
    profile = profile_of(where.accelerator, engine)
    own = engine_of(engine)
    return Server(read_model(model), load, where, profile, weights=weights, engine=own)


def test_a_plan_given_is_the_plan_searched() -> None:
    """DeepSeek-V3 on 32 H100, tp 1, ep 16: 10,757 tokens a second searched, 8,881 given once."""
    asked = server("DeepSeek-V3", "32xH100", Serving(1024, 256, 1024), "fp8")
    searched = [p for p in serving_plans(asked) if (p.tp, p.pp, p.ep) == (1, 1, 16)]
    given = serving_plan(asked.model, asked.dtype, replicas=32, ep=16)
    layout = Layout(replicas=32, ep=16)
    assert searched == [given] == [layout.plan(asked.model, asked.dtype)]


@pytest.mark.parametrize("on", ["1xL40S", "1xA100", "1xRTX4090", "1xMI300X", "1xH20"])
@pytest.mark.parametrize("requests", [1, 16])
def test_no_interval_beats_the_memory_or_the_peak(on: str, requests: int) -> None:
    load = Serving(1024, 64, requests)
    asked = server("Llama-3.1-8B", on, load)
    point = asked.predict(serving_plan(asked.model, asked.dtype))
    chip = asked.cluster.accelerator
    head_and_layers = (asked.model.parameter_count - 128256 * 4096) * 2.0
    streamed = head_and_layers / chip.need("memory.bandwidth")
    assert float(point.tpot.low) >= streamed
    flop = 2.0 * (asked.model.parameter_count - 2 * 128256 * 4096) * load.input
    assert float(point.ttft.low) >= flop / chip.peak_flop_per_second(asked.dtype)
    assert float(point.tpot.low) <= float(point.tpot.value) <= float(point.tpot.high)
    most = requests / streamed
    assert float(point.tokens_per_second.high) <= most


def test_one_request_is_not_read_by_two_stages_at_once() -> None:
    """Tokens a second are at most what one request gets, where there is only one."""
    load = Serving(8192, 16, 1)
    asked = server("GPT-OSS-20B", "2xB200", load, "mxfp4-experts")
    point = asked.predict(serving_plan(asked.model, asked.dtype, pp=2))
    alone = float(point.prefill.value) + load.output * float(point.decode.value)
    assert float(point.tokens_per_second.value) <= load.output / alone * 1.01


def test_where_requests_wait_the_plan_that_writes_most_comes_first() -> None:
    asked = server("Llama-3.1-70B", "8xH100", Serving(1024, 256, 100_000))
    points = search_serving(asked, Limits(), most=5)
    rates = [float(point.tokens_per_second.value) for point in points]
    assert rates == sorted(rates, reverse=True)


def test_a_point_is_priced_in_two_calls_of_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts together, and decode steps together; what they hold needs no price."""
    priced: list[int] = []
    price = Clock.price

    def counted(self: Clock, graphs: list[Graph], placement: Placement) -> list[Priced]:
        priced.append(len(graphs))
        return price(self, graphs, placement)

    monkeypatch.setattr(Clock, "price", counted)
    asked = server("Llama-3.1-70B", "8xH100", Serving(700, 300, 48))
    plan = serving_plan(asked.model, asked.dtype, tp=4)
    asked.predict(plan)
    assert len(priced) == 2
    held = asked.passes.unpriced(plan, 1.0, 700.0, 0.0)
    costs = asked.passes.costs(plan, 1.0, 700.0, 0.0)
    assert len(priced) == 2
    assert asked.memory.of(plan, held, 12)[1:] == asked.memory.of(plan, costs, 12)[1:]


# ── what an engine can run ──────────────────────────────────────────────────────────────────────

ASKED = Serving(1024, 256, 64)


def test_vllm_spreads_experts_over_all_ranks_or_none() -> None:
    """FusedMoEParallelConfig.make has no third way; tp 8 with ep 2 was once its fastest answer."""
    asked = server("DeepSeek-V3", "16xB200", ASKED, "fp8", "vllm")
    for plan in (*serving_plans(asked), *worker_plans(asked)):
        ranks = max(plan.tp, plan.ep * plan.etp)
        assert plan.ep in (1, ranks), plan
        assert ranks % plan.tp == 0
    free = server("DeepSeek-V3", "16xB200", ASKED, "fp8", "sglang")
    assert any(1 < plan.ep < plan.tp for plan in serving_plans(free))


def test_trt_llm_splits_attention_over_all_ranks_or_none() -> None:
    asked = server("DeepSeek-V3", "8xB200", ASKED, "fp8", "trt-llm")
    shared = [plan for plan in serving_plans(asked) if plan.ep * plan.etp > plan.tp]
    assert shared
    assert all(plan.tp == 1 for plan in shared)


def test_llama_cpp_has_one_axis_within_a_node_and_no_expert_parallelism() -> None:
    for plan in serving_plans(server("Qwen3-30B-A3B", "16xH100", ASKED, engine="llama.cpp")):
        assert 1 in (plan.tp, plan.pp)
        assert plan.tp * plan.pp <= 8
        assert plan.ep == 1


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_rank_holds_whole_blocks_of_fp8(engine: str) -> None:
    """1,536 columns of an expert over eight ranks do not load (vLLM's issue 17569)."""
    blocks = server("Qwen3-235B-A22B", "8xH100", ASKED, "fp8_block", engine)
    assert all(1536 // plan.etp % 128 == 0 for plan in serving_plans(blocks))
    for other in (("fp8", engine), ("fp8_block", "serving")):
        every = serving_plans(server("Qwen3-235B-A22B", "8xH100", ASKED, *other))
        assert any(plan.etp == 8 for plan in every)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("DeepSeek-V3 --on 8xB200 --engine vllm --tp 8 --ep 2", "ENGINE_EXPERTS", "write --ep 8"),
        ("DeepSeek-V3 --on 16xB200 --engine vllm --prefill 1xtp8ep4 --decode 1xtp8",
         "ENGINE_EXPERTS", "write --ep 8"),
        ("DeepSeek-V3 --on 8xB200 --engine trt-llm --tp 2 --ep 8", "ENGINE_ATTENTION", "use tp 1"),
        ("Qwen3-30B-A3B --on 8xH100 --engine llama.cpp --tp 8 --ep 8", "ENGINE_EXPERTS",
         "does not spread experts"),
        ("Llama-3.1-8B --on 8xH100 --engine llama.cpp --tp 2 --pp 2", "ENGINE_AXES", "not both"),
        ("Llama-3.1-8B --on 16xH100 --engine llama.cpp --pp 16", "ENGINE_NODES", "on one node"),
        ("Qwen3-235B-A22B-FP8 --on 8xH100 --engine sglang --tp 8", "FP8_BLOCKS",
         "1,536 columns over 8 ranks are 192 each"),
        ("Qwen3-235B-A22B-FP8 --on 8xH100 --engine vllm --tp 8", "FP8_BLOCKS",
         "use --tp 4 or --ep 8"),
    ],
)  # fmt: skip
def test_a_plan_that_its_engine_cannot_run_is_refused(
    capsys: pytest.CaptureFixture[str], words: str, code: str, says: str
) -> None:
    assert main(["infer", *words.split()]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"[{code}]" in said
    assert says in said


def test_weights_whose_blocks_no_rank_could_hold_whole_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """GPT-OSS has experts of 2,880 columns, 22.5 blocks."""
    words = ["GPT-OSS-20B", "--on", "2xH100", "--engine", "vllm", "--weights", "fp8_block"]
    assert main(["infer", *words]) == 2
    assert "use --weights bf16 or fp8" in " ".join(capsys.readouterr().err.split())
