"""Narrow terminals: what is shown at 40 columns is what is shown at 120, and no number is cut."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from trueflops.cli import capture as cli_capture
from trueflops.cli import main
from trueflops.interop.kineto import read_trace
from trueflops.report.grid import Bar, grid, wrapped_cell

Capture = pytest.CaptureFixture[str]
WIDTHS = (40, 60, 80, 120)
QUESTIONS = {
    "train": ["train", "Llama-3.1-70B", "--on", "64xH100", "--tp", "8", "--pp", "2", "--zero", "1"],
    "train --explain": ["train", "GPT-2", "--on", "8xH100", "--tp", "2", "--pp", "2", "--explain"],
    "infer": ["infer", "Llama-3.1-8B", "--on", "4xH100", "--explain"],
    "compare": ["compare", "H100", "MI300X", "TPUv5e", "--for", "GPT-2"],
    "catalog": ["catalog"],
    "catalog chip": ["catalog", "RTX 4090"],
    "catalog model": ["catalog", "GPT-OSS-20B"],
    "catalog cluster": ["catalog", "Selene"],
    "catalog format": ["catalog", "fp16"],
    "ops": ["ops", "docs/kernels.csv", "--on", "H100"],
    "explain": ["explain", "matmul", "17x28672x4097", "--on", "H20"],
    "explain attention": ["explain", "attention", "1x32x8x4096x128", "--on", "H100"],
    "explain decode": ["explain", "attention", "64x32x8x4096x128", "--decode", "--on", "H100"],
    "diagnose": ["diagnose", "tests/data/llama_160m_step.json.gz"],
    "measure show": ["measure", "show", "H200"],
    "verify": ["verify", "truth/h200/power.csv", "truth/h200/steps_apart.csv"],
}
HEADING = "90"  # of '90 % interval', which stands once above a table, or in every stacked row
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
PICTURE = re.compile(r"[┤│└⠀-⣿]")


def said(capsys: Capture, monkeypatch: pytest.MonkeyPatch, words: list[str], width: int) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(words) in (0, 1)
    return capsys.readouterr().out


def numbers(text: str) -> Counter[str]:
    """Of everything but pictures, which have fewer ticks where they have less room."""
    found: Counter[str] = Counter()
    before = ""
    for line in text.splitlines():
        if not PICTURE.search(line) and "└" not in before:
            found.update(NUMBER.findall(line))
        before = line
    return found


@pytest.mark.parametrize("words", QUESTIONS.values(), ids=QUESTIONS)
def test_no_command_cuts_a_number_or_exceeds_the_width(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    check_widths(capsys, monkeypatch, words)


@pytest.fixture(autouse=True)
def _ask_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trace is read, and a program captured, once for all widths."""
    monkeypatch.setattr("trueflops.cli.diagnose.read_trace", cache(read_trace))
    once, held = cli_capture.recorded, dict[tuple[str, str], Any]()
    captured = cache(lambda program, where: once(*held[program, where]))

    def capture(options: Any, where: Any) -> Any:
        held.setdefault((options.program, where.name), (options, where))
        return captured(options.program, where.name)

    monkeypatch.setattr(cli_capture, "recorded", capture)


def check_widths(capsys: Capture, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    wide = numbers(said(capsys, monkeypatch, words, 200))
    for width in WIDTHS:
        text = said(capsys, monkeypatch, words, width)
        assert max(map(cell_len, text.splitlines())) <= width
        assert not re.search(r"[\d.,]…", text)
        narrow = numbers(text)
        lost = {n: (wide[n], narrow[n]) for n in wide if narrow[n] < wide[n] and n != HEADING}
        assert not lost, width


PROGRAM = """
import torch
from torch import nn
def build():
    model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).to("cuda")
    adam = torch.optim.AdamW(model.parameters())
    x = torch.randn(64, 1024, device="cuda")
    def step():
        model(x).square().mean().backward()
        adam.step()
    return step
"""


def test_a_captured_program(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    file = tmp_path / "small.py"
    file.write_text(PROGRAM)
    for more in ([], ["--graph"]):
        check_widths(capsys, monkeypatch, ["capture", f"{file}:build", "--on", "H100", *more])


@pytest.mark.parametrize(
    "words",
    [
        ["train", "GPT-2", "--on", "8xH100", "--framework", "vllm"],
        ["train", "Llama-3.1-405B", "--on", "2xH100"],
    ],
)
def test_errors_fit_too(capsys: Capture, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert main(words) in (1, 2)
    assert max(map(len, capsys.readouterr().err.splitlines())) <= 40


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from(["step", "1×32×4096×128", "matmul.fp8", "a"]), max_size=5),
            st.floats(0, 1e6),
            st.lists(st.sampled_from(["2,048.5", "keys", "of", "x" * 30]), max_size=6),
        ),
        min_size=1,
        max_size=4,
    ),
    st.integers(40, 120),
)
def test_any_table_fits(rows: list[tuple[list[str], float, list[str]]], width: int) -> None:
    table = grid("what", ("seconds", "right"), ("90 % interval", "right"), "", "why")
    for label, value, why in rows:
        shown = f"{value:,.1f}"
        interval = f"{value:,.1f} – {2 * value:,.1f} ms"
        bar = Bar(value / 1e6, 30)
        table.add_row(Text(" ".join(label)), shown, interval, bar, Text(" ".join(why)))
    out = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    out.print(table)
    text = out.export_text()
    assert max(map(len, text.splitlines())) <= width
    for label, value, why in rows:
        for number in NUMBER.findall(f"{' '.join(label)} {value:,.1f} {' '.join(why)}"):
            assert number in NUMBER.findall(text)


def test_a_cell_breaks_between_words_then_between_pieces() -> None:
    lines = [line.plain for line in wrapped_cell(Text("attention 1×32×4096×128 causal"), 12)]
    assert lines == ["attention", "1×32×4096×", "128 causal"]
    assert [line.plain for line in wrapped_cell(Text("tp 4 · sp · pp 2"), 6)] == [
        "tp 4 ·",
        "sp ·",
        "pp 2",
    ]
