"""The READMEs show what the program prints, in both languages, and the docs' examples work."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

import generate
from trueflops.catalog import cluster

ROOT = Path(__file__).parent.parent
COMMAND = re.compile(r"^\$ (trueflops .*)$", re.MULTILINE)


@pytest.mark.parametrize("page", generate.PAGES, ids=lambda page: page.name)
def test_a_readme_shows_what_is_printed(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stale, `python docs/generate.py` writes anew."""
    monkeypatch.setenv("COLUMNS", "80")  # which generate sets, here put back
    assert generate.filled(page.read_text()) == page.read_text()


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


def test_the_session_of_the_python_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/api.md is one session; its files are written where it runs."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "api.md").read_text()
    blocks = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    session = doctest.DocTestParser().get_doctest(blocks, {}, "docs/api.md", None, 0)
    said: list[str] = []
    done = doctest.DocTestRunner(verbose=False).run(session, out=said.append)
    assert done.attempted > 50
    assert done.failed == 0, "".join(said)


def test_the_changelog_names_the_version() -> None:
    from trueflops import __version__

    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()
