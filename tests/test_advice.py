"""Advice, priced: every change is what the program would do if its owner had written it so."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from trueflops.capture.change import Batch, Change, batch_of
from trueflops.capture.pretend.machine import Machine
from trueflops.capture.program import capture
from trueflops.catalog import cluster
from trueflops.cli import main
from trueflops.cli.explain import build_product
from trueflops.clock import Clock, PricedOp
from trueflops.graph.ir import Op
from trueflops.graph.kinds import Kind
from trueflops.predict.advice import Advice, saving, worth_saying
from trueflops.predict.captured.advice import Advised, advise_program
from trueflops.predict.captured.elsewhere import usd_of
from trueflops.predict.captured.padding import padded
from trueflops.predict.captured.program import CapturedProgram, predict_program
from trueflops.predict.explain import explain_matmul
from trueflops.profile import profile_of
from trueflops.records.recording import Allocated, Began, Call, RecordedTensor, Recording
from trueflops.runtime.terms import Term

Step = Callable[[], Any]
CUDA = "cuda"
BF16 = torch.bfloat16


def clock(on: str = "H200") -> Clock:
    where = cluster(on)
    return Clock(where, profile_of(where.accelerator, "plain"))


def run(
    build: Callable[[], Step], change: Change | None = None, on: str = "H200"
) -> CapturedProgram:
    machine = Machine.like(cluster(on).accelerator)
    return predict_program(capture(lambda: build, machine, change=change), clock(on))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(functional.gelu(self.up(self.norm(x))))


class Tiny(nn.Module):
    """Layers, and a vocabulary."""

    def __init__(self, vocab: int = 50257, width: int = 256, *, again: bool = False) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(vocab, width), nn.Linear(width, vocab, bias=False)
        self.layers = nn.ModuleList(Block(width) for _ in range(4))
        self.again = again

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.again else layer(x)
        return self.head(x)


def language(
    vocab: int = 50257, *, again: bool = False, fused: bool | None = None,
    dtype: torch.dtype = BF16, batch: int = 4, cast: bool = False, compiled: bool = False,
) -> Callable[[], Step]:  # fmt: skip
    """A program in many spellings."""

    def build() -> Step:
        model: Any = Tiny(vocab, again=again).to(CUDA, dtype)
        optimizer = torch.optim.AdamW(model.parameters(), fused=fused)
        ids = torch.randint(0, vocab, (batch, 512), device=CUDA)
        model = torch.compile(model) if compiled else model

        def step() -> None:
            with torch.autocast(CUDA, BF16, enabled=cast):
                logits = model(ids)
                loss = functional.cross_entropy(logits.flatten(0, 1).float(), ids.flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    return build


def images(last: bool = False) -> Callable[[], Step]:
    memory: Any = torch.channels_last if last else torch.contiguous_format

    def build() -> Step:
        layers = [nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1)]
        model: Any = nn.Sequential(*layers, nn.Flatten(2)).to(CUDA)
        model = model.to(memory_format=memory)
        x = torch.randn(16, 64, 32, 32, device=CUDA)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step() -> None:
            model(x.contiguous(memory_format=memory)).float().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    return build


SPELLED = {
    Change.FUSED_OPTIMIZER: (language(), language(fused=True)),
    Change.AUTOCAST: (language(dtype=torch.float32), language(dtype=torch.float32, cast=True)),
    Change.NARROW: (language(dtype=torch.float32), language()),
    Change.UNCHECKPOINTED: (language(again=True), language()),
    Change.CHECKPOINTED: (language(), language(again=True)),
    Change.CHANNELS_LAST: (images(), images(last=True)),
}


@pytest.mark.parametrize("change", Change)
def test_a_change_is_what_the_program_would_do_if_it_were_written_so(change: Change) -> None:
    plain, written = SPELLED[change]
    made, by_hand = run(plain, change), run(written)
    assert made.step.seconds.value == pytest.approx(by_hand.step.seconds.value, rel=0.01)
    assert made.memory.peak_allocated_bytes == pytest.approx(
        by_hand.memory.peak_allocated_bytes, rel=0.01
    )
    unchanged = run(plain)
    ran = [r.kernel.call.op for r in unchanged.step.ran]
    moved = [a.strides for r in unchanged.step.ran for a in r.kernel.call.inputs]
    assert ran != [r.kernel.call.op for r in made.step.ran] or moved != [
        a.strides for r in made.step.ran for a in r.kernel.call.inputs
    ]


def advised(build: Callable[[], Step], on: str = "H200") -> tuple[CapturedProgram, Advised]:
    found = run(build, on=on)

    def again(change: Change | None = None, batch: int | None = None) -> CapturedProgram:
        return run(language(batch=batch), on=on) if batch else run(build, change, on)

    return found, advise_program(found, again, None)


def of(found: Advised, code: str) -> Advice:
    return next(advice for advice in found.advice if advice.code == code)


def test_compiling_saves_what_the_compiled_program_does() -> None:
    """Advice looks at modules: what torch.compile(model) compiles, the loss left out."""
    found, advice = advised(language(dtype=torch.float32))
    compiled = run(language(dtype=torch.float32, compiled=True))
    saved = float(found.step.seconds.value) - float(compiled.step.seconds.value)
    assert of(advice, "compile").saves_seconds == pytest.approx(saved, rel=0.1)
    assert all(a.code != "compile" for a in advised(language(compiled=True))[1].advice)


def test_advice_comes_best_first_and_is_larger_than_its_uncertainty() -> None:
    found, advice = advised(language(dtype=torch.float32, batch=16))
    codes = [a.code for a in advice.advice]
    assert {"tf32", "autocast", "bf16_weights", "fused_loss", "fused_optimizer"} <= set(codes)
    saved = [a.saves_seconds for a in advice.advice]
    assert saved == sorted(saved, reverse=True)
    for each in advice.advice:
        assert each.low is not None
        assert each.high is not None
        assert 0.0 < each.low <= each.saves_seconds <= each.high <= found.step.seconds.value
    assert "fewer_checkpoints" not in codes
    assert "channels_last" not in codes
    assert any("batch" in text for text in advice.untried)


def test_checkpoints_are_dropped_where_there_is_room_and_set_where_there_is_none() -> None:
    _, advice = advised(language(again=True))
    assert of(advice, "fewer_checkpoints").saves_seconds > 0.0

    def deep() -> Step:
        model = nn.Sequential(*(Block(2048) for _ in range(24))).to(CUDA, BF16)
        x = torch.randn(32768, 2048, device=CUDA, dtype=BF16)

        def step() -> None:
            model(x).float().mean().backward()
            model.zero_grad()

        return step

    found, advice = advised(deep, on="RTX4090")
    assert not found.fitting.fits
    set_ = of(advice, "checkpoint")
    assert set_.makes_fit
    assert set_.saves_seconds < 0.0
    assert set_.peak_bytes is not None
    assert set_.peak_bytes < found.memory.peak_allocated_bytes


def test_graphs_are_advised_where_the_device_waits_and_no_number_is_read() -> None:
    def launches(read: bool) -> Callable[[], Step]:
        def build() -> Step:
            model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(40))).to(CUDA, BF16)
            x = torch.randn(64, 64, device=CUDA, dtype=BF16)

            def step() -> None:
                loss = model(x).sum()
                loss.backward()
                model.zero_grad()
                if read:
                    print(loss.item())

            return step

        return build

    found, advice = advised(launches(read=False))
    graphs = of(advice, "cuda_graphs")
    assert found.step.idle_seconds > 0.5 * found.step.seconds.value
    assert graphs.saves_seconds == pytest.approx(found.step.idle_seconds, rel=0.2)
    # What a host needs for other code is not known well enough to advise it.
    assert all(a.code not in ("compile", "fused_loss") for a in advice.advice)
    assert all(a.code != "cuda_graphs" for a in advised(launches(read=True))[1].advice)


def test_chips_that_are_told_are_surely_faster_or_cheaper() -> None:
    found, advice = advised(language(), on="A100")
    assert "B200-SXM-180GB" in {row.chip for row in advice.elsewhere if row.faster}
    before = found.step.seconds
    paid = usd_of(found.clock.chip, float(before.value), 1)
    for row in advice.elsewhere:
        assert row.faster or row.cheaper
        assert row.faster <= (row.seconds.value < before.value)
        assert paid is not None
        assert row.usd is not None
        assert row.cheaper <= (row.usd < paid)


# ── padding ──────────────────────────────────────────────────────────────────────────────────────


def slow_when_odd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products with an odd side take six times as long, whatever the laws say of them today."""
    real = Clock.price_ops

    def priced(self: Clock, ops: Sequence[Op]) -> list[PricedOp]:
        found = real(self, ops)
        for i, op in enumerate(ops):
            sides = [n for t in (*op.inputs[:1], *op.weights[:1]) for _, n in t.dims]
            if op.kind is Kind.MATMUL and any(np.any(np.asarray(n) % 2) for n in sides):
                found[i] = found[i]._replace(seconds=6.0 * found[i].seconds)
        return found

    monkeypatch.setattr(Clock, "price_ops", priced)


def test_an_odd_vocabulary_is_padded_where_the_clock_says_that_it_is_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow_when_odd(monkeypatch)
    found, advice = advised(language(50257))
    first = advice.advice[0]
    assert first.code == "padding"
    assert first.text == "pad the vocabulary from 50257 to 50304"
    even = run(language(50304))
    saved = float(found.step.seconds.value) - float(even.step.seconds.value)
    assert first.saves_seconds == pytest.approx(saved, rel=0.01)
    assert first.peak_bytes == pytest.approx(even.memory.peak_allocated_bytes, rel=0.01)


def test_an_even_vocabulary_is_not_padded(monkeypatch: pytest.MonkeyPatch) -> None:
    slow_when_odd(monkeypatch)
    _, advice = advised(language(50304))
    assert all(a.code != "padding" for a in advice.advice)


def test_explain_says_what_padding_saves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    even = explain_matmul(clock(), build_product(8192, 50304, 1024, "bf16"))
    assert even.padded is None
    slow_when_odd(monkeypatch)
    odd = explain_matmul(clock(), build_product(8192, 50257, 1024, "bf16"))
    assert odd.padded is not None
    assert [(s.name, s.size, s.to) for s in odd.padded.sides] == [("n", 50257, 50304)]
    assert odd.padded.seconds == pytest.approx(float(even.seconds.value))
    assert main(["explain", "matmul", "8192x1024x50257", "--on", "H200"]) == 0
    assert "k 50257 is odd: padded to 50304 it takes" in capsys.readouterr().out
    assert main(["explain", "matmul", "8192x1024x50257", "--on", "H200", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["padded"]["k"] == 50304


def test_a_padded_recording_grows_in_shapes_strides_and_storages() -> None:
    logits = RecordedTensor(2, (8, 30, 100), (3000, 100, 1), "bfloat16")
    turned = RecordedTensor(3, (64, 100), (1, 64), "bfloat16")
    part = RecordedTensor(4, (8, 10, 100), (3000, 100, 1), "bfloat16")
    call = Call("aten.mm.default", (logits, turned), (part,), (), "forward", "", 0, -1)
    came = Allocated(2, 48000, 0, "forward", "", "aten.mm.default")
    found = padded(Recording([Began("step"), came, call]), 100, 104)
    grown, changed = found.step()
    assert isinstance(grown, Allocated)
    assert grown.size_bytes == 49920
    assert isinstance(changed, Call)
    assert changed.inputs[0].shape == (8, 30, 104)
    assert changed.inputs[0].strides == (3120, 104, 1)
    assert changed.inputs[1].shape == (64, 104)
    assert changed.inputs[1].strides == (1, 64)
    assert changed.outputs[0].strides == (3120, 104, 1)


# ── intervals ────────────────────────────────────────────────────────────────────────────────────


def test_errors_that_both_predictions_share_cancel() -> None:
    def step(seconds: float, cause: str) -> Term:
        return Term("step", seconds, cause=cause, spread=0.1)

    shared = saving(step(10.0, "matmul"), step(9.0, "matmul"))
    assert shared.seconds == pytest.approx(1.0)
    assert shared.low == pytest.approx(1.0 - 1.6449 * 0.1)
    apart = saving(step(10.0, "matmul"), step(9.0, "attention"))
    assert apart.low < 0.0
    own = saving(step(10.0, "matmul"), step(9.0, "matmul"), own=0.5)
    assert own.low < shared.low
    twice = saving(step(10.0, "matmul"), step(16.0, "matmul"), times=0.5)
    assert twice.seconds == pytest.approx(2.0)


def test_what_is_unsure_or_small_is_not_said() -> None:
    sure, unsure = Advice("a", "", 0.5, 0.4, 0.6), Advice("b", "", 0.9, -0.1, 1.9)
    small, fits = Advice("c", "", 0.001, 0.0009, 0.0011), Advice("d", "", -2.0, -3.0, -1.0, 1, True)
    at_most = Advice("e", "", 0.7)
    found = worth_saying([sure, unsure, small, fits, at_most], 10.0)
    assert [a.code for a in found] == ["d", "e", "a"]


# ── the batch ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("head", "words", "found"),
    [
        ("def build(batch=4):", [], Batch("batch", 4, None)),
        ("def build(width, *, batch_size=2):", [], Batch("batch_size", 2, None)),
        ("def build(batch=None):", [], None),
        ("def build():", ["--batch", "8"], Batch("--batch", 8, 1)),
        ("def build():", ["-x", "--train-batch-size=8"], Batch("--train-batch-size", 8, 1, True)),
        ("def build():", ["--per_device_train_batch_size", "2"],
         Batch("--per_device_train_batch_size", 2, 1)),
        ("def build():", ["--batches", "8"], None),
        ("def build():", ["--batch"], None),
    ],
)  # fmt: skip
def test_the_number_that_is_the_batch(
    tmp_path: Path, head: str, words: list[str], found: Batch | None
) -> None:
    file = tmp_path / "train.py"
    file.write_text(f"{head}\n    return lambda: None\n")
    assert batch_of(f"{file}:build", words) == found
    if found is not None:
        changed = found.words(words, 16)
        again = batch_of(f"{file}:build", changed)
        assert again is not None
        assert (again.size if words else found.parameters(16)[found.name]) == 16


def test_the_command_finds_the_largest_batch_that_fits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        "import torch\n"
        "def build(batch=8):\n"
        "    model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(8))).cuda()\n"
        "    def step():\n"
        "        x = torch.randn(batch, 4096, 512, device='cuda')\n"
        "        model(x).mean().backward()\n"
        "        model.zero_grad()\n"
        "    return step\n"
    )
    words = ["capture", f"{file}:build", "--on", "RTX4090", "--advise"]
    assert main([*words, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    larger = next(a for a in answer["advice"] if a["code"] == "batch")
    capacity = answer["memory"]["capacity_bytes"]
    assert 0.8 * capacity < larger["peak_allocated_bytes"] < capacity
    assert "of 8" in larger["text"]
    assert all(row["faster"] or row["cheaper"] for row in answer["elsewhere"])
    assert answer["not_tried"] == []
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "Changes that were tried" in said


def test_a_script_is_advised_what_needs_no_other_modules(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        "import torch\n"
        "model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(8))).cuda()\n"
        "optimizer = torch.optim.AdamW(model.parameters())\n"
        "while True:\n"
        "    model(torch.randn(4096, 2048, device='cuda')).mean().backward()\n"
        "    optimizer.step()\n"
        "    optimizer.zero_grad()\n"
    )
    assert main(["capture", str(file), "--on", "H100", "--advise", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert {"autocast", "tf32", "fused_optimizer"} <= {a["code"] for a in answer["advice"]}
    assert any("weights in bf16" in text for text in answer["not_tried"])
