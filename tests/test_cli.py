"""The commands: questions answered as text and JSON, exit codes, and every kind of bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import Ask
from trueflops.cli import main

Capture = pytest.CaptureFixture[str]


def printed(capsys: Capture, *words: str, code: int = 0) -> str:
    assert main(list(words)) == code
    return capsys.readouterr().out


def test_calls_of_aten_are_priced_like_kernels(capsys: Capture, tmp_path: Path) -> None:
    calls = Path(__file__).parent.parent / "truth" / "h200" / "calls.csv"
    table = tmp_path / "calls.csv"
    table.write_text("".join(calls.open().readlines()[:3]))
    assert "aten." in printed(capsys, "ops", str(table), "--on", "A100")


class TestTrain:
    def test_the_waterfall_falls_from_the_box_to_the_run(self, ask: Ask) -> None:
        answer = ask("train", "Llama-3.1-70B", "--on", "64xH100")
        rates = [fall["flop_per_second"] for fall in answer["waterfall"]]
        assert rates == sorted(rates, reverse=True)
        assert rates[0] == pytest.approx(1978.8e12, rel=1e-3)
        assert rates[1] == pytest.approx(989.4e12)
        flop = answer["mfu"]["value"] * 989.4e12
        assert rates[-1] == pytest.approx(flop, rel=1e-6)

    def test_a_given_plan_is_predicted_as_given(self, ask: Ask) -> None:
        answer = ask(
            "train",
            "Llama-3.1-70B",
            "--on",
            "64xH100",
            "--tp",
            "8",
            "--pp",
            "4",
            "--zero",
            "1",
            "--recompute",
            "full",
            "--recompute-layers",
            "5",
            "--tokens",
            "2T",
        )
        plan = answer["plan"]
        assert (plan["tp"], plan["pp"], plan["dp_shard"], plan["zero"]) == (8, 4, 2, 1)
        assert plan["recompute_layers"] == 5
        assert len(answer["stages"]) == 4
        assert answer["steps"] == -(-2 * 10**12 // (8192 * 512))
        assert answer["memory"]["bytes"] == max(s["bytes"] for s in answer["stages"])

    def test_an_answer_can_be_fed_back(self, ask: Ask, capsys: Capture, tmp_path: Path) -> None:
        words = ("train", "Llama-3.1-8B", "--on", "8xH100", "--zero", "3", "--dp", "8")
        first = printed(capsys, *words, "--json")
        file = tmp_path / "answer.json"
        file.write_text(first)
        assert ask("train", str(file)) == json.loads(first)
        other = ask("train", str(file), "--on", "16xH100", "--dp", "16")
        assert other["cluster"]["accelerators"] == 16

    def test_explain_walks_every_part(self, capsys: Capture) -> None:
        said = printed(
            capsys,
            "train",
            "Llama-3.1-70B",
            "--on",
            "64xH100",
            "--tp",
            "8",
            "--pp",
            "4",
            "--zero",
            "1",
            "--explain",
        )
        for word in (
            "Every part of the step",
            "Every part of the memory",
            "Memory of every stage",
            "Fusion:",
            "assumed",
            "exact",
        ):
            assert word in said

    def test_prices_power_and_overrides(self, ask: Ask) -> None:
        base = ("train", "Llama-3.1-8B", "--on", "8xH100", "--dp", "8", "--zero", "3")
        plain, cheap = ask(*base), ask(*base, "--price", "1 USD/h")
        hours = plain["accelerator_hours"]["value"]
        assert cheap["cost_usd"]["value"] == pytest.approx(hours)
        warm = ask(*base, "--pue", "1.5")
        assert warm["energy_kwh"]["value"] == pytest.approx(1.5 * plain["energy_kwh"]["value"])
        assert ask(*base, "--spot")["cost_usd"]["value"] < plain["cost_usd"]["value"]

    def test_what_does_not_fit_exits_1_and_says_what_would(self, ask: Ask) -> None:
        answer = ask("train", "Llama-3.1-70B", "--on", "64xH100", "--tp", "4", code=1)
        assert not answer["fits"]
        assert any("--zero" in words for words in answer["would_fit"])

    def test_a_search_that_finds_nothing_says_why(self, capsys: Capture) -> None:
        assert main(["train", "Llama-3.1-405B", "--on", "8xH100"]) == 1
        said = " ".join(capsys.readouterr().err.split())
        assert "weights and optimizer states alone are 5.17 TiB" in said
        assert "the smallest cluster of them that would do has 128: --on 128xH100" in said

    def test_search_with_some_flags_fixed(self, ask: Ask) -> None:
        answer = ask("train", "Llama-3.1-70B", "--on", "64xH100", "--tp", "8", "--search")
        assert all(row["plan"]["tp"] == 8 for row in answer["best"])

    def test_old_chips_compute_in_what_they_have(self, ask: Ask) -> None:
        answer = ask("train", "GPT-2-XL", "--on", "8xV100", "--seq", "1024")
        assert answer["plan"]["compute"] == "fp16"
        assert any("no bf16" in note for note in answer["notes"])

    @pytest.mark.parametrize("engine", ["dataparallel", "parameter-server"])
    def test_the_old_engines(self, ask: Ask, engine: str) -> None:
        base = (
            "train",
            "GPT-2",
            "--on",
            "8xV100",
            "--dp",
            "8",
            "--global-batch",
            "64",
            "--seq",
            "1024",
        )
        old, ddp = ask(*base, "--engine", engine), ask(*base)
        assert old["step_seconds"]["value"] > ddp["step_seconds"]["value"]


class TestInfer:
    def test_the_best_cut_comes_first(self, ask: Ask) -> None:
        answer = ask("infer", "Llama-3.1-70B", "--on", "8xH100")
        rates = [cut["tokens_per_second"] for cut in answer["cuts"] if cut["fits"]]
        assert rates == sorted(rates, reverse=True)
        assert answer["ttft_seconds"]["value"] > answer["tpot_seconds"]["value"]

    def test_limits_choose_another_cut_or_say_no(self, ask: Ask) -> None:
        load = ("--concurrency", "128", "--input", "8192", "--output", "128")
        words = ("infer", "Llama-3.1-8B", "--on", "8xH100", *load)
        free = ask(*words)
        limit = 0.9 * free["ttft_seconds"]["value"]
        tight = ask(*words, "--ttft", f"{limit:.6f} s")
        assert tight["ttft_seconds"]["value"] <= limit
        assert tight["tokens_per_second"]["value"] <= free["tokens_per_second"]["value"]
        assert not ask(*words, "--tpot", "1us", code=1)["in_time"]

    def test_narrow_weights_make_room_and_speed(self, ask: Ask) -> None:
        words = ("infer", "Llama-3.1-8B", "--on", "H100", "--concurrency", "4")
        wide, narrow = ask(*words), ask(*words, "--weights", "int4")
        assert narrow["tpot_seconds"]["value"] < wide["tpot_seconds"]["value"]
        assert narrow["most_requests_per_replica"] > wide["most_requests_per_replica"]

    def test_too_many_requests_say_how_many_would_fit(self, capsys: Capture) -> None:
        said = printed(
            capsys,
            "infer",
            "Llama-3.1-8B",
            "--on",
            "H100",
            "--concurrency",
            "2000",
            "--input",
            "8192",
            code=1,
        )
        assert "It would with --concurrency" in said

    def test_explain(self, capsys: Capture) -> None:
        said = printed(capsys, "infer", "Mixtral-8x7B", "--on", "8xH100", "--tp", "8", "--explain")
        assert "expert matmul" in said


class TestCompare:
    def test_dense_only_and_sortable(self, ask: Ask) -> None:
        answer = ask("compare", "--sort", "bandwidth", "--vendor", "nvidia", "--since", "2020")
        rates = [chip["memory_bytes_per_second"] for chip in answer["chips"]]
        assert rates == sorted(rates, reverse=True)
        assert all(chip["vendor"] == "NVIDIA" and chip["year"] >= 2020 for chip in answer["chips"])
        h100 = next(c for c in answer["chips"] if c["name"] == "H100-SXM5-80GB")
        assert h100["dense_flop_per_second"]["bf16"] == 989.4e12


class TestCatalog:
    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("H100", ["989.4 TFLOP/s", "lightning-throughput", "132 units × 2048 FMA/clock"]),
            ("RTX 4090", ["erratum", "660.6", "330.3 TFLOP/s"]),
            ("fp16", ["65504", "2⁻³ + 2⁻¹⁴ = 0.125", "lost"]),
            ("fp32", ["survives"]),
            ("Llama-3.1-70B", ["70,553,706,496", "aiconfigurator"]),
            ("DGX-H100", ["InfiniBand NDR"]),
            ("Selene", ["4,480"]),
            ("NVLink 4", ["450 GB/s"]),
        ],
    )
    def test_a_record_shows_its_facts(
        self, ask: Ask, capsys: Capture, name: str, words: list[str]
    ) -> None:
        said = " ".join(printed(capsys, "catalog", *name.split()).split())
        for word in words:
            assert word in said
        assert ask("catalog", *name.split())["kind"]

    def test_the_overview_lists_everything(self, capsys: Capture) -> None:
        said = printed(capsys, "catalog")
        assert "181 accelerators" in said
        assert "290 models" in said


class TestOps:
    def price(self, ask: Ask, tmp_path: Path, text: str, on: str = "H100") -> dict[str, Any]:
        file = tmp_path / "ops.csv"
        file.write_text(text)
        return ask("ops", str(file), "--on", on)

    def test_matmuls(self, ask: Ask, tmp_path: Path) -> None:
        answer = self.price(ask, tmp_path, "dtype,m,n,k\nbf16,8192,8192,8192\nfp8,8192,8192,8192\n")
        slow, fast = answer["rows"]
        assert slow["seconds"] > 2 * 8192**3 / 989.4e12
        assert fast["seconds"] < slow["seconds"]
        assert slow["bound"] == "compute"

    def test_attention_experts_and_collectives(self, ask: Ask, tmp_path: Path) -> None:
        prompt = "num_heads,num_kv_heads,head_dim,batch,isl\n32,8,128,4,4096\n"
        decode = "num_heads,num_kv_heads,head_dim,batch,kv_len\n32,8,128,64,4096\n"
        experts = (
            "dtype,num_tokens,hidden,inter,topk,experts,moe_tp,moe_ep\nbf16,64,4096,14336,2,8,1,1\n"
        )
        links = "op,gpus,bytes\nall_reduce,8,1000000000\nalltoall,8,1000000\n"
        row = self.price(ask, tmp_path, prompt)["rows"][0]
        assert row["flop"] == pytest.approx(2 * 4 * 32 * 128 * 4096**2, rel=1e-3)
        assert self.price(ask, tmp_path, decode)["rows"][0]["bound"] == "memory"
        assert self.price(ask, tmp_path, experts)["rows"][0]["seconds"] > 0
        first, second = self.price(ask, tmp_path, links)["rows"]
        assert first["seconds"] > second["seconds"] > 0

    def test_what_a_chip_cannot_run_is_refused_row_by_row(self, ask: Ask, tmp_path: Path) -> None:
        answer = self.price(ask, tmp_path, "dtype,m,n,k\nnvfp4,64,64,64\nbf16,64,64,64\n")
        assert len(answer["rows"]) == 1
        assert answer["refused"][0]["line"] == 2


BAD = [
    ["train", "Llama-3.1-70B", "--on", "64xH1OO"],
    ["train", "Lama-3.1-70B", "--on", "64xH100"],
    ["train", "Llama-3.1-70B"],
    ["train", "Llama-3.1-70B", "--on", "0xH100"],
    ["train", "Llama-3.1-70B", "--on", ""],
    ["train", "Llama-3.1-70B", "--on", "64xH100", "--tp", "7"],
    ["train", "Llama-3.1-70B", "--on", "64xH100", "--tp", "eight"],
    ["train", "Llama-3.1-70B", "--on", "64xH100", "--tp", "-8"],
    ["train", "Llama-3.1-70B", "--on", "64xH100", "--globl-batch", "4"],
    ["train", "Llama-3.1-70B", "--on", "64xH100", "--global-batch", "0"],
    ["train", "Llama-3.1-70B", "--on", "64xH100", "--tokens", "lots"],
    ["train", "Llama-3.1-70B", "--on", "64xH100", "--tokens", "15 TB"],
    ["train", "Llama-3.1-70B", "--on", "64xH100", "--seq", "nan"],
    ["train", "Llama-3.1-70B", "--on", "64xH100", "--price", "3 EUR"],
    ["train", "Llama-3.1-70B", "--on", "64xH100", "--pue", "0.2"],
    ["train", "Llama-3.1-70B", "--on", "64xH100", "--optimizer", "adamv", "--tp", "8"],
    ["train", "Llama-3.1-70B", "--on", "64xH100", "--compute", "fp4"],
    ["train", "Llama-3.1-70B", "--on", "64xA100", "--compute", "fp8", "--tp", "8"],
    ["train", "Llama-3.1-70B", "--on", "64xH100", "--dp", "8", "--dp-shard", "8"],
    ["train", "Llama-3.1-70B", "--on", "no-such.toml"],
    ["train", "no-such/config.json", "--on", "64xH100"],
    ["train", "GPT-2", "--on", "8xH100", "--seq", "4096"],
    ["train", "Llama-3.1-8B", "--on", "8xWSE-3"],
    ["infer", "Llama-3.1-8B", "--on", "H100", "--ttft", "500"],
    ["infer", "Llama-3.1-8B", "--on", "H100", "--weights", "int3"],
    ["infer", "Llama-3.1-8B", "--on", "H100", "--concurrency", "0"],
    ["infer", "Llama-3.1-8B", "--on", "H100", "--tp", "3"],
    ["compare", "H100", "--sort", "beauty"],
    ["compare", "--vendor", "nvidea"],
    ["compare", "H100", "--since", "2030"],
    ["catalog", "H1OO"],
    ["ops", "no-such.csv", "--on", "H100"],
    ["trian", "Llama-3.1-8B"],
    ["train", "Llama-3.1-70B", "--on", "64xH100", "--zero", "5"],
    ["train", "\x00", "--on", "64xH100"],
    ["train", "x" * 5000, "--on", "64xH100"],
    ["train", "Llama-3.1-70B", "--on", "9" * 400 + "xH100"],
]


@pytest.mark.parametrize("words", BAD, ids=lambda words: " ".join(words)[-40:])
def test_bad_input_is_one_clear_error_and_exit_2(capsys: Capture, words: list[str]) -> None:
    assert main(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "Traceback" not in said.err
    assert said.err.startswith("trueflops: ")
    assert len(said.err) < 700


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["train", "Llama-3.1-70B", "--on", "64xH1OO"], "H100"),
        (["train", "Lama-3.1-70B", "--on", "64xH100"], "Llama-3.1-70B"),
        (["train", "Llama-3.1-70B", "--on", "64xH100", "--globl-batch", "4"], "--global-batch"),
        (["trian", "Llama-3.1-8B"], "train"),
        (["infer", "Llama-3.1-8B", "--on", "H100", "--weights", "int3"], "int8 or int4"),
        (["compare", "--vendor", "nvidea"], "NVIDIA"),
        (["catalog", "Lama-3.1-8B"], "Llama-3.1-8B"),
    ],
)
def test_did_you_mean(capsys: Capture, words: list[str], hint: str) -> None:
    main(words)
    said = " ".join(capsys.readouterr().err.replace("'", "").split())
    assert f"did you mean {hint}" in said


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a,b\n1,2\n",
        "m,n,k\n1,2\n",
        "m,n,k\n1,2,x\n",
        "m,n,k\n0,1,1\n",
        "m,n,k\n-1,1,1\n",
        "m,n,k\nnan,1,1\n",
        "m,n,k\ninf,1,1\n",
        "dtype,m,n,k\nfp7,1,1,1\n",
        "op,gpus,bytes\nshout,8,1\n",
        "\x00\x01\x02",
    ],
    ids=repr,
)
def test_a_broken_table_names_the_line(capsys: Capture, tmp_path: Path, text: str) -> None:
    file = tmp_path / "ops.csv"
    file.write_text(text)
    assert main(["ops", str(file), "--on", "H100"]) == 2
    assert "ops.csv" in capsys.readouterr().err


def test_a_broken_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m trueflops catalog | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stderr == ""


def test_our_own_bug_is_exit_101(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    import trueflops.cli.catalog

    monkeypatch.setattr(trueflops.cli.catalog, "run", lambda options: 1 / 0)
    assert main(["catalog"]) == 101
    assert "a bug of ours" in capsys.readouterr().err


class TestWhatAReviewFound:
    """One test for each thing that a picky reader once found wrong."""

    def test_stages_hold_all_layers_or_the_plan_is_refused(self, capsys: Capture) -> None:
        base = ["train", "Llama-3.1-70B", "--on", "64xH100", "--tp", "8", "--zero", "1"]
        for words in (
            ["--pp", "2", "--first-stage-layers", "10", "--last-stage-layers", "10"],
            ["--pp", "4", "--first-stage-layers", "40", "--last-stage-layers", "40"],
            ["--pp", "8", "--first-stage-layers", "80"],
            ["--pp", "4", "--first-stage-layers", "-4"],
            ["--pp", "4", "--recompute", "full", "--recompute-layers", "-3"],
            ["--pp", "4", "--recompute-layers", "3"],
        ):
            assert main(base + words) == 2, words
        assert "PP_LAYERS" in capsys.readouterr().err

    def test_no_more_layers_recompute_than_a_stage_has(self, capsys: Capture) -> None:
        words = ["train", "Llama-3.1-8B", "--on", "8xH100", "--recompute", "full"]
        for pp, own in (("1", 32), ("8", 4), ("3", 11)):
            plan = [*words, "--pp", pp, "--recompute-layers"]
            assert main([*plan, str(own + 1)]) == 2
            said = " ".join(capsys.readouterr().err.split())
            assert f"a stage of Llama-3.1-8B on pp {pp} has {own} layers" in said
        assert main([*words, "--pp", "8", "--recompute-layers", "4"]) == 0
        first = ["--pp", "8", "--first-stage-layers", "11", "--recompute-layers", "11"]
        assert main([*words, *first]) == 0

    @pytest.mark.parametrize(
        ("words", "listed"),
        [
            ("train Llama-3.1-8B --on 8xH100 --seq 8192,16384", "seq = [8192, 16384]"),
            ("train Llama-3.1-8B --on 8xH100 --global-batch 8,16", "global_batch = [8, 16]"),
            ("infer Llama-3.1-8B --on H100 --input 8k,16k", 'input = ["8k", "16k"]'),
            ("infer Llama-3.1-8B --on H100 --concurrency 8,16", "concurrency = [8, 16]"),
        ],
    )
    def test_several_numbers_are_a_question_for_sweep(
        self, words: str, listed: str, capsys: Capture
    ) -> None:
        assert main(words.split()) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert "one number is wanted here" in said
        assert f"trueflops sweep asks several: {listed}" in said

    def test_a_sequence_of_infer_is_its_input(self, capsys: Capture) -> None:
        for flag in ("--seq", "--seq-length"):
            assert main(["infer", "Llama-3.1-8B", "--on", "H100", flag, "8192"]) == 2
            assert "did you mean --input?" in " ".join(capsys.readouterr().err.split())

    def test_requests_that_do_not_exist_are_not_served(self, ask: Ask) -> None:
        answer = ask("infer", "Llama-3.1-8B", "--on", "8xH100", "--concurrency", "1")
        single = 1 / answer["tpot_seconds"]["value"]
        assert answer["tokens_per_second"]["value"] <= single * 1.001

    def test_a_part_of_a_node_draws_a_part_of_its_power(self, ask: Ask) -> None:
        watts = [
            ask("train", "Llama-3.2-1B", "--on", on, "--dp", on[0], "--seq", "2048",
                "--zero", "3", "--micro-batch", "8")["power_watts"]["value"]
            for on in ("1xH100", "8xH100")
        ]  # fmt: skip
        assert watts[0] < 1500
        assert watts[1] == pytest.approx(8 * watts[0], rel=0.1)

    def test_a_rack_is_72_accelerators(self, ask: Ask) -> None:
        for on, count in (("GB200-NVL72", 72), ("2xGB200-NVL72", 144)):
            answer = ask("train", "Llama-3.2-1B", "--on", on, "--dp", str(count), "--zero", "1")
            assert answer["cluster"]["accelerators"] == count

    def test_feeding_back_keeps_what_was_switched_off(self, ask: Ask, tmp_path: Path) -> None:
        words = ("train", "Llama-3.1-8B", "--on", "8xH100", "--tp", "2", "--zero", "1",
                 "--no-flash", "--no-overlap", "--no-sp", "--recompute", "full")  # fmt: skip
        first = ask(*words)
        (tmp_path / "a.json").write_text(json.dumps(first))
        assert ask("train", str(tmp_path / "a.json")) == first

    def test_an_answer_can_ask_nothing_a_user_could_not(
        self, capsys: Capture, tmp_path: Path
    ) -> None:
        precious = tmp_path / "precious.png"
        precious.write_text("precious")
        file = tmp_path / "a.json"
        base = ["Llama-3.1-8B", "--on", "8xH100", "--tp", "8"]
        for arguments in (
            [*base, "--plot", str(precious)], ["--help"], [*base, "--tp", "x"], [5], "text",
            [*base, "--schedule", "foo"], [*base, "--parameter-dtype", "int3"], ["x" * 1000],
            [str(file)], [*base, "--nonsense", "1"], None,
        ):  # fmt: skip
            file.write_text(json.dumps({"question": {"command": "train", "arguments": arguments}}))
            assert main(["train", str(file)]) in (0, 2)
            assert precious.read_text() == "precious"
        capsys.readouterr()

    def test_search_keeps_what_is_given(self, ask: Ask) -> None:
        base = ("train", "Llama-3.2-1B", "--on", "8xH100", "--search")
        assert ask(*base, "--dp", "2")["plan"]["tp"] in (1, 2, 4)
        plan = ask(*base, "--dp-shard", "2", "--dp-replicate", "4", "--zero", "1")["plan"]
        assert (plan["dp_shard"], plan["dp_replicate"]) == (2, 4)
        assert not ask(*base, "--tp", "4", "--no-sp")["plan"]["sp"]

    def test_offload_needs_room_in_the_host(self, capsys: Capture, tmp_path: Path) -> None:
        file = tmp_path / "small.toml"
        file.write_text('node = "DGX-H100"\n[host]\nmemory = "1 GiB"\n')
        words = ("train", "Llama-3.1-70B", "--on", str(file), "--tp", "8", "--offload-optimizer",
                 "--recompute", "full", "--global-batch", "64")  # fmt: skip
        assert "in a node's memory" in printed(capsys, *words, code=1)

    def test_cluster_keys_have_an_effect(self, tmp_path: Path, ask: Ask) -> None:
        def step(text: str) -> float:
            file = tmp_path / "c.toml"
            file.write_text(f'node = "DGX-H100"\nnodes = 2\n{text}')
            words = ("train", "Llama-3.1-8B", "--on", str(file), "--tp", "8", "--dp", "2")
            value: float = ask(*words)["step_seconds"]["value"]
            return value

        plain = step("")
        assert step('[scale_up]\nlatency = "3 ms"\n') > plain
        assert step("[scale_up]\ndomain = 2\n") > plain
        for text in ('[scale_up]\nbandwidth = "0 GB/s"\n', 'accelerator = "H100"\n'):
            (tmp_path / "c.toml").write_text(f'node = "DGX-H100"\n{text}')
            assert main(["train", "Llama-3.1-8B", "--on", str(tmp_path / "c.toml")]) == 2

    def test_model_flop_does_not_depend_on_the_plan(self, ask: Ask) -> None:
        base = ("train", "Llama-3.1-8B", "--on", "8xH100", "--tp", "2", "--zero", "1")
        rates = []
        for more in ((), ("--no-flash", "--recompute", "selective"), ("--recompute", "full")):
            answer = ask(*base, *more)
            rates.append(answer["mfu"]["value"] * answer["step_seconds"]["value"])
        assert rates == pytest.approx([rates[0]] * 3)

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("num_heads,num_kv_heads,head_dim,batch,isl,kv_len\n8,8,64,1,1,64\n",
             "ops.csv: isl and kv_len in one table; split it in two"),
            ("gpus,bytes\n8,100\n",
             "ops.csv: the header names no kernels; it must hold one of: m,n,k; num_heads,"),
            ("num_heads,num_kv_heads,head_dim,batch,isl\n32,7,64,1,64\n",
             "ops.csv:2: num_kv_heads = 7 must divide num_heads = 32"),
            ("m,n,k\n1.5,2,2\n", "ops.csv:2: m = '1.5' must be a whole number of at least 1"),
            ("num_tokens,hidden,inter,topk,experts\n8,64,64,300,256\n",
             "ops.csv:2: topk = 300 must be at most experts = 256"),
            ("op,gpus,bytes\nall_reduce,2.5,64\n",
             "ops.csv:2: gpus = '2.5' must be a whole number of at least 1"),
            ("num_tokens,hidden,inter,topk,experts,moe_tp,moe_ep\n8,64,64,2,8,0,0\n",
             "ops.csv:2: moe_tp = '0' must be a whole number of at least 1"),
        ],
    )  # fmt: skip
    def test_nonsense_kernels_are_refused(
        self, capsys: Capture, tmp_path: Path, text: str, says: str
    ) -> None:
        (tmp_path / "ops.csv").write_text(text)
        assert main(["ops", str(tmp_path / "ops.csv"), "--on", "H100"]) == 2
        assert says in " ".join(capsys.readouterr().err.split())

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (["train", "Llama-3.1-8B", "--on", "8xH100", "--micro-batch", "0"],
             "--micro-batch/--mb: 0 must be at least 1"),
            (["train", "Llama-3.1-8B", "--on", "8xH100", "--global-batch", "1e300"],
             "--global-batch: '1e300' must be a whole number from 1 to 1000T"),
            (["infer", "Llama-3.1-8B", "--on", "8xH100", "--input", "1e300"],
             "--input: '1e300' must be a whole number from 1 to 1000T"),
            (["train", "x" * 5000 + ".json", "--on", "8xH100"],
             "xxx…: no config.json there; give a catalog name, a file or a folder"),
            (["train", "Llama-3.1-8B", "--on", "y" * 400 + ".toml"], "yyy…: no such file"),
            (["ops", "z" * 400 + ".csv", "--on", "H100"], "zzz…: no such file"),
            (["train", "Llama-3.1-8B", "--on", "8xH100", "--top", "0"],
             "--top: 0 must be at least 1"),
            (["train", "Llama-3.1-8B", "--on", "8xH100", "--tokens", ""],
             "--tokens: '' is not a number with a unit; write for example '15T'"),
            (["train", "", "--on", "8xH100"],
             "MODEL is empty; give a catalog name, a config.json, or a folder with one"),
            (["train", "Llama-3.1-8B", "--on", "8xH100", "--price", "1 USD/h", "--spot"],
             "give --price or --spot, not both"),
            (["train", "Llama-3.1-8B", "--on", "8xH100", "--plot", "/"],
             "--plot /: name a file that ends in .png"),
            (["train", "H100", "--on", "8xH100"],
             "H100 is an accelerator: write MODEL --on H100"),
            (["train", "Llama-3.1-8B", "--on", "8xH100", "--dp-shard", "8"],
             "--dp-shard shares states between replicas; say how with --zero 1, 2 or 3"),
            (["infer", "GPT-2", "--on", "A100", "--input", "4096"],
             "--input and --output 4,352: GPT-2 has learned positions for 1,024 tokens; write"),
            (["compare", "A100", "--for", "GPT-2", "--seq", "4096"],
             "--seq 4,096: GPT-2 has learned positions for 1,024 tokens; write"),
            (["train", "Llama-3.1-8B", "--on", "8xH100", "--search", "--tp", "3"],
             "tp 3 does not divide 32 heads; try 1, 2, 4 or 8"),
            (["train", "Llama-3.1-8B", "--on", "8xH100", "--vpp", "100"],
             "the 32 layers of Llama-3.1-8B must fill pp 1 × vpp 100 pieces"),
        ],
        ids=lambda given: " ".join(given)[-30:] if isinstance(given, list) else "",
    )  # fmt: skip
    def test_silly_input_exits_2(self, capsys: Capture, words: list[str], says: str) -> None:
        assert main(words) == 2
        assert says in " ".join(capsys.readouterr().err.split())

    def test_names_cannot_inject_markup_or_control_characters(
        self, capsys: Capture, tmp_path: Path
    ) -> None:
        file = tmp_path / "evil.toml"
        file.write_text(
            'name = "[/bold] x"\n[accelerator]\nlike = "H100"\nname = "[red]a\\u001b[2J"\n'
        )
        said = printed(capsys, "train", "GPT-2", "--on", str(file), "--dp", "8")
        assert "\x1b" not in said
        assert "[red]a" in said

    def test_verbose_keeps_the_exit_code(self, capsys: Capture) -> None:
        assert main(["compare", "-v", "Foo"]) == 2
        assert "Traceback" in capsys.readouterr().err

    def test_a_search_that_leaves_one_plan(self, capsys: Capture) -> None:
        printed(capsys, "train", "GPT-2", "--on", "1xH100", "--micro-batch", "1", "--zero", "0",
                "--recompute", "none")  # fmt: skip

    def test_stages_of_zero_can_be_bounded(self, ask: Ask) -> None:
        words = ("train", "Llama-3.2-1B", "--on", "8xH100", "--tp", "1", "--pp", "1", "--cp", "1")
        for given, allowed in (("2..3", {2, 3}), ("0,3", {0, 3}), ("..0", {0})):
            answer = ask(*words, "--search", "--zero", given)
            assert {plan["plan"]["zero"] for plan in answer["best"]} <= allowed, given

    def test_odd_clusters_get_a_batch_that_suits_them(self, ask: Ask) -> None:
        # Of 14,400 chips the batch is in question, not the search: a narrow one will do.
        narrow = ["--search", "--schedule", "1f1b", "--vpp", "1", "--micro-batch", "1", "--cp", "1"]
        for on, more in (("72xGB200", []), ("2000xA100", []), ("Eagle", narrow)):
            answer = ask("train", "Llama-2-70B", "--on", on, *more)
            assert answer["mfu"]["value"] > 0.3, on


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("train", "Llama-3.1-8B", "--on", "8xH100", "--tokens", "-1T"), "'-1T' must be a finite"),
        (("infer", "Llama-3.1-8B", "--on", "H100", "--power", "-5W"), "'-5W' must be a finite"),
        (("train", "Llama-3.1-8B", "--on", "99999999999xH100"), "between 1 and 10,000,000"),
        (("infer", "Llama-3.1-8B", "--on", "H100", "--weights", "fp7"), "mxfp4_fp4"),
        (("infer", "Llama-3.1-8B", "--on", "H100", "--weights", "GPTQ-Marlin"), "(write int4)"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_what_could(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert said in " ".join(capsys.readouterr().err.split())
