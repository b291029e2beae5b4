"""The page in a real browser: its numbers are the command line's, its words the reader's.

Nothing is asserted about time: benchmarks/page_redraw.py and web_load.py measure how quick it is.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from trueflops.cli.main import main
from web_browser import ANSWERED, PATIENCE_MS, browser, server, visit, why_not

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

if why_not():
    pytest.skip(why_not(), allow_module_level=True)

SMALL = "#train?model=Llama-3.1-8B&on=16xH100&tp=2&pp=2&zero=1&global_batch=64&seq=4096&lang=en"
SERVED = "#infer?model=Llama-3.1-8B&on=1xH100&tp=1&lang=en"
CHIPS = "#compare?chips=H100+MI300X+RTX-4090&lang=en"
PRODUCT = "#explain?what=matmul&shape=4096x11008x4096&on=H100&lang=en"
RING = "#collective?kind=all_reduce&bytes=1GB&on=8xH100&steps=ring&lang=en"
SLOW = "#stragglers?on=8xH100&step=500ms&bytes=1GB&slow_rank=2&jitter=10%25&lang=en"
DROP = "#drop?lang=en"
VIEWS = {"train": SMALL, "infer": SERVED, "compare": CHIPS, "explain": PRODUCT,
         "collective": RING, "stragglers": SLOW, "drop": DROP}  # fmt: skip
SMALL_WORDS = ("train", "Llama-3.1-8B", "--on", "16xH100", "--seq", "4096", "--global-batch", "64",
               "--pp", "2", "--zero", "1", "--tp")  # fmt: skip


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of a server that only these tests ask."""
    with server() as found:
        yield found


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser for all tests."""
    with browser() as started:
        yield started


@pytest.fixture
def page(chromium: Browser, address: str) -> Iterator[Page]:
    """A fresh page that must ask nobody else and complain about nothing."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, locale="en-US")
    opened = context.new_page()
    opened.set_default_timeout(PATIENCE_MS)
    asked: list[str] = []
    complaints: list[str] = []
    opened.on("request", lambda request: asked.append(request.url))
    opened.on(
        "console", lambda said: complaints.append(said.text) if said.type == "error" else None
    )
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    yield opened
    context.close()
    elsewhere = [url for url in asked if not url.startswith((address, "blob:", "data:", "about:"))]
    assert elsewhere == []
    # A refusal is an answer of the server's; the browser's log calls it an error all the same.
    assert [text for text in complaints if "422" not in text] == []


def cli(*words: str) -> Any:
    """What the command line answers."""
    out = io.StringIO()
    with redirect_stdout(out):
        main([*words, "--json"])
    return json.loads(out.getvalue())


def cli_error(*words: str) -> str:
    """What the command line says of bad input, on one line."""
    said = io.StringIO()
    with redirect_stderr(said):
        assert main(list(words)) == 2
    text = " ".join(said.getvalue().split())
    return text.removeprefix("trueflops: ").rpartition(" [")[0]


def shown(page: Page, within: str) -> list[tuple[str, float]]:
    """The numbers of a part of the page, as they are marked: name and every digit."""
    marked = page.locator(f"{within} [data-value]")
    pairs = marked.evaluate_all("all => all.map(one => [one.dataset.name, one.dataset.value])")
    return [(name, float(value)) for name, value in pairs]


def numbers(value: Any) -> Iterator[float]:
    """Every number of an answer."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return
    if isinstance(value, int | float):
        yield float(value)
    else:
        for one in value.values() if isinstance(value, dict) else value:
            yield from numbers(one)


def derived(answer: Any) -> Iterator[float]:
    """What pictures make of an answer's numbers: an op's rate, a stage at its fullest."""
    ops = answer.get("ops", {})
    for part in (ops, *(ops.get(name, {}) for name in ("decode", "prefill"))):
        for op in part.get("ops", ()):
            yield op["flop"] / op["seconds"]
    if "held" in answer.get("timeline", {}):
        for stage, held in zip(answer["stages"], answer["timeline"]["held"], strict=True):
            parts = {part["name"]: part["bytes"] for part in stage["parts"]}
            yield stage["bytes"] - parts["activations"] + max(held["activation_bytes"])


def rounded(value: float) -> str:
    """Twelve digits: sums that a browser adds in another order differ after those."""
    return f"{value:.12g}"


def test_the_headline_has_the_command_line_s_digits(page: Page, address: str) -> None:
    visit(page, address + SMALL)
    answer = cli(*SMALL_WORDS, "2")
    found = dict(shown(page, ".cards"))
    assert found["step_seconds"] == answer["step_seconds"]["value"]
    assert found["mfu"] == answer["mfu"]["value"]
    assert found["memory"] == answer["memory"]["bytes"]
    assert found["cost_usd"] == answer["whole_bill"]["cost_usd"]["value"]
    assert page.locator(".keep-command").inner_text() == (
        "trueflops train Llama-3.1-8B --on 16xH100 --seq 4096 --global-batch 64 "
        "--tp 2 --pp 2 --zero 1"
    )


def test_the_first_page_answers_something_before_any_click(page: Page, address: str) -> None:
    visit(page, address)
    assert page.locator(".card-value").count() >= 4
    assert page.locator(".fits").count() == 1


def test_moving_a_slider_changes_the_answer_and_back_undoes_it(page: Page, address: str) -> None:
    visit(page, address + SMALL)
    before = dict(shown(page, ".cards"))["step_seconds"]
    slider = page.get_by_label("tp · tensor").first
    slider.press("ArrowRight")
    page.wait_for_url("**tp=4**")
    page.wait_for_selector("#answer[data-answered*='tp=4']", state="attached")
    after = dict(shown(page, ".cards"))["step_seconds"]
    assert after == cli(*SMALL_WORDS, "4")["step_seconds"]["value"]
    assert after != before
    page.go_back()
    page.wait_for_selector("#answer[data-answered*='tp=2']", state="attached")
    assert dict(shown(page, ".cards"))["step_seconds"] == before
    assert page.get_by_label("tp · tensor").nth(1).input_value() == "2"


def test_the_address_restores_the_question(page: Page, address: str) -> None:
    visit(
        page,
        address
        + "#train?model=Qwen3-8B&on=4x8xH200&tp=4&pp=3&recompute=full&pue=1.2&lang=en&theme=dark",
    )
    assert page.get_by_label("Model").first.input_value() == "Qwen3-8B"
    assert page.get_by_label("Chip", exact=True).first.input_value() == "H200"
    assert page.get_by_label("Chips", exact=True).nth(1).input_value() == "32"
    assert page.get_by_label("Chips a node").nth(1).input_value() == "8"
    assert page.get_by_label("pp · pipeline").nth(1).input_value() == "3"
    assert page.get_by_label("Recompute", exact=True).input_value() == "full"
    assert page.get_by_label("--pue").input_value() == "1.2"
    assert page.locator("html").get_attribute("data-theme") == "dark"


def test_a_refusal_is_the_command_line_s_sentence(page: Page, address: str) -> None:
    visit(page, address + "#train?model=Llama-3.1-8B&on=8xH1000&tp=1&lang=en")
    said = cli_error("train", "Llama-3.1-8B", "--on", "8xH1000", "--tp", "1")
    assert said in " ".join(page.locator("[role=alert] .refusal").inner_text().split())


def test_an_address_of_no_view_opens_the_first(page: Page, address: str) -> None:
    """Whatever JavaScript's objects inherit is no view either."""
    visit(page, address + "#toString?x=1&lang=en")
    assert page.locator("#views [aria-current=page]").inner_text() == "Train"


def test_a_field_keeps_its_name_in_every_language(page: Page, address: str) -> None:
    """'on' is the key of a question here; on a switch it is a word."""
    visit(page, address + "#train?model=Llama-3.1-8B&on=../secret&tp=1&lang=zh")
    said = page.locator("[role=alert] .refusal").inner_text()
    assert said.startswith("'on'：'../secret' 不是目录里的名称")
    assert page.locator("#spoken").inner_text() in said


def test_the_language_switches_and_stays_in_the_address(page: Page, address: str) -> None:
    visit(page, address + SMALL)
    page.get_by_role("button", name="中文").click()
    page.wait_for_selector("html[lang='zh-CN']")
    page.wait_for_selector(ANSWERED, state="attached")
    assert "lang=zh" in page.url
    assert page.get_by_role("button", name="训练", exact=True).count() == 1
    assert page.locator(".cards dt").first.inner_text() == "单步时间"
    # Notes of an answer are English; the page knows the commands' texts, and says them whole.
    assert "框架 usual（未指定，取默认）：编译" in (page.locator("main").text_content() or "")
    page.reload()
    page.wait_for_selector(ANSWERED, state="attached")
    assert page.locator("html").get_attribute("lang") == "zh-CN"
    page.get_by_role("button", name="English").click()
    page.wait_for_selector("html[lang='en']")
    assert page.locator(".cards dt").first.inner_text() == "Step"


def test_two_pins_name_their_differences(page: Page, address: str) -> None:
    visit(page, address + SMALL)
    page.get_by_role("button", name="Pin to compare").click()
    page.wait_for_selector(".compare-table")
    page.get_by_label("tp · tensor").first.press("ArrowRight")
    page.wait_for_selector("#answer[data-answered*='tp=4']", state="attached")
    page.get_by_role("button", name="Pin to compare").click()
    page.wait_for_selector(".letter-2")
    differs = page.locator(".differs")
    assert [text.split() for text in differs.all_inner_texts()] == [["--tp", "2", "4"]]
    times = page.locator(".compare-table [data-name=step_seconds]")
    first, second = (float(one.get_attribute("data-value") or "nan") for one in times.all())
    assert first != second
    pinned = page.url
    page.goto("about:blank")
    page.goto(pinned)
    page.wait_for_selector(".letter-2")
    assert page.locator(".differs").count() == 1


def test_a_name_that_is_markup_stays_text(page: Page, address: str) -> None:
    evil = "<img src=x onerror=document.title='pwned'>"
    visit(page, address + f"#train?model={evil}&on=8xH100&tp=1&lang=en")
    assert "<img" in page.locator(".refusal").inner_text()
    assert page.locator("main img").count() == 0
    assert "pwned" not in page.title()


# A picture of each view, and the part of an answer that its numbers must come from.
PICTURES = {
    "train": {"waterfall", "memory", "timeline", "memory_time", "roofline"},
    "search": {"waterfall", "memory", "front"},
    "infer": {"memory", "latency", "roofline"},
    "compare": {"chips"},
    "explain": {"tiles", "roofline"},
    "collective": {"ring"},
    "stragglers": {"stragglers"},
}


@pytest.mark.parametrize("view", PICTURES)
def test_each_picture_shows_the_api_s_numbers(page: Page, address: str, view: str) -> None:
    heard: list[Any] = []
    page.on("response", lambda reply: heard.append(reply))  # it marks what it calls
    hash_ = (
        "#train?model=Llama-3.1-8B&on=8xH100&tp=1..2&pp=1&cp=1&search=true&lang=en"
        if view == "search"
        else VIEWS[view]
    )
    visit(page, address + hash_)
    page.wait_for_selector("#answer[data-complete]", state="attached")
    # Bodies are read now: the page may be done before one that is read as it is heard.
    asked = [r for r in heard if "/api/" in r.url and r.request.method == "POST" and r.ok]
    answered = [reply.json()["answer"] for reply in asked]
    drawn = page.locator(".picture:not([hidden]) [data-picture]")
    assert {one.get_attribute("data-picture") for one in drawn.all()} >= PICTURES[view]
    if view == "search":  # which comes as events: ask the same once more
        answered.append(
            page.evaluate(
                SEARCHED,
                {
                    "model": "Llama-3.1-8B",
                    "on": "8xH100",
                    "tp": "1..2",
                    "pp": 1,
                    "cp": 1,
                    "search": True,
                },
            )
        )
    known = {
        rounded(number) for answer in answered for number in (*numbers(answer), *derived(answer))
    }
    for name in PICTURES[view]:
        found = shown(page, f"[data-picture={name}]")
        assert found, f"{name} marks no number"
        foreign = [(what, value) for what, value in found if rounded(value) not in known]
        assert foreign == [], f"{name} shows numbers that no answer has"


SEARCHED = """async (asked) => (await (await fetch("/api/train", {method: "POST",
    headers: {"Content-Type": "application/json"}, body: JSON.stringify(asked)})).json()).answer"""


def test_a_dropped_config_becomes_the_model(page: Page, address: str, tmp_path: Path) -> None:
    config = {"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16,
              "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 8192,
              "vocab_size": 128256}  # fmt: skip
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    visit(page, address + DROP)
    page.set_input_files("input[type=file]", file)
    page.wait_for_selector("#answer[data-answered]", state="attached")
    assert "#train?" in page.url
    assert page.get_by_label("Model").first.input_value() == "your config.json"
    page.reload()
    page.wait_for_selector("#answer[data-answered]", state="attached")
    answer = cli("train", str(file), "--on", "64xH100", "--tp", "8", "--pp", "4", "--zero", "1")
    assert dict(shown(page, ".cards"))["step_seconds"] == answer["step_seconds"]["value"]


@pytest.mark.parametrize("content", [
    '{"model_type": "llama", "hidden_size": 1e400, "num_hidden_layers": -3}',
    '{"model_type": "<script>document.title=1</script>", "hidden_size": 64}',
    '{"model_type": "llama", "hidden_size": "../../etc/passwd"}',
])  # fmt: skip
def test_a_hostile_config_gives_the_command_line_s_sentence(
    page: Page, address: str, tmp_path: Path, content: str
) -> None:
    file = tmp_path / "config.json"
    file.write_text(content)
    visit(page, address + DROP)
    title = page.title()
    page.set_input_files("input[type=file]", file)
    page.wait_for_selector(".refusal")
    said = cli_error("catalog", str(file)).replace(str(file), file.name)
    assert said in " ".join(page.locator(".refusal").inner_text().split())
    assert page.title() == title


def test_a_dropped_answer_opens_its_question(page: Page, address: str, tmp_path: Path) -> None:
    file = tmp_path / "answer.json"
    file.write_text(
        json.dumps(cli("train", "Llama-3.1-8B", "--on", "16xH100", "--tp", "2", "--zero", "3"))
    )
    visit(page, address + DROP)
    page.set_input_files("input[type=file]", file)
    page.wait_for_url("**#train?**")
    for piece in ("model=Llama-3.1-8B", "on=16xH100", "tp=2", "zero=3"):
        assert piece in page.url


def test_a_search_can_be_cancelled(page: Page, address: str) -> None:
    page.goto(address + "#train?model=Llama-3.1-405B&on=1024xH100&lang=en")
    page.get_by_role("button", name="Cancel").click()
    assert "Cancelled" in page.locator(".refusal").inner_text()
    assert page.locator(".searching").count() == 0


def test_what_is_kept_is_the_answer(page: Page, address: str) -> None:
    visit(page, address + SMALL)
    with page.expect_download() as kept:
        page.get_by_role("button", name="JSON", exact=True).click()
    answer = json.loads(Path(kept.value.path()).read_text())
    assert answer["step_seconds"]["value"] == dict(shown(page, ".cards"))["step_seconds"]
    with page.expect_download() as kept:
        page.get_by_role("button", name="Trace", exact=True).click()
    assert json.loads(Path(kept.value.path()).read_text())["traceEvents"]
    with page.expect_download() as kept:
        page.get_by_role("button", name="SVG", exact=True).first.click()
    assert Path(kept.value.path()).read_text().startswith("<svg")
    with page.expect_download() as kept:
        page.get_by_role("button", name="PNG", exact=True).first.click()
    assert Path(kept.value.path()).read_bytes().startswith(b"\x89PNG")


def test_what_nobody_touched_can_be_reached_by_keyboard(page: Page, address: str) -> None:
    visit(page, address + SMALL)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "answer"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(chromium: Browser, address: str, scheme: Any) -> None:
    from axe_playwright_python.sync_playwright import Axe

    # axe is put into the page by the test, which the page's own policy would forbid.
    context = chromium.new_context(color_scheme=scheme, bypass_csp=True, reduced_motion="reduce")
    opened = context.new_page()
    for name, view in VIEWS.items():
        visit(opened, address + view)
        found = Axe().run(opened).response["violations"]
        grave = [one for one in found if one["impact"] in ("serious", "critical")]
        said = [(one["id"], [node["html"][:120] for node in one["nodes"][:3]]) for one in grave]
        assert said == [], name
    context.close()


def test_a_phone_needs_no_sideways_scroll(chromium: Browser, address: str) -> None:
    context = chromium.new_context(viewport={"width": 360, "height": 740})
    opened = context.new_page()
    for name, view in VIEWS.items():
        visit(opened, address + view)
        assert opened.evaluate("document.documentElement.scrollWidth") <= 360, name
    context.close()
