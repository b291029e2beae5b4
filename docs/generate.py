"""Keep pages true: run every command and Python session that they show, paste what they print.

A block that begins with ```console and a line `$ trueflops …` is filled with that command's output;
the ```pycon blocks of a page are one session, whose answers are filled in after each `>>>`.
    python docs/generate.py           rewrite the pages and the pictures
    python docs/generate.py --check   exit 1 if they would change
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import sys
from functools import cache
from pathlib import Path

from pictures import draw_all
from trueflops.cli import main as trueflops

ROOT = Path(__file__).parent.parent
PAGES = (
    ROOT / "README.md",
    ROOT / "README.zh-CN.md",
    ROOT / "docs" / "provenance.md",
    ROOT / "docs" / "pools.md",
    ROOT / "docs" / "engines.md",
    ROOT / "docs" / "serving.md",
    *sorted((ROOT / "docs" / "concepts").glob("*.md")),
)
BLOCK = re.compile(r"```console\n\$ trueflops ([^\n]*)\n.*?```", re.DOTALL)
SESSION = re.compile(r"```pycon\n(.*?)```", re.DOTALL)
PICTURE = ROOT / "docs" / "waterfall.png"
DRAWN = "train Llama-3.1-70B --on 64xH100 --tokens 1T --tp 8 --pp 4 --zero 1 --plot"


@cache
def output(command: str) -> str:
    """What `trueflops COMMAND` prints on a terminal of 80 columns; `| head -n N` and
    `| sed '1,/LINE/d'` cut it, as they would there.
    """
    words, _, cut = command.partition("| head -n ")
    words, _, before = words.partition("| sed '1,/")
    os.environ["COLUMNS"] = "80"
    os.environ["TRUEFLOPS_LANG"] = "en"  # unless a command says --lang
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.chdir(ROOT):
        trueflops(shlex.split(words))
    lines = [line.rstrip() for line in text.getvalue().rstrip().splitlines()]
    if before:
        last = before.rpartition("/d'")[0]
        lines = lines[next(i for i, line in enumerate(lines) if re.search(last, line)) + 1 :]
    return "\n".join(lines[: int(cut)] if cut else lines)


@cache
def sessions(blocks: tuple[tuple[str, ...], ...]) -> list[str]:
    """Blocks of one session, each a tuple of statements, with what Python answers after each."""
    names: dict[str, object] = {"__name__": "__main__"}
    filled = []
    for block in blocks:
        lines = []
        for source in block:
            said = io.StringIO()
            with contextlib.redirect_stdout(said), contextlib.chdir(ROOT):
                exec(compile(source, "<page>", "single"), names)
            first, *more = source.rstrip("\n").split("\n")
            lines += [f">>> {first}", *(f"... {line}".rstrip() for line in more)]
            lines += said.getvalue().rstrip("\n").splitlines()
        filled.append("\n".join(lines))
    return filled


def filled(page: str) -> str:
    """The page with every block filled."""
    parse = doctest.DocTestParser().get_examples
    blocks = tuple(tuple(each.source for each in parse(text)) for text in SESSION.findall(page))
    answers = iter(sessions(blocks))
    page = SESSION.sub(lambda _: f"```pycon\n{next(answers)}\n```", page)
    return BLOCK.sub(lambda m: f"```console\n$ trueflops {m[1]}\n{output(m[1])}\n```", page)


def main() -> int:
    """Rewrite or check."""
    stale = [page for page in PAGES if filled(page.read_text()) != page.read_text()]
    if "--check" in sys.argv:
        for page in stale:
            print(f"{page.name} is stale: run python docs/generate.py")
        return 1 if stale else 0
    for page in stale:
        page.write_text(filled(page.read_text()))
    with contextlib.redirect_stdout(io.StringIO()):
        trueflops([*shlex.split(DRAWN), str(PICTURE)])
    draw_all()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
