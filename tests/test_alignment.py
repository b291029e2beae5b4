"""Sides that no wide load fits: which road a product takes, and what that costs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import trueflops as tf
from trueflops.capture.lower import lower
from trueflops.cli.main import main
from trueflops.clock import Clock
from trueflops.clock.works import roads_of
from trueflops.graph.alignment import alignment, road_of
from trueflops.graph.ir import Op, Tensor
from trueflops.graph.kinds import Kind, Role
from trueflops.graph.rules import work
from trueflops.interop.calls import read_call
from trueflops.interop.kernels import batch_kernels
from trueflops.records.tables import read_table


def clock_of(name: str) -> Clock:
    where = tf.cluster(f"1x{name}")
    return Clock(where, tf.profile_of(where.accelerator))


def linear(columns: object, inner: object = 1024.0, dtype: str = "bf16") -> Op:
    rows, n, k = ("rows", 8192.0), ("columns", columns), ("inner", inner)
    bits = 32.0 if dtype in ("tf32", "fp32") else 16.0
    x = Tensor("x", (rows, k), bits)  # type: ignore[arg-type]
    w = Tensor("w", (n, k), bits, role=Role.WEIGHT)  # type: ignore[arg-type]
    y = Tensor("y", (rows, n), bits)  # type: ignore[arg-type]
    return Op("linear", Kind.MATMUL, (x,), (y,), weights=(w,), dtype=dtype)


@pytest.mark.parametrize(
    ("size", "item", "bytes_"),
    [(50257, 2.0, 2.0), (50258, 2.0, 4.0), (50260, 2.0, 8.0), (50304, 2.0, 16.0), (4096, 4.0, 16.0),
     (1001, 4.0, 4.0), (1, 2.0, 16.0), (12564.25, 2.0, 16.0)],
)  # fmt: skip
def test_rows_start_at_multiples_of_the_lowest_power_of_two(
    size: float, item: float, bytes_: float
) -> None:
    assert float(alignment(size, item)) == bytes_


def test_roads() -> None:
    assert road_of(16.0, "bf16") == 0.0
    assert road_of(8.0, "bf16") == road_of(4.0, "fp16") == 1.0
    assert road_of(2.0, "bf16") == 2.0
    assert road_of(4.0, "tf32") == 1.0
    assert road_of(4.0, "fp32") == 0.0, "plain fp32 has one road"


def test_an_odd_vocabulary_costs_several_times_a_padded_one() -> None:
    """8192×50257×1024 takes 7.3 times what the padded one takes on an H200 (measured)."""
    clock = clock_of("H200")
    odd, even, padded = (float(p.seconds) for p in clock.price_ops(
        [linear(50257.0), linear(50258.0), linear(50304.0)]))  # fmt: skip
    assert 4.0 < odd / padded < 9.0
    assert 1.8 < even / padded < 4.5
    assert odd > even


def test_other_vendors_and_plain_fp32_have_one_road() -> None:
    for clock, dtype in ((clock_of("MI300X"), "bf16"), (clock_of("H200"), "fp32")):
        odd, padded = clock.price_ops([linear(50257.0, dtype=dtype), linear(50304.0, dtype=dtype)])
        assert float(odd.seconds) == pytest.approx(float(padded.seconds), rel=0.1)


def test_plans_take_each_their_own_road() -> None:
    """An array of sizes, of which some are odd, is priced as each of them alone."""
    clock = clock_of("H200")
    sizes = [50257.0, 50258.0, 50304.0, 25152.0]
    op = linear(np.array(sizes))
    assert set(roads_of(op, work(op))) == {"", "narrow", "odd"}
    (together,) = clock.price_ops([op])
    alone = [float(p.seconds) for p in clock.price_ops([linear(size) for size in sizes])]
    assert np.asarray(together.seconds) == pytest.approx(alone)


def test_a_captured_product_is_read_off_its_strides() -> None:
    def facts(inputs: str, outputs: str) -> dict[str, object]:
        (op,) = lower(read_call("aten.mm.default", inputs, outputs, "[]"))
        return dict(op.facts)

    forward = facts("bfloat16[64,768] bfloat16[768,50257]@1,768", "bfloat16[64,50257]")
    assert (forward["loads"], forward["stores"]) == (16.0, 2.0)
    weights = facts("bfloat16[50257,64]@1,50257 bfloat16[64,768]", "bfloat16[50257,768]")
    assert (weights["loads"], weights["stores"]) == (2.0, 16.0)
    part = facts("bfloat16[64,768]@2305,1 bfloat16[768,64]", "bfloat16[64,64]")
    assert part["loads"] == 2.0, "rows of a view start where those of the whole do"


def test_a_table_says_how_operands_lie(tmp_path: Path) -> None:
    table = tmp_path / "odd.csv"
    table.write_text(
        "gpu,dtype,m,n,k,layout,latency_us\n"
        "h200,bf16,50257,768,8192,tn,1\nh200,bf16,50257,768,8192,nt,1\n"
        "h200,bf16,64,768,50257,nn,1\nh200,bf16,64,768,50257,xx,1\n"
    )
    batches, refused = batch_kernels(read_table(table))
    roads = {(b.form.road, row["layout"]) for b in batches for row in b.rows}
    assert roads == {("odd", "tn"), ("", "nt"), ("odd", "nn")}
    assert [r.line for r in refused] == [5]
    assert "unknown layout of a product" in refused[0].reason


def test_explain_says_what_an_odd_side_costs(capsys: pytest.CaptureFixture[str]) -> None:
    def seconds(sides: str) -> float:
        assert main(["explain", "matmul", sides, "--on", "H200", "--json"]) == 0
        return float(json.loads(capsys.readouterr().out)["seconds"]["value"])

    assert seconds("8192x50257x1024") > 4.0 * seconds("8192x50304x1024")
    assert main(["explain", "matmul", "8192x50257x1024", "--on", "H200"]) == 0
    assert "50257 is odd: padded to 50304" in " ".join(capsys.readouterr().out.split())
