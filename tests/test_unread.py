"""No flag is silently left out of an answer: a question that does not read it says so."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trueflops.cli.main import main
from trueflops.cli.sweep import answer
from trueflops.sweep.questions import Question

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("train Llama-3.1-8B --on any --lora 16", "does not read --lora"),
        ("train Llama-3.1-8B --on H100,H200 --no-sp", "does not read --sp"),
        ("train Llama-3.1-8B --on any --framework megatron", "name a cluster, as --on 8xH100"),
        ("infer Llama-3.1-8B --on any --tp 8", "does not read --tp"),
        ("infer Llama-3.1-8B --on any --emit vllm there", "does not read --emit"),
        ("infer Llama-3.1-8B --on 4xH100 --prefill 1xtp2 --decode 1xtp2 --rate 5", "--rate"),
        ("infer Llama-3.1-8B --on 4xH100 --prefill 1xtp2 --decode 1xtp2 --emit vllm x", "--emit"),
        ("infer Llama-3.1-8B --on 4xH100 --prefill 1xtp2 --decode 1xtp2 --ops", "--ops"),
        ("infer Llama-3.1-8B --on 4xH100 --tp 4 --pareto", "--pareto does not read --tp"),
        ("infer Llama-3.1-8B --on 4xH100 --users 9 --ttft 1s --tp 2", "leave --users out"),
        ("infer Llama-3.1-8B --on 4xH100 --pools --rate 5", "--pools does not read --rate"),
    ],
)
def test_a_flag_that_is_not_read_is_refused(capsys: Capture, words: str, says: str) -> None:
    assert main(words.split()) == 2
    assert says in " ".join(capsys.readouterr().err.split())


def offers(capsys: Capture, words: str) -> dict[str, dict[str, Any]]:
    assert main([*words.split(), "--json"]) == 0
    return {each["chip"]: each for each in json.loads(capsys.readouterr().out)["offers"]}


def test_chips_are_chosen_for_what_flags_ask_of_the_server(capsys: Capture) -> None:
    """The engine, the format and the rent that are asked for, as on a cluster that is named."""
    words = "infer Llama-3.1-8B --concurrency 4 --engine llama.cpp --weights int4 --price 2"
    chosen = offers(capsys, f"{words} --on H100,L40S")["L40S"]
    assert main([*words.split(), "--on", "1xL40S", "--json"]) == 0
    named = json.loads(capsys.readouterr().out)
    assert chosen["count"] == 1
    assert chosen["rent_usd_per_hour"] == 2.0
    assert chosen["tpot_seconds"] == pytest.approx(named["tpot_seconds"]["value"], rel=1e-9)


def test_a_run_is_billed_as_flags_say(capsys: Capture) -> None:
    words = "train Llama-3.2-1B --on H100 --tokens 1B --within 30days"
    usual, given = offers(capsys, words), offers(capsys, f"{words} --price 1")
    (chip,) = usual
    rent = usual[chip]["rent_usd_per_hour"]
    assert given[chip]["rent_usd_per_hour"] == 1.0
    assert given[chip]["usd"] == pytest.approx(usual[chip]["usd"] / rent, rel=0.05)


def test_of_several_formats_the_fastest_is_shown_where_the_plan_is_given(capsys: Capture) -> None:
    words = ["infer", "Llama-3.1-8B", "--on", "1xH100", "--tp", "1", "--concurrency", "256"]
    rates = {}
    for weights in ("bf16", "fp8", "int4", "any"):
        assert main([*words, "--weights", weights, "--json"]) == 0
        rates[weights] = json.loads(capsys.readouterr().out)["tokens_per_second"]["value"]
    assert rates["any"] == max(rates[weights] for weights in ("bf16", "fp8", "int4"))
    assert rates["int4"] < rates["any"]  # the narrowest is not the fastest at such a batch


@pytest.mark.parametrize(
    ("wishes", "code", "says"),
    [
        ("--within 1h", 1, "Not in time"),
        ("--budget 1$", 1, "Too dear"),
        ("--within 30000days --budget 1000M$", 0, ""),
    ],
)
def test_a_named_cluster_is_held_to_time_and_money(
    capsys: Capture, wishes: str, code: int, says: str
) -> None:
    words = ["train", "Llama-3.2-1B", "--on", "8xH100", "--tp", "1", *wishes.split()]
    assert main(words) == code
    out = " ".join(capsys.readouterr().out.split())
    assert says in out
    assert ("What would do: --on any" in out) == bool(code)
    assert main([*words, "--json"]) == code
    answer = json.loads(capsys.readouterr().out)
    assert answer["in_time"] == ("--within 1h" not in wishes)
    assert answer["affordable"] == ("1$" not in wishes.split())


@pytest.mark.parametrize(
    ("question", "flag"),
    [
        ("train GPT-2 --on 8xH100 --tp 1 --within 1h", "--within"),
        ("infer GPT-2 --on 8xH100 --tp 1 --prefix-hits 0.5", "--prefix-hits"),
        ("infer GPT-2 --on 8xH100 --users 5 --ttft 1s", "--users"),
    ],
)
def test_a_row_of_a_sweep_says_what_it_does_not_read(question: str, flag: str) -> None:
    row = answer(Question(tuple(question.split()), ()))
    assert row["status"] == "refused"
    assert f"does not read {flag}" in str(row["why"])
