"""The READMEs show what the program prints, in both languages, and the docs' examples work."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from trueflops.catalog import cluster

ROOT = Path(__file__).parent.parent
COMMAND = re.compile(r"^\$ (trueflops .*)$", re.MULTILINE)


def test_the_readmes_show_what_is_printed() -> None:
    command = [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_both_readmes_ask_the_same_six_questions() -> None:
    english, chinese = (COMMAND.findall((ROOT / name).read_text())
                        for name in ("README.md", "README.zh-CN.md"))  # fmt: skip
    assert english == chinese
    assert len(english) == 6


@pytest.mark.parametrize("number", [0, 1])
def test_the_cluster_files_of_the_docs_can_be_read(tmp_path: Path, number: int) -> None:
    text = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "clusters.md").read_text(), re.DOTALL)
    file = tmp_path / "mine.toml"
    file.write_text(text[number])
    assert cluster(str(file)).count in (128, 96)


def test_the_changelog_names_the_version() -> None:
    from trueflops import __version__

    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()
