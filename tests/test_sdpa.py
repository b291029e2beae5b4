"""scaled_dot_product_attention as an H200 ran it: whose kernel, which calls, how much memory.

tests/data/sdpa_h200.csv has a call in each row, forward and backward, under torch 2.11 with cuDNN
9.19: the backend that torch chose, the ATen calls that a dispatch mode saw (views left out), bytes
above what the arguments take, and device time.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from trueflops.capture.lower import lower
from trueflops.capture.pretend.machine import Machine
from trueflops.capture.pretend.sdp_choice import Attention, choose, preferred_order
from trueflops.capture.program import capture
from trueflops.capture.recorder import Recorder
from trueflops.catalog import accelerator, cluster
from trueflops.clock import Clock
from trueflops.profile import profile_of
from trueflops.records.recording import Allocated, Call, Event, Freed

H200: Final = Machine.like(accelerator("H200-SXM-141GB"))
BLOCK: Final = 512  # bytes: what the allocator rounds up to
CLOSE: Final = 4096  # bytes: seeds of random numbers, and the like
UNSPLIT: Final = 0.07  # of a peak: larger blocks that the allocator had at hand and gives out whole
WIDEST: Final = 256  # beyond, the memory-efficient backward has buffers that are not modelled
SAFE_SOFTMAX: Final = (
    "_softmax.default", "isneginf.default", "all.dim", "scalar_tensor.default", "where.self_out",
)  # fmt: skip

Row = dict[str, str]
with (Path(__file__).parent / "data" / "sdpa_h200.csv").open() as file:
    ROWS: Final[list[Row]] = list(csv.DictReader(file))


class Ran(NamedTuple):
    """A case as it was recorded."""

    forward: list[str]
    backward: list[str]
    forward_peak: int
    kept: int
    backward_peak: int


# ── the cases as programs ────────────────────────────────────────────────────────────────────────


def operand(row: Row, heads: str, tokens: str, width: str, layout: str) -> Tensor:
    b, h, s, d = (int(row[name]) for name in ("batch", heads, tokens, width))
    to: Any = {"device": "cuda", "dtype": getattr(torch, row["dtype"])}
    if layout == "bshd":
        return torch.randn(b, s, h, d, **to).transpose(1, 2)
    if layout == "packed":
        return torch.randn(b, s, 3 * h * d, **to)[..., : h * d].view(b, s, h, d).transpose(1, 2)
    if layout == "lastdim":  # the last dimension does not lie whole
        return torch.randn(b, h, d, s, **to).transpose(-1, -2)
    if layout == "expandkv":
        return torch.randn(b, 1, s, d, **to).expand(b, h, s, d)
    shapes = {"3d": (b * h, s, d), "5d": (2, b // 2, h, s, d), "bhsd": (b, h, s, d)}
    return torch.randn(shapes[layout], **to)


def mask_of(row: Row) -> Tensor | None:
    if not row["mask"]:
        return None
    b, h, q, k = (int(row[name]) for name in ("batch", "heads", "queries", "keys"))
    what, shape = row["mask"].split(":")
    sizes = {
        "full": (b, h, q, k), "b1qk": (b, 1, q, k), "11qk": (1, 1, q, k), "qk": (q, k),
        "b11k": (b, 1, 1, k), "exp": (b, 1, 1, k), "expq": (b, 1, 1, k), "1hqk": (1, h, q, k),
    }[shape]  # fmt: skip
    dtypes = {"bool": torch.bool, "fp32": torch.float32, "bf16": torch.bfloat16}
    dtype = dtypes.get(what, getattr(torch, row["dtype"]))
    mask = torch.zeros(sizes, device="cuda", dtype=dtype)
    if shape == "exp":
        return mask.expand(b, h, q, k)
    return mask.expand(b, 1, q, k) if shape == "expq" else mask


@contextmanager
def settings(row: Row) -> Iterator[None]:
    with ExitStack() as stack:
        if row["only"]:
            stack.enter_context(sdpa_kernel(getattr(SDPBackend, row["only"])))
        if row["autocast"]:
            dtype = getattr(torch, row["autocast"])
            stack.enter_context(torch.autocast("cuda", dtype=dtype))
        if row["grad"] == row["mask_grad"] == "0":
            stack.enter_context(torch.no_grad())
        reduced = torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp
        stack.callback(reduced, False)
        stack.callback(torch.use_deterministic_algorithms, False)
        reduced(row["flag"] == "reduced")
        torch.use_deterministic_algorithms(row["flag"] == "det", warn_only=True)
        yield


class Marks:
    """Where in the recording a case begins, ends its forward, has its gradient, and ends."""

    def __init__(self) -> None:
        self.recorders: list[Recorder] = []
        self.of: dict[str, list[int]] = {}

    def set(self, case: str) -> None:
        self.of.setdefault(case, []).append(len(self.recorders[-1].recording.events))

    def run(self, row: Row) -> None:
        kv = row["kv_layout"]
        q = operand(row, "heads", "queries", "head", row["layout"])
        k, v = (operand(row, "kv_heads", "keys", width, kv) for width in ("head", "value"))
        mask = mask_of(row)
        asking = {"q": [q], "v": [v]}.get(row["grads_of"], [q, k, v])
        asked = asking if row["grad"] == "1" else []
        if mask is not None and row["mask_grad"] == "1":
            asked.append(mask)
        for tensor in asked:
            tensor.requires_grad_()
        with settings(row):
            self.set(row["case"])
            made = functional.scaled_dot_product_attention(
                q, k, v, mask, float(row["dropout"]), row["causal"] == "1",
                scale=float(row["scale"]) if row["scale"] else None,
                enable_gqa=row["grouped"] == "1",
            )  # fmt: skip
            self.set(row["case"])
            grad = torch.empty_like(made)
            self.set(row["case"])
            kept = torch.autograd.grad(made, asked, grad) if asked else ()
            self.set(row["case"])
            del kept


@cache
def recorded() -> dict[str, Ran]:
    """All cases, in one capture."""
    marks, begin = Marks(), Recorder.__init__

    def watched(self: Recorder, device: str) -> None:
        begin(self, device)
        marks.recorders.append(self)

    def step() -> None:
        for row in ROWS:
            marks.run(row)

    def build() -> Any:
        return step

    with mock.patch.object(Recorder, "__init__", watched):
        events = capture(lambda: build, H200).events
    return {case: ran(events, at[-4:]) for case, at in marks.of.items()}


def ran(events: list[Event], marks: list[int]) -> Ran:
    begun, made, given, ended = marks
    held: dict[int, int] = {}

    def walk(part: list[Event]) -> tuple[list[str], int]:
        calls, peak = [], sum(held.values())
        for event in part:
            if isinstance(event, Allocated):
                held[event.storage] = -(-event.size_bytes // BLOCK) * BLOCK
                peak = max(peak, sum(held.values()))
            elif isinstance(event, Freed):
                held.pop(event.storage, None)
            elif isinstance(event, Call):
                calls.append(event.op.removeprefix("aten."))
        return as_seen(calls), peak

    forward, forward_peak = walk(events[begun:made])
    kept = sum(held.values())
    walk(events[made:given])
    gradient = sum(held.values()) - kept
    backward, backward_peak = walk(events[given:ended])
    return Ran(forward, backward, forward_peak, kept, backward_peak - gradient)


def as_seen(calls: list[str]) -> list[str]:
    """As a dispatch mode sees them: a safe softmax is one, and a mask is not added in place."""
    found = ["add.Tensor" if call == "add_.Tensor" else call for call in calls]
    size = len(SAFE_SOFTMAX)
    for i in range(len(found) - 1, -1, -1):
        if tuple(found[i : i + size]) == SAFE_SOFTMAX:
            found[i : i + size] = ["_safe_softmax.default"]
    return found


# ── what was seen ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("row", ROWS, ids=[row["case"] for row in ROWS])
def test_the_calls_are_those_of_the_chip(row: Row) -> None:
    found = recorded()[row["case"]]
    assert found.forward == row["forward"].split()
    assert found.backward == row["backward"].split()


@pytest.mark.parametrize("row", ROWS, ids=[row["case"] for row in ROWS])
def test_the_memory_is_that_of_the_chip(row: Row) -> None:
    found = recorded()[row["case"]]
    assert found.forward_peak == seen(row["forward_peak_bytes"])
    assert found.kept == seen(row["kept_bytes"])
    if row["backward_peak_bytes"] and int(row["head"]) <= WIDEST:
        assert found.backward_peak == seen(row["backward_peak_bytes"])


def seen(size: str) -> Any:
    return pytest.approx(float(size), rel=UNSPLIT, abs=CLOSE)


def test_most_peaks_agree_to_the_last_block() -> None:
    off = [
        abs(recorded()[row["case"]].backward_peak - int(row["backward_peak_bytes"]))
        for row in ROWS
        if row["backward_peak_bytes"]
    ]
    assert sum(each <= 2 * CLOSE for each in off) > 0.7 * len(off)


# ── what the source says of other chips ──────────────────────────────────────────────────────────

A100, L40S, B200, V100 = (8, 0), (8, 9), (10, 0), (7, 0)


def chosen(capability: tuple[int, int], head: int = 64, **change: Any) -> str:
    shape = (2, 4, 128, head)
    dtype = change.pop("dtype", torch.bfloat16)
    q, k, v = (torch.empty(shape, dtype=dtype, device="meta") for _ in range(3))
    if change.pop("grad", True):
        q.requires_grad_()
    asked = {"mask": None, "dropout": 0.0, "causal": False, "scale": None, "grouped": False}
    with preferred_order(capability):
        return choose(Attention(q, k, v, **{**asked, **change}), capability).name


@pytest.mark.parametrize(
    ("capability", "change", "backend"),
    [
        (A100, {}, "FLASH_ATTENTION"),
        (B200, {}, "CUDNN_ATTENTION"),
        (B200, {"head": 256}, "FLASH_ATTENTION"),  # wider than cuDNN takes there
        (L40S, {"head": 224}, "EFFICIENT_ATTENTION"),  # too little shared memory for its gradient
        (L40S, {"head": 224, "grad": False}, "FLASH_ATTENTION"),
        (L40S, {"head": 256}, "FLASH_ATTENTION"),
        (L40S, {"head": 256, "dropout": 0.1}, "EFFICIENT_ATTENTION"),
        (A100, {"mask": torch.empty(128, 128, dtype=torch.bool)}, "EFFICIENT_ATTENTION"),
        (A100, {"head": 36, "dtype": torch.float32}, "EFFICIENT_ATTENTION"),
        (A100, {"head": 30, "dtype": torch.float32}, "MATH"),
        (V100, {"dtype": torch.float16}, "EFFICIENT_ATTENTION"),
        (V100, {"dtype": torch.float16, "head": 36}, "MATH"),
        (V100, {"dtype": torch.bfloat16}, "MATH"),
        (V100, {"dtype": torch.float32, "head": 30}, "EFFICIENT_ATTENTION"),
    ],
)
def test_other_chips_follow_the_same_source(
    capability: tuple[int, int], change: dict[str, Any], backend: str
) -> None:
    assert chosen(capability, **change) == backend


def test_a_program_may_change_the_order_and_what_is_enabled() -> None:
    with preferred_order((9, 0)):
        order = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION]
        q = torch.empty(2, 4, 128, 64, dtype=torch.bfloat16, device="meta")
        asked = Attention(q, q, q, None, 0.0, False, None, False)
        assert choose(asked, (9, 0)).name == "CUDNN_ATTENTION"
        with sdpa_kernel(order, set_priority=True):
            assert choose(asked, (9, 0)).name == "EFFICIENT_ATTENTION"
        with (
            sdpa_kernel(SDPBackend.FLASH_ATTENTION),
            pytest.raises(RuntimeError, match="No available kernel"),
        ):
            choose(Attention(q.float(), q.float(), q.float(), *asked_rest(asked)), (9, 0))


def asked_rest(asked: Attention) -> tuple[Any, ...]:
    return asked.mask, asked.dropout, asked.causal, asked.scale, asked.grouped


# ── what it takes ────────────────────────────────────────────────────────────────────────────────


def seconds(**change: Any) -> float:
    """Of the forward kernel on an H200."""

    def build() -> Any:
        row = {**ROWS[0], **{name: str(value) for name, value in change.items()}}
        q = operand(row, "heads", "queries", "head", "bshd")
        return lambda: functional.scaled_dot_product_attention(
            q, q, q, mask_of(row), dropout_p=float(row["dropout"])
        )

    calls = [c for c in capture(lambda: build, H200).calls() if "scaled_dot" in c.op]
    where = cluster("1xH200")
    (priced,) = Clock(where, profile_of(where.accelerator)).price_ops(lower(calls[0]))
    return float(priced.seconds)


def test_a_head_takes_as_long_as_the_one_its_kernel_is_built_for() -> None:
    assert seconds(head=40) == pytest.approx(seconds(head=64), rel=0.1)
    assert seconds(head=72) > 1.2 * seconds(head=64)


def test_dropout_takes_time_for_every_pair() -> None:
    pairs = 4 * 16 * 1024 * 1024
    more = seconds(dropout=0.1) - seconds()
    assert more / pairs == pytest.approx(0.9e-12, rel=0.1)  # as bert and gpt2 on an H200 show


def test_a_mask_for_all_queries_is_a_mask() -> None:
    assert seconds(mask="float:b11k") == seconds(mask="float:b1qk") > 1.5 * seconds()
