"""Performance tests without a GPU: baselines written and compared, the command and the fixture."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trueflops.cli import main
from trueflops.predict.captured.guarded import NAMED
from trueflops.records.baseline import read_baseline

pytest.importorskip("torch")
pytest_plugins = ["pytester"]
Capture = pytest.CaptureFixture[str]
PROGRAM = """\
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(512, 512) for _ in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x

def build():
    model = Net().to("cuda", torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    x = torch.randn(16384, 512, device="cuda", dtype=torch.bfloat16)

    def step():
        model(x).float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path / "train.py"
    file.write_text(PROGRAM)
    return file


def guard(program: Path, *more: str) -> int:
    return main(["guard", f"{program}:build", "--on", "H100", *more])


def baseline(program: Path) -> Path:
    return program.with_name("train.build.H100.baseline.json")


def slower(program: Path) -> None:
    """One more pass over every activation, which the backward keeps."""
    program.write_text(PROGRAM.replace("relu(layer(x))", "relu(layer(x)).sigmoid()"))


def test_a_baseline_is_written_once_and_then_compared_with(program: Path, capsys: Capture) -> None:
    assert guard(program) == 0
    assert "is one now" in capsys.readouterr().out
    before = baseline(program).read_bytes()
    assert guard(program) == 0
    assert capsys.readouterr().out.startswith("passed")
    assert baseline(program).read_bytes() == before


def test_what_grew_is_named_with_its_line(program: Path, capsys: Capture) -> None:
    assert guard(program) == 0
    before = baseline(program).read_bytes()
    slower(program)
    capsys.readouterr()
    assert guard(program) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith("failed")
    assert "sigmoid forward in Net, train.py:11" in said
    assert "sigmoid_backward backward in Net, train.py:11" in said
    assert "activations: Net, train.py:11" in said
    assert baseline(program).read_bytes() == before, "only --update accepts a step"
    assert guard(program, "--tolerance", "100%") == 0
    assert guard(program, "--update") == 0
    assert guard(program) == 0


def test_what_shrank_passes_and_says_how_to_keep_it(program: Path, capsys: Capture) -> None:
    slower(program)
    assert guard(program) == 0
    program.write_text(PROGRAM)
    capsys.readouterr()
    assert guard(program) == 0
    assert "--update accepts" in capsys.readouterr().out


def test_a_comparison_as_json(program: Path, capsys: Capture) -> None:
    def asked(code: int) -> dict[str, Any]:
        assert guard(program, "--json") == code
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        return answer

    assert asked(0)["written"]
    slower(program)
    answer = asked(1)
    assert not answer["passed"]
    assert answer["slower"]
    assert answer["larger"]
    grown = {row["name"]: row for row in answer["grown_kernels"]}
    added = grown["sigmoid forward in Net"]
    assert added["before_seconds"] == 0.0
    assert added["source"] == "train.py:11"
    step = answer["step_seconds"]
    parts = sum(row["now_seconds"] - row["before_seconds"] for row in answer["grown_parts"])
    assert (1.0 - 3 * NAMED) * (step["now"] - step["before"]) <= parts  # small ones go unnamed


def test_the_same_program_gives_the_same_bytes(program: Path, tmp_path: Path) -> None:
    """In a process that hashes otherwise, from another folder, with its lines moved."""
    assert guard(program) == 0
    other = tmp_path / "elsewhere" / "train.py"
    other.parent.mkdir()
    other.write_text("# A comment, which moves every line.\n\n" + PROGRAM)
    words = ["guard", "train.py:build", "--on", "H100"]
    subprocess.run(
        [sys.executable, "-m", "trueflops", *words],
        cwd=other.parent, env={**os.environ, "PYTHONHASHSEED": "7"}, check=True,
        capture_output=True,
    )  # fmt: skip
    assert baseline(other).read_bytes() == baseline(program).read_bytes()


def test_a_baseline_can_be_read_back(program: Path) -> None:
    assert guard(program) == 0
    found = read_baseline(baseline(program))
    assert found.text() == baseline(program).read_text()
    assert baseline(program).stat().st_size < 10_000


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"trueflops_baseline": 0}', "of schema 0, and this trueflops reads"),
        ('{"trueflops_baseline": 1, "program": 3}', "a broken baseline"),
        ('{"trueflops_baseline": 1, "program"', "not valid JSON"),
        ('{"step": 1}', "not a baseline of trueflops guard"),
        ("[]", "must hold an object"),
    ],
)
def test_a_file_that_is_no_baseline_is_said_so_and_left(
    program: Path, capsys: Capture, content: str, said: str
) -> None:
    baseline(program).write_text(content)
    assert guard(program) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert baseline(program).read_text() == content


def test_update_overwrites_baselines_alone(program: Path, capsys: Capture) -> None:
    baseline(program).write_text("my thesis")
    assert guard(program, "--update") == 2
    assert "not a baseline" in capsys.readouterr().err
    assert baseline(program).read_text() == "my thesis"
    baseline(program).write_text('{"trueflops_baseline": 0}')
    assert guard(program, "--update") == 0
    assert read_baseline(baseline(program)).on == "H100"


def test_a_baseline_of_another_question_is_refused(program: Path, capsys: Capture) -> None:
    assert guard(program) == 0
    kept = str(baseline(program))
    assert main(["guard", f"{program}:build", "--on", "A100", "--baseline", kept]) == 2
    assert "on is 'H100' there" in capsys.readouterr().err
    words = ["guard", "--on", "H100", f"{program}:build", "--", "--layers", "2"]
    assert main(words) == 2
    assert "arguments is '[]' there" in " ".join(capsys.readouterr().err.split())
    assert guard(program, "--assume", "mask=0.25") == 2
    assert "assumed is '[]' there" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("tolerance", ["2", "-1%", "two", "2%%", "nan"])
def test_a_tolerance_is_a_share(program: Path, capsys: Capture, tolerance: str) -> None:
    assert guard(program, f"--tolerance={tolerance}") == 2
    assert "tolerance" in capsys.readouterr().err


def test_in_ci_a_missing_baseline_is_an_error(program: Path, capsys: Capture) -> None:
    assert guard(program, "--no-write") == 2
    assert "no such baseline" in capsys.readouterr().err
    assert not baseline(program).exists()
    assert guard(program, "--no-write", "--update") == 2


def test_a_script_is_guarded_as_it_is(program: Path, capsys: Capture) -> None:
    script = (
        PROGRAM
        + "\nif __name__ == '__main__':\n    step = build()\n    while True:\n        step()\n"
    )
    program.write_text(script)
    assert main(["guard", str(program), "--on", "H100"]) == 0
    kept = program.with_name("train.H100.baseline.json")
    assert read_baseline(kept).program == "train.py"
    program.write_text(script.replace("relu(layer(x))", "relu(layer(x)).sigmoid()"))
    assert main(["guard", str(program), "--on", "H100"]) == 1
    assert "sigmoid forward in Net, train.py:11" in " ".join(capsys.readouterr().out.split())


# ── the fixture ──────────────────────────────────────────────────────────────────────────────────


def test_the_fixture_writes_compares_and_fails(pytester: pytest.Pytester) -> None:
    test = f"{PROGRAM}\ndef test_step(trueflops_guard):\n    trueflops_guard(build, on='H100')\n"
    file = pytester.makepyfile(test_speed=test)
    plugin = ("-p", "trueflops.pytest_plugin", "-p", "no:randomly")
    missing = pytester.runpytest(*plugin, "--trueflops-no-write")
    missing.assert_outcomes(failed=1)
    missing.stdout.fnmatch_lines(["*no such baseline*"])
    first = pytester.runpytest(*plugin)
    first.assert_outcomes(passed=1, warnings=1)
    kept = pytester.path / "baselines" / "test_speed.test_step.H100.json"
    assert read_baseline(kept).program == "test_speed.py:build"
    pytester.runpytest(*plugin, "--trueflops-no-write").assert_outcomes(passed=1)
    file.write_text(test.replace("relu(layer(x))", "relu(layer(x)).sigmoid()"))
    failed = pytester.runpytest(*plugin)
    failed.assert_outcomes(failed=1)
    failed.stdout.fnmatch_lines(["*Kernels that grew*", "*sigmoid*"])
    pytester.runpytest(*plugin, "--trueflops-update").assert_outcomes(passed=1)
    pytester.runpytest(*plugin).assert_outcomes(passed=1)


def test_loading_the_plugin_loads_nothing_heavy() -> None:
    check = (
        "import sys, trueflops.pytest_plugin\n"
        "assert not {'torch', 'numpy', 'rich'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", check], check=True)
