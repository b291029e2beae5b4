"""Search: exact in spite of its bounds, whatever is left open, and honest about what fell out."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from conftest import Ask
from trueflops.catalog import Accelerator, accelerator, cluster, cluster_of
from trueflops.catalog.networks import read_network, with_network
from trueflops.cli.main import main
from trueflops.model import read_model
from trueflops.plan import Plan, check_plan
from trueflops.predict import Server, Trainer
from trueflops.predict.costs import KeyedCosts
from trueflops.profile import profile_of
from trueflops.profile.frameworks import frameworks, switches
from trueflops.search import OFFLOADS, Found, Limits, Space, legal_plans, search_plans
from trueflops.search.best import surely_too_large
from trueflops.search.bounds import bounds_of
from trueflops.search.buying import (
    TOO_SLOW,
    Goal,
    Market,
    Run,
    Wish,
    chips_for_serving,
    chips_for_training,
)
from trueflops.units import SECONDS_PER_DAY
from trueflops.workload import Serving, Training


def trainer(name: str, on: str, seq: int, batch: int, framework: str = "usual") -> Trainer:
    where = cluster(on)
    profile = profile_of(where.accelerator, framework)
    return Trainer(read_model(name), Training(seq, batch, 1e9), where, profile)


SPACES = [
    pytest.param(
        "Llama-3.1-8B", "8xH100", 4096, 32,
        Space(cp=(1, 2), tp=(1, 2), pp=(1, 4), micro_batch=(1,)),
        id="8B",
    ),
    pytest.param(
        "Llama-3.2-1B", "16xA100-80GB", 2048, 32,
        Space(tp=(1, 2), cp=(1,), pp=(1, 2), offload=OFFLOADS, vpp=(1, 3), micro_batch=(1, 4)),
        id="offload",
    ),
    pytest.param(
        "Mixtral-8x7B", "16xH100", 4096, 32,
        Space(
            tp=(1, 2), cp=(1,), pp=(1, 4), micro_batch=(1,), vpp=(1, 4), recompute=("full",),
            ep=(1, 8), recompute_layers=(3.0, np.inf), zero=(1, 3),
        ),
        id="experts",
    ),
    pytest.param(
        "Qwen3-30B-A3B", "16xH100", 2048, 64,
        Space(
            tp=(1,), cp=(1,), pp=(1, 2), micro_batch=(1,), vpp=(1, 2), ep=(1, 8), zero=(1,),
            recompute=("none",), base=Plan(overlap_dispatch=True, cuda_graphs="attention,router"),
        ),
        id="overlapped",
    ),
    pytest.param(
        "Llama-3.1-70B", "16xA100-80GB", 4096, 16,
        Space(tp=(4, 8), cp=(1,), micro_batch=(1, 2), sp=(True,), zero=(1, 3), vpp=(1, 5)),
        id="70B",
    ),
]  # fmt: skip


def everything(asked: Trainer, space: Space) -> tuple[list[Plan], np.ndarray, np.ndarray]:
    """Every legal plan, predicted: the plans, their seconds where they fit, and their bytes."""
    legal = legal_plans(asked.model, asked.workload, asked.cluster, space)
    plans, seconds, memory = [], [], []
    for family in legal.families:
        some = family.all()
        step, shape = asked.predict(some), (some.count,)
        fits = np.broadcast_to(step.fits_surely, shape)
        seconds.append(np.where(fits, np.broadcast_to(step.step.value, shape), np.inf))
        memory.append(np.broadcast_to(step.memory.value, shape))
        plans += [some.pick(i) for i in range(some.count)]
    assert len(plans) == legal.count
    return plans, np.concatenate(seconds), np.concatenate(memory)


@pytest.mark.parametrize(("name", "on", "seq", "batch", "space"), SPACES)
def test_nothing_better_was_passed_over(
    name: str, on: str, seq: int, batch: int, space: Space
) -> None:
    asked = trainer(name, on, seq, batch)
    plans, seconds, memory = everything(asked, space)
    found = search_plans(asked, space, most=3)
    order = np.argsort(seconds, kind="stable")
    best = found.best[0]
    assert float(best.step.value) == pytest.approx(seconds[order[0]], rel=1e-12)
    kinds: dict[tuple[float, ...], float] = {}
    for row in order:
        if np.isfinite(seconds[row]):
            plan = plans[row]
            kinds.setdefault((plan.tp, plan.cp, plan.pp, plan.ep), seconds[row])
    expected = sorted(kinds.values())[:3]
    assert [float(step.step.value) for step in found.best] == pytest.approx(expected, rel=1e-12)
    for step in found.front:
        # Its own among all: alone, a plan's bytes are added up in another order.
        within = seconds[memory <= memory[plans.index(step.plan)]]
        assert float(step.step.value) == pytest.approx(within.min(), rel=1e-12)
    assert found.legal == len(plans) == found.too_large + found.slower + found.fitting
    assert found.complete


@pytest.mark.parametrize("framework", ["usual", "fsdp2", "megatron", "deepspeed"])
@pytest.mark.parametrize(("name", "on", "seq", "batch", "space"), SPACES)
def test_no_prediction_lies_below_its_bound(
    name: str, on: str, seq: int, batch: int, space: Space, framework: str
) -> None:
    asked = trainer(name, on, seq, batch, framework)
    legal = legal_plans(asked.model, asked.workload, asked.cluster, space)
    for family in legal.families[::3]:
        keyed: KeyedCosts = asked.keyed_costs(family.keys)
        m = family.keys.micro_batches(batch)
        bounds = bounds_of(asked.model, family, keyed, asked.clock, m)
        step = asked.predict(family.all())
        rows, again = family.with_again(np.arange(family.keys.count))
        at, columns = family.with_choices(rows)
        needed = bounds.bytes(rows, again, at, columns)
        least = bounds.chosen_seconds(rows[at], bounds.seconds(rows, again)[at], columns)
        assert (least <= np.broadcast_to(step.step.value, least.shape) * (1 + 1e-9)).all()
        held = np.broadcast_to(step.memory.value, least.shape)
        assert (needed <= held * (1 + 1e-9)).all()


def test_every_legal_plan_passes_the_rules_and_no_two_are_alike() -> None:
    asked = trainer("Mixtral-8x7B", "16xH100", 4096, 32)
    space = Space(tp=(1, 2, 4), micro_batch=(1, 2))
    legal = legal_plans(asked.model, asked.workload, asked.cluster, space)
    seen = set()
    for family in legal.families[::3]:
        some = family.all()
        for index in range(0, some.count, 307):
            plan = some.pick(index)
            check_plan(plan, asked.model, 16, asked.workload)
            assert plan not in seen
            seen.add(plan)
    assert len(seen) > 100


def found_for(name: str, on: str, seq: int, batch: int, space: Space) -> Found:
    return search_plans(trainer(name, on, seq, batch), space)


def test_dimensions_can_be_pinned() -> None:
    found = found_for("Llama-3.1-8B", "16xH100", 4096, 64, Space(tp=(4,), zero=(1,), pp=(2,)))
    assert all((s.plan.tp, s.plan.zero, s.plan.pp) == (4, 1, 2) for s in found.best)


def test_one_rank_alone_shares_with_nobody() -> None:
    assert not found_for("Llama-3.2-1B", "1xH100", 2048, 8, Space(zero=(1, 3))).legal
    assert found_for("Llama-3.2-1B", "1xH100", 2048, 8, Space(zero=(0, 1))).best[0].plan.zero == 0


def test_the_nearest_miss_is_faster_and_does_not_fit() -> None:
    found = found_for("Llama-3.1-8B", "8xH100", 8192, 64, Space())
    assert found.nearest is not None
    assert not found.nearest.fits_surely
    assert float(found.nearest.step.value) < float(found.best[0].step.value)


def test_where_nothing_fits_the_leanest_is_named() -> None:
    found = found_for("Llama-3.1-70B", "13x1xH100", 4096, 13, Space())
    assert not found.best
    assert found.nearest is not None
    assert float(found.nearest.memory.value) > found.nearest.capacity_bytes


def test_what_exceeds_all_memories_is_not_searched() -> None:
    asked = trainer("Llama-3.1-405B", "8xH100", 4096, 8)
    assert surely_too_large(asked, Space())
    assert search_plans(asked, Space()).legal == 0


def test_uneven_stages_are_tried() -> None:
    """A head of 128,000 words weighs as much as several small layers: the last stage has fewer."""
    found = found_for(
        "Llama-3.2-1B", "4xH100", 2048, 64, Space(pp=(4,), vpp=(1,), schedule=("1f1b",))
    )
    assert 0 < found.best[0].plan.last_stage_layers < 4


SWITCHED = [(name, field) for name in frameworks(serving=False) for field in switches(name)]


@pytest.mark.parametrize(("framework", "field"), SWITCHED)
@pytest.mark.parametrize(("name", "on", "seq", "batch", "space"), SPACES)
def test_switches_that_a_search_turns_on_never_cost(
    name: str, on: str, seq: int, batch: int, space: Space, framework: str, field: str
) -> None:
    asked = trainer(name, on, seq, batch, framework)
    legal = legal_plans(asked.model, asked.workload, asked.cluster, space)
    gained = 0
    for family in legal.families[::5]:
        plans = family.all().take(slice(None, None, 7))
        off, on_ = (asked.predict(plans.but(**{field: value})) for value in (False, True))
        assert np.all(on_.step.value <= np.asarray(off.step.value) * (1 + 1e-12))
        assert np.all(on_.memory.value == off.memory.value)
        gained += int(np.count_nonzero(np.asarray(on_.step.value) < np.asarray(off.step.value)))
    assert gained


class TestSwitches:
    """What Megatron-LM has off unless asked for."""

    where = ("train", "Llama-3.2-1B", "--on", "2x8xA100")
    words = (*where, "--framework", "megatron", "--tp", "1,2", "--pp", "1")

    def test_a_search_takes_them_and_says_so(self, ask: Ask) -> None:
        taken, left = ask(*self.words), ask(*self.words, "--no-overlap")
        assert (taken["plan"]["overlap"], left["plan"]["overlap"]) == (True, False)
        assert taken["step"]["seconds"] < left["step"]["seconds"]
        assert any("--no-overlap leaves it so" in note for note in taken["notes"])
        assert not any("overlap" in note for note in left["notes"])

    def test_muon_has_none(self, ask: Ask) -> None:
        found = ask(*self.words, "--optimizer", "muon", "--zero", "0")
        assert not found["plan"]["overlap"]

    def test_what_was_found_goes_out_and_back(self, ask: Ask, tmp_path: Path) -> None:
        found = ask(*self.words, "--emit", "megatron", str(tmp_path))
        assert "--overlap-grad-reduce" in (tmp_path / "run.sh").read_text()
        read = ask(*self.where, "--from", str(tmp_path / "run.sh"))
        assert read["plan"]["overlap"]
        assert read["step"]["seconds"] == pytest.approx(found["step"]["seconds"], rel=1e-9)


class TestChips:
    """`--on any`: which chips, and how many."""

    chips = tuple(accelerator(name) for name in ("H100", "A100-SXM4-80GB", "RTX 4090"))

    def market(self, wish: Wish) -> Market[Run]:
        model = read_model("Llama-3.2-1B")

        def training(count: int) -> Training:
            return Training(4096, max(count, 256), 20e9)

        return chips_for_training(model, training, self.chips, wish)

    def test_offers_meet_the_wish_and_come_in_its_order(self) -> None:
        within = 2.0 * SECONDS_PER_DAY
        for goal in get_args(Goal):
            offers = self.market(Wish(within, minimise=goal)).offers
            assert offers
            assert all(float(offer.result.bill.seconds.value) <= within for offer in offers)
            assert [o.value for o in offers] == sorted(o.value for o in offers)

    def test_less_time_never_costs_less(self) -> None:
        loose, tight = (self.market(Wish(days * SECONDS_PER_DAY)).offers[0] for days in (20.0, 0.5))
        assert tight.value >= loose.value

    def test_what_nobody_can_do_has_no_offer(self) -> None:
        market = self.market(Wish(within=1.0))
        assert not market.offers
        assert set(market.without.values()) == {TOO_SLOW}

    def test_a_budget_is_kept(self) -> None:
        cheapest = self.market(Wish()).offers[0]
        fast = self.market(Wish(budget=2.0 * cheapest.value, minimise="time"))
        for offer in fast.offers:
            assert offer.result.bill.usd is not None
            assert float(offer.result.bill.usd.value) <= 2.0 * cheapest.value

    def test_users_are_served_in_time(self) -> None:
        model, asked = read_model("Llama-3.1-8B"), Serving(1024, 256, 256)
        limits = Limits(ttft_seconds=1.0, tpot_seconds=1 / 30)

        def serve(chip: Accelerator, count: int) -> list[Server]:
            return [Server(model, asked, cluster_of(chip, count), profile_of(chip))]

        market = chips_for_serving(serve, limits, self.chips[:2], "usd")
        assert market.offers
        assert all(limits.met(offer.result) for offer in market.offers)


def test_no_chatty_traffic_crosses_a_slow_network() -> None:
    """Over 1 GbE a node keeps its tensors and its contexts, and pipelines are not interleaved."""
    where = cluster("2x8xA100")
    where = with_network(where, read_network("1x1Gb"), where.per_node)
    model, asked = read_model("Llama-3.2-1B"), Training(2048, 64, 1e9)
    slow = Trainer(model, asked, where, profile_of(where.accelerator))
    space = Space(micro_batch=(1, 2), recompute=("none",), sp=(True,), first_stage_layers=(0,))
    for step in search_plans(slow, space).best:
        plan = step.plan
        assert plan.tp * plan.cp <= 8
        assert plan.vpp == 1 or plan.pp * plan.tp * plan.cp * plan.dp <= 8
        assert float(step.step.value) >= float(step.step.least)


def test_the_front_is_drawn(tmp_path: Path) -> None:
    file = tmp_path / "front.png"
    words = ["train", "Llama-3.2-1B", "--on", "8xA100", "--tp", "1,2", "--pp", "1"]
    assert main([*words, "--plot-front", str(file)]) == 0
    assert file.read_bytes().startswith(b"\x89PNG")


def test_a_plan_spelled_out_has_no_front(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "Llama-3.2-1B", "--on", "8xA100", "--tp", "1", "--dp", "8"]
    assert main([*words, "--plot-front", "front.png"]) == 2
    assert "leave a part of the plan open" in " ".join(capsys.readouterr().err.split())
