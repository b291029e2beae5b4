"""What infer says of caches and of requests that wait."""

from __future__ import annotations

import pytest

from conftest import Ask
from trueflops.cli import main

Capture = pytest.CaptureFixture[str]
FULL = ("infer", "Llama-3.1-8B", "--on", "H100", "--concurrency", "2000", "--input", "8192")


def said(capsys: Capture, *words: str, code: int = 0) -> str:
    assert main(list(words)) == code
    return " ".join(capsys.readouterr().out.split())


def test_the_cache_of_a_request_whole_and_on_one_accelerator(ask: Ask, capsys: Capture) -> None:
    words = ("infer", "Llama-3.1-70B", "--on", "8xH100", "--tp", "8")
    answer = ask(*words)
    whole = 80 * 8 * (128 + 128) * 2 * (1024 + 256)  # layers, key heads, keys and values, bf16
    assert answer["kv_cache_bytes_per_request"] == whole
    assert answer["kv_cache_bytes_per_request_and_accelerator"] == whole / 8
    assert "KV cache of a request 400 MiB" in said(capsys, *words)
    assert "… on one accelerator 50.0 MiB" in said(capsys, *words)


def test_a_latent_cache_lies_whole_on_each(ask: Ask) -> None:
    answer = ask("infer", "DeepSeek-V3", "--on", "8xH200", "--tp", "8")
    here = answer["kv_cache_bytes_per_request_and_accelerator"]
    assert answer["kv_cache_bytes_per_request"] == here


def test_what_runs_and_what_waits(ask: Ask, capsys: Capture) -> None:
    answer = ask(*FULL, code=1)
    runs, waits = (answer[f"{what}_requests_per_replica"] for what in ("running", "waiting"))
    assert runs + waits == answer["requests_per_replica"] == 2000
    assert 0 < runs < 2000
    text = said(capsys, *FULL, code=1)
    assert f"plan tp 1, {runs} of 2,000 requests at once" in text
    assert f"batch {runs}" in text
    assert "batch 2" not in text
    assert f"{waits:,} requests wait for room" in text
    assert f"{runs} run at once and {waits:,} wait, as the times above have it" in text


def test_nobody_waits_where_there_is_room(ask: Ask, capsys: Capture) -> None:
    words = ("infer", "Llama-3.1-8B", "--on", "2xH100", "--tp", "1")
    answer = ask(*words)
    assert answer["waiting_requests_per_replica"] == 0
    assert answer["running_requests_per_replica"] == 32
    text = said(capsys, *words)
    assert "plan tp 1, 2 replicas, 32 requests each" in text
    assert "wait for room" not in text


def test_a_short_model_gets_a_prompt_that_it_can_read(capsys: Capture) -> None:
    assert "768 tokens in, 256 out" in said(capsys, "infer", "GPT-2", "--on", "H100")


def test_the_cut_that_was_found_can_be_typed(ask: Ask) -> None:
    words = ("infer", "Qwen3-30B-A3B", "--on", "4xH100")
    found = ask(*words)
    typed = ask(*words, *found["plan_flags"].split())
    assert typed["plan"] == found["plan"]
    assert typed["tokens_per_second"] == found["tokens_per_second"]


def test_an_engine_is_asked_for_as_many_as_it_runs_at_once(ask: Ask, capsys: Capture) -> None:
    """llama-server has four slots unless told: 64 requests would wait for one another."""
    words = ("infer", "Llama-3.1-8B", "--on", "RTX4090", "--engine", "llama.cpp", "--tp", "1")
    answer = ask(*words)
    assert answer["requests_per_replica"] == 4
    assert answer["waiting_requests_per_replica"] == 0
    assert "concurrency 4: as many as llama.cpp runs at once" in said(capsys, *words)
    more = ask(*words, "--max-num-seqs", "16")
    assert more["requests_per_replica"] == 16
    assert "as many as" not in said(capsys, *words, "--concurrency", "4")


def test_the_cache_holds_those_that_the_engine_lets_in(ask: Ask, capsys: Capture) -> None:
    """However many wait for a turn, the engine never holds them: nothing overflows."""
    words = ("infer", "Llama-3.1-8B", "--on", "H100", "--tp", "1", "--concurrency")
    full, crowded = ask(*words, "256"), ask(*words, "1000000")
    assert crowded["fits"]
    assert crowded["memory"] == full["memory"]
    assert crowded["waiting_requests_per_replica"] == 1_000_000 - 256
    text = said(capsys, *words, "1000000")
    assert "999,744 requests wait: an engine runs 256 at once" in text


def test_nobody_is_made_to_wait_unasked(ask: Ask, capsys: Capture) -> None:
    """Where nobody says how many are in flight: as many as there is room for, and it fits."""
    words = ("infer", "Llama-3.1-8B", "--on", "RTX4090", "--tp", "1")
    answer = ask(*words)
    assert answer["fits"]
    assert answer["requests_per_replica"] == answer["most_requests_per_replica"] < 64
    assert "as many as there is room for" in said(capsys, *words)
    assert not ask(*words, "--concurrency", "64", code=1)["fits"]
    alone = ask("infer", "Llama-3.1-70B", "--on", "RTX4090", "--tp", "1", code=1)
    assert alone["requests_per_replica"] == 64  # where not even one fits, the usual question


@pytest.mark.parametrize(
    ("on", "engine", "says"),
    [
        ("EPYC-9654", "vllm", "on a CPU"),
        ("Xeon-6980P", "sglang", "on a CPU"),
        ("M4-Max", "vllm", "Apple's chips"),
        ("MI300X", "vllm", "AITER's kernels"),
        ("H100", "vllm", "CUDA graphs"),
    ],
)
def test_an_engine_is_described_as_it_is_on_the_chip(
    capsys: Capture, on: str, engine: str, says: str
) -> None:
    text = said(capsys, "infer", "Llama-3.1-8B", "--on", on, "--engine", engine, "--tp", "1")
    assert says in text
    assert ("CUDA graphs" in text) == (says == "CUDA graphs")
    assert ("AITER" in text) == (on == "MI300X")


@pytest.mark.parametrize(
    ("asked", "instead"),
    [("fp8", "w8a16"), ("nvfp4", "nvfp4-weights"), ("mxfp4_fp4", "mxfp4"), ("fp8_block", "w8a16")],
)
def test_a_format_that_a_chip_cannot_multiply_has_one_that_it_stores(
    capsys: Capture, ask: Ask, asked: str, instead: str
) -> None:
    words = ("infer", "Llama-3.1-8B", "--on", "A100", "--weights")
    assert main([*words, asked]) == 2
    assert f"write --weights {instead}, stored" in " ".join(capsys.readouterr().err.split())
    assert ask(*words, instead)["fits"]


def test_hits_of_a_prefix_share_no_memory_and_say_so(capsys: Capture) -> None:
    words = ("infer", "Llama-3.1-8B", "--on", "H100", "--tp", "1", "--rate", "2/s", "--requests")
    hits = said(capsys, *words, "50", "--prefix-hits", "0.9")
    assert "90% of each prompt is not read again; its memory is not shared" in hits
    assert "prefix hits" not in said(capsys, *words, "50")
