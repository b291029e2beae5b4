"""Build the documentation site: python docs/site_pages.py, or `make site`.

In: the pages of docs/, whose links work in the repository (tests/test_docs.py holds them to files
that are there). Out: build/site, which a browser opens from a disk. A file outside docs/ that some
page links to, such as the code of a law, gets a page of its own, so that the site is whole without
a network.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS, LAID_OUT = ROOT / "docs", ROOT / "build" / "docs"
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)(#[^)\s]*)?\)")
# A line that ends and one that begins with Chinese: HTML would put a space between them.
BROKEN = re.compile(r"(?<=[\u3001-\u9fff\uff00-\uffef])\n(?=[\u3001-\u9fff\uff00-\uffef\[])")
SHOWN = "source"
LANGUAGES = {".py": "python", ".toml": "toml", ".yml": "yaml", ".ipynb": "json"}


def outside(page: Path, link: str) -> Path | None:
    """What a page links to, as a path below the root, if that lies outside docs/."""
    found = Path(os.path.normpath(page.parent / link))
    return None if found.is_relative_to(DOCS) else found.relative_to(ROOT)


def page_of(path: Path) -> str:
    """Where the site shows a file."""
    return f"{SHOWN}/{path.as_posix().removesuffix('.md')}.md"


def moved(page: Path) -> str:
    """A page whose links lead to pages of the site."""
    folder = page.parent.relative_to(DOCS)

    def link(found: re.Match[str]) -> str:
        path = outside(page, found[1])
        return f"]({os.path.relpath(page_of(path), folder)})" if path else found[0]

    text = LINK.sub(link, page.read_text())
    return BROKEN.sub("", text) if page.name.endswith(".zh.md") else text


def linked() -> Iterator[Path]:
    """Files outside docs/ that some page links to."""
    for page in DOCS.rglob("*.md"):
        for link, _ in LINK.findall(page.read_text()):
            if path := outside(page, link):
                yield path


def shown(path: Path) -> str:
    """A file as a page."""
    text = (ROOT / path).read_text()
    if path.suffix == ".md":  # its own links are of the repository: their words stay
        return re.sub(r"\[([^\]]*)\]\((?!https?:|#)[^)]*\)", r"\1", text)
    return f"# `{path.as_posix()}`\n\n````{LANGUAGES.get(path.suffix, 'text')}\n{text}````\n"


def lay_out() -> None:
    """All that MkDocs reads, under build/docs."""
    shutil.rmtree(LAID_OUT, ignore_errors=True)
    for file in DOCS.rglob("*"):
        target = LAID_OUT / file.relative_to(DOCS)
        if file.suffix == ".md":
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(moved(file))
        elif file.suffix in (".png", ".svg", ".js"):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
    for path in set(linked()):
        target = LAID_OUT / page_of(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(shown(path))


def build(into: Path) -> int:
    """Have MkDocs build the site, strictly: a warning is an error."""
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # of a successor: not ours to decide here
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(into)]
    return subprocess.run(command, cwd=ROOT, env=quiet, check=False).returncode


if __name__ == "__main__":
    lay_out()
    code = build(ROOT / "build" / "site")
    if not code:
        print("build/site/index.html")
    raise SystemExit(code)
