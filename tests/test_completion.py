"""Completion: what may stand where, and that three shells really complete it."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from patience import HUNG
from trueflops.catalog.names import known
from trueflops.cli import main
from trueflops.cli.arguments import parser
from trueflops.cli.completing import candidates
from trueflops.cli.completion import SCRIPTS
from trueflops.plan import OPTIMIZERS

SOURCE = Path(__file__).parent.parent / "src"


def words(*typed: str) -> list[str]:
    return [candidate.word for candidate in candidates(typed).words]


class TestWhatMayStand:
    def test_commands(self) -> None:
        assert words("t") == ["train"]
        assert {"train", "infer", "completion", "--version"} <= set(words(""))

    def test_every_flag_of_every_command_is_offered(self) -> None:
        for name in words("")[:-2]:
            offered = set(words(name, "--"))
            for action in parser().command(name).arguments():
                longs = {option for option in action.option_strings if option.startswith("--")}
                assert not longs or longs & offered, f"{name} {longs}"

    def test_a_flag_is_offered_once(self) -> None:
        assert "--tp" in words("train", "X", "--t")
        assert "--tp" not in words("train", "X", "--tp", "8", "--t")
        assert "--sp" not in words("train", "X", "--no-sp", "--s")

    def test_models_and_chips_of_the_catalog(self) -> None:
        assert words("train", "Llama-3.1-7") == ["Llama-3.1-70B"]
        assert words("train", "llama3.1-7") == ["Llama-3.1-70B"]  # as the catalog finds it
        assert words("compare", "H100", "MI300") == [n for n in known("accelerators", "nodes")
                                                     if n.startswith("MI300")]  # fmt: skip
        assert "16x8xH100" in words("train", "X", "--on", "16x8xH1")
        assert "Selene" in words("train", "X", "--on", "Sel")
        assert words("train", "X", "--on", "8xSel") == []  # a cluster is not counted

    def test_values(self) -> None:
        assert words("train", "X", "--zero", "") == ["0", "1", "2", "3"]
        assert words("train", "X", "--framework=megatron-d") == ["--framework=megatron-deepspeed"]
        both = ["megatron-deepspeed", "megatron-core"]
        assert words("train", "X", "--framework", "=", "megatron-") == both
        assert "bf16,fp8" in words("train", "X", "--compute", "bf16,")
        assert "bf16,bf16" not in words("train", "X", "--compute", "bf16,")
        assert words("infer", "X", "--engine", "vl") == ["vllm", "vllm-0.2"]
        assert words("train", "X", "--optimizer", "") == list(OPTIMIZERS)
        assert "NVIDIA" in words("compare", "--vendor", "")
        assert words("explain", "") == ["matmul", "attention"]
        assert words("train", "X", "--tp", "") == []  # a number: nothing to offer, no file either

    def test_files(self) -> None:
        assert candidates(["ops", ""]).files
        assert candidates(["train", "./config"]).files
        assert candidates(["train", "X", "--trace", ""]).files
        assert candidates(["capture", "a.py", "--", "x"]).files
        assert not candidates(["train", "X", "--tp", ""]).files

    def test_what_is_no_command(self) -> None:
        assert candidates(["bogus", ""]) == ([], False)


def test_the_command_prints_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    for shell, script in SCRIPTS.items():
        assert main(["completion", shell]) == 0
        assert capsys.readouterr().out == script
    assert main(["completion", "tcsh"]) == 2
    assert "bash" in capsys.readouterr().err


@pytest.fixture
def where(tmp_path: Path) -> dict[str, str]:
    """A place where `trueflops` is this working tree's, as an installed one would be."""
    program = tmp_path / "bin" / "trueflops"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m trueflops "$@"\n')
    program.chmod(0o755)
    (tmp_path / "kernels.csv").write_text("m,n,k\n")
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(SOURCE), "HOME": str(tmp_path)}


LINES = [
    ("trueflops tra", {"train"}),
    ("trueflops train Llama-3.1-7", {"Llama-3.1-70B"}),
    ("trueflops train Llama-3.1-70B --on 64xH200-SXM-", {"64xH200-SXM-141GB"}),
    ("trueflops train X --what", {"--what-helps"}),
    ("trueflops train X --zero ", {"0", "1", "2", "3"}),
    ("trueflops ops kern", {"kernels.csv"}),
]


def shell(name: str, script: str, where: dict[str, str]) -> str:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not here")
    done = subprocess.run(
        [name, *(["--norc"] if name == "bash" else ["-f"] if name == "zsh" else ["--no-config"]),
         "-c", script], capture_output=True, text=True, env=where, cwd=where["HOME"], timeout=HUNG,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("line", "expected"), LINES, ids=lambda v: v if isinstance(v, str) else "")
def test_bash_completes(line: str, expected: set[str], where: dict[str, str]) -> None:
    script = (
        'eval "$(trueflops completion bash)"\n'
        f"read -ra COMP_WORDS <<< '{line}'\n"
        + ('COMP_WORDS+=("")\n' if line.endswith(" ") else "")
        + "COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
        "_trueflops\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    assert set(shell("bash", script, where).split()) == expected


@pytest.mark.parametrize(("line", "expected"), LINES, ids=lambda v: v if isinstance(v, str) else "")
def test_fish_completes(line: str, expected: set[str], where: dict[str, str]) -> None:
    script = f"trueflops completion fish | source; complete -C '{line}'"
    lines = shell("fish", script, where).splitlines()
    assert {each.split("\t")[0] for each in lines} == expected


UNIQUE = [
    ("trueflops tra", "trueflops train"),
    ("trueflops train Llama-3.1-7", "trueflops train Llama-3.1-70B"),
    ("trueflops train X --on=64xH200-SXM-", "trueflops train X --on=64xH200-SXM-141GB"),
    ("trueflops train X --on 64xh200-sxm-14", "trueflops train X --on 64xH200-SXM-141GB"),
    ("trueflops ops kern", "trueflops ops kernels.csv"),
]


@pytest.mark.parametrize("name", ["bash", "zsh"])
def test_tab_at_a_terminal(name: str, where: dict[str, str]) -> None:
    """At Tab the shell writes the rest; Ctrl-A and echo make it print what then stands there."""
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not here")
    begin = {"bash": "", "zsh": "autoload -Uz compinit; compinit -u; "}[name]
    begin += f"eval \"$(trueflops completion {name})\"; PS1='next''> '\n"
    start = {"bash": ["bash", "--norc", "-i"], "zsh": ["zsh", "-f", "-i"]}[name]
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        start, stdin=theirs, stdout=theirs, stderr=theirs, env={**where, "TERM": "dumb"},
        cwd=where["HOME"], start_new_session=True,
    ) as running:  # fmt: skip
        try:
            os.write(ours, begin.encode())
            until(ours, "next> ")
            for line, completed in UNIQUE:
                os.write(ours, line.encode() + b"\t" + b"\x01echo '<'\x05'>'\n")
                said = until(ours, r"\n<[^\n]*\n[^\n]*next> ")
                assert f"<{completed}" in said, said
        finally:
            running.kill()
            os.close(theirs)
            os.close(ours)


def until(terminal: int, mark: str) -> str:
    """What a terminal shows until a mark does."""
    seen, end = b"", time.monotonic() + HUNG
    while time.monotonic() < end:
        if select.select([terminal], [], [], 0.2)[0]:
            seen += os.read(terminal, 65536)
            if re.search(mark.encode(), seen):
                break
    return seen.decode(errors="replace")
