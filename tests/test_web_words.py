"""The page's words: each has a Chinese text, and no text is left that the page no longer says."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import trueflops
from trueflops.web.words import page_words

ROOT = Path(trueflops.__file__).parent
STATIC = ROOT / "web" / "static"
TABLE = ROOT / "language" / "zh" / "page.toml"
SAID = re.compile(r"\b(?:words|mark)\(\s*(\"(?:[^\"\\]|\\.)*\")")
LABELLED = re.compile(r"data-(?:words|label)=\"([^\"]*)\"")
PLACES = re.compile(r"\{\w+\}")


def page_texts() -> set[str]:
    """Every literal that the page's modules hand to words or mark, and its own labels."""
    said = {
        json.loads(text)
        for file in STATIC.rglob("*.js")
        for text in SAID.findall(file.read_text(encoding="utf-8"))
    }
    return said | set(LABELLED.findall((STATIC / "index.html").read_text(encoding="utf-8")))


def test_every_word_of_the_page_is_in_the_table_and_no_other() -> None:
    """What a command says as well, such as a part's name, stands in the command's table."""
    assert page_texts() - set(page_words("zh")) == set()
    assert set(tomllib.loads(TABLE.read_text(encoding="utf-8"))) - page_texts() == set()


def test_a_translation_has_the_places_of_its_text() -> None:
    for english, chinese in tomllib.loads(TABLE.read_text(encoding="utf-8")).items():
        assert sorted(PLACES.findall(english)) == sorted(PLACES.findall(chinese)), english


def test_words_are_literals_so_that_they_can_be_collected() -> None:
    """A text in backquotes or single quotes would be missed by the test above."""
    for file in STATIC.rglob("*.js"):
        assert not re.search(r"\b(?:words|mark)\(\s*['`]", file.read_text(encoding="utf-8")), file


def test_nothing_is_inline_and_nothing_becomes_markup() -> None:
    """The policy forbids inline scripts and styles; names of other people's stay text."""
    html = (STATIC / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", html)
    banned = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|setAttribute\(\"style\"|\beval\("
    )
    for file in STATIC.rglob("*.js"):
        assert not re.search(banned, file.read_text(encoding="utf-8")), file


def test_the_page_names_no_other_machine() -> None:
    """No CDN: the only addresses are those of namespaces."""
    for file in STATIC.rglob("*"):
        if file.suffix in (".js", ".css", ".html", ".svg"):
            found = re.findall(r"https?://[\w./-]+", file.read_text(encoding="utf-8"))
            assert [link for link in found if not link.startswith("http://www.w3.org/")] == [], file
