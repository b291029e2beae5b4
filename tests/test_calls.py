"""Calls of ATen ops as rows: written where they are measured, read where they are priced."""

from __future__ import annotations

from pathlib import Path

import pytest

from trueflops.capture.lower import lower
from trueflops.errors import BadInput
from trueflops.graph.variants import EagerKernel
from trueflops.interop.calls import kernel_of, read_call
from trueflops.interop.kernels import batch_kernels
from trueflops.records.call_text import (
    Layout,
    plain_strides,
    read_layouts,
    read_numbers,
    write_layouts,
    write_numbers,
)
from trueflops.records.tables import read_table

TRUTH = Path(__file__).parents[1] / "truth" / "h200"


def test_what_is_written_is_read_again() -> None:
    layouts = [
        Layout("bfloat16", (8, 3, 4), plain_strides((8, 3, 4))), Layout("float32", (), ()),
        *[Layout("int64", (7,), (1,))] * 3, Layout("float32", (2, 5), (1, 2)),
    ]  # fmt: skip
    text = write_layouts(layouts)
    assert text == "bfloat16[8,3,4] float32[] 3*int64[7] float32[2,5]@1,2"
    assert read_layouts(text) == layouts
    numbers = [[1, 2], True, 0.5, "tanh"]
    assert list(read_numbers(write_numbers(numbers))) == numbers


@pytest.mark.parametrize(
    ("cells", "said"),
    [(("aten.mm.default", "bfloat16[8,", "", "[]"), "is no tensor"),
     (("aten.mm.default", "bfloat16[8,8]@1", "", "[]"), "2 sizes and 1 strides"),
     (("aten.mm.default", "bfloat17[8,8]", "", "[]"), "bfloat17"),
     (("aten.mm.default", "bfloat16[8,8]", "", "{}"), "JSON list"),
     (("mm", "bfloat16[8,8]", "", "[]"), "aten.mm.default"),
     (("aten.mm.default", "bfloat16[8,8]", "bfloat16[8,8]", "[]"), "not those of such a call"),
     (("aten.slice_backward.default", "bfloat16[4,8]", "bfloat16[8,8]", "[]"), "launches 2 kinds")],
)  # fmt: skip
def test_a_row_that_is_no_call_says_why(cells: tuple[str, str, str, str], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        kernel_of(read_call(*cells))


def facts(
    op: str, inputs: str, outputs: str, numbers: str = "[]"
) -> tuple[object, dict[str, object]]:
    (made,) = lower(read_call(op, inputs, outputs, numbers))
    return made.variant, dict(made.facts)


def test_norms_say_how_long_their_rows_are() -> None:
    args = ("bfloat16[64,768] bfloat16[768]", "bfloat16[64,768] float32[64,1]", "[[768],1e-5]")
    kernel, said = facts("aten.native_layer_norm.default", *args)
    assert (kernel, said["run"], said["pieces"]) == (EagerKernel.NORM, 768.0, 64.0)
    ragged = ("bfloat16[64,150] bfloat16[150]", "bfloat16[64,150] float32[64,1]", "[[150],1e-5]")
    assert facts("aten.native_layer_norm.default", *ragged)[0] is EagerKernel.RAGGED_NORM


def test_a_batch_norm_has_a_piece_for_each_channel() -> None:
    shape = "bfloat16[32,64,56,56]"
    kernel, said = facts("aten.native_batch_norm.default", shape, shape, "[true,0.1,1e-5]")
    assert (kernel, said["run"], said["pieces"]) == (EagerKernel.BATCH_NORM, 3136.0, 64.0)
    last = f"{shape}@200704,1,3584,64"
    assert facts("aten.native_batch_norm.default", last, last, "[true,0.1,1e-5]")[0] is (
        EagerKernel.BATCH_NORM_LAST
    )
    wide = shape.replace("bfloat16", "float32")
    assert facts("aten.native_batch_norm.default", wide, wide, "[true,0.1,1e-5]")[0] is (
        EagerKernel.CUDNN_BATCH_NORM
    )


def test_a_copy_knows_what_stays_together() -> None:
    heads = "bfloat16[8,16,1024,64]@1048576,64,1024,1"
    kernel, said = facts("aten.clone.default", heads, "bfloat16[8,16,1024,64]")
    assert (kernel, said["run"]) == (EagerKernel.TURNED, 64.0)
    turned = facts("aten.clone.default", "bfloat16[512,256]@1,512", "bfloat16[512,256]")
    assert turned[1]["run"] == 1.0


def test_lists_are_dealt_out_in_launches() -> None:
    """MultiTensorApply.cuh: 110 tensors of one list a launch, 48 of three; 320 chunks of 65536."""
    one = facts("aten._foreach_mul_.Scalar", "400*bfloat16[4096]", "", "[0.9]")[1]
    assert (one["launches"], one["pieces"]) == (4.0, 400.0)
    three = facts("aten._foreach_addcmul_.Scalar", "1200*bfloat16[4096]", "", "[0.1]")[1]
    assert three["launches"] == 9.0
    large = facts("aten._foreach_mul_.Scalar", "12*bfloat16[8388608]", "", "[0.9]")[1]
    assert (large["launches"], large["pieces"]) == (5.0, 1536.0)


def test_a_pooling_window_is_no_larger_than_the_picture() -> None:
    _, said = facts("aten.avg_pool2d.default", "bfloat16[64,1280,7,7]", "bfloat16[64,1280,1,1]",
                    "[[1280,1280],[1280,1280],[0,0],true]")  # fmt: skip
    assert said["indexed"] == 64 * 1280 * 49


def test_every_measured_call_is_a_kernel_that_has_a_law() -> None:
    for name in ("calls.csv", "program_calls.csv"):
        table = read_table(TRUTH / name)
        batches, refused = batch_kernels(table)
        assert sum(len(b.rows) for b in batches) > len(refused)
        assert all("launches" in r.reason or "not those" in r.reason for r in refused)
