"""Cards of several kinds in one pipeline: who holds which layers, and what that takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import trueflops as tf
from conftest import Ask
from trueflops.catalog import cluster
from trueflops.cli import main
from trueflops.interop.engines import read_command, read_deployment
from trueflops.model import Model, read_model
from trueflops.plan import Plan
from trueflops.predict import Server
from trueflops.predict.serving import Stage
from trueflops.predict.serving.splitting import (
    by_shares,
    evenly,
    fastest_split,
    pipeline_plan,
    split_words,
    usual_split,
)
from trueflops.predict.serving.stages import WAITING, StagedPasses
from trueflops.profile import engine_on, profile_of
from trueflops.records.tables import Table, read_table
from trueflops.verify.serving.inference import inference_findings
from trueflops.workload import Serving

Capture = pytest.CaptureFixture[str]
MODEL = read_model("Llama-3.1-70B")
TRUTH = Path(__file__).parents[1] / "truth" / "published" / "card_runs.csv"
SERVE = ("infer", "Llama-3.1-70B")
LLAMA = ("--engine", "llama.cpp", "--weights", "q4_k_m", "--concurrency", "1")
ONE = Serving(512, 128, 1)


def served(
    on: str, layers: tuple[int, ...] = (), engine: str = "llama.cpp", asked: Serving = ONE,
    model: Model = MODEL,
) -> Server:  # fmt: skip
    where = cluster(on, unlike=True)
    cards = where.cards or (where.accelerator,) * where.count
    stages = [
        Stage(card, profile_of(card, engine), count)
        for card, count in zip(cards, layers, strict=bool(layers))
    ]
    return Server(
        model, asked, where, profile_of(where.accelerator, engine),
        weights="q4_k_m" if engine == "llama.cpp" else "int4",
        engine=engine_on(engine, where.accelerator), stages=stages if layers else (),
    )  # fmt: skip


# ── clusters ────────────────────────────────────────────────────────────────────────────────────


def test_unlike_cards_are_joined_by_the_slowest_of_their_buses() -> None:
    mixed = cluster("RTX-4090 + 2xP40", unlike=True)
    assert [card.name for card in mixed.cards] == ["RTX 4090", "P40", "P40"]
    assert mixed.count == 3
    assert mixed.tiers[0].name == "PCIe 3.0 x16"
    assert mixed.tiers[0].topology == "pcie-host"
    assert cluster("RTX-3090+RTX-3090").cards == ()  # of one kind: as 2xRTX-3090
    assert cluster("Xeon-Platinum-8480+").accelerator.is_cpu  # a name that ends with a plus


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("RTX-4090+EPYC-9654", "no card"),
        ("RTX-4090+16xRTX-3090", "16 at most"),
        ("RTX-4090+RTX-nothing", "RTX-nothing"),
    ],
)
def test_what_is_no_such_cluster_is_refused(text: str, said: str) -> None:
    with pytest.raises(tf.TrueflopsError, match=said):
        cluster(text, unlike=True)


def test_only_serving_takes_unlike_cards(capsys: Capture) -> None:
    assert main(["train", "GPT-2", "--on", "RTX-4090+RTX-3090"]) == 2
    assert "trueflops infer alone" in " ".join(capsys.readouterr().err.split())


# ── splits ──────────────────────────────────────────────────────────────────────────────────────


def test_layers_are_dealt_out_as_engines_do() -> None:
    """llama.cpp: layer i to the first card whose cumulated share exceeds i / (L + 1)."""
    assert by_shares(80, [1, 1]) == [41, 39]
    assert by_shares(32, [24, 12, 12]) == [17, 8, 7]
    assert by_shares(80, [1, 0]) == [80, 0]
    assert evenly(80, 3) == [27, 27, 26]
    assert evenly(61, 4) == [15, 15, 16, 15]
    even = served("RTX-3090+2xRTX-3060", (28, 26, 26))
    assert usual_split(even) == [41, 20, 19]  # 24 GiB hold twice as many as 12
    in_order = served("RTX-3090+2xRTX-3060", (28, 26, 26), "exllama")
    first, second, last = usual_split(in_order)
    assert first > 2 * second > 2 * last
    assert usual_split(served("RTX-4090+RTX-3090", (41, 39), "vllm")) == [40, 40]


@pytest.mark.parametrize("layers", [(41, 39), (1, 79), (30, 50), (79, 1)])
def test_what_is_typed_for_a_split_gives_it(layers: tuple[int, int]) -> None:
    server = served("RTX-4090+RTX-3090", (40, 40))
    shares = [float(word) for word in split_words(server.engine, layers).split(",")]
    assert tuple(by_shares(MODEL.layers, shares)) == layers


def test_the_fastest_split_is_the_best_of_all() -> None:
    server = served("RTX-4090+P40", (41, 39))
    best, point = fastest_split(server)
    plan = pipeline_plan(server)
    fitting = [
        each
        for first in range(30, 56)
        if (each := server.split((first, 80 - first)).predict(plan)).fits
    ]
    rates = [float(each.tokens_per_second.value) for each in fitting]
    assert float(point.tokens_per_second.value) == pytest.approx(max(rates))
    assert best.stages[0].layers > 41  # the faster card takes as many as it can hold


# ── time ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("engine", ["llama.cpp", "exllama"])
def test_equal_cards_take_what_an_even_pipeline_takes(engine: str) -> None:
    even = served("2xRTX-3090", (), engine).predict(Plan(pp=2))
    staged = served("2xRTX-3090", (40, 40), engine).predict(Plan(pp=2))
    for quantity in ("ttft", "tpot", "tokens_per_second", "watts"):
        whole, parts = getattr(even, quantity), getattr(staged, quantity)
        # The head makes the last stage slower; a prompt in one chunk does not wait for that.
        assert float(parts.value) == pytest.approx(float(whole.value), rel=1e-3), quantity
    assert float(staged.memory.value) == pytest.approx(float(even.memory.value))
    assert staged.usd_per_million_tokens is not None
    assert even.usd_per_million_tokens is not None
    same = float(even.usd_per_million_tokens.value)
    assert float(staged.usd_per_million_tokens.value) == pytest.approx(same, rel=1e-3)


def test_a_token_takes_the_sum_of_its_stages_each_at_its_own_clock() -> None:
    alone = {
        name: served(f"2x{name}", (40, 40)).predict(Plan(pp=2)).stages
        for name in ("RTX-4090", "P40")
    }
    mixed = served("RTX-4090+P40", (40, 40)).predict(Plan(pp=2))
    assert mixed.stages[0].decode_seconds == pytest.approx(alone["RTX-4090"][0].decode_seconds)
    assert mixed.stages[1].decode_seconds == pytest.approx(alone["P40"][1].decode_seconds)
    assert [part.name for part in mixed.decode.parts][:2] == ["RTX 4090", "P40"]
    both = sum(stage.decode_seconds for stage in mixed.stages)
    assert both < float(mixed.decode.value) < 1.01 * both + 1e-3  # and the sends


def test_batches_under_way_wait_for_the_slowest_stage() -> None:
    """In vLLM each stage has a batch of its own; in llama.cpp one passes all of them."""
    many = Serving(512, 128, 8)
    slow = served("RTX-4090+RTX-3090", (30, 50), "vllm", many).predict(Plan(pp=2))
    parts = {part.name: float(part.value) for part in slow.decode.parts}
    longest = max(stage.decode_seconds for stage in slow.stages)
    others = sum(value for name, value in parts.items() if name in ("engine", "pipeline sends"))
    assert float(slow.decode.value) - others == pytest.approx(2.0 * longest, rel=0.01)
    assert parts[WAITING] > 0.0
    one = served("RTX-4090+RTX-3090", (30, 50), "llama.cpp").predict(Plan(pp=2))
    assert WAITING not in {part.name for part in one.decode.parts}


def test_chunks_of_a_prompt_follow_one_another_through_the_stages() -> None:
    server = served("RTX-4090+P40", (40, 40), asked=Serving(2048, 128, 1))
    plan = pipeline_plan(server)
    share = server.slowest_share(plan)
    assert 0.5 < share < 1.0
    assert server.share_alone(plan) == pytest.approx((1.0 + 3.0 * share) / 4.0)


def test_many_batches_at_once_are_those_one_by_one() -> None:
    passes = served("RTX-4090+P40", (41, 39)).passes
    batches, past = np.array([1.0, 4.0, 2.0]), np.array([64.0, 512.0, 2048.0])
    together = passes.costs(Plan(pp=2), batches, 1.0, past)
    timed = np.asarray(passes.time("decode", together, Plan(pp=2), graphs=True).value)
    for at in range(3):
        one = passes.costs(Plan(pp=2), float(batches[at]), 1.0, float(past[at]))
        alone = passes.time("decode", one, Plan(pp=2), graphs=True)
        assert timed[at] == pytest.approx(float(alone.value), rel=1e-9)


# ── memory, money, energy ───────────────────────────────────────────────────────────────────────


def test_each_card_holds_its_own_layers_and_the_fullest_is_shown() -> None:
    point = served("RTX-3090+RTX-3060", (60, 20)).predict(Plan(pp=2))
    big, small = point.stages
    assert float(big.memory["weights"].value) > 2.5 * float(small.memory["weights"].value)
    ratio = float(big.memory["KV cache"].value) / float(small.memory["KV cache"].value)
    assert ratio == pytest.approx(3.0)
    assert small.capacity_bytes < 0.6 * big.capacity_bytes
    assert not big.fits
    assert not point.fits
    assert float(point.memory.value) == float(big.memory.value)


def test_prices_and_power_are_of_each_card() -> None:
    mixed = served("RTX-4090+P40", (40, 40))
    rents = [tf.price(card) for card in mixed.cluster.cards]
    assert mixed.rent is not None
    known = [rent.usd_per_hour for rent in rents if rent]
    assert mixed.rent.usd_per_hour == pytest.approx(sum(known) / 2)
    watts = {}
    for on in ("RTX-4090+P40", "2xRTX-4090", "2xP40"):
        found = served(on, (40, 40)).predict(Plan(pp=2)).watts
        assert found is not None
        watts[on] = float(found.value)
    assert watts["2xP40"] < watts["RTX-4090+P40"] < watts["2xRTX-4090"]


def test_cards_that_wait_for_one_another_draw_less_together_than_two_that_work() -> None:
    """llama.cpp's second card idles while the first computes: its joules are counted once."""
    joules = {}
    for on, pp in (("RTX-4090", 1), ("2xRTX-4090", 2)):
        point = served(on, model=read_model("Llama-3.1-8B")).predict(Plan(pp=pp))
        assert point.joules_per_token is not None
        joules[pp] = float(point.joules_per_token.value)
    assert joules[2] < 1.8 * joules[1]  # both cards' idle draw, but the work of one


# ── the command ─────────────────────────────────────────────────────────────────────────────────


def test_the_answer_names_every_card_and_a_faster_split(ask: Ask) -> None:
    found = ask(*SERVE, "--on", "RTX-4090+P40", *LLAMA)
    assert found["cluster"]["cards"] == ["RTX 4090", "P40"]
    assert [stage["layers"] for stage in found["stages"]] == [41, 39]
    faster = found["faster_split"]
    rate = found["tokens_per_second"]["value"]
    assert faster["tokens_per_second"] > rate
    again = ask(*SERVE, "--on", "RTX-4090+P40", *LLAMA, "--tensor-split", faster["tensor_split"])
    assert [stage["layers"] for stage in again["stages"]] == faster["layers"]
    assert again["tokens_per_second"]["value"] == pytest.approx(faster["tokens_per_second"])
    best = ask(*SERVE, "--on", "RTX-4090+P40", *LLAMA, "--tensor-split", "best")
    assert [stage["layers"] for stage in best["stages"]] == faster["layers"]
    assert "faster_split" not in best


def test_a_table_shows_what_each_card_holds(capsys: Capture) -> None:
    main(["infer", "Llama-3.1-8B", "--on", "RTX-3090+RTX-3060", *LLAMA])
    said = " ".join(capsys.readouterr().out.split())
    assert "on RTX 3090 + RTX 3060" in said
    assert "Every card" in said
    assert "by free memory, as llama.cpp does" in said
    assert "Leave out what then has one layer: RTX 3060" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--tensor-split", "1"), "a share for each of 2 cards"),
        (("--tensor-split", "1,x"), "a share for each of 2 cards"),
        (("--tensor-split", "1,0"), "no layer is left for P40"),
        (("--tp", "2"), "--tp: not known where cards share"),
        (("--pp", "4"), "write --pp 2"),
        (("--gpu-layers", "20", "--engine", "llama.cpp"), "--gpu-layers: not known"),
    ],
)
def test_what_unlike_cards_cannot_do_is_refused(
    words: tuple[str, ...], said: str, capsys: Capture
) -> None:
    assert main(["infer", "Llama-3.1-70B", "--on", "RTX-4090+P40", *words]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("on", "said"),
    [("RTX-4090+MI300X", "several vendors"), ("RTX-4090", "--on has one")],
)
def test_cards_that_cannot_share_layers_are_refused(on: str, said: str, capsys: Capture) -> None:
    assert main(["infer", "Llama-3.1-8B", "--on", on, "--tensor-split", "1,1"]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(("tool", "flag"), [("llamacpp", "--tensor-split"), ("vllm", "VLLM_PP_")])
def test_a_split_is_written_and_read_back(tool: str, flag: str, tmp_path: Path, ask: Ask) -> None:
    on, weights = "RTX-4090+RTX-3090", "q4_k_m" if tool == "llamacpp" else "int4"
    words = ("--on", on, "--weights", weights, "--concurrency", "1", "--tensor-split", "best")
    found = ask(*SERVE, *words, "--emit", tool, str(tmp_path))
    assert flag in (tmp_path / "serve.sh").read_text()
    again = ask(*SERVE, "--on", on, "--concurrency", "1", "--from", str(tmp_path / "serve.sh"))
    assert [s["layers"] for s in again["stages"]] == [s["layers"] for s in found["stages"]]
    assert again["tpot_seconds"] == found["tpot_seconds"]


def test_what_no_engine_can_be_told_is_not_written(tmp_path: Path, capsys: Capture) -> None:
    words = ["infer", "Llama-3.1-70B", "--on", "RTX-4090+RTX-3090", "--weights", "int4"]
    words += ["--concurrency", "1", "--emit", "trtllm", str(tmp_path)]
    assert main(words) == 2
    assert "no way is known" in " ".join(capsys.readouterr().err.split())


def test_commands_say_how_cards_share() -> None:
    said = read_command("llama-server -m x.gguf -ts 3/1 -sm layer")
    assert (said.tensor_split, said.pp, said.tp) == ("3,1", 2, None)
    rows = read_command("llama-server -m x.gguf -ts 3,1 -sm row")
    assert (rows.tensor_split, rows.tp, rows.ignored) == (None, 2, ("--tensor-split 3,1",))
    partition = "VLLM_PP_LAYER_PARTITION=46,34 vllm serve m --pipeline-parallel-size 2"
    assert read_command(partition).tensor_split == "46,34"


def test_an_even_split_of_equal_cards_is_the_plan_s(tmp_path: Path, ask: Ask) -> None:
    script = tmp_path / "serve.sh"
    script.write_text("llama-server -m x.gguf -ngl 99 -sm layer -ts 1,1\n")
    assert read_deployment(script).tensor_split == "1,1"
    found = ask(*SERVE, "--on", "4xRTX-3090", "--from", str(script), "--weights", "q4_k_m")
    assert found["stages"] == []
    assert found["plan"]["pp"] == 2
    assert found["replicas"] == 2


# ── published ───────────────────────────────────────────────────────────────────────────────────


def test_published_runs_of_unlike_cards_lie_within_their_intervals() -> None:
    found = inference_findings(read_table(TRUTH), profile_of)
    assert not found.refused
    assert len(found.rows) == 6
    assert all(row.covered for row in found.rows)
    assert np.mean([abs(row.error) for row in found.rows]) < 0.12


def test_rows_say_shares_in_numbers() -> None:
    rows = [{**row, "tensor_split": "mostly the first"} for _, row in read_table(TRUTH).rows]
    found = inference_findings(Table.of("rows", rows), profile_of)
    assert not found.rows
    assert all("a share for each card" in each.reason for each in found.refused)


def test_layers_priced_once_serve_every_split() -> None:
    server = served("RTX-4090+P40", (41, 39))
    server.predict(Plan(pp=2))
    assert isinstance(server.passes, StagedPasses)
    known = {name: len(costs) for name, costs in server.passes.priced.items()}
    server.split((50, 30)).predict(Plan(pp=2))
    assert {name: len(costs) for name, costs in server.passes.priced.items()} == known


def test_no_pool_is_cut_from_cards_that_share_the_layers(ask: Ask) -> None:
    """A card that holds half of the layers can neither read a prompt nor write a token alone."""
    for goal in (("--ttft", "10s"), ("--pareto",)):
        found = ask("infer", "Llama-3.1-8B", "--on", "RTX-4090+RTX-3090", *goal)
        assert found["stages"]
        for point in found["cuts"] + found.get("pareto", []):
            assert point["kind"] == "replicas"


def test_no_pool_is_cut_for_an_engine_that_hands_no_cache_over(ask: Ask, capsys: Capture) -> None:
    words = ["infer", "Llama-3.1-8B", "--on", "2xRTX-4090", "--engine", "llama.cpp"]
    assert main([*words, "--prefill", "1xtp1", "--decode", "1xtp1"]) == 2
    assert "llama.cpp hands no cache" in " ".join(capsys.readouterr().err.split())
    cuts = ask(*words, "--ttft", "10s")["cuts"]
    assert {cut["kind"] for cut in cuts} == {"replicas"}


def test_any_format_is_one_that_all_cards_have(ask: Ask) -> None:
    """An RTX 3090 has no fp8."""
    words = ["infer", "Llama-3.1-8B", "--on", "RTX-4090+RTX-3090", "--weights", "any"]
    found = ask(*words, "--cache", "any")
    assert found["weights"] in ("bf16", "int4")
    assert found["kv_cache_bits"] == 16.0


def test_cards_that_differ_run_without_captured_graphs(capsys: pytest.CaptureFixture[str]) -> None:
    on = ["infer", "Llama-3.1-8B", "--on", "RTX-4090+RTX-3090", "--engine", "vllm"]
    assert main([*on, "--enforce-eager"]) == 0
    assert "no step is a captured graph" in capsys.readouterr().out
