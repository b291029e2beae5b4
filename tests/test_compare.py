"""Chips side by side with a model: equally many of each, and progress where one can see it."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest

from conftest import Ask
from trueflops.catalog import accelerator
from trueflops.cli import main
from trueflops.clock.matmul import MATMUL
from trueflops.profile import Curve, CurveKey, Profile, write_profile
from trueflops.report import progress
from trueflops.report.progress import Waiting

Capture = pytest.CaptureFixture[str]


def test_all_are_compared_on_the_fewest_on_which_all_can(ask: Ask, capsys: Capture) -> None:
    answer = ask("compare", "H100", "RTX4090", "T4", "--for", "Llama-3.1-8B")
    for kind in ("training", "serving"):
        fewest = [chip[f"{kind}_fewest_accelerators"] for chip in answer["chips"]]
        counts = {chip[kind]["accelerators"] for chip in answer["chips"]}
        assert counts == {answer[f"{kind}_accelerators"]} == {max(fewest)}
        assert fewest[0] < fewest[-1]  # an H100 alone needs fewer than a T4
    assert main(["compare", "H100", "RTX4090", "T4", "--for", "Llama-3.1-8B"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    count = answer["training_accelerators"]
    assert f"Training Llama-3.1-8B on {count} of each, the fewest on which all can" in said
    assert "Serving Llama-3.1-8B from" in said
    assert "$/M tokens fewest" in said


def test_a_count_may_be_given(ask: Ask, capsys: Capture) -> None:
    answer = ask("compare", "H100", "RTX4090", "--for", "Llama-3.1-8B", "--count", "2")
    h100, rtx = answer["chips"]
    assert h100["training"]["accelerators"] == 2
    assert rtx["training"] is None
    assert rtx["why_not_training"] == "does not fit 2 of them"
    assert main(["compare", "H100", "--for", "GPT-2", "--count", "8"]) == 0
    assert "on 8 of each" in capsys.readouterr().out


def test_released_weights_are_served(ask: Ask) -> None:
    h100, a100 = ask("compare", "H100", "A100", "--for", "GPT-OSS-20B")["chips"]
    assert h100["serving"]["weights"] == a100["serving"]["weights"] == "mxfp4-experts"


def test_chips_that_cannot_say_why(ask: Ask, capsys: Capture) -> None:
    answer = ask("compare", "H100", "WSE-3", "--for", "Llama-3.1-8B")
    assert answer["training_accelerators"] == 2
    assert answer["chips"][1]["training"] is None
    assert answer["chips"][1]["why_not_training"]
    assert ask("compare", "WSE-3", "--for", "Llama-3.1-8B")["training_accelerators"] is None
    assert main(["compare", "H100", "WSE-3", "--for", "Llama-3.1-8B"]) == 0
    assert "all can that can at all" in capsys.readouterr().out


def test_a_profile_is_used_for_its_chip(ask: Ask, capsys: Capture, tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    chip = accelerator("H100")
    products = {CurveKey("matmul"): Curve(MATMUL.usual(), 0.1, "measured", "a test")}
    write_profile(Profile("mine", chip.name, products), file)
    words = ("H100", "A100", "--for", "GPT-2", "--count", "8")
    plain, own = (ask("compare", *words, *more) for more in ((), ("--profile", str(file))))
    assert plain["chips"][0]["training"] != own["chips"][0]["training"]
    assert plain["chips"][1] == own["chips"][1]
    assert main(["compare", "A100", "--for", "GPT-2", "--profile", str(file)]) == 2
    assert "which is none of A100" in " ".join(capsys.readouterr().err.split())
    assert main(["compare", "A100", "--count", "8"]) == 2
    assert "name one with --for" in " ".join(capsys.readouterr().err.split())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.0)
    for stream, seen in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr("sys.stderr", stream)
        with Waiting("searching") as wait:
            time.sleep(0.05)
            wait.say("pricing 12 plans")
            time.sleep(0.25)
        assert ("pricing 12 plans" in stream.getvalue()) is seen


def test_progress_never_touches_the_answer(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr("sys.stderr", Terminal())
    assert ask("compare", "H100", "A100", "--for", "GPT-2")["chips"]


def test_what_is_quick_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    with Waiting("searching"):
        pass
    assert stream.getvalue() == ""
