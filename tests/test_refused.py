"""Bad arguments of capture and guard are refused before torch is imported, which takes seconds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BUILD = "def build():\n    return lambda: None\n"
CHECK = """\
import contextlib, io, json, sys
from trueflops.cli import main
for words, said in json.loads(sys.argv[1]):
    heard = io.StringIO()
    with contextlib.redirect_stderr(heard):
        code = main(words)
    text = " ".join(heard.getvalue().split())
    assert code == 2 and said in text, (words, code, text)
    assert "torch" not in sys.modules, f"torch was imported to refuse {words}"
"""
REFUSED = {
    "unknown chip": (("train.py:build", "--on", "H1000"), "unknown cluster"),
    "no chip": (("train.py:build",), "say where with --on"),
    "missing file": (("nowhere.py:build", "--on", "H100"), "no such file"),
    "no function": (("train.py:", "--on", "H100"), "write FILE.py:FUNCTION"),
    "unknown function": (("train.py:built", "--on", "H100"), "has no function 'built'"),
    "not Python": (("notes.txt:build", "--on", "H100"), "not a Python file"),
    "bad syntax": (("broken.py:build", "--on", "H100"), "SyntaxError"),
    "bad flag": (("train.py:build", "--on", "H100", "--onn", "2"), "no flag or place"),
    "bad number": (("train.py:build", "--on", "H100", "--world", "x"), "not a whole number"),
    "rank beyond": (("train.py:build", "--on", "H100", "--rank", "3"), "the ranks of a world"),
    "other world": (("train.py:build", "--on", "8xH100", "--world", "4"), "has 8 chips"),
    "unknown profile": (("train.py:build", "--on", "H100", "--profile", "x"), "unknown profile"),
}
OF_CAPTURE = {
    "trace nowhere": (("train.py:build", "--on", "H100", "--trace", "no/x.json"), "no such folder"),
    "bad picture": (("train.py:build", "--on", "H100", "--timeline", "x.doc"), "ends in .png"),
}
OF_GUARD = {
    "no baseline": (("train.py:build", "--on", "H100", "--no-write"), "no such baseline"),
    "bad baseline": (("train.py:build", "--on", "H100", "--baseline", "notes.txt"), "JSON"),
    "tolerance": (("train.py:build", "--on", "H100", "--tolerance", "2"), "write 2% or 0.02"),
}
CASES = {"capture": REFUSED | OF_CAPTURE, "guard": REFUSED | OF_GUARD}


@pytest.mark.parametrize("command", CASES)
def test_a_bad_argument_is_refused_without_torch(tmp_path: Path, command: str) -> None:
    (tmp_path / "train.py").write_text(BUILD)
    (tmp_path / "notes.txt").write_text(BUILD)
    (tmp_path / "broken.py").write_text("def build(:\n    pass\n")
    asked = [([command, *words], said) for words, said in CASES[command].values()]
    done = subprocess.run(
        [sys.executable, "-c", CHECK, json.dumps(asked)],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
