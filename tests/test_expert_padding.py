"""Sides of MXFP4 experts, rounded up to what an engine's kernels take."""

from __future__ import annotations

import pytest

import trueflops as tf
from trueflops.graph.formats import format_named
from trueflops.predict.serving.padding import padding_bytes, sides_of
from trueflops.profile.engines import engine_of, release_on


@pytest.mark.parametrize(
    ("chip", "release", "sides"),
    [
        ("A100-80GB", "", (256, 128)),  # Marlin's
        ("RTX 5090", "", (256, 128)),
        ("H100", "0.11.0", (256, 128)),
        ("H100", "0.12.0", (1, 64)),  # Triton's
        ("B200", "", (256, 256)),  # FlashInfer's
        ("MI300X", "", (1, 1)),
    ],
)
def test_vllms_kernels_differ_by_chip_and_release(
    chip: str, release: str, sides: tuple[int, int]
) -> None:
    assert sides_of(engine_of("vllm", release), tf.accelerator(chip)) == sides


def test_of_other_engines_nothing_is_known() -> None:
    assert sides_of(engine_of("sglang"), tf.accelerator("A100-80GB")) == (1, 1)


def test_marlin_pads_gpt_oss_by_a_tenth() -> None:
    """36 layers of 128 experts, three matrices of 2,880², which become 3,072 × 2,944."""
    model, chip = tf.read_model("GPT-OSS-120B"), tf.accelerator("H100")
    engine = engine_of("vllm", release_on("vllm", "2025-10-31"))
    added = padding_bytes(model, tf.Plan(), format_named("mxfp4-experts"), engine, chip)
    numbers = 36 * 128 * 3 * (3072 * 2944 - 2880 * 2880)
    assert added == numbers * 4.25 / 8
    assert padding_bytes(model, tf.Plan(), format_named("bf16"), engine, chip) == 0.0


def test_every_rank_pads_its_own_part() -> None:
    """Half of 2,880 becomes 1,536, so that two ranks hold more than one."""
    model, chip = tf.read_model("GPT-OSS-120B"), tf.accelerator("A100-80GB")
    engine, weights = engine_of("vllm"), format_named("mxfp4-experts")
    half = padding_bytes(model, tf.Plan(tp=2, etp=2), weights, engine, chip)
    assert half == 36 * 128 * 3 * (3072 * 1536 - 2880 * 1440) * 4.25 / 8
