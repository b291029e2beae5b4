"""The READMEs show what the program prints, in both languages, and the docs' examples work."""

from __future__ import annotations

import doctest
import re
from functools import cache
from pathlib import Path

import pytest

import generate
import pictures
import site_pages as site
import which_card
from test_rooms import ROOMS
from trueflops.catalog import cluster
from trueflops.catalog.lookup import names_by_kind
from trueflops.model.families import READERS

ROOT = Path(__file__).parent.parent
COMMAND = re.compile(r"^\$ (trueflops .*)$", re.MULTILINE)
DOCUMENTS = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("[!C]*.md")),
             ROOT / "CONTRIBUTING.md"]  # fmt: skip
"""All but the changelog, which says what there was."""
FENCED = re.compile(r"```.*?```", re.DOTALL)
NAMED = re.compile(r"`([\w.-]*(?:/[\w.-]+)*(?:/|\.(?:py|toml|csv|json|md|png)))`")
LINKED = re.compile(r"\]\((?!https?:)([^)#]+)")
MADE_UP = ("/X100.toml", "/Helium-2B.toml", "/NAME.toml", "mine.toml", "config.json")
"""Files that an example adds, and those that users bring."""


@pytest.mark.parametrize("page", generate.PAGES, ids=lambda page: page.name)
def test_a_readme_shows_what_is_printed(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stale, `python docs/generate.py` writes anew."""
    monkeypatch.setenv("COLUMNS", "80")  # which generate sets, here put back
    assert generate.filled(page.read_text()) == page.read_text()


@cache
def repository() -> str:
    """Every file and folder of the repository, a line each: its path below the root."""
    rooms = [ROOT / name for name in ("src", "docs", "tests", "benchmarks", "truth", "examples")]
    found = [*ROOT.glob("*.*"), *rooms, *(path for room in rooms for path in room.rglob("*"))]
    paths = ("/" + path.relative_to(ROOT).as_posix() + "/" * path.is_dir() for path in found)
    return "\n".join([*paths, ""])


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: page.name)
def test_the_files_that_a_page_names_are_there(page: Path) -> None:
    """A path may leave out the folders that it lies in: `graph/ir.py`, or only `ir.py`."""
    text = page.read_text()
    named = {name for name in NAMED.findall(FENCED.sub("", text)) if name.strip("/")}
    missing = [n for n in named if f"/{n}\n" not in repository() and not n.endswith(MADE_UP)]
    assert not missing, f"{page.name} names what is not there: {sorted(missing)}"
    links = [link for link in LINKED.findall(text) if not (page.parent / link).exists()]
    assert not links, f"{page.name} links to what is not there: {links}"


def test_the_readmes_count_what_there_is() -> None:
    """In the order in which both say it: chips, links, nodes, clusters, then models and types."""
    held = {kind: len(names) for kind, names in names_by_kind().items()}
    kinds = ("accelerators", "links", "nodes", "clusters", "models")
    counts = [*(held[kind] for kind in kinds), len(READERS)]
    for name, words in (
        ("README.md", ("accelerators", "kinds of links", "server nodes", "named clusters",
                       "models", "model types")),
        ("README.zh-CN.md", ("种加速器", "种链路", "种服务器 节点", "个具名集群", "个模型",
                             "种 model_type")),
    ):  # fmt: skip
        text = " ".join((ROOT / name).read_text().replace("**", "").split())
        missing = [f"{n} {w}" for n, w in zip(counts, words, strict=True) if f"{n} {w}" not in text]
        assert not missing, f"{name} does not say {missing}"


def test_contributing_shows_every_room() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| (`.*?) \| ", text, re.MULTILINE)
    said = [name.strip("/") for row in rows for name in re.findall(r"`([\w/]+)`", row)]
    assert sorted(said) == sorted(set(ROOMS) - {"__main__"})


CONCEPTS = sorted(ROOT.glob("docs/concepts/*[!h].md"))


@pytest.mark.parametrize("page", CONCEPTS, ids=lambda page: page.stem)
def test_both_languages_show_the_same_numbers(page: Path) -> None:
    """A page on a concept and its Chinese one have the same commands, sessions and links."""
    english, chinese = page.read_text(), page.with_suffix(".zh.md").read_text()
    assert FENCED.findall(english) == FENCED.findall(chinese)
    assert sorted(LINKED.findall(english)) == sorted(LINKED.findall(chinese))


def test_every_concept_is_listed_and_in_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text()
    listed = (ROOT / "docs" / "concepts" / "index.md").read_text()
    for page in CONCEPTS:
        assert f"concepts/{page.name}" in menu
        assert page.name == "index.md" or f"]({page.name})" in listed
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name.endswith(".zh.md") or f" {page.name}\n" in menu


def test_the_pictures_are_those_that_can_be_drawn(tmp_path: Path) -> None:
    pictures.draw_all(tmp_path)
    drawn = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert drawn.keys() == {file.name for file in ROOT.glob("docs/concepts/*.svg")}
    pages = "".join(page.read_text() for page in CONCEPTS)
    assert all(f"]({name})" in pages and "<path" in text for name, text in drawn.items())


def test_the_site_is_laid_out_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every link of every page leads to a file that is laid out, code and notebook too."""
    monkeypatch.setattr(site, "LAID_OUT", tmp_path)
    site.lay_out()
    pages = list(tmp_path.rglob("*.md"))
    assert tmp_path / "source" / "src" / "trueflops" / "clock" / "matmul.py.md" in pages
    for page in pages:
        for link, _ in site.LINK.findall(FENCED.sub("", page.read_text())):
            there = (page.parent / link).resolve()
            assert there.is_file(), f"{page.relative_to(tmp_path)} links to {link}"


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """And asks no server for anything."""
    pytest.importorskip("mkdocs_static_i18n", reason="make site's packages are not here")
    site.lay_out()
    assert site.build(tmp_path) == 0
    for page in tmp_path.rglob("*.html"):
        asked = re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=\"?(https?://[^\"> ]+)",
                           page.read_text())  # fmt: skip
        assert not asked, f"{page.relative_to(tmp_path)} asks {asked}"
    assert "张量核" in (tmp_path / "zh" / "concepts" / "tensor-cores.html").read_text()


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


def test_the_page_on_cards_says_what_is_predicted() -> None:
    """What is stale, `python docs/which_card.py` writes anew."""
    case = which_card.CASES[0]
    page = which_card.PAGE.read_text()
    for card in ("RTX4090", "L40S"):
        row = next(line for line in page.splitlines() if line.startswith(f"| {card} | "))
        point = which_card.served(case, card, 1)
        assert point is not None
        assert which_card.ranged(which_card.usd(point)) in row
