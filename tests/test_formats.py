"""Number formats against ml_dtypes and numpy, and the classic loss."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueflops.catalog.formats import formats, number_format
from trueflops.dtypes import BY_CPP, BY_SCALAR, DTYPES
from trueflops.interop import kernel_ops

JUDGES: dict[str, Any] = {
    "fp64": np.float64,
    "fp32": np.float32,
    "fp16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "fp8_e4m3": ml_dtypes.float8_e4m3fn,
    "fp8_e5m2": ml_dtypes.float8_e5m2,
    "fp6_e2m3": ml_dtypes.float6_e2m3fn,
    "fp6_e3m2": ml_dtypes.float6_e3m2fn,
    "fp4_e2m1": ml_dtypes.float4_e2m1fn,
}


@pytest.mark.parametrize("name", JUDGES)
def test_range_and_epsilon_agree_with_ml_dtypes(name: str) -> None:
    ours, theirs = number_format(name), ml_dtypes.finfo(JUDGES[name])
    assert ours.bits == theirs.bits
    assert ours.mantissa == theirs.nmant
    assert ours.exponent == theirs.nexp
    assert ours.maximum == float(theirs.max)
    assert ours.smallest_normal == float(theirs.smallest_normal)
    assert ours.smallest == float(theirs.smallest_subnormal)
    assert ours.epsilon == float(theirs.eps)


@pytest.mark.parametrize("name", ["int8", "int4"])
def test_integers_agree_with_ml_dtypes(name: str) -> None:
    theirs = ml_dtypes.iinfo(getattr(ml_dtypes, name) if name == "int4" else np.int8)
    assert number_format(name).maximum == theirs.max
    assert number_format(name).round(-1000.0) == theirs.min


def test_tf32_has_the_range_of_fp32_and_the_precision_of_fp16() -> None:
    tf32 = number_format("tf32")
    assert tf32.smallest_normal == number_format("fp32").smallest_normal
    assert tf32.epsilon == number_format("fp16").epsilon
    assert tf32.bytes == 4


@given(st.sampled_from(["fp16", "bf16", "fp8_e4m3", "fp8_e5m2"]), st.floats(-440, 440))
def test_rounding_agrees_with_ml_dtypes(name: str, value: float) -> None:
    assert number_format(name).round(value) == float(np.array(value).astype(JUDGES[name]))


def test_the_classic_loss_a_small_update_vanishes_in_fp16() -> None:
    weight, update = 2.0**-3, 2.0**-14
    assert number_format("fp16").round(weight + update) == weight
    assert number_format("bf16").round(weight + update) == weight
    assert number_format("fp32").round(weight + update) == weight + update
    assert float(np.float16(weight) + np.float16(update)) == weight


def test_every_format_names_its_source() -> None:
    assert all(f.source and f.about for f in formats().values())


def test_one_table_of_dtypes() -> None:
    """No name stands for two types, and the catalog's formats take what the table says."""
    for names in (
        [d.torch for d in DTYPES if d.torch],
        [d.scalar for d in DTYPES if d.scalar],
        [name for d in DTYPES for name in d.cpp],
        [d.format or d.name for d in DTYPES],
        [alias for d in DTYPES for alias in d.aliases],
    ):
        assert len(set(names)) == len(names)
    assert all(d.torch for d in (*BY_CPP.values(), *BY_SCALAR.values()))
    known = {d.format or d.name: d for d in DTYPES}
    assert set(formats()) - set(known) == {"fp6_e3m2"}  # computes as the other fp6 does
    for name, found in formats().items():
        if name in known:
            assert found.bytes * 8 == known[name].bits, name
            for spelling in known[name].spellings:
                assert number_format(spelling).bits == found.bits


def test_tables_of_kernels_know_every_spelling() -> None:
    assert kernel_ops.DTYPES["bfloat16"] == kernel_ops.DTYPES["bf16"] == "bf16"
    assert kernel_ops.DTYPES["half"] == "fp16"
    assert kernel_ops.DTYPES["int4_wo"] == kernel_ops.DTYPES["int4"] == "int4"
    for ours in kernel_ops.DTYPES.values():
        assert kernel_ops.format_of(ours).name == ours
