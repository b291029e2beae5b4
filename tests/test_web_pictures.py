"""The page's pictures in a real browser: what clicks and keys do, and that none is drawn wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from web_browser import PATIENCE_MS, browser, server, visit, why_not

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

if why_not():
    pytest.skip(why_not(), allow_module_level=True)

TRAIN = "#train?model=Llama-3.1-8B&on=16xH100&tp=2&pp=4&zero=1&global_batch=64&seq=4096&lang=en"
SERVE = "#infer?model=Llama-3.1-8B&on=1xH100&tp=1&lang=en"
SEARCH = "#train?model=Llama-3.1-8B&on=8xH100&tp=1..2&pp=1&cp=1&search=true&lang=en"
CHIPS = "#compare?chips=H100+MI300X+RTX-4090&lang=en"
RING = "#collective?kind=all_reduce&bytes=1GB&on=8xH100&steps=ring&lang=en"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with server() as where:
        yield where


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browser() as chromium:
        context = chromium.new_context(
            reduced_motion="reduce", viewport={"width": 1400, "height": 1000}
        )
        opened = context.new_page()
        opened.set_default_timeout(PATIENCE_MS)
        failed: list[str] = []
        opened.on("pageerror", lambda error: failed.append(str(error)))
        yield opened
        assert failed == []


def picture(page: Page, address: str, view: str, name: str) -> Locator:
    """A picture of a view, drawn from all that it asks for."""
    visit(page, address + view)
    drawn = page.locator(f"[data-picture={name}]")
    drawn.locator("svg, table").first.wait_for()
    return drawn


def test_a_task_of_the_timeline_says_why_it_takes_what_it_takes(page: Page, address: str) -> None:
    drawn = picture(page, address, TRAIN, "timeline")
    assert "Choose a task" in drawn.inner_text()
    drawn.locator("svg.timeline").press("ArrowRight")
    said = drawn.locator(".detail").inner_text()
    assert "forward of micro-batch 0 on stage 0" in said
    assert "rows held out" in said  # the error of the curve behind its longest op
    drawn.locator("svg.timeline").press("ArrowDown")
    drawn.locator("svg.timeline").press("Escape")
    assert "Choose a task" in drawn.inner_text()


def test_the_timeline_zooms_by_button_and_key(page: Page, address: str) -> None:
    drawn = picture(page, address, TRAIN, "timeline")
    ticks = drawn.locator(".axis text")
    whole = ticks.all_inner_texts()
    drawn.get_by_label("Zoom in").click()
    near = ticks.all_inner_texts()
    assert near != whole
    drawn.locator("svg.timeline").press("0")
    assert ticks.all_inner_texts() == whole


def test_an_op_on_the_roofline_names_its_curve(page: Page, address: str) -> None:
    drawn = picture(page, address, SERVE, "roofline")
    drawn.locator(".dot").first.focus()
    assert "flop per byte" in page.locator("#picture-tip").inner_text()
    drawn.locator(".dot").first.press("Enter")
    assert "Source" in drawn.locator(".detail").inner_text()
    decode = drawn.locator("[data-name^='op.']").first.get_attribute("data-value")
    drawn.get_by_role("button", name="Prefill").click()
    assert drawn.locator("[data-name^='op.']").first.get_attribute("data-value") != decode


def test_a_point_of_the_front_opens_its_plan(page: Page, address: str) -> None:
    drawn = picture(page, address, SEARCH, "front")
    drawn.locator(".dot").last.wait_for()
    before = page.url
    drawn.locator(".dot").nth(0).press("Enter")
    page.wait_for_url(lambda url: url != before)
    assert "mb" in page.url or "micro_batch" in page.url


def test_the_ring_goes_step_by_step_to_the_sum(page: Page, address: str) -> None:
    drawn = picture(page, address, RING, "ring")
    assert "step 1 of 14" in drawn.inner_text()
    drawn.get_by_label("Step back").click()
    assert "at first" in drawn.inner_text()
    slider = drawn.locator("input[type=range]")
    slider.focus()
    slider.press("End")
    assert "step 14 of 14" in drawn.inner_text()
    assert drawn.inner_text().count("Σ") == 64  # every rank has every sum


def test_the_chips_sort_filter_and_divide(page: Page, address: str) -> None:
    drawn = picture(page, address, CHIPS, "chips")

    def values(name: str) -> dict[str, float]:
        cells: Any = drawn.locator(f"[data-name$='.{name}']").all()
        return {
            cell.get_attribute("data-name").removesuffix(f".{name}"): float(
                cell.get_attribute("data-value")
            )
            for cell in cells
        }

    dense, power = values("bf16"), values("power")
    drawn.get_by_role("button", name="bf16").click()
    assert list(values("bf16").values()) == sorted(dense.values(), reverse=True)
    drawn.get_by_role("button", name="sparse 2:4").click()
    assert values("bf16")["H100-SXM5-80GB"] == 2 * dense["H100-SXM5-80GB"]
    drawn.get_by_role("button", name="dense").click()
    drawn.get_by_role("button", name="per watt").click()
    for chip, value in values("bf16").items():
        assert value == pytest.approx(dense[chip] / power[chip])
    drawn.get_by_placeholder("filter").fill("amd")
    assert set(values("bf16")) == {"MI300X"}
    drawn.locator("[data-name='MI300X.memory']").focus()
    assert "192 GiB: " in page.locator("#picture-tip").inner_text()  # as published, and by whom
