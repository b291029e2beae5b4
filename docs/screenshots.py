"""Write docs/screenshots/*.png: every view of the page in both languages, from real answers.

python docs/screenshots.py            all of them
python docs/screenshots.py train zh   those whose name holds every word

Needs the extra `browser`, Chromium and a Chinese font (fonts-noto-cjk). English is shown light and
Chinese dark, so that the same pictures show both themes.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser

from web_browser import PATIENCE_MS, browser, server, visit, why_not

FOLDER = Path(__file__).parent / "screenshots"
LARGEST_BYTES = 200_000
COLOURS = 256  # of a palette: a page has few, and a picture of them is a third as large
DESK = (1440, 1000)
PHONE = (390, 844)
SCENARIOS = ("train?model=Llama-3.1-70B&on=64xH100&tp=8&pp=4&zero=1",
             "train?model=Llama-3.1-70B&on=64xH200&tp=4&pp=2&zero=1",
             "train?model=Llama-3.1-70B&on=64xB200&tp=8&zero=1")  # fmt: skip
PINS = "".join(
    f"&pin={one.replace('?', '%3F').replace('=', '%3D').replace('&', '%26')}" for one in SCENARIOS
)
VIEWS = {
    "page": SCENARIOS[0],  # what is seen first
    "train": SCENARIOS[0],
    "search": "train?model=Llama-3.1-8B&on=8xH100",
    "serve": "infer?model=Llama-3.1-70B&on=8xH100&tp=8",
    "chips": "compare?chips=H100+H200+B200+MI300X+RTX-4090&model=Llama-3.1-8B",
    "product": "explain?what=matmul&shape=4096x11008x4096&on=H100",
    "collective": "collective?kind=all_reduce&bytes=1GB&on=8xH100&steps=ring",
    "stragglers": "stragglers?on=8xH100&step=500ms&bytes=1GB&slow_rank=1.5&jitter=10%25",
    "compare": SCENARIOS[0] + PINS,
    "drop": "drop?",
    "phone": SCENARIOS[0],
}


@dataclass(frozen=True)
class Shot:
    """One picture: a view in a language."""

    view: str
    language: str

    @property
    def name(self) -> str:
        """Of its file."""
        return f"{self.view}-{self.language}"

    @property
    def theme(self) -> str:
        """Both are shown, one in each language."""
        return "light" if self.language == "en" else "dark"


def shots(words: list[str]) -> Iterator[Shot]:
    """Those that were asked for."""
    for view in VIEWS:
        for language in ("en", "zh"):
            shot = Shot(view, language)
            if all(word in shot.name.split("-") for word in words):
                yield shot


def take(started: Browser, address: str, shot: Shot) -> bytes:
    """A picture of the page once everything on it is drawn."""
    width, height = PHONE if shot.view == "phone" else DESK
    context = started.new_context(
        viewport={"width": width, "height": height}, reduced_motion="reduce"
    )
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    visit(page, f"{address}#{VIEWS[shot.view]}&lang={shot.language}&theme={shot.theme}")
    page.wait_for_selector("#answer[data-complete], .empty", state="attached")
    page.wait_for_timeout(500)  # for what a picture draws in the next frames
    # The whole page, as far down as a reader would look.
    tall = min(int(page.evaluate("document.documentElement.scrollHeight")), 3 * height)
    if shot.view in ("train", "serve", "phone"):
        page.set_viewport_size({"width": width, "height": tall})
        page.wait_for_timeout(500)
    taken = page.screenshot()
    context.close()
    return taken


def smaller(png: bytes) -> bytes:
    """The same with a palette: the colours used most as they are, and some that cover the rest."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    counted = sorted(picture.getcolors(picture.width * picture.height), reverse=True)
    exact = [channel for _, colour in counted[: COLOURS // 2] for channel in colour]
    covering = picture.quantize(COLOURS // 2, Image.Quantize.MAXCOVERAGE).getpalette()
    palette = Image.new("P", (1, 1))
    palette.putpalette((exact + covering)[: 3 * COLOURS])
    out = io.BytesIO()
    picture.quantize(palette=palette, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return out.getvalue()


def main(words: list[str]) -> int:
    """Write them; 1 where one is too large to be kept in a repository."""
    if why_not():
        print(why_not())
        return 1
    FOLDER.mkdir(exist_ok=True)
    large = 0
    with server() as address, browser() as started:
        for shot in shots(words):
            content = smaller(take(started, address, shot))
            (FOLDER / f"{shot.name}.png").write_bytes(content)
            print(f"{shot.name}.png  {len(content) // 1000} kB", flush=True)
            large += len(content) > LARGEST_BYTES
    return 1 if large else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
