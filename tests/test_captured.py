"""A captured step on a chip: two clocks, memory, compiled regions, the command, and real steps."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from captured_steps import case_of
from captured_steps import program as llama
from trueflops.capture.pretend.machine import Machine
from trueflops.capture.program import capture
from trueflops.catalog import accelerator, cluster
from trueflops.cli import main
from trueflops.clock import Clock
from trueflops.predict.captured.memory import captured_memory, categories_of
from trueflops.predict.captured.program import CapturedProgram, predict_program
from trueflops.predict.captured.step import captured_step
from trueflops.profile import profile_of
from trueflops.records.recording import (
    Allocated,
    Began,
    Call,
    Emptied,
    Freed,
    RecordedTensor,
    Recording,
    Waited,
)

TRUTH = Path(__file__).parent.parent / "truth" / "h200"
Step = Callable[[], Any]


def clock(on: str = "H200") -> Clock:
    where = cluster(on)
    return Clock(where, profile_of(where.accelerator, "plain"))


def predicted(build: Callable[[], Step], on: str = "H200") -> CapturedProgram:
    machine = Machine.like(accelerator(on))
    return predict_program(capture(lambda: build, machine), clock(on))


def array(storage: int, *shape: int) -> RecordedTensor:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return RecordedTensor(storage, shape, tuple(strides), "bfloat16")


def call(
    op: str, inputs: tuple[RecordedTensor, ...], *outputs: RecordedTensor, stream: int = 0
) -> Call:
    return Call(op, inputs, outputs, (), "forward", "", stream, -1)


def add(storage: int, stream: int = 0) -> Call:
    x = array(storage, 16384, 8192)
    return call("aten.add.Tensor", (x, x), array(storage + 1, 16384, 8192), stream=stream)


# ── two clocks ───────────────────────────────────────────────────────────────────────────────────


def test_large_kernels_hide_the_host_and_small_ones_wait_for_it() -> None:
    large = captured_step(Recording([Began("step"), *[add(1)] * 200]), clock())
    assert large.idle_seconds < 0.02 * large.seconds.value
    tiny = call("aten.add.Tensor", (array(1, 64),), array(2, 64))
    small = captured_step(Recording([Began("step"), *[tiny] * 200]), clock())
    assert small.seconds.value == pytest.approx(small.host_seconds, rel=0.01)
    assert small.idle_seconds > 0.8 * small.seconds.value


def test_a_second_stream_runs_beside_the_first_unless_it_waits() -> None:
    alone = captured_step(Recording([Began("step"), *[add(1)] * 100]), clock())
    beside = captured_step(Recording([Began("step"), *([add(1), add(3, stream=7)] * 100)]), clock())
    assert beside.seconds.value < 1.1 * alone.seconds.value
    held: list[Any] = [Began("step")]
    for i in range(100):
        held += [add(1), Waited(7, 0, 4 * i + 1), add(3, stream=7), Waited(0, 7, 4 * i + 3)]
    one_by_one = captured_step(Recording(held), clock())
    assert one_by_one.seconds.value > 1.9 * alone.seconds.value


def test_the_host_that_reads_a_number_waits_for_the_device() -> None:
    events: list[Any] = [Began("step"), *[add(1)] * 50, Waited(-1, -1, 50), *[add(1)] * 50]
    waited = captured_step(Recording(events), clock())
    free = captured_step(Recording([Began("step"), *[add(1)] * 100]), clock())
    assert waited.seconds.value > free.seconds.value
    assert waited.ran[50].issued > waited.ran[49].end


# ── memory ───────────────────────────────────────────────────────────────────────────────────────


def storages() -> list[Any]:
    """A weight; an activation that the backward frees; a gradient; a state of the optimizer."""
    mib = 2**20

    def came(storage: int, size: int, phase: Any) -> Allocated:
        return Allocated(storage, size * mib, 0, phase, "layer", "aten.mul.Tensor")

    return [
        came(1, 16, "build"), Began("warmup"), came(9, 32, "optimizer"), Began("step"),
        came(2, 64, "forward"), came(3, 8, "forward"), Freed(3), came(4, 16, "backward"),
        came(5, 4, "backward"), Freed(5), Freed(2), came(6, 16, "optimizer"), Freed(6), Freed(4),
    ]  # fmt: skip


def test_storages_are_told_apart_by_when_they_come_and_go() -> None:
    recording = Recording(storages(), parameters={1: "weight"})
    assert categories_of(recording) == {
        1: "parameters", 9: "optimizer state", 2: "activations", 3: "temporary",
        4: "gradients", 5: "temporary", 6: "temporary",
    }  # fmt: skip


def test_the_peak_is_that_of_the_recorded_step() -> None:
    memory = captured_memory(Recording(storages(), parameters={1: "weight"}))
    assert memory.peak_allocated_bytes == (16 + 32 + 64 + 16 + 4) * 2**20
    assert memory.by("category")["activations"] == 64 * 2**20
    assert memory.peak_reserved_bytes >= memory.peak_allocated_bytes


def test_what_a_program_gives_back_is_no_longer_reserved() -> None:
    mib = 2**20

    def came(storage: int, phase: Any) -> Allocated:
        return Allocated(storage, 64 * mib * storage, 0, phase, "", "aten.empty.memory_format")

    def reserved(*between: Any) -> int:
        whole = [came(1, "build"), Freed(1), *between, Began("step"), came(2, "forward")]
        return captured_memory(Recording(whole)).peak_reserved_bytes

    assert reserved() == (64 + 128) * mib
    assert reserved(Emptied()) == 128 * mib


def test_a_cache_that_fills_the_device_is_given_back() -> None:
    mib = 2**20

    def reserved(limit: float, *, expandable: bool = False) -> int:
        sizes = {1: 64, 2: 96, 3: 128}
        come = {n: Allocated(n, s * mib, 0, "forward", "", "aten.add") for n, s in sizes.items()}
        events: list[Any] = [Began("step"), come[1], Freed(1), come[2], Freed(2), come[3]]
        found = captured_memory(Recording(events, expandable=expandable), limit_bytes=limit * mib)
        assert found.peak_allocated_bytes == 128 * mib
        return found.peak_reserved_bytes // mib

    assert reserved(1000) == 64 + 96 + 128
    assert reserved(200) == 64 + 96
    assert reserved(100) == 128  # more than there is, and how much that is
    assert reserved(1000, expandable=True) == 140  # one segment that grows by pages of 20 MiB


def test_what_does_not_fit_says_what_is_alive_and_what_would_help(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        "import torch\n"
        "def build():\n"
        "    model = torch.nn.Sequential(*[torch.nn.Linear(16384, 16384) for _ in range(24)])\n"
        "    model = model.cuda()\n"
        "    optimizer = torch.optim.AdamW(model.parameters())\n"
        "    x = torch.randn(4096, 16384, device='cuda')\n"
        "    def step():\n"
        "        model(x).sum().backward()\n"
        "        optimizer.step()\n"
        "        optimizer.zero_grad()\n"
        "    return step\n"
    )
    assert main(["capture", f"{file}:build", "--on", "RTX4090"]) == 1
    said = capsys.readouterr().out
    assert "out of memory" in said
    assert "Alive at the peak" in said
    assert "FSDP" in said


# ── compiled regions ─────────────────────────────────────────────────────────────────────────────


def chain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = torch.nn.functional.silu(x * 2.0 + 1.0) * x
    return y @ w


def program(*, compiled: bool) -> Callable[[], Step]:
    def build() -> Step:
        run = torch.compile(chain) if compiled else chain
        x = torch.randn(8192, 4096, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        w = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        return lambda: run(x, w).sum().backward()

    return build


def test_compiled_chains_are_one_kernel_and_keep_nothing_in_between() -> None:
    plain, fused = predicted(program(compiled=False)), predicted(program(compiled=True))
    forward = [r for r in plain.step.ran if r.kernel.call.phase == "forward"]
    assert len(forward) >= 6  # mul, add, silu, mul, mm, sum
    generated = [r.kernel for r in fused.step.ran if r.kernel.op and r.kernel.op.fused]
    first = generated[0]
    assert [part.name for part in first.op.fused] == ["mul", "add", "silu", "mul"]  # type: ignore[union-attr]
    each = 8192 * 4096 * 2
    assert float(first.work.bytes_read + first.work.bytes_written) == 2 * each
    kept = {n: m.memory.by("category").get("activations", 0) for n, m in
            (("plain", plain), ("fused", fused))}  # fmt: skip
    assert kept["fused"] < kept["plain"]
    assert fused.step.flop == plain.step.flop
    assert any("model of TorchInductor" in w for w in fused.recording.warnings)


# ── the command ──────────────────────────────────────────────────────────────────────────────────

PROGRAM = """
import torch
def build():
    model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(),
                                torch.nn.Linear(4096, 1024)).to("cuda", torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    x = torch.randn(512, 1024, device="cuda", dtype=torch.bfloat16)
    def step():
        loss = model(x).float().pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"loss {loss.item():.3f}")
    return step
"""


def test_the_command_answers_in_words_json_graph_and_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, trace = tmp_path / "train.py", tmp_path / "trace.json"
    file.write_text(PROGRAM)
    asked = ["capture", f"{file}:build", "--on", "H100"]
    assert main([*asked, "--trace", str(trace)]) == 0
    said = capsys.readouterr().out
    assert "a step of" in said
    assert "Memory:" in said
    events = json.loads(trace.read_text())["traceEvents"]
    assert {e["cat"] for e in events if e["ph"] == "X" and e["pid"] == 2} >= {"matmul", "memory"}
    assert main([*asked, "--json", "--graph"]) == 0
    told = json.loads(capsys.readouterr().out)  # what the program prints goes to stderr
    flop = 2 * 512 * 1024 * 4096 * 2
    assert told["step"]["flop"] == 3 * flop - flop / 2  # the input needs no gradient
    assert told["parameters"] == 2 * 1024 * 4096 + 4096 + 1024
    taken = told["step"]["seconds"]
    assert taken["low"] < taken["value"] < taken["high"]
    assert {m["phase"] for m in told["modules"]} == {"forward", "backward", "optimizer"}
    now, fused = told["fusion"]["as_it_runs"], told["fusion"]["if_compiled"]
    assert fused["kernels"] < now["kernels"]
    assert fused["bytes"] < now["bytes"]
    assert main([*asked, "--graph"]) == 0
    assert "Work by module" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nothing.py:build", "--on", "H100"], "no such file"),
        (["train", "--on", "H100"], "FILE.py:FUNCTION"),
        (["nothing.py", "--on", "H100"], "no such file"),
        (["{file}:build"], "say where with --on"),
        (["{file}:build", "--on", "H100", "--rank", "3"], "0 to 0"),
        (["{file}:build", "--on", "8xH100", "--world", "4"], "has 8 chips"),
        (["{file}:train", "--on", "H100"], "it has: build"),
    ],
)
def test_questions_that_cannot_be_answered(
    words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "train.py"
    file.write_text(PROGRAM)
    assert main(["capture", *(w.format(file=file) for w in words)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert told in said
    assert "Traceback" not in said


# ── real steps of an H200 (never fitted to) ──────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("file", "at", "time", "memory"),
    [
        ("llama_steps_apart.csv", 4, 0.06, 0.01),
        ("llama_steps_apart.csv", 14, 0.06, 0.01),
        ("llama_steps_compiled_apart.csv", 2, 0.10, 0.02),
    ],
)
def test_hugging_face_llamas_as_they_ran_on_an_h200(
    file: str, at: int, time: float, memory: float
) -> None:
    with (TRUTH / file).open() as rows:
        row = list(csv.DictReader(rows))[at]
    found = predicted(lambda: llama(case_of(row)))
    assert found.step.seconds.value == pytest.approx(float(row["step_seconds"]), rel=time)
    peak = int(row["peak_allocated_bytes"])
    assert found.memory.peak_allocated_bytes == pytest.approx(peak, rel=memory)
