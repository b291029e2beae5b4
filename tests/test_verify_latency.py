"""Outputs of serving benchmarks: read by their header, simulated as they were sent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from trueflops.catalog import accelerator
from trueflops.errors import BadInput
from trueflops.plan import Plan
from trueflops.profile import engine_of, engine_on
from trueflops.profile.engines import sharing_experts
from trueflops.records.tables import read_table
from trueflops.serve.load import Lengths, draw_requests
from trueflops.serve.simulated import TEMPLATE
from trueflops.verify.findings import Findings, ServerRow
from trueflops.verify.profiles import profiles_from
from trueflops.verify.recognise import verify_tables
from trueflops.verify.serving.conversations import LEAST, LONGEST, conversations, ended_sooner
from trueflops.verify.serving.harness import harness_of, repeated
from trueflops.verify.serving.latency import _run
from trueflops.verify.serving.sent import sent_requests
from trueflops.workload import Serving

HEADER = (
    "id,engine,model,accelerator,tp,dataset,request_rate,concurrency,completed,input_len_mean,"
    "output_len_mean,ttft_mean_ms,ttft_median_ms,ttft_p99_ms,tpot_mean_ms,flags,notes"
)
ONE = "A single NVIDIA H100 SXM GPU."
EIGHT = "8 × NVIDIA H100 SXM GPUs on a single node."


def judge(folder: Path, *rows: str) -> Findings:
    file = folder / "latency.csv"
    file.write_text("\n".join([HEADER, *rows]) + "\n")
    return verify_tables([read_table(file)], profiles_from(None))


def predicted(found: Findings, name: str, quantity: str) -> float:
    return next(r.predicted for r in found.rows if (r.id, r.quantity) == (name, quantity))


def row(name: str, rate: str = "inf", users: str = "", flags: str = "", on: str = ONE) -> str:
    figures = f"{100 + len(name)}.5,90,200,8.{len(name)}"  # as different runs print them
    load = f"random,{rate},{users},200,1000,100"
    return f"{name},vllm,Qwen/Qwen3-8B,{on},,{load},{figures},{flags},"


def test_a_table_of_latencies_is_known_by_its_header(tmp_path: Path) -> None:
    found = judge(tmp_path, row("a", users="4"))
    assert {r.quantity for r in found.rows} == {
        "ttft_seconds", "ttft_median_seconds", "ttft_p99_seconds", "tpot_seconds",
    }  # fmt: skip
    assert {r.group for r in found.rows} == {"Qwen3-8B vllm"}
    assert all(r.low < r.predicted < r.high for r in found.rows)


def test_what_is_sent_at_once_queues(tmp_path: Path) -> None:
    found = judge(tmp_path, row("a"), row("bb", users="4"), row("ccc", rate="2.0"))
    at_once, four, steady = (predicted(found, n, "ttft_seconds") for n in ("a", "bb", "ccc"))
    assert at_once > 10.0 * four
    assert at_once > 10.0 * steady
    assert predicted(found, "a", "ttft_p99_seconds") > 1.5 * at_once


def test_the_launch_command_sets_the_engine(tmp_path: Path) -> None:
    found = judge(tmp_path, row("a"), row("bb", flags="vllm serve x --max-num-seqs 8"))
    fewer, all_ = (predicted(found, name, "tpot_seconds") for name in ("bb", "a"))
    assert fewer < 0.8 * all_
    assert predicted(found, "bb", "ttft_seconds") > predicted(found, "a", "ttft_seconds")


def test_figures_that_two_chips_share_stand_apart(tmp_path: Path) -> None:
    a, b = row("a", users="4"), row("a", users="4", on=EIGHT)
    assert not any(r.scored for r in judge(tmp_path, a, b).rows)
    assert all(r.scored for r in judge(tmp_path, a, a).rows)


def test_a_tool_that_counts_two_chunks_a_token_is_corrected(tmp_path: Path) -> None:
    file = tmp_path / "twice.csv"
    file.write_text(
        HEADER.replace("tpot_mean_ms", "tpot_mean_ms,e2e_mean_ms")
        + f"\na,vllm,Qwen/Qwen3-8B,{ONE},,random,2.0,,50,1000,101,50,50,60,4,1050,,"
        "the tool counts two stream chunks per token\n"
    )
    found = verify_tables([read_table(file)], profiles_from(None))
    assert [r.measured for r in found.rows if r.quantity == "tpot_seconds"] == [0.01]


def test_a_model_of_which_only_the_size_is_known_stands_apart(tmp_path: Path) -> None:
    found = judge(tmp_path, row("a", users="4").replace("Qwen/Qwen3-8B", "someone/Nobodys-12B"))
    assert {r.group for r in found.rows} == {
        "Nobodys-12B vllm (a model of which only the size is known)"
    }
    assert not any(r.scored for r in found.rows)


def test_a_row_without_a_count_is_refused(tmp_path: Path) -> None:
    found = judge(tmp_path, row("a").replace(",200,1000,", ",,1000,"))
    assert [r.reason for r in found.refused] == ["num_prompts and completed are empty"]


def test_about_says_that_the_load_is_stated(tmp_path: Path) -> None:
    about = judge(tmp_path, row("a", users="4")).rows[0].about
    assert isinstance(about, ServerRow)
    assert about.stated


def test_each_campaign_is_simulated_as_it_ran() -> None:
    dated = harness_of(Serving(1024, 1024, 16), 16, engine_of("trt-llm"), True, 1e6)
    assert dated.requests.input.min() >= 0.8 * 1024 - 1
    assert dated.requests.input.max() <= 1024
    assert dated.requests.count == 160
    made = harness_of(Serving(2000, 500, 16), 16, engine_of("sglang"), False, 1e6)
    assert set(made.requests.output.tolist()) == {500.0}
    assert made.engine.policy == "mixed"
    assert made.engine.most_sequences == 16


@pytest.mark.parametrize(("room", "hits"), [(1e6, 400), (1e5, 0)])
def test_prompts_that_come_round_are_found_if_all_have_room(room: float, hits: int) -> None:
    lengths = Lengths(2000, 1.0, 1.0), Lengths(100, 1.0, 1.0)
    again = repeated(draw_requests(500, *lengths, users=8), 100, 8, 16, room)
    assert int(np.count_nonzero(again.cached)) == hits
    assert again.cached.max() in (0.0, 1984.0)


def test_conversations_have_the_means_that_were_printed_and_many_short_outputs() -> None:
    drawn = conversations(1000, 217.0, 198.0)
    assert drawn is not None
    prompts, outputs = drawn
    assert prompts.mean() == pytest.approx(217.0, rel=0.01)
    assert outputs.mean() == pytest.approx(198.0, rel=0.01)
    assert outputs.min() == LEAST
    assert 0.05 < np.mean(outputs < 10.0) < 0.25  # users' messages, of which half have up to 28
    assert prompts.max() < 1.2 * LONGEST


@pytest.mark.parametrize(("read", "written"), [(128, 4), (2000, 100), (1000, 2000)])
def test_lengths_that_no_conversation_has_are_all_alike(
    tmp_path: Path, read: int, written: int
) -> None:
    assert conversations(1000, read, written) is None
    said = row("a").replace("random", "Other cases").replace("1000,100,", f"{read},{written},")
    alike = row("bb").replace("1000,100,", f"{read},{written},")
    found = judge(tmp_path, said, alike)
    assert predicted(found, "a", "tpot_seconds") == predicted(found, "bb", "tpot_seconds")


def test_a_release_without_triton_kernels_runs_mxfp4_by_marlin(tmp_path: Path) -> None:
    file = tmp_path / "releases.csv"
    rows = [
        f"{version},vllm,openai/gpt-oss-20b,{ONE},,random,inf,,200,1000,100,{n},90,200,8,,,v{version}"
        for n, version in enumerate(("0.11.0", "0.12.0"), start=100)
    ]
    file.write_text("\n".join([f"{HEADER},engine_version", *rows]) + "\n")
    found = verify_tables([read_table(file)], profiles_from(None))
    older, newer = (predicted(found, v, "ttft_seconds") for v in ("0.11.0", "0.12.0"))
    assert older > 1.3 * newer


def test_replicated_attention_divides_a_chunk_and_leaves_less_cache() -> None:
    chip = accelerator("H200")
    usual = engine_on("sglang", chip)
    shared = sharing_experts(usual, chip, Plan(dp_replicate=8, ep=8))
    assert shared.step_tokens == 1024
    # 512 graphs · 8 · 4.5 MiB are 18 GiB of 141
    assert usual.share(8) - shared.memory_share == pytest.approx(18.0 / 141.0, abs=0.002)


def test_a_model_that_does_not_fit_as_stated_stands_apart(tmp_path: Path) -> None:
    large = row("a").replace("Qwen/Qwen3-8B", "Qwen/Qwen3-235B-A22B")
    apart = {r.about.apart for r in judge(tmp_path, large).rows if isinstance(r.about, ServerRow)}
    assert apart == {"weights that leave no room for a request as stated"}


def test_a_token_among_prompts_is_known_less_well_than_a_decode_step(tmp_path: Path) -> None:
    """Of a burst it is not known how many prompts a scheduler reads between two tokens."""
    found = judge(tmp_path, row("a"), row("bb", users="2"))
    width = {r.id: r.high / r.predicted for r in found.rows if r.quantity == "tpot_seconds"}
    assert width["a"] > 1.04 * width["bb"]


def test_drafts_of_a_launch_command_are_simulated_and_stand_apart(tmp_path: Path) -> None:
    name = "deepseek-ai/DeepSeek-V3"
    plain = row("a", users="4", on=EIGHT.replace("H100", "H200")).replace("Qwen/Qwen3-8B", name)
    plain = plain.replace("a,vllm", "a,sglang")
    drafts = "x --speculative-algorithm EAGLE --speculative-num-steps 1"
    said = plain.replace("a,sglang", "bb,sglang").replace("8.1,,", f"8.2,{drafts},")
    found = judge(tmp_path, plain, said)
    with_drafts, without = (predicted(found, n, "tpot_seconds") for n in ("bb", "a"))
    assert with_drafts < 0.8 * without
    assert {r.id for r in found.rows if not r.scored} == {"bb"}


def test_flags_with_underscores_are_read(tmp_path: Path) -> None:
    """TensorRT-LLM writes --ep_size and --max_batch_size where others have hyphens."""
    own = "8 × NVIDIA H200 SXM GPUs on a single node."
    said = row("a", on=own).replace("Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B")
    said = said.replace("a,vllm", "a,trtllm")
    spread = said.replace("a,", "bb,", 1)[:-1] + "trtllm-serve x --tp_size 8 --ep_size 8,"
    few = said.replace("a,", "ccc,", 1)[:-1] + "trtllm-serve x --tp_size 8 --max_batch_size 4,"
    found = judge(tmp_path, said, spread, few)
    times = [predicted(found, name, "tpot_seconds") for name in ("a", "bb", "ccc")]
    assert times[1] != times[0]
    assert times[2] < times[0]


def test_a_crowd_is_known_less_well_than_a_few(tmp_path: Path) -> None:
    """What a token takes while everybody waits: engines are tuned for fewer."""
    found = judge(tmp_path, row("a"), row("bb", users="4"))
    reach = {r.id: r.high / r.predicted for r in found.rows if r.quantity == "tpot_seconds"}
    assert reach["a"] > 1.3 * reach["bb"]


@pytest.mark.parametrize(
    "said", ["inf", "Infinity", "∞", "", "unlimited", "-1", "0", "N/A", "burst"]
)
def test_all_at_once_in_other_words(said: str) -> None:
    assert not sent_requests(sent(request_rate=said)).arrival.any()


@pytest.mark.parametrize(
    "said", ["2", "2.0", "2 req/s", "2/s", "2 rps", "2 QPS", "2 requests per second"]
)
def test_a_rate_in_other_words(said: str) -> None:
    arrival = sent_requests(sent(request_rate=said)).arrival
    assert arrival[-1] / len(arrival) == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize(
    ("said", "users"),
    [("64", 64), ("64 users", 64), ("1,000", 1000), ("64 concurrent requests", 64), ("none", None),
     ("unlimited", None), ("0", None)],
)  # fmt: skip
def test_users_in_other_words(said: str, users: int | None) -> None:
    assert sent_requests(sent(concurrency=said)).users == users


@pytest.mark.parametrize(
    "notes",
    ["--random-input-len 512 --random-output-len=128", "ISL/OSL 512/128", "ISL=512, OSL=128",
     "vllm bench serve (random, input_len 512, output_len 128)", "random 512/128, ignore_eos",
     "input/output len = 512/128"],
)  # fmt: skip
def test_lengths_that_only_the_command_says(notes: str) -> None:
    requests = sent_requests(sent(input_len_mean="", output_len_mean="", notes=notes))
    assert (requests.input.mean(), requests.output.mean()) == (512.0, 128.0)
    printed = sent_requests(sent(notes=notes))
    assert (printed.input.mean(), printed.output.mean()) == (100.0, 10.0)


def test_sglang_draws_lengths_up_to_those_of_its_command() -> None:
    notes = "sglang.bench_serving --random-input-len 512 --random-output-len 128"
    requests = sent_requests(sent(input_len_mean="", output_len_mean="", notes=notes))
    assert requests.input.mean() == pytest.approx(256, rel=0.05)
    assert requests.output.mean() == pytest.approx(64, rel=0.05)


@pytest.mark.parametrize(
    ("cells", "many"),
    [({"notes": "--num-prompts 48"}, 48), ({}, 160), ({"completed": "30"}, 30)],
)  # fmt: skip
def test_how_many_were_sent_where_no_cell_says_it(cells: dict[str, str], many: int) -> None:
    assert sent_requests(sent(num_prompts="", concurrency="16", **cells)).count == many


@pytest.mark.parametrize("column", ["request_rate", "concurrency"])
def test_a_load_that_is_no_number_says_what_to_write(column: str) -> None:
    with pytest.raises(BadInput, match=f"{column} is not a number: 'many'; (write|leave)"):
        sent_requests(sent(**{column: "many"}))


@pytest.mark.parametrize(
    "said",
    ["4 × NVIDIA H100 SXM GPUs on a single node.", "4x H100", "4xH100-80GB", "H100 80GB HBM3 x 4",
     "4 * NVIDIA H100", "4 NVIDIA H100 GPUs"],
)  # fmt: skip
def test_chips_in_other_words(tmp_path: Path, said: str) -> None:
    found = judge(
        tmp_path, row("a", users="4", on=EIGHT.replace("8", "4")), row("bb", users="4", on=said)
    )
    assert not found.refused
    assert predicted(found, "bb", "tpot_seconds") == predicted(found, "a", "tpot_seconds")


def sent(**said: str) -> dict[str, str]:
    usual = {"num_prompts": "2000", "input_len_mean": "100", "output_len_mean": "10"}
    return {"dataset": "random", **usual, **said}


@pytest.mark.parametrize(("model", "release", "notes", "parsed"), [
    ("Qwen/Qwen3-8B", "v0.11.0", "--backend openai-chat", True),
    ("Qwen/Qwen3-8B", "v0.11.0", "", False),
    ("Qwen/Qwen3-8B", "v0.10.2", "--backend openai-chat", False),
    ("Qwen/Qwen3-8B", "v0.11.1", "--backend openai-chat", False),
    ("openai/gpt-oss-20b", "v0.11.0", "--backend openai-chat", False),  # laid out without Jinja
])  # fmt: skip
def test_one_release_of_vllm_parses_the_chat_template_of_every_message(
    tmp_path: Path, model: str, release: str, notes: str, parsed: bool
) -> None:
    """A burst of 200: its first tokens wait until all templates have been parsed."""
    file = tmp_path / "chat.csv"
    sent = f"{ONE},,random,inf,,200,10,2,50,50,60,4"
    file.write_text(
        HEADER.replace("id,", "id,engine_version,")
        + f"\na,{release},vllm,{model},{sent},,{notes}\nb,0.12.0,vllm,{model},{sent},,\n"
    )
    found = verify_tables([read_table(file)], profiles_from(None))
    more = predicted(found, "a", "ttft_seconds") - predicted(found, "b", "ttft_seconds")
    assert more == pytest.approx(200 * TEMPLATE * parsed, abs=0.1)


@pytest.mark.parametrize(("source", "notes", "release"), [
    ("a repository @abc (2026-09-14)", "", ""),
    ("a repository @abc (2024-09-18)", "", "0.6.2rc"),
    ("a repository runs/2025-07-22-long/a.json @abc (2026-09-14)", "", "0.10rc"),
    ("a repository @abc (2026-09-14)", "date 20250722-101112", "0.10rc"),
])  # fmt: skip
def test_a_run_without_a_release_is_of_its_day(source: str, notes: str, release: str) -> None:
    run = {
        "engine": "vllm", "model": "Qwen/Qwen3-8B", "accelerator": "A100",
        "source": source, "notes": notes,
    }  # fmt: skip
    expected = engine_on("vllm", accelerator("A100"), release)
    assert _run(run).engine == expected


@pytest.mark.parametrize(("release", "flags", "tokens"), [
    ("0.5.4", "--max-model-len 8000", 8000),
    ("0.5.4", "--max-model-len 1024", 2048),
    ("0.5.4", "--max-model-len 8000 --max-num-batched-tokens 4096", 4096),
    ("0.5.4", "--max-model-len 100000", 2048),
    ("0.5.4", "", 2048),
    ("0.10.0", "--max-model-len 16000", 8192),
])  # fmt: skip
def test_the_first_engine_of_vllm_reads_as_many_tokens_as_a_request_may_have(
    release: str, flags: str, tokens: int
) -> None:
    run = {
        "engine": "vllm", "engine_version": release, "model": "Qwen/Qwen3-8B",
        "accelerator": "H100", "flags": flags,
    }  # fmt: skip
    engine = _run(run).engine
    assert engine is not None
    assert engine.step_tokens == tokens


def test_a_model_that_ends_its_answers_sooner_still_ends_them_at_many_lengths(
    tmp_path: Path,
) -> None:
    assert conversations(320, 205.0, 139.0) is None
    drawn = ended_sooner(320, 205.0, 139.0)
    assert drawn is not None
    assert drawn[1].mean() == pytest.approx(139.0, rel=0.01)
    assert np.quantile(drawn[1], 0.9) > 4.0 * np.quantile(drawn[1], 0.3)
    assert ended_sooner(320, 205.0, 400.0) is None
    named = row("a").replace("random", "ShareGPT").replace("1000,100,", "205,139,")
    alike = row("bb").replace("1000,100,", "205,139,")
    found = judge(tmp_path, named, alike)
    assert predicted(found, "a", "ttft_p99_seconds") != predicted(found, "bb", "ttft_p99_seconds")


def test_sonnets_are_cut_to_one_length(tmp_path: Path) -> None:
    sonnets = row("a").replace("random", "sonnet").replace("1000,100,", "465,256,")
    alike = row("bb").replace("1000,100,", "465,256,")
    found = judge(tmp_path, sonnets, alike)
    assert predicted(found, "a", "tpot_seconds") == predicted(found, "bb", "tpot_seconds")
