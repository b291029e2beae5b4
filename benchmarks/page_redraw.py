"""How long the page takes from a change to its redrawn answer: in a browser, on this machine.

    python benchmarks/page_redraw.py [--changes 40]    needs chromium and the extra `browser`

Numbers that nobody asked before are put into a box of a form, as its slider does; the clock runs in
the page, from the change to the frame that shows the answer. Server, workers and browser share the
machine, which must be quiet.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))

from web_browser import browser, server, visit, why_not

if TYPE_CHECKING:
    from playwright.sync_api import Page

AIM_MS = 100.0
PAUSE_MS = 400  # between two changes, as a reader who looks at each answer
VIEWS: dict[str, tuple[str, str, Callable[[int], object]]] = {
    "train": ("#train?model=Llama-3.1-8B&on=16xH100&tp=2&pp=2&zero=1&global_batch=64&lang=en",
              "Sequence", lambda i: 2048 + 8 * i),
    "infer": ("#infer?model=Llama-3.1-8B&on=1xH100&tp=1&lang=en",
              "Input tokens", lambda i: 900 + 7 * i),
    "collective": ("#collective?kind=all_reduce&bytes=1GB&on=8xH100&steps=ring&lang=en",
                   "Bytes", lambda i: f"{1001 + i}MB"),
}  # fmt: skip
CHANGE = """async ([label, value]) => {
  const box = [...document.querySelectorAll('#question input')].find((input) =>
    input.type === 'text' && (input.getAttribute('aria-label') === label
      || (input.labels[0] && input.labels[0].textContent === label)));
  const answer = document.querySelector('#answer');
  const began = performance.now();
  const answered = new Promise((done) => {
    new MutationObserver((_, seen) => {
      if (answer.dataset.answered) { seen.disconnect(); done(); }
    }).observe(answer, { attributes: true, attributeFilter: ['data-answered'] });
  });
  box.value = String(value);
  box.dispatchEvent(new Event('change'));
  await answered;
  await new Promise((frame) => requestAnimationFrame(() => requestAnimationFrame(frame)));
  return performance.now() - began;
}"""


def redraws(page: Page, label: str, values: list[object]) -> list[float]:
    """Milliseconds of each change, the first ones left out: they load what a picture needs."""
    taken = []
    for value in values:
        taken.append(page.evaluate(CHANGE, [label, value]))
        page.wait_for_timeout(PAUSE_MS)
    return taken[3:]


def main() -> int:
    """Every view."""
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--changes", type=int, default=40)
    changes = flags.parse_args().changes
    if why_not():
        raise SystemExit(why_not())
    slow = False
    with server() as address, browser() as chromium:
        page = chromium.new_context(viewport={"width": 1280, "height": 900}).new_page()
        for view, (where, label, value) in VIEWS.items():
            visit(page, address + where)
            page.wait_for_selector("#answer[data-complete]")
            taken = sorted(redraws(page, label, [value(i) for i in range(changes + 3)]))
            middle, late = statistics.median(taken), taken[int(0.9 * len(taken))]
            slow |= middle > AIM_MS
            print(f"{view:10} {len(taken)} changes: p50 {middle:.0f} ms, p90 {late:.0f} ms, "
                  f"slowest {taken[-1]:.0f} ms")  # fmt: skip
    return int(slow)


if __name__ == "__main__":
    raise SystemExit(main())
