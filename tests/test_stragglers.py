"""A slow worker under every mode of update: what the simulation must give in its limits."""

from __future__ import annotations

import numpy as np
import pytest

from conftest import Ask
from trueflops.catalog import cluster
from trueflops.cli import main
from trueflops.clock import Algorithm, Clock
from trueflops.graph.kinds import CollectiveKind
from trueflops.predict.stragglers import Straggled, Straggling, predict_straggling
from trueflops.predict.stragglers.cluster import slow_links
from trueflops.predict.stragglers.simulate import Mode, Progress, Workers, draw_workers, simulate
from trueflops.profile import profile_of

Capture = pytest.CaptureFixture[str]
STEPS = 600
AR = CollectiveKind.ALL_REDUCE


def run_all(
    workers: Workers, staleness: int = 3, drop: int = 1
) -> tuple[Progress, Progress, Progress, Progress]:
    sync, drops, bounded, free = (simulate(mode, workers, staleness, drop) for mode in Mode)
    return sync, drops, bounded, free


def one_slow(n: int, slow: float, summed: float = 0.0, served: float = 0.0) -> Workers:
    seconds = draw_workers(n, STEPS, 1.0, slow, 0.0, 0)
    return Workers(seconds, summed, np.full(n, served))


def jittery(n: int, jitter: float, seed: int = 0, slow: float = 1.0) -> Workers:
    return Workers(draw_workers(n, STEPS, 1.0, slow, jitter, seed), 0.0, np.zeros(n))


class TestLimits:
    @pytest.mark.parametrize("n", [2, 5, 16])
    def test_healthy_workers_lose_nothing(self, n: int) -> None:
        sync, _, bounded, free = run_all(one_slow(n, 1.0, 0.1, 0.1))
        for each in (sync, bounded, free):
            assert each.gradients_per_second == pytest.approx(n / 1.1, rel=0.005)
            assert each.waiting_share == pytest.approx(0.0, abs=1e-9)
            assert each.dropped_share == 0.0

    @pytest.mark.parametrize("slow", [1.25, 1.5, 4.0])
    @pytest.mark.parametrize("n", [2, 8])
    def test_in_step_all_go_as_the_slowest(self, n: int, slow: float) -> None:
        sync = simulate(Mode.SYNCHRONOUS, one_slow(n, slow, 0.1), 0, 0)
        assert sync.gradients_per_second == pytest.approx(n / (slow + 0.1))
        assert sync.updates_per_second == pytest.approx(1.0 / (slow + 0.1))
        assert sync.waiting_share == pytest.approx((n - 1) / n * (slow - 1.0) / (slow + 0.1))
        assert sync.most_staleness == 0

    @pytest.mark.parametrize("slow", [1.25, 1.5, 4.0])
    @pytest.mark.parametrize("n", [2, 8])
    def test_out_of_step_rates_add_up(self, n: int, slow: float) -> None:
        free = simulate(Mode.ASYNCHRONOUS, one_slow(n, slow, served=0.1), 0, 0)
        rates = 1.0 / (slow + 0.1) + (n - 1) / 1.1
        assert free.gradients_per_second == pytest.approx(rates, rel=0.01)
        assert free.waiting_share == 0.0
        # Others change the parameters n−1 times during a step, on average over all gradients.
        assert free.mean_staleness == pytest.approx(n - 1.0, rel=0.02)

    @pytest.mark.parametrize("staleness", [0, 1, 5, 20])
    def test_a_bound_ends_at_the_pace_of_one_that_is_always_slow(self, staleness: int) -> None:
        bounded = simulate(Mode.BOUNDED, one_slow(8, 1.5), staleness, 0)
        assert bounded.gradients_per_second == pytest.approx(8 / 1.5, rel=0.01)
        assert bounded.most_ahead == staleness

    def test_a_bound_of_zero_is_in_step(self) -> None:
        workers = jittery(8, 0.2)
        sync = simulate(Mode.SYNCHRONOUS, workers, 0, 0)
        bounded = simulate(Mode.BOUNDED, workers, 0, 0)
        assert bounded.gradients_per_second == pytest.approx(sync.gradients_per_second, rel=0.01)
        assert bounded.waiting_share == pytest.approx(sync.waiting_share, abs=0.01)

    def test_a_bound_lies_between_and_grows_with_itself(self) -> None:
        workers = jittery(16, 0.3)
        sync, _, _, free = run_all(workers)
        rates = [
            simulate(Mode.BOUNDED, workers, s, 0).gradients_per_second for s in (0, 1, 2, 4, 16)
        ]
        assert rates == sorted(rates)
        assert rates[0] >= sync.gradients_per_second * 0.99
        assert rates[-1] <= free.gradients_per_second * 1.001
        assert rates[2] > 1.1 * rates[0]

    def test_jitter_in_step_costs_the_expected_maximum(self) -> None:
        """E[max of n normal steps] from the samples themselves, and from its known value."""
        workers = jittery(8, 0.05)
        sync = simulate(Mode.SYNCHRONOUS, workers, 0, 0)
        half = workers.compute_seconds[:, STEPS // 2 :]
        assert sync.gradients_per_second == pytest.approx(8 / half.max(axis=0).mean())
        assert 1 / sync.updates_per_second == pytest.approx(1 + 0.05 * 1.424, rel=0.01)

    def test_dropping_the_slow_one_leaves_the_others_their_pace(self) -> None:
        _, drops, _, _ = run_all(one_slow(8, 1.5))
        assert drops.gradients_per_second == pytest.approx(7.0, rel=0.01)
        assert drops.dropped_share == pytest.approx((1 / 1.5) / (7 + 1 / 1.5), rel=0.02)
        assert drops.most_staleness == 0

    def test_dropping_two_of_one_slow_wastes_a_healthy_one(self) -> None:
        workers = jittery(8, 0.05, slow=1.5)
        one, two = (simulate(Mode.DROPS, workers, 0, b) for b in (1, 2))
        assert one.gradients_per_second > two.gradients_per_second
        assert one.dropped_share < two.dropped_share

    def test_the_same_seed_gives_the_same(self) -> None:
        again = [run_all(jittery(4, 0.1, seed)) for seed in (3, 3, 4)]
        assert again[0] == again[1]
        assert again[0] != again[2]

    def test_jitter_has_its_mean_and_deviation(self) -> None:
        seconds = draw_workers(200, 500, 2.0, 1.0, 0.2, 0)
        assert seconds.mean() == pytest.approx(2.0, rel=0.01)
        assert seconds.std() == pytest.approx(0.4, rel=0.02)


def straggled(on: str, asked: Straggling) -> Straggled:
    where = cluster(on)
    return predict_straggling(Clock(where, profile_of(where.accelerator)), where.count, asked)


class TestCluster:
    def test_communication_is_the_clocks(self) -> None:
        found = straggled("4x8xH100", Straggling(0.5, 1e9, slow_link=0.5, steps=20))
        where = cluster("4x8xH100")
        clock = Clock(where, profile_of(where.accelerator))
        slower = Clock(slow_links(where, 32, 0.5), clock.profile)
        healthy = float(clock.collective(AR, 32.0, 1e9, 1.0).seconds)
        assert found.healthy_all_reduce_seconds == healthy
        assert found.workers.all_reduce_seconds == slower.collective(AR, 32.0, 1e9, 1.0).seconds
        ways = [c.collective_ways(AR, 32, 1e9)[Algorithm.SHARDED_SERVER] for c in (slower, clock)]
        assert list(found.workers.server_seconds[:2]) == [way.seconds for way in ways]
        assert found.workers.all_reduce_seconds > healthy

    def test_a_slow_link_is_the_outermost_that_is_crossed(self) -> None:
        where = cluster("4x8xH100")
        inside, between = slow_links(where, 8, 0.5), slow_links(where, 16, 0.5)
        assert [t.bandwidth for t in inside.tiers] == [225e9, 50e9]
        assert [t.bandwidth for t in between.tiers] == [450e9, 25e9]

    def test_the_head_start_of_a_bound(self) -> None:
        """At 1.5x a healthy worker gains a third of a step each: nine steps for a bound of 3."""
        asked = Straggling(0.5, slow_rank=1.5, staleness=3, steps=20)
        assert straggled("4xH100", asked).head_start_steps == pytest.approx(9.0)


class TestCommand:
    def test_json(self, ask: Ask) -> None:
        words = ("--on", "8xH100", "--step", "1s", "--slow-rank", "2x", "--batch", "16")
        answer = ask("stragglers", *words, "--rounds", "200")
        assert answer["ideal_gradients_per_second"] == 8.0
        sync = answer["modes"][0]
        assert sync["name"] == "synchronous"
        assert sync["lost"] == pytest.approx(0.5)
        assert sync["samples_per_second"] == pytest.approx(64.0)

    @pytest.mark.parametrize("columns", ["80", "40"])
    def test_what_is_printed_fits(
        self, columns: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", columns)
        words = ["stragglers", "--on", "2x8xA100", "--step", "500ms", "--bytes", "1GB"]
        assert main([*words, "--jitter", "10%", "--rounds", "50", "--timeline"]) == 0
        said = capsys.readouterr().out
        assert max(map(len, said.splitlines())) <= int(columns)
        assert "steps vary by 10 %" in " ".join(said.split())
        assert "12 more workers" in said

    @pytest.mark.parametrize(
        ("words", "reason"),
        [
            ("--on 8xH100", "--step"),
            ("--on 8xH100 --step 500", "has no unit"),
            ("--on 8xH100 --step 0s", "must lie between"),
            ("--step 1s", "say where with --on"),
            ("--on H100 --step 1s", "two ranks or more"),
            ("--on 8xH100 --step 1s --slow-rank 0.5x", "1.5x takes half as long again"),
            ("--on 8xH100 --step 1s --slow-link 2x", "0.5x has half the bandwidth"),
            ("--on 8xH100 --step 1s --slow-rank fast", "is not a number"),
            ("--on 8xH100 --step 1s --jitter 10", "write 2% or 0.02"),
            ("--on 8xH100 --step 1s --drop 8", "at most 7 can be left out"),
            ("--on 8xH100 --step 1s --staleness=-1", "must be at least 0"),
            ("--on 8xH100 --step 1s --rounds 3", "must lie between 10"),
            ("--on 4096x8xH100 --step 1s", "at most 8,192 workers"),
            ("--on 8xH100 --step 1s --slow-lank 2x", "did you mean --slow-"),
        ],
    )
    def test_what_was_wrong_and_what_to_write(
        self, words: str, reason: str, capsys: Capture
    ) -> None:
        assert main(["stragglers", *words.split()]) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert reason in said
        assert "Traceback" not in said
