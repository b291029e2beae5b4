"""Inverse questions: the longest sequence, the largest micro-batch, the largest models."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from trueflops.cli.main import main
from trueflops.search.largest import largest


def answer(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    assert main([*words, "--json"]) == code
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    return said


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 8, 9, 1000])
def test_the_last_that_holds_is_found_in_few_looks(count: int) -> None:
    for last in range(count + 1):
        looks: list[int] = []

        def holds(number: int, last: int = last, looks: list[int] = looks) -> bool:
            looks.append(number)
            return number <= last

        assert largest(range(1, count + 1), holds) == (last or None)
        assert len(looks) <= 2 * count.bit_length() + 1


TRAIN = (
    "train",
    "Llama-3.1-8B",
    "--on",
    "8xH100",
    "--dp",
    "8",
    "--zero",
    "3",
    "--recompute",
    "full",
)


def test_the_longest_sequence_surely_fits_and_the_next_does_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = answer(capsys, *TRAIN, "--global-batch", "8", "--seq", "longest")
    seq = int(found["question"]["arguments"][found["question"]["arguments"].index("--seq") + 1])
    assert seq % 1024 == 0
    assert found["memory"]["high"] <= found["capacity_bytes"]
    assert any(f"{seq:,}" in note and "surely fit" in note for note in found["notes"])
    more = answer(capsys, *TRAIN, "--global-batch", "8", "--seq", str(seq + 1024))
    assert more["memory"]["high"] > more["capacity_bytes"]


def test_the_largest_micro_batch_divides_a_replicas_share(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = (*TRAIN, "--seq", "4096", "--global-batch", "96")
    found = answer(capsys, *words, "--micro-batch", "largest")
    size = int(found["plan"]["micro_batch"])
    assert 12 % size == 0
    assert found["memory"]["high"] <= found["capacity_bytes"]
    larger = [n for n in (1, 2, 3, 4, 6, 12) if n > size]
    if larger:
        main([*words, "--micro-batch", str(larger[0]), "--json"])
        more = json.loads(capsys.readouterr().out)
        assert more["memory"]["high"] > more["capacity_bytes"]


def test_the_plan_may_be_a_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "tuned.yaml"
    config.write_text(
        "base_model: unsloth/Llama-3.2-1B\nadapter: lora\nlora_r: 8\nlora_target_linear: true\n"
        "sequence_len: 2048\nmicro_batch_size: 2\ngradient_accumulation_steps: 12\nbf16: true\n"
        "datasets:\n  - path: some/text\n    type: alpaca\n"
    )
    words = ("train", "Llama-3.2-1B", "--on", "1xH100", "--from", str(config))
    found = answer(capsys, *words, "--micro-batch", "largest")
    assert 24 % int(found["plan"]["micro_batch"]) == 0
    assert int(found["plan"]["micro_batch"]) > 2


def test_positions_that_are_learned_end_the_sequence(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "train", "GPT-2", "--on", "1xH100", "--dp", "1", "--seq", "longest")
    assert any("1,024 fit, and there are no more" in note for note in found["notes"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*TRAIN, "--seq", "longest", "--micro-batch", "largest"), "give one of them as a number"),
        (("train", "Llama-3.1-8B", "--on", "8xH100", "--micro-batch", "largest"), "--dp 8"),
        (("train", "any"), "--on RTX4090"),
        (("infer", "any", "--on", "any"), "--on RTX4090"),
        (("infer", "any", "--on", "RTX4090", "--weights", "awq"), "write int4"),
        (("infer", "any", "--on", "RTX4090", "--explain"), "does not read --explain"),
        (("train", "any", "--on", "RTX4090", "--emit", "megatron", "x"), "does not read --emit"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(list(words)) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_the_largest_models_come_first_and_answer_in_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("infer", "any", "--on", "RTX4090", "--weights", "any", "--tpot", "15ms", "--top", "3")
    found = answer(capsys, *words)
    sizes = [each["parameters"] for each in found["models"]]
    assert len(sizes) == 3
    assert sizes == sorted(sizes, reverse=True)
    assert all(each["tpot_seconds"] <= 0.015 for each in found["models"])
    assert all(each["memory_bytes"] <= 24 * 2**30 for each in found["models"])
    assert found["without"]["too large"] > 0
    assert found["without"]["too slow"] > 0
    assert found["smaller"] > 0


def test_narrower_formats_hold_larger_models(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("infer", "any", "--on", "RTX4090", "--engine", "llama.cpp", "--top", "1", "--weights")
    wide, narrow = (answer(capsys, *words, each)["models"][0] for each in ("q4_0", "q2_k"))
    assert narrow["parameters"] > 24 * 2**30 * 8 / 4 > wide["parameters"]


def test_models_are_trained_with_the_plan_that_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "train",
        "any",
        "--on",
        "1xRTX4090",
        "--seq",
        "2048",
        "--global-batch",
        "8",
        "--top",
        "1",
    )
    alone = answer(capsys, *words)["models"][0]
    packed = answer(capsys, *words, "--qlora")["models"][0]
    assert packed["plan"]["adapters"] == "qlora"
    assert packed["parameters"] > 5 * alone["parameters"]


def test_where_nothing_fits_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["infer", "any", "--on", "RTX4090", "--weights", "fp32", "--tpot", "1us"]
    assert main(words) == 1
    said = capsys.readouterr().err
    assert "no model of the catalog" in said
    assert "too slow" in said


def test_what_all_models_are_refused_for_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["infer", "any", "--on", "RTX4090", "--gpu-layers", "10"]) == 1
    assert "--engine llama.cpp" in " ".join(capsys.readouterr().err.split())


def test_a_sweep_tells_the_length_and_refuses_any(tmp_path: Path) -> None:
    spec = tmp_path / "asked.toml"
    spec.write_text(
        'command = "train"\n[fixed]\nglobal_batch = 8\ndp = 1\nqlora = true\n[axes]\n'
        'on = ["1xRTX4090"]\nseq = ["longest"]\nmodel = ["Llama-3.2-1B", "any"]\n'
    )
    table = tmp_path / "asked.csv"
    assert main(["sweep", str(spec), "-o", str(table)]) == 0
    with table.open(newline="") as file:
        found, refused = csv.DictReader(file)
    assert int(found["plan"].rpartition(" seq ")[2]) % 1024 == 0
    assert "not in a sweep" in refused["why"]
