"""What engines launch for a layer: by release, by chip, side by side."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import trueflops as tf
from trueflops.clock.experts import laid_out_rows
from trueflops.graph import Op, Program
from trueflops.graph.shapes import ExpertShape
from trueflops.plan import serving_plan
from trueflops.predict import Server
from trueflops.profile.engines import engine_on
from trueflops.workload import Serving

MOE, LATENT = "Qwen3-235B-A22B", "DeepSeek-V3"


def server(
    model: str, chips: str, release: str = "", requests: int = 4, **set_to: object
) -> Server:
    where = tf.cluster(chips)
    chip = where.accelerator
    return Server(
        tf.read_model(model),
        Serving(1024, 256, requests),
        where,
        tf.profile_of(chip, "vllm"),
        weights="fp8_block",
        engine=engine_on("vllm", chip, release).but(**set_to),
    )


def decode_seconds(of: Server, **degrees: int) -> float:
    return float(of.decode(serving_plan(of.model, of.dtype, **degrees)).value)


def ops(program: Program) -> list[Op]:
    return [node for node in program.blocks[-1].forward if isinstance(node, Op)]


def test_rows_are_laid_out_for_the_worst_split_of_the_copies() -> None:
    shape = ExpertShape(4.0, 8.0, 32.0, 28.0, 128.0, 1.0, 4096.0, 768.0, 2.0)
    assert laid_out_rows(shape, 128.0) == 16384.0  # 32 + 128 · 127 = 16,288, in whole blocks
    assert laid_out_rows(replace_rows(shape, 4096.0), 128.0) == 20352.0
    assert laid_out_rows(shape, 1.0) == 32.0


def replace_rows(shape: ExpertShape, rows: float) -> ExpertShape:
    return shape._replace(rows=rows)


def test_releases_of_vllm_that_multiply_empty_blocks_hardly_see_the_batch() -> None:
    few, many = (
        [decode_seconds(server(MOE, "2xH200", release, n), tp=2, etp=2) for n in (4, 16)]
        for release in ("0.12.0", "0.18.0")
    )
    assert few[1] < 1.2 * few[0]
    assert many[1] > 1.4 * many[0]
    assert few[0] > 2.0 * many[0]


@pytest.mark.parametrize(
    ("chips", "release", "degrees"),
    [
        ("2xH200", "0.11.0", {"tp": 2, "etp": 2}),  # before the scales' format counted on Hopper
        ("2xH200", "0.15.0", {"tp": 2, "etp": 2}),  # FlashInfer's kernels come first
        ("8xH200", "0.12.0", {"tp": 8, "etp": 8}),  # eight ranks share an expert
        ("8xL40S", "0.12.0", {"tp": 4, "etp": 4}),  # DeepGEMM has no kernels for Ada
    ],
)
def test_others_do_not(chips: str, release: str, degrees: dict[str, int]) -> None:
    as_released = server(MOE, chips, release)
    never = server(MOE, chips, release, expert_block=0)
    assert decode_seconds(as_released, **degrees) == decode_seconds(never, **degrees)


def test_many_passes_priced_together_have_the_same_blocks() -> None:
    of = server(MOE, "8xH200", "0.12.0")
    plans = [serving_plan(of.model, of.dtype, tp=n, etp=n) for n in (4, 8)]
    alone = [of.passes.costs(plan, 4.0, 1.0, 1000.0) for plan in plans]
    of.passes.forget()
    of.passes.prepare([(plan, 4.0, 1.0, 1000.0) for plan in plans])
    together = [of.passes.costs(plan, 4.0, 1.0, 1000.0) for plan in plans]
    for one, other in zip(alone, together, strict=True):
        for (mine, times), (its, _) in zip(
            one.pieces(of.model), other.pieces(of.model), strict=True
        ):
            for cause, seconds in mine.seconds.items():
                assert np.isclose(times * seconds, times * its.seconds[cause])


def test_shared_experts_run_beside_the_routed_ones_in_decode_steps_alone() -> None:
    beside, after = (server(LATENT, "8xH200", shared_beside=flag) for flag in (True, False))
    plan = serving_plan(beside.model, beside.dtype, tp=8, etp=8)
    assert float(beside.decode(plan).value) < float(after.decode(plan).value)
    assert float(beside.prefill(plan).value) == float(after.prefill(plan).value)
    # What they read still passes through the memory: no faster than without them at all.
    model = beside.model
    blocks = tuple(
        replace(b, experts=replace(b.experts, shared_width=0)) if b.experts else b
        for b in model.blocks
    )
    without = Server(
        replace(model, name="none shared", blocks=blocks),
        beside.workload, beside.cluster, beside.profile,
        weights="fp8_block", engine=beside.engine,
    )  # fmt: skip
    assert float(without.decode(plan).value) < float(beside.decode(plan).value)


def test_releases_of_vllm_before_its_second_stream_wait_for_shared_experts() -> None:
    chip = tf.accelerator("H200")
    assert engine_on("vllm", chip).shared_beside
    assert not engine_on("vllm", chip, "0.11.0").shared_beside
    assert not engine_on("llama.cpp", chip).shared_beside


def test_both_ways_down_to_latents_are_one_product_of_a_server() -> None:
    of = server(LATENT, "8xH200")
    plan = serving_plan(of.model, of.dtype, tp=8, etp=8)
    for program in (of.decode_program(plan, 4), of.prefill_program(plan)):
        down = [
            op
            for op in ops(program)
            if op.name.startswith(("attention.q_down", "attention.kv_down"))
        ]
        products = [op for op in down if op.kind == "matmul"]
        assert [tuple(w.name for w in op.weights) for op in products] == [
            ("attention.q_down", "attention.kv_down")
        ]


@pytest.mark.parametrize(("release", "waits"), [("0.13.0", True), ("0.14.0", False), ("", False)])
def test_releases_of_vllm_that_schedule_no_step_ahead_work_between_two(
    release: str, waits: bool
) -> None:
    """What is done for each of 200 requests while the chip waits, unless a step ran meanwhile."""
    many = server("Llama-3.1-8B", "1xH100", release, 200)
    beside = server("Llama-3.1-8B", "1xH100", release, 200, ahead=1)
    more = decode_seconds(many) - decode_seconds(beside)
    own = many.profile.curve("framework")["serial_token"]
    assert own > 0.0
    assert more == pytest.approx(200 * own * waits, abs=1e-9)
