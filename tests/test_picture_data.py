"""What pictures are drawn from: JSON of --ops, --timeline, --rates, fronts, falls and sources."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest

from conftest import Ask
from trueflops.cli import main
from trueflops.report.timeline import COMPUTE, MOST_SPANS

TRAIN = ("train", "Llama-3.1-8B", "--on", "16xH100", "--tp", "2", "--pp", "4", "--zero", "1",
         "--global-batch", "64", "--seq", "4096")  # fmt: skip
SERVE = ("infer", "Llama-3.1-8B", "--on", "1xH100", "--tp", "1")


def part(tree: Any, *path: str) -> Any:
    """A branch of a tree."""
    for name in path:
        tree = next(each for each in tree["parts"] if each["name"] == name)
    return tree


class TestOps:
    @pytest.mark.parametrize("recompute", ["none", "full"])
    def test_ops_sum_to_the_step_s_own_parts(self, recompute: str, ask: Ask) -> None:
        found = ask(*TRAIN, "--recompute", recompute, "--ops")
        seconds: dict[tuple[str, bool], float] = defaultdict(float)
        for op in found["ops"]["ops"]:
            seconds[op["kind"], op["phase"] == "recompute"] += op["seconds"] * op["often"]
        compute = part(found["step"], "compute")
        assert seconds["matmul", False] == pytest.approx(part(compute, "matmul")["seconds"])
        attention = seconds["attention", False] + seconds["attention_backward", False]
        assert attention == pytest.approx(part(compute, "attention")["seconds"])
        if recompute == "full":
            again = sum(s for (kind, r), s in seconds.items() if r and kind != "collective")
            assert again == pytest.approx(part(compute, "recomputation")["seconds"])

    def test_every_op_lies_under_its_roof_and_names_a_curve(self, ask: Ask) -> None:
        ops = ask(*TRAIN, "--ops")["ops"]
        peaks = {p["dtype"]: p["datasheet_flop_per_second"] for p in ops["roofs"]["peaks"]}
        assert ops["roofs"]["accelerator"] == "H100-SXM5-80GB"
        for op in ops["ops"]:
            assert op["low"] <= op["seconds"] <= op["high"]
            assert op["curve"] in ops["curves"]
            if op["kind"] == "matmul":
                assert op["flop"] / op["seconds"] <= peaks[op["dtype"]]
        assert {op["bound"] for op in ops["ops"]} <= {
            "compute", "memory", "serial", "start", "indexing", "links"
        }  # fmt: skip
        assert any(op["kind"] == "collective" for op in ops["ops"])

    def test_a_decode_step_is_the_sum_of_its_ops(self, ask: Ask) -> None:
        found = ask(*SERVE, "--ops")
        for name in ("decode", "prefill"):
            ops = found["ops"][name]["ops"]
            taken = sum(op["seconds"] * op["often"] for op in ops if op["kind"] == "matmul")
            assert taken == pytest.approx(part(found[name], "matmul")["seconds"])

    def test_the_table_names_the_longest_first(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([*TRAIN, "--ops"]) == 0
        table = capsys.readouterr().out.partition("Every op of a step")[2]
        assert table.index("ffn.gate") < table.index("attention.out")
        assert "bound by" in table

    def test_a_simulated_load_has_ops_too(self, ask: Ask) -> None:
        found = ask(*SERVE, "--rate", "2", "--requests", "20", "--ops")
        assert {"decode", "prefill"} == set(found["ops"])
        assert "load" in found


class TestTimeline:
    def test_tasks_of_a_stage_follow_one_another(self, ask: Ask) -> None:
        found = ask(*TRAIN, "--timeline")
        spans = found["timeline"]["spans"]
        rows = list(zip(*spans.values(), strict=True))
        busy = [rank["busy_seconds"] for rank in found["pipeline"]["ranks"]]
        for stage in range(4):
            lane = [r for r in rows if r[0] == stage and r[1] == COMPUTE and r[3] != "update"]
            assert all(b[4] >= a[5] - 1e-12 for a, b in pairwise(lane))
            assert sum(r[5] - r[4] for r in lane) == pytest.approx(busy[stage])
        assert found["timeline"]["left_out"] is None

    def test_memory_over_time_reaches_what_a_stage_holds_at_most(self, ask: Ask) -> None:
        found = ask(*TRAIN, "--timeline")
        for rank, held in zip(found["pipeline"]["ranks"], found["timeline"]["held"], strict=True):
            assert max(held["activation_bytes"]) == rank["most_activation_bytes"]
            assert held["from_seconds"] == sorted(held["from_seconds"])

    def test_a_long_step_keeps_its_beginning_and_its_end(self, ask: Ask) -> None:
        found = ask(*TRAIN, "--global-batch", "1024", "--timeline")
        timeline, spans = found["timeline"], found["timeline"]["spans"]
        assert len(spans["start_seconds"]) == MOST_SPANS
        assert timeline["left_out"]["spans"] > 0
        gone = timeline["left_out"]["from_seconds"], timeline["left_out"]["until_seconds"]
        assert not [start for start in spans["start_seconds"] if gone[0] < start < gone[1]]
        assert spans["kind"][-1] == "update"
        for rank, held in zip(found["pipeline"]["ranks"], timeline["held"], strict=True):
            assert max(held["activation_bytes"]) == rank["most_activation_bytes"]

    def test_one_stage_has_a_timeline_too(self, ask: Ask) -> None:
        words = [*TRAIN[:5], "2", "--pp", "1", *TRAIN[8:], "--recompute", "full"]
        found = ask(*words, "--timeline")
        assert set(found["timeline"]["spans"]["stage"]) == {0}

    def test_the_question_leaves_out_what_only_shows_more(self, ask: Ask) -> None:
        found = ask(*TRAIN, "--timeline", "--ops")
        assert not {"--timeline", "--ops"} & set(found["question"]["arguments"])


class TestWaterfall:
    def test_the_last_fall_has_the_interval_of_the_mfu(self, ask: Ask) -> None:
        found = ask(*TRAIN)
        falls, mfu = found["waterfall"], found["mfu"]
        dense = next(f["flop_per_second"] for f in falls if f["name"] == "dense")
        for end, name in (("flop_per_second", "value"), ("low", "low"), ("high", "high")):
            assert falls[-1][end] / dense == pytest.approx(mfu[name])
        for fall in falls:
            assert fall["low"] <= fall["flop_per_second"] <= fall["high"]
            assert fall["high"] <= falls[0]["flop_per_second"]


class TestFront:
    words = ("train", "GPT-2", "--on", "8xA100", "--tokens", "1B", "--price", "2")

    def test_a_point_can_be_asked_again(self, ask: Ask) -> None:
        found = ask(*self.words)
        point = found["search"]["front"][-1]
        again = ask(*self.words, *point["plan_flags"].split())
        assert again["plan_flags"] == point["plan_flags"]
        assert again["step_seconds"]["value"] == pytest.approx(point["step_seconds"])
        assert again["cost_usd"]["value"] == pytest.approx(point["cost_usd"])
        assert point["step_seconds_low"] < point["step_seconds"] < point["step_seconds_high"]

    def test_the_price_given_is_that_of_the_front(self, ask: Ask) -> None:
        cheap = ask(*self.words)["search"]["front"][0]
        dear = ask(*self.words[:-1], "20")["search"]["front"][0]
        assert dear["cost_usd"] == pytest.approx(10.0 * cheap["cost_usd"])


class TestRates:
    def test_each_load_is_that_of_its_rate_alone(self, ask: Ask) -> None:
        found = ask(*SERVE, "--requests", "50", "--rates", "8,2")
        assert [load["rate_requests_per_second"] for load in found["loads"]] == [2.0, 8.0]
        for load in found["loads"]:
            rate = load.pop("rate_requests_per_second")
            alone = ask(*SERVE, "--requests", "50", "--rate", str(rate))
            assert alone["load"] == load

    def test_without_numbers_up_to_all_that_is_served(self, ask: Ask) -> None:
        found = ask(*SERVE, "--requests", "20", "--rates")
        rates = [load["rate_requests_per_second"] for load in found["loads"]]
        assert rates[0] < rates[-2] < found["most_requests_per_second"] < rates[-1]

    @pytest.mark.parametrize(
        ("rates", "said"),
        [("1,x", "'x' is not a number"), ("0", "numbers above 0"), ("1 --rate 2", "leave --rate")],
    )
    def test_what_is_no_rate_is_refused(
        self, rates: str, said: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main([*SERVE, "--rates", *rates.split()]) == 2
        assert said in " ".join(capsys.readouterr().err.split())

    def test_the_table_has_a_row_a_rate(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([*SERVE, "--requests", "20", "--rates", "1,3", "--ttft", "1us"]) == 1
        said = capsys.readouterr().out
        assert "Latency against load" in said
        assert "not within the limits" in " ".join(said.split())


def test_every_compared_figure_has_its_source(ask: Ask) -> None:
    chip = ask("compare", "H100")["chips"][0]
    assert chip["sources"]["memory.bandwidth"].startswith("3.35 TB/s: ")
    for dtype, rate in chip["dense_flop_per_second"].items():
        if rate and dtype != "fp64_tensor":
            assert f"peak.{dtype}" in chip["sources"]
