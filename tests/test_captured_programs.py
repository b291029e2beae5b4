"""The benchmark over programs of many kinds: its halves, and kernels matched with predictions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from captured_steps import Case
from captured_steps import program as llama
from judged import clock_for, judge, predicted, summary
from programs import FAMILIES, PROGRAMS
from programs.matched import Beside, beside
from programs.profiled import kernel_rows
from trueflops.records.recording import Call

TRACE = Path(__file__).parent / "data" / "llama_160m_step.json.gz"


def test_families_stand_whole_in_one_half() -> None:
    families = {each.family for each in PROGRAMS.values()}
    assert families == set(FAMILIES)
    splits = {(each.family, each.split) for each in PROGRAMS.values()}
    assert len(splits) == len(families) >= 30
    apart = sum(split == "apart" for _, split in splits)
    assert abs(2 * apart - len(families)) <= 1


@pytest.mark.parametrize("name", ["dlrm_bags", "gat", "wavenet", "bilstm_classify", "dcgan"])
def test_programs_are_captured(name: str) -> None:
    found = predicted(PROGRAMS[name].build, clock_for("H200", None))
    row = {
        "step_seconds": f"{float(found.step.seconds.value)}",
        "peak_allocated_bytes": f"{2 * found.memory.peak_allocated_bytes}",
        "peak_reserved_bytes": f"{found.memory.peak_reserved_bytes}",
    }
    judged = judge(found, row)
    assert judged.inside
    assert (judged.time, judged.memory, judged.reserved) == pytest.approx((0.0, -0.5, 0.0))
    assert "1 steps, 1 within" in summary([judged])


@pytest.fixture(scope="module")
def groups() -> list[Beside]:
    rows = [
        {name: str(value) for name, value in row._asdict().items()}
        for row in kernel_rows("llama", TRACE)
    ]
    found = predicted(partial(llama, Case("160M", "bf16", 2, 2048)), clock_for("H200", None))
    return beside("llama", rows, (ran.kernel for ran in found.step.ran))


def test_matching_loses_no_kernel(groups: list[Beside]) -> None:
    measured = sum(row.microseconds for row in kernel_rows("llama", TRACE))
    assert sum(group.measured.seconds for group in groups) == pytest.approx(measured * 1e-6)
    lonely = [g for g in groups if not g.measured.count or not g.predicted.count]
    assert sum(g.measured.seconds + g.predicted.seconds for g in lonely) < 0.02 * measured * 1e-6


def test_products_and_attention_meet_by_shapes(groups: list[Beside]) -> None:
    by = {(group.op, group.shapes): group for group in groups}
    product = by["mm", ((3072, 4096), (4096, 768))]
    assert product.measured.count == product.predicted.count == 24
    heads = ((2, 12, 2048, 64),) * 3
    assert by["scaled_dot_product_cudnn_attention", heads].predicted.count == 12


@pytest.mark.parametrize(("batch_first", "product"), [(True, "mm"), (False, "addmm")])
def test_recurrent_results_lie_step_by_step(batch_first: bool, product: str) -> None:
    def build() -> Callable[[], None]:
        layers = torch.nn.LSTM(32, 64, batch_first=batch_first).cuda()
        head = torch.nn.Linear(64, 128).cuda()
        x = torch.randn(8, 16, 32, device="cuda", requires_grad=True)

        def step() -> None:
            head(layers(x)[0]).sum().backward()
            x.grad = None

        return step

    calls = [c for c in predicted(build, clock_for("H200", None)).recording.events
             if isinstance(c, Call)]  # fmt: skip
    made = next(c for c in calls if "_cudnn_rnn.default" in c.op).outputs[0]
    assert made.shape == (8, 16, 64)
    assert made.strides == ((64, 8 * 64, 1) if batch_first else (16 * 64, 64, 1))
    back = next(c for c in calls if "_cudnn_rnn_backward" in c.op).outputs[0]
    assert back.strides == ((32, 8 * 32, 1) if batch_first else (16 * 32, 32, 1))
    forward = [c.op.split(".")[1] for c in calls if c.phase == "forward"]
    assert product in forward
