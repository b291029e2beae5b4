"""A real browser on a real server, for tests/test_web_page.py and docs/screenshots.py.

In: nothing, or a folder for pictures. Out: pages of Debian's Chromium on `trueflops web`. Where
either is missing, `why_not` says so in a line.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NEEDED = ("playwright", "axe_playwright_python", "starlette", "uvicorn", "mpld3")
ANSWERED = "#answer[data-answered], .refusal, .empty"
PATIENCE_MS = 120_000  # of a machine that many share; nothing is asserted about time


def why_not() -> str:
    """Why no browser can be started here, or "" where one can."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        return f"no browser tests: {', '.join(missing)} not installed (the extra `browser`)"
    return "" if CHROMIUM else "no browser tests: there is no chromium (apt-get install chromium)"


@contextmanager
def server() -> Iterator[str]:
    """`trueflops web` on a free port of this machine; its address."""
    command = [sys.executable, "-m", "trueflops", "web", "--port", "0", "--no-open"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found, "the server did not say where it is"
        _wait_for(found[0])
        yield found[0]
    finally:
        process.terminate()
        process.wait(timeout=30)


def _wait_for(address: str) -> None:
    """Until it answers: it says where it will be before it is there."""
    for _ in range(PATIENCE_MS // 100):
        try:
            urllib.request.urlopen(address).close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"nobody answers at {address}")


@contextmanager
def browser() -> Iterator[Browser]:
    """Debian's Chromium, without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        started = play.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        try:
            yield started
        finally:
            started.close()


def visit(page: Page, address: str) -> None:
    """Open an address and wait for its answer."""
    page.goto("about:blank")  # else only the part after # would change, which loads nothing
    page.goto(address)
    page.wait_for_selector(ANSWERED, timeout=PATIENCE_MS, state="attached")
