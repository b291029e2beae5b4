"""Values that nobody knows: what follows from facts, what is assumed, what the user gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent, indent

import pytest
import torch
from torch import nn

from capture_programs import Build, Step
from trueflops.capture.assumed import Assumptions, assuming
from trueflops.capture.lower import base_name
from trueflops.capture.pretend.machine import Machine
from trueflops.capture.program import capture, load
from trueflops.errors import BadInput
from trueflops.records.recording import Call, Recording, Waited
from trueflops.units import GIBI, MEBI

H100 = Machine("NVIDIA H100 80GB HBM3", 80 * int(GIBI), 132, (9, 0), 50 * int(MEBI))
ROWS, WIDTH = 64, 16


def stepping(use: Callable[[torch.Tensor], object]) -> Build:
    """A program that uses what a model makes, whose values nobody knows."""

    def build() -> Step:
        model = nn.Linear(WIDTH, WIDTH).cuda()
        x = torch.randn(ROWS, WIDTH, device="cuda")
        return lambda: use(model(x))

    return build


def captured(use: Callable[[torch.Tensor], object], *given: str) -> Recording:
    with assuming(Assumptions.of(given)):
        return capture(lambda: stepping(use), H100)


def shapes(recording: Recording, name: str) -> list[tuple[int, ...]]:
    """Of the results of an op."""
    return [c.outputs[0].shape for c in recording.calls() if base_name(c.op) == name]


# ── masks ────────────────────────────────────────────────────────────────────────────────────────


def picked(y: torch.Tensor) -> torch.Tensor:
    return y[y[:, 0] > 0]


@pytest.mark.parametrize(
    ("given", "rows", "said"),
    [
        ([], ROWS // 2, "assumed: give another share with --assume mask=SHARE or"),
        (["mask=0.25"], ROWS // 4, "as --assume mask=0.25 says"),
        (["mask=25%"], ROWS // 4, "as --assume mask=0.25 says"),
        (["mask=0"], 0, "as --assume mask=0 says"),
    ],
)
def test_a_mask_selects_an_assumed_or_given_share(given: list[str], rows: int, said: str) -> None:
    recording = captured(picked, *given)
    assert shapes(recording, "nonzero") == [(rows, 1)]
    assert shapes(recording, "index") == [(rows, WIDTH)]
    (note,) = recording.warnings
    assert f"is taken to be true in {rows} of {ROWS}" in note
    assert "test_capture_assumed.py" in note
    assert said in note


def test_a_line_says_how_many() -> None:
    line = picked.__code__.co_firstlineno + 1
    given = f"test_capture_assumed.py:{line}"
    assert shapes(captured(picked, f"{given}=7"), "index") == [(7, WIDTH)]
    assert shapes(captured(picked, f"{given}=0.5", "mask=0.25"), "index") == [(32, WIDTH)]


def test_a_mask_is_looked_for_before_it_is_used_and_the_host_waits() -> None:
    """As on CUDA; in the backward again, where the same share holds without another note."""

    def use(y: torch.Tensor) -> None:
        torch.autograd.backward(y[y[:, 0] > 0].sum())

    recording = captured(use, "mask=0.25")
    events = recording.step()
    found = [i for i, e in enumerate(events) if isinstance(e, Call) and "nonzero" in e.op]
    assert len(found) == 2
    assert any(isinstance(e, Waited) and e.waiting == -1 for e in events[: found[0]])
    after = next(e for e in events[found[0] + 1 :] if isinstance(e, Call))
    assert base_name(after.op) == "index"
    put = next(e for e in events[found[1] + 1 :] if isinstance(e, Call))
    assert base_name(put.op) in ("index_put", "_index_put_impl")
    assert {a.shape for a in put.inputs} == {(ROWS, WIDTH), (ROWS // 4,), (ROWS // 4, WIDTH)}
    assert len(recording.warnings) == 1


def test_the_other_elements_of_a_mask_are_the_rest() -> None:
    def use(y: torch.Tensor) -> None:
        mask = y[:, 0] > 0
        y[mask] + 1.0
        y[~mask] + 1.0
        y.masked_select(mask.unsqueeze(1))

    found = shapes(captured(use, "mask=0.25"), "index")
    assert found == [(ROWS // 4, WIDTH), (ROWS * 3 // 4, WIDTH), (ROWS * WIDTH // 4,)]


def test_a_number_put_by_a_mask_is_a_fill() -> None:
    def use(y: torch.Tensor) -> None:
        made = y.detach().clone()
        made[made[:, 0] > 0] = 0.0

    recording = captured(use)
    assert shapes(recording, "masked_fill") == [(ROWS, WIDTH)]
    assert not shapes(recording, "nonzero")
    assert not recording.warnings


def test_a_mask_that_is_drawn_or_known_needs_no_assumption() -> None:
    def use(y: torch.Tensor) -> None:
        ids = torch.randint(0, 4, (ROWS,), device="cuda")
        assert (ids == 1).sum().item() + (ids != 1).sum().item() == ROWS
        assert 3 in ids
        assert 4 not in ids
        y[ids == 1].sum()
        y[torch.arange(ROWS, device="cuda") < 5].sum()
        y[torch.rand(ROWS, device="cuda") < 2.0].sum()

    recording = captured(use)
    drawn, known, all_of_them = shapes(recording, "index")
    assert 0 < drawn[0] < ROWS
    assert (known[0], all_of_them[0]) == (5, ROWS)
    assert not recording.warnings
    assert shapes(captured(use), "index")[0] == drawn  # the same program draws the same numbers


def test_one_hot_rows_have_one_each() -> None:
    def use(y: torch.Tensor) -> None:
        expert = y.argmax(1, keepdim=True)
        chosen = torch.zeros_like(y, dtype=torch.long).scatter_(1, expert, 1)
        (chosen > 0).nonzero()

    recording = captured(use)
    assert shapes(recording, "nonzero") == [(ROWS, 2)]
    assert "by the way in which it was made" in recording.warnings[0]


# ── facts ────────────────────────────────────────────────────────────────────────────────────────


def test_a_norm_is_not_negative_and_gradients_are_finite() -> None:
    """DeepSpeed's check for overflow, and a gradient scaler's."""
    went: list[str] = []

    def use(y: torch.Tensor) -> None:
        norms = torch.stack([y.norm().float(), y.abs().max()])
        total = norms.pow(2).sum().sqrt()
        total.masked_fill_(total.isinf().logical_or(total.isnan()), -1.0)
        if (~torch.isfinite(total) | (total < 0)).any():
            went.append("overflow")
        elif (torch.isinf(y).any() + torch.isnan(y).any()).item():
            went.append("overflow in parts")
        else:
            went.append("on")

    (said,) = captured(use).warnings
    assert "no step is skipped for an overflow" in said
    assert set(went) == {"on"}


@pytest.mark.parametrize(
    "use", [lambda y: bool((y.sum() < 0).any()), lambda y: bool((y - y.norm() < 0).any()),
            lambda y: bool((y.norm().neg() < 0).any()), lambda y: bool((y.norm() < 1).any())],
)  # fmt: skip
def test_a_sign_that_nobody_knows_decides_nothing(use: Callable[[torch.Tensor], object]) -> None:
    with pytest.raises(BadInput, match="a branch on a tensor"):
        captured(use)


def _branch(y: torch.Tensor) -> torch.Tensor:
    kept = torch.zeros(2)
    kept[:1].copy_(y.sum())
    return y * 2 if kept[0] > 3 else y


def test_a_tensor_of_the_host_forgets_what_is_overwritten() -> None:
    with pytest.raises(BadInput, match="a branch on a tensor"):
        captured(_branch)


def test_numbers_written_over_unknown_ones_are_known() -> None:
    def use(y: torch.Tensor) -> None:
        for flag in (torch.zeros(1), torch.zeros(1, device="cuda")):
            flag.copy_(y.sum())
            flag.zero_()
            assert flag.item() == 0.0

    captured(use)


# ── branches and counts ──────────────────────────────────────────────────────────────────────────

PROGRAM = """
    import torch
    from torch import nn

    def build():
        model = nn.Linear(16, 16).cuda()
        x = torch.randn(8, 16, device="cuda")

        def step():
            y = model(x)
    {line}
            y.sum().backward()
            model.zero_grad()

        return step
"""


@pytest.mark.parametrize(
    ("line", "given", "calls"),
    [
        ("if y.sum() > 3: y = y.sin()", "true", {"sin"}),
        ("if y.sum() > 3: y = y.sin()", "false", set()),
        ("if y.sum().item() > 3: y = y.sin()", "true", {"sin"}),
        ("y = y.sin() if 1.0 in y else y.cos()", "false", {"cos"}),
        ("y = y[: int(y.sum())].sin()", "3", {"sin"}),
        ("y = torch.cat([p.sin() for p in y.split(y[:2, 0].tolist())])", "3,5", {"sin"}),
        ("y = y + torch.unique(y.detach()).sin().sum()", "5", {"sin"}),
        ("y = y.sin() if torch.equal(x, y) else y", "true", {"sin"}),
    ],
)
def test_the_user_says_what_a_value_is(
    tmp_path: Path, line: str, given: str, calls: set[str]
) -> None:
    file = tmp_path / "train.py"
    file.write_text(dedent(PROGRAM).strip().format(line=indent(line, " " * 8)) + "\n")
    with assuming(Assumptions.of([f"train.py:10={given}"])):
        recording = capture(lambda: load(f"{file}:build"), H100)
    forward = {base_name(c.op) for c in recording.calls() if c.phase == "forward"}
    assert forward & {"sin", "cos"} == calls


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("mask", "write mask=0.5"),
        ("train.py=3", "write mask=0.5"),
        ("train.py:0=3", "write mask=0.5"),
        ("mask=2", "between 0 and 1"),
        ("mask=true", "between 0 and 1"),
        ("train.py:3=many", "many is not a value"),
        ("train.py:3=", "is not a value"),
        ("train.py:3=nan", "nan is not a value"),
    ],
)
def test_what_is_no_assumption(word: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        Assumptions.of([word])


def test_a_path_is_known_by_its_file() -> None:
    given = Assumptions.of(["deep/runtime/utils.py:233=true", "a.py:1=1,2"])
    assert given.at(["utils.py:233"]) is True
    assert given.at(["b.py:1", "a.py:1"]) == [1, 2]
    assert given.count(["utils.py:233"], 9) is None


# ── a program's own kernels ──────────────────────────────────────────────────────────────────────


def test_kernels_that_a_program_compiles_are_stood_in_for() -> None:
    def use(y: torch.Tensor) -> None:
        from torch.utils.cpp_extension import load as compile_

        made = compile_(name="fused", sources=["fused.cu"])
        grads, weights, first, second = ([torch.empty_like(y)] for _ in range(4))
        flag = torch.zeros(1, dtype=torch.int, device="cuda")
        made.multi_tensor_adam(65536, flag, [grads, weights, first, second], 1e-3, 0.9, 0.99)
        made.scale(y)
        made.create(3)

    recording = captured(use)
    calls = [c for c in recording.calls() if c.op in ("aten._fused_adamw_.default", "fused.scale")]
    assert [len(c.inputs) for c in calls] == [5, 1]
    assert recording.warnings == [
        "fused.scale is priced by the bytes that it reads and writes: no more is known of it"
    ]
