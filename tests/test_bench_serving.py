"""What SGLang's benchmark draws, and what of it a server has read before."""

from __future__ import annotations

import numpy as np
import pytest

from trueflops.records.tables import Row
from trueflops.serve.load import Lengths, draw_requests
from trueflops.verify.serving.bench_serving import SentBefore, drawn_lengths
from trueflops.verify.serving.sent import sent_requests

COMMAND = "benchmark: python3 -m sglang.bench_serving --dataset-name random"


def row(many: int, read: float, written: float, *, said: str = "", flags: str = "--tp 8") -> Row:
    """A run of DeepSeek-R1 as sgl-cookbook prints it: up to 1,000 tokens either way."""
    named = f"{COMMAND} --random-input-len 1000 --random-output-len 1000 --num-prompts {many}"
    return {
        "source": "a page", "engine": "sglang", "model": "DeepSeek-R1", "dataset": "random",
        "num_prompts": str(many), "request_rate": "inf", "concurrency": "16", "flags": flags,
        "input_len_mean": str(read), "output_len_mean": str(written), "notes": f"{named} {said}",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("many", "read", "written"),
    [(10, 610.10, 421.00), (80, 495.85, 509.06), (500, 499.66, 505.32), (80, 494.85, 510.06)],
    ids=["as printed", "more", "answers of one token at least", "a special token left out"],
)
def test_lengths_are_those_of_the_benchmarks_own_seed(
    many: int, read: float, written: float
) -> None:
    """Means that sgl-cookbook prints come out to the last digit."""
    drawn = drawn_lengths(row(many, read, written), many, read, written)
    assert drawn is not None
    assert round(float(drawn[0].mean()), 1) == pytest.approx(read, abs=0.06)
    assert float(drawn[1].mean()) == pytest.approx(written, abs=0.06)
    assert drawn[0].min() < 60
    assert drawn[0].max() > 900


def test_a_mean_that_the_seed_does_not_give_is_kept() -> None:
    prompts, answers = drawn_lengths(row(80, 700.0, 300.0), 80, 700.0, 300.0) or ((), ())
    assert np.mean(prompts) == pytest.approx(700.0, rel=0.01)
    assert np.mean(answers) == pytest.approx(300.0, rel=0.01)
    assert np.std(prompts) > 200.0


def test_other_tools_draw_otherwise() -> None:
    other = {**row(80, 495.85, 509.06), "notes": "vllm bench serve --random-input-len 1000"}
    assert drawn_lengths(other, 80, 495.85, 509.06) is None


def test_what_an_earlier_run_sent_is_found_as_far_as_both_reach() -> None:
    before = SentBefore()
    first, second = row(10, 610.10, 421.00), row(80, 495.85, 509.06)
    alone = before.found(first, sent_requests(first), 1e6)
    assert alone.cached[0] == alone.input[0], "the first was sent to warm up"
    assert not alone.cached[1:].any()
    after = before.found(second, sent_requests(second), 1e6)
    np.testing.assert_array_equal(after.cached[:10], after.input[:10])
    assert not after.cached[10:].any()


@pytest.mark.parametrize(
    ("said", "flags", "room"),
    [("--flush-cache", "--tp 8", 1e6), ("", "--tp 4", 1e6), ("", "--tp 8", 100.0),
     ("", "--tp 8 --disable-radix-cache", 1e6)],
    ids=["flushed", "another server", "no room", "no cache"],
)  # fmt: skip
def test_nothing_is_found_of(said: str, flags: str, room: float) -> None:
    before = SentBefore()
    first = row(10, 610.10, 421.00)
    before.found(first, sent_requests(first), 1e6)
    second = row(80, 495.85, 509.06, said=said, flags=flags)
    after = before.found(second, sent_requests(second), room)
    assert not after.cached[1:].any()


def test_other_benchmarks_leave_requests_as_they_are() -> None:
    other = {**row(10, 610.10, 421.00), "notes": "vllm bench serve"}
    requests = draw_requests(10, Lengths(100.0), Lengths(10.0))
    assert SentBefore().found(other, requests, 1e6) is requests


@pytest.mark.parametrize("said", ["--random-output-len 0", "--random-range-ratio 1.5"])
def test_a_command_that_draws_nothing_is_left_to_the_printed_means(said: str) -> None:
    odd = {**row(80, 495.85, 509.06), "notes": f"{COMMAND} {said}"}
    assert drawn_lengths(odd, 80, 495.85, 509.06) is None
    assert sent_requests(odd).count == 80
