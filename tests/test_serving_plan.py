"""Servers' plans come from one constructor, and no interval of theirs goes below physics."""

from __future__ import annotations

import pytest

from trueflops.catalog import cluster
from trueflops.clock import Clock, Placement
from trueflops.clock.clock import Priced
from trueflops.graph import Graph
from trueflops.model import read_model
from trueflops.plan import serving_plan
from trueflops.predict import Server
from trueflops.profile import profile_of
from trueflops.search.serving import Limits, search_serving, serving_plans
from trueflops.verify.serving.deployment import Layout
from trueflops.workload import Serving


def server(model: str, on: str, load: Serving, weights: str = "bf16") -> Server:
    where = cluster(on)
    profile = profile_of(where.accelerator, "serving")
    return Server(read_model(model), load, where, profile, weights=weights)


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
