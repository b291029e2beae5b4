"""Predictions: trees that sum, one code for one plan and for many, memory stage by stage."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from trueflops.catalog import cluster
from trueflops.clock import Clock
from trueflops.model import Model, read_model
from trueflops.plan import BYTES, Plan
from trueflops.plan.pieces import deal
from trueflops.plan.plan import Engine
from trueflops.predict import Server, ServingPoint, Term, Trainer, training_bill
from trueflops.predict.training.schedule import SlowestStage, bubble_seconds, in_flight
from trueflops.predict.training.stages import representative_stages
from trueflops.profile import Curve, from_datasheet, profile_of
from trueflops.runtime.terms import Estimate, leaf, total
from trueflops.search import what_would_fit
from trueflops.sizes import Size
from trueflops.workload import Serving, Training


def trainer(name: str, on: str, seq: int = 4096, batch: int = 512) -> Trainer:
    where = cluster(on)
    return Trainer(
        read_model(name), Training(seq, batch, 1e12), where, from_datasheet(where.accelerator)
    )


def check_sums(term: Term) -> None:
    if term.parts:
        values = [float(part.value) for part in term.parts]
        whole = max(values) if term.combine == "max" else sum(values)
        assert float(term.value) == pytest.approx(whole, rel=1e-12)
    for part in term.parts:
        check_sums(part)


PLANS = [
    ("Llama-3.1-70B", "64xH100", Plan(tp=8, sp=True, pp=4, vpp=2, dp_shard=2, zero=1)),
    ("Llama-3.1-70B", "64xH100", Plan(tp=2, sp=True, cp=2, dp_shard=16, zero=3, recompute="full")),
    ("Mixtral-8x7B", "64xH100", Plan(tp=2, sp=True, dp_shard=32, zero=1, ep=8)),
    (
        "DeepSeek-V3",
        "2048xH800",
        Plan(pp=16, dp_shard=128, zero=1, ep=64, schedule="dualpipe", recompute="full"),
    ),
    ("Gemma-3-27B", "32xTPUv5p", Plan(dp_shard=32, zero=3, recompute="full")),
    (
        "GPT-3-175B",
        "128xA100",
        Plan(tp=8, pp=16, compute="fp16", flash=False, recompute="selective"),
    ),
    ("Llama-3.1-8B", "8xMI300X", Plan(dp_shard=8, zero=2, offload_optimizer=1.0)),
]


@pytest.mark.parametrize(("name", "on", "plan"), PLANS)
def test_every_total_is_the_sum_of_its_parts(name: str, on: str, plan: Plan) -> None:
    step = trainer(name, on).predict_one(plan)
    check_sums(step.step)
    check_sums(step.memory)
    whole = step.step.estimate
    assert 0 < whole.low < whole.value < whole.high
    assert training_bill(step).mfu.value < 1.0


def test_serving_totals_sum_too() -> None:
    where = cluster("8xH100")
    server = Server(
        read_model("DeepSeek-V2"), Serving(1024, 256, 32), where, from_datasheet(where.accelerator)
    )
    point = server.predict(Plan(tp=8, ep=8))
    for tree in (point.prefill, point.decode, point.memory):
        check_sums(tree)


@pytest.mark.parametrize("name", ["Llama-3.1-70B", "DeepSeek-V2-Lite", "Gemma-2-9B"])
def test_one_plan_and_many_give_the_same(name: str) -> None:
    asked = trainer(name, "64xH100")
    rng = np.random.default_rng(1)
    n = 200
    moe = asked.model.is_moe
    tp, pp = rng.choice([1.0, 2, 4, 8], n), rng.choice([1.0, 2, 4, 8], n)
    many = Plan(
        tp=tp,
        pp=pp,
        dp_shard=64 / (tp * pp),
        zero=rng.choice([0.0, 1, 2, 3], n),
        sp=True,
        vpp=rng.choice([1.0, 2, 3], n),
        micro_batch=rng.choice([1.0, 2, 4], n),
        ep=rng.choice([1.0, 2, 4], n) if moe else 1,
        recompute="full",
        recompute_layers=rng.integers(0, 30, n).astype(float),
        offload_optimizer=rng.choice([0.0, 0.5], n),
    )
    together = asked.predict(many)
    for i in range(0, n, 7):
        alone = asked.predict_one(many.pick(i))
        assert float(alone.step.value) == pytest.approx(float(np.ravel(together.step.value)[i]))
        assert float(alone.memory.value) == pytest.approx(float(np.ravel(together.memory.value)[i]))
        for a, b in zip(alone.step.leaves(), together.step.pick(i).leaves(), strict=True):
            assert float(a.value) == pytest.approx(float(b.value), rel=1e-9, abs=1e-12)


class TestStages:
    def test_layers_are_dealt_evenly_the_rest_to_the_middle(self) -> None:
        assert deal(80, 4) == [20, 20, 20, 20]
        assert deal(126, 16) == [7, *[8] * 14, 7]
        assert deal(10, 4) == [2, 3, 3, 2]
        assert sum(deal(61, 16)) == 61

    def test_first_and_last_stage_can_be_given(self) -> None:
        assert deal(80, 4, first=17, last=19) == [17, 22, 22, 19]
        assert deal(24, 4, vpp=2, first=3) == [1, 4, 4, 4, 2, 3, 3, 3]
        assert deal(24, 4, vpp=2, first=3, last=5) == [1, 4, 4, 3, 2, 4, 4, 2]

    def test_the_ends_of_an_interleaved_pipeline_may_hold_no_layer(self) -> None:
        assert deal(126, 16, vpp=8) == [0, *[1] * 126, 0]
        assert deal(126, 8, vpp=4) == [3, *[4] * 30, 3]

    @pytest.mark.parametrize(
        "name", ["DeepSeek-V3", "Gemma-3-27B", "Llama-4-Maverick", "Llama-3.1-405B"]
    )
    def test_representatives_stand_for_all_stages(self, name: str) -> None:
        """The fullest and the slowest stage are always among the representatives."""
        asked = trainer(name, "2048xH100", batch=2048)
        for plan in (
            Plan(pp=8, dp_shard=256, zero=1),
            Plan(pp=16, dp_shard=128, zero=1),
            Plan(pp=4, vpp=3, dp_shard=512, zero=1),
        ):
            every = max(float(stage.value) for stage in asked.memory_by_stage(plan))
            assert float(asked.predict_one(plan).memory.value) == pytest.approx(every)
            stages = representative_stages(asked.model, plan)
            assert stages.index.shape[0] <= 6


class TestSchedules:
    f, b, w, p, m = 1.0, 1.0, 1.0, 8.0, 32.0

    def bubble(self, schedule: str, vpp: int = 1) -> float:
        plan = Plan(pp=self.p, vpp=vpp, schedule=schedule)  # type: ignore[arg-type]
        taken: dict[str, Size] = {"forward": self.f, "recompute": 0.0, "backward": self.b}
        slow = SlowestStage(seconds={**taken, "backward_weight": self.w}, layers=1.0)
        return float(bubble_seconds(plan, self.m, self.f + self.b + self.w, slow))

    def test_bubbles_of_the_papers(self) -> None:
        p, f, b, w = self.p, self.f, self.b, self.w
        assert self.bubble("1f1b") == self.bubble("gpipe") == (p - 1) * (f + b + w)
        assert self.bubble("1f1b", vpp=4) == (p - 1) * (f + b + w) / 4
        assert self.bubble("zb-h1") == (p - 1) * (f + b - w)
        assert self.bubble("zb-h2") == (p - 1) * (f + b - 2 * w)
        assert self.bubble("dualpipe") == (p / 2 - 1) * (f + 2 * b - w)

    def test_micro_batches_in_flight(self) -> None:
        def flying(stage: float, **fields: object) -> float:
            return float(in_flight(Plan(pp=8, **fields), stage, 32.0))  # type: ignore[arg-type]

        assert [flying(s) for s in (0, 3, 7)] == [8, 5, 1]
        assert flying(0, schedule="gpipe") == 32
        assert flying(0, schedule="dualpipe") == 9
        assert flying(0, schedule="zb-h2") == 15
        # Megatron-LM: (p−1)·2 + (v−1)·p + 1 pieces of 1/v of the layers each
        assert flying(0, vpp=2) == (7 * 2 + 8 + 1) / 2


class TestIntervals:
    law = Curve({}, 0.1, "fitted", "test")

    def test_errors_of_one_cause_add_and_of_two_do_not(self) -> None:
        same = total("sum", leaf("a", 1.0, self.law, "x"), leaf("b", 1.0, self.law, "x"))
        apart = total("sum", leaf("a", 1.0, self.law, "x"), leaf("b", 1.0, self.law, "y"))
        assert float(same.estimate.spread) == pytest.approx(0.1)
        assert float(apart.estimate.spread) == pytest.approx(0.1 / np.sqrt(2))

    def test_the_weakest_origin_is_claimed(self) -> None:
        strong = leaf("a", 1.0, Curve({}, 0.1, "measured", ""), "x")
        weak = leaf("b", 1.0, Curve({}, 0.1, "assumed", ""), "y")
        assert total("sum", strong, weak).claim == "assumed"
        assert (
            total("sum", strong, leaf("b", 0.0, Curve({}, 0.1, "assumed", ""), "y")).claim
            == "measured"
        )

    def test_a_quotient_of_the_same_cause_is_certain(self) -> None:
        a = Estimate(2.0, {"x": 0.3}, "fitted")
        assert float(a.over(a).spread) == 0.0
        assert float(a.times(a).spread) == pytest.approx(0.6)
        assert float(a.under(10.0).value) == 5.0


def test_recomputation_trades_time_for_memory() -> None:
    asked = trainer("Llama-3.1-8B", "8xH100")
    plan = Plan(dp_shard=8, zero=1)
    steps = [
        asked.predict_one(plan.but(recompute="full", recompute_layers=n)) for n in (0, 8, 16, 32)
    ]
    times = [float(s.step.value) for s in steps]
    sizes = [float(s.memory["activations"].value) for s in steps]
    assert times == sorted(times)
    assert sizes == sorted(sizes, reverse=True)


def test_offload_frees_memory_and_takes_time() -> None:
    asked = trainer("Llama-3.1-8B", "8xH100")
    plan = Plan(dp_replicate=8)
    plain, host = (asked.predict_one(plan.but(offload_optimizer=x)) for x in (0.0, 1.0))
    nvme = asked.predict_one(plan.but(offload_optimizer=1.0, offload_to="nvme"))
    assert host.memory["optimizer states"].value == 0
    assert plain.step.value < host.step.value < nvme.step.value


def test_states_in_host_memory_are_updated_by_the_cores_of_the_node() -> None:
    """Every accelerator of a node waits for one memory: bytes over what all of them share."""
    usual, model = cluster("8xH100"), read_model("Llama-3.1-8B")
    plan = Plan(dp_shard=8, zero=1, offload_optimizer=1.0)

    def waited(bandwidth: float) -> float:
        where = replace(usual, node_memory_bandwidth=bandwidth, host_bandwidth=1e15)
        asked = Trainer(model, Training(4096, 8, 1e9), where, profile_of(where.accelerator))
        step = asked.predict_one(plan)
        assert step.step["optimizer"].value < 1e-3  # launches, and nothing to do
        return float(step.step["offload"].value)

    # fp32 gradient and states, and the bf16 weights that are made of them
    share = profile_of(usual.accelerator).curve("host_memory")["share"]
    moved = model.parameter_count * (BYTES[plan.summed_dtype] + 2.0 * plan.state_bytes + 2.0)
    assert waited(400e9) == pytest.approx(moved / (400e9 * share), rel=0.01)
    assert waited(200e9) == pytest.approx(2.0 * waited(400e9), rel=0.01)


def test_what_does_not_fit_gets_advice_that_fits() -> None:
    asked = trainer("Llama-3.1-70B", "64xH100")
    plan = Plan(dp_replicate=64)
    assert not asked.predict_one(plan).fits
    advice = what_would_fit(asked, Plan(tp=4, sp=True, dp_replicate=16))
    assert advice
    assert all(step.fits for _, step in advice)
    for _, step in advice:  # tried together, each is as it is alone
        alone = asked.predict_one(step.plan)
        assert float(step.step.value) == pytest.approx(float(alone.step.value), rel=1e-12)
        memory = float(asked.memory_alone(step.plan).pick(0).value)
        assert memory == pytest.approx(float(alone.memory.value), rel=1e-12)
    seconds = [float(step.step.value) for _, step in advice]
    assert seconds == sorted(seconds)


def test_hsdp_holds_more_and_talks_less_between_nodes() -> None:
    asked = trainer("Llama-3.1-8B", "64xH100")
    fsdp = asked.predict_one(Plan(dp_shard=64, zero=3, overlap=False))
    hsdp = asked.predict_one(Plan(dp_replicate=8, dp_shard=8, zero=3, overlap=False))
    assert hsdp.memory["weights"].value > fsdp.memory["weights"].value
    talk = "exposed communication"
    assert hsdp.step[talk].value < fsdp.step[talk].value


def test_latent_attention_has_a_small_cache() -> None:
    where = cluster("8xH200")

    def cache(name: str) -> float:
        server = Server(
            read_model(name),
            Serving(8192, 1024, 8),
            where,
            from_datasheet(where.accelerator),
            weights="fp8",
        )
        return server.predict(Plan(tp=8)).cache_bytes_per_accelerator

    model: Model = read_model("DeepSeek-V3")
    assert cache("DeepSeek-V3") == 61 * (512 + 64) * 2 * (8192 + 1024)
    assert model.attentions[0].cache_width == 576


def test_windows_bound_the_cache() -> None:
    where = cluster("H100")
    long = Serving(30000, 2000, 1)

    def cache(name: str) -> float:
        server = Server(read_model(name), long, where, from_datasheet(where.accelerator))
        return server.predict(Plan()).cache_bytes_per_request

    gemma = read_model("Gemma-3-1B")
    width = gemma.attentions[0].cache_width
    local = sum(gemma.attentions[i].window > 0 for i in gemma.pattern)
    window = gemma.attentions[0].window or gemma.attentions[1].window
    expected = 2 * width * (local * window + (gemma.layers - local) * 32000)
    assert cache("Gemma-3-1B") == pytest.approx(expected)


def test_the_first_wave_queues_and_the_last_has_none_behind_it() -> None:
    where = cluster("H100")
    profile = profile_of(where.accelerator, "vllm")

    def point(waves: float) -> ServingPoint:
        load = Serving(1024, 128, 32, waves)
        return Server(read_model("Llama-3.1-8B"), load, where, profile).predict(Plan())

    once, often = point(1.0), point(100.0)
    assert once.ttft.value > often.ttft.value > often.prefill.value
    assert once.tpot.value == pytest.approx(once.decode.value)
    assert often.tpot.value > once.tpot.value


def test_a_server_asked_again_answers_the_same() -> None:
    where = cluster("H100")
    first = Server(
        read_model("Llama-3.1-8B"), Serving(512, 64, 1), where, from_datasheet(where.accelerator)
    )
    load = Serving(512, 64, 16)
    fresh = Server(first.model, load, where, first.profile).predict(Plan())
    again = first.asked(load)
    assert again.predict(Plan()).tpot.value == fresh.tpot.value
    assert again.decode(Plan()).value == fresh.decode.value
    assert first.workload.concurrency == 1


@pytest.mark.parametrize("chip", ["RTX-3090", "RTX-4090", "M2-Ultra", "GB10"])
def test_one_request_writes_as_fast_as_weights_are_read(chip: str) -> None:
    """Products of one row pad no tile: about weights / (0.7–0.9 of the bandwidth)."""
    where = cluster(chip)
    profile = profile_of(where.accelerator, "llama.cpp")
    load = Serving(128, 128, 1)
    server = Server(read_model("Llama-3.1-8B"), load, where, profile, weights="q8_0")
    point = server.predict(Plan())
    bandwidth = where.accelerator.need("memory.bandwidth")
    least = float(point.memory["weights"].value) / bandwidth
    assert 0.6 < least / float(point.decode.value) < 0.9


@pytest.mark.parametrize("engine", get_args(Engine))
def test_a_single_stage_holds_what_the_step_says(engine: Engine) -> None:
    asked = trainer("Llama-3.1-8B", "8xH100", seq=2048, batch=64)
    plan = Plan(dp_shard=8, zero=3, recompute="full", engine=engine)
    (stage,) = asked.memory_by_stage(plan)
    assert stage == asked.predict_one(plan).memory


def test_the_rate_of_a_large_product_is_priced_once_for_a_profile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    where = cluster("8xH100")
    profile = from_datasheet(where.accelerator)
    rate = Clock(where, profile).matmul_rate("bf16")
    monkeypatch.setattr(Clock, "price_ops", None)
    assert Clock(where, profile).matmul_rate("bf16") == rate
