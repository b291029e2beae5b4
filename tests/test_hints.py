"""Advice: it never repeats what was given, never proposes another meaning, and works when typed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trueflops.cli import main
from trueflops.cli.arguments import parser
from trueflops.cli.arguments.hints import _SAID_ELSEWHERE, flag_instead

Capture = pytest.CaptureFixture[str]


def flags(command: str) -> list[str]:
    return parser().command(command).flags()


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("--polar", None),  # near --lora and --plot, and neither
        ("--model", None),
        ("--foo", None),
        ("--gpus", "--on"),
        ("--tensor-parallel-size", "--tp"),
        ("--micro_batch", "--micro-batch"),
        ("-tp", "--tp"),
        ("--globl-batch", "--global-batch"),
        ("--batch-size", "--global-batch"),
        ("--TP", "--tp"),
    ],
)
def test_a_wrong_flag(wrong: str, meant: str | None) -> None:
    assert flag_instead(wrong, flags("train")) == meant


def test_words_of_other_tools_lead_to_flags_that_exist() -> None:
    known = {flag for command in ("train", "infer") for flag in flags(command)}
    assert set(_SAID_ELSEWHERE.values()) <= known
    assert flag_instead("--quantization", flags("train")) is None  # only infer has --weights


def test_a_wrong_choice_is_compared_with_its_own(capsys: Capture) -> None:
    assert main(["train", "GPT-2", "--on", "H100", "--recompute", "gpip"]) == 2  # gpipe: a schedule
    assert "did you mean" not in capsys.readouterr().err


@pytest.mark.parametrize("on", ["H100x8", "8 H100", "H100 8", "H100 × 8", "h100*8"])
def test_a_number_in_another_place_is_put_first(capsys: Capture, on: str) -> None:
    assert main(["infer", "GPT-2", "--on", on]) == 2
    right = capsys.readouterr().err.split("write the number first, as ")[1].split()[0]
    assert right.casefold() == "8xh100"
    assert main(["infer", "GPT-2", "--on", right]) == 0


@pytest.mark.parametrize(
    ("said", "framework"),
    [
        ("trl", "transformers"),
        ("unsloth", "transformers"),
        ("jax", "maxtext"),
        ("axolotl", "transformers"),
    ],
)
def test_who_runs_under_a_framework_is_named(capsys: Capture, said: str, framework: str) -> None:
    assert main(["train", "Llama-3.1-8B", "--on", "H100", "--framework", said]) == 2
    assert f"write --framework {framework}" in " ".join(capsys.readouterr().err.split())


def test_experts_under_megatron_are_split_as_the_rest(capsys: Capture) -> None:
    asked = ["train", "Mixtral-8x7B", "--on", "8xH200", "--tp", "8", "--framework", "megatron"]
    main([*asked, "--json"])
    typed = json.loads(capsys.readouterr().out)
    main([*asked, "--etp", "8", "--json"])
    assert typed["plan"] == json.loads(capsys.readouterr().out)["plan"]
    assert any(note.startswith("etp 8: megatron splits") for note in typed["notes"])


def test_one_link_of_a_network(capsys: Capture) -> None:
    asked = ["collective", "all_gather", "--bytes", "1GB", "--on", "2x8xA100", "--network"]
    main([*asked, "10Gb"])
    one = capsys.readouterr().out
    main([*asked, "1x10Gb"])
    assert one == capsys.readouterr().out


def test_advice_on_a_price_is_of_that_price(capsys: Capture) -> None:
    words = ["train", "GPT-2", "--on", "8xH100", "--tp", "1"]
    assert main([*words, "--electricity", "9ct"]) == 2
    assert "as 0.09" in capsys.readouterr().err
    assert main([*words, "--years", "0"]) == 2
    assert "above 0" in capsys.readouterr().err


def test_more_stages_than_layers_are_refused_by_what_would_help(capsys: Capture) -> None:
    assert main(["train", "GPT-2", "--on", "16xH100", "--pp", "16"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "the 12 layers of GPT-2 must fill pp 16" in said
    assert "lower pp or vpp" in said


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llama.cpp"])
def test_an_engine_is_named_once(capsys: Capture, engine: str) -> None:
    assert main(["infer", "GPT-2", "--on", "H100", "--engine", engine, "--tp", "1"]) == 0
    said = " ".join(capsys.readouterr().out.split()).casefold()
    assert f"engine {engine}: " in said
    assert f"{engine}: {engine}: " not in said


TOO_LARGE = [
    ["Llama-3.1-70B", "--on", "16xH100", "--tp", "8", "--zero", "1"],
    ["Llama-3.1-70B", "--on", "16xH100", "--tp", "2", "--dp-replicate", "2", "--zero", "3"],
    ["Llama-3.1-8B", "--on", "8xH100", "--tp", "2", "--no-sp", "--micro-batch", "4"],
    ["Llama-3.1-70B", "--on", "16xH100", "--tp", "8", "--offload-optimizer", "--recompute", "full"],
]


@pytest.mark.parametrize("words", TOO_LARGE, ids=" ".join)
def test_what_would_fit_fits_when_typed_and_is_news(capsys: Capture, words: list[str]) -> None:
    def ask(*more: str) -> tuple[int, dict[str, Any]]:
        code = main(["train", *words, *more, "--json"])
        return code, json.loads(capsys.readouterr().out)

    code, answer = ask()
    for hint in answer["would_fit"]:
        given = " ".join(words)
        assert hint
        assert hint not in given
        assert ask(*hint.split())[0] == 0, hint
    assert code == 1 or not answer["would_fit"]


@pytest.mark.parametrize(
    ("words", "never"),
    [
        (["infer", "Llama-3.1-405B", "--on", "H100", "--weights", "int4"], "--weights"),
        (["infer", "Llama-3.1-405B", "--on", "H100", "--weights", "fp8"], "--weights fp8"),
        (["infer", "Llama-3.1-8B", "--on", "RTX4090", "--input", "120k", "--cache", "fp8"],
         "--cache fp8"),
        (["train", "Llama-3.1-405B", "--on", "2xH100", "--offload-optimizer"],
         "use more accelerators or --offload"),
    ],
    ids=lambda w: " ".join(w) if isinstance(w, list) else "",
)  # fmt: skip
def test_advice_does_not_repeat_what_was_given(
    capsys: Capture, words: list[str], never: str
) -> None:
    assert main(words) == 1
    said = capsys.readouterr()
    assert never not in " ".join((said.out + said.err).partition("Does not fit")[2].split())


def test_prices_as_people_write_them(capsys: Capture) -> None:
    words = ["infer", "GPT-2", "--on", "H100", "--input", "100", "--output", "20", "--json"]
    for text in ("2", "$2", "2$/h", "2 USD/h", "$2.00/h", "2.0", "USD 2/hr", "2 $ per hour"):
        assert main([*words, "--price", text]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert answer["price_usd_per_hour"] == 2.0
    for text in ("-2", "2 EUR", "two", "", "nan", "1e99"):
        assert main([*words, "--price", text]) == 2
        assert "--price" in capsys.readouterr().err
