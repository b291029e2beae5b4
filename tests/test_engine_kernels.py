"""What engines launch for a layer: by release, by chip, side by side."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import trueflops as tf
from trueflops.clock.experts import laid_out_rows
from trueflops.graph import Op, Program
from trueflops.graph.kinds import CollectiveKind
from trueflops.graph.shapes import ExpertShape
from trueflops.plan import serving_plan
from trueflops.predict import Server
from trueflops.profile import Engine
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
    own = engine_on("vllm", many.cluster.accelerator, release).serial_token
    assert own > 0.0
    assert more == pytest.approx(200 * own * waits, abs=1e-9)


def prompt_seconds(chips: str, tokens: int, release: str = "", engine: str = "sglang") -> float:
    """Of one prompt of DeepSeek-V3 on eight chips, as the engine of a release issues it."""
    where = tf.cluster(chips)
    chip = where.accelerator
    own = engine_on(engine, chip, release)
    of = Server(
        tf.read_model(LATENT), Serving(tokens, 1, 1), where, tf.profile_of(chip, engine),
        weights="fp8_block", engine=own,
    )  # fmt: skip
    return float(of.prefill(serving_plan(of.model, of.dtype, tp=8, etp=8)).value)


def test_a_short_prompt_waits_for_python_where_nothing_is_captured() -> None:
    """SGLang's pull request 12160: one token of DeepSeek-V3 takes 82.6 ms, 23.1 as one graph."""
    eager, pieces = (prompt_seconds("8xH20", 16, release) for release in ("0.5.4", "0.5.10"))
    assert eager == pytest.approx(82.6e-3, rel=0.1)
    assert pieces < 0.5 * eager


def test_a_long_prompt_waits_for_the_chip() -> None:
    eager, pieces = (prompt_seconds("8xH200", 8192, release) for release in ("0.5.4", "0.5.10"))
    assert eager == pytest.approx(pieces, rel=0.01)


def test_pieces_are_captured_up_to_so_many_tokens() -> None:
    on_amd, hopper = (engine_on("sglang", tf.accelerator(chip)) for chip in ("MI300X", "H200"))
    assert (on_amd.prompt_graph, on_amd.prompt_graph_latent) == (0, 0)
    assert (hopper.prompt_graph, hopper.prompt_graph_latent) == (8192, 2048)
    assert engine_on("vllm", tf.accelerator("H200"), "0.7.3").prompt_graph == 0
    few, many = (prompt_seconds("8xH200", tokens, engine="vllm") for tokens in (512, 528))
    assert many > 1.1 * few


def test_older_releases_of_vllm_do_more_between_two_steps() -> None:
    """From one process that serves and schedules to steps that are scheduled ahead."""
    releases = ("0.5.3", "0.5.4", "0.5.5", "0.6.1", "0.7.3", "0.13.0", "0.14.0")
    servers = [server("Llama-3.1-8B", "1xH100", release, 200) for release in releases]
    seconds = [decode_seconds(of) for of in servers]
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[0] - seconds[-1] == pytest.approx(200 * 301e-6, rel=0.02)


def test_how_long_another_processor_takes_widens_a_step_where_the_host_does_much() -> None:
    """In 0.6.1 the same code took 49 us a token on one host and 180 on another."""

    def width(release: str, **set_to: object) -> float:
        of = server("Llama-3.1-8B", "1xH100", release, 200, **set_to)
        step = of.decode(serving_plan(of.model, of.dtype)).estimate
        return float(step.high / step.low)

    assert width("0.6.1") > 1.3 * width("0.6.2")
    assert width("0.6.1", ahead=1) == pytest.approx(width("0.6.2", ahead=1))


def test_chips_whose_kernels_an_engine_is_still_given_may_be_slower_than_told() -> None:
    """To one side, and no prediction moves: truth/unseen/serving_latency.csv."""

    def reach(chips: str) -> float:
        where = tf.cluster(chips)
        profile = tf.profile_of(where.accelerator, "sglang")
        of = Server(tf.read_model("Qwen3-8B"), Serving(1024, 256, 4), where, profile)
        step = of.decode(serving_plan(of.model, of.dtype)).estimate
        return float(np.log(step.high / step.value) / np.log(step.value / step.low))

    assert reach("1xH200") == pytest.approx(1.0)
    assert reach("1xB200") > 1.5
    assert reach("1xMI300X") > 2.0


def test_a_build_without_a_tag_is_taken_as_the_newest() -> None:
    chip = tf.accelerator("H200")
    for name in ("vllm", "sglang"):
        assert engine_on(name, chip, "0.0.0.dev1+g1a2b3c4") == engine_on(name, chip)
        assert engine_on(name, chip, "0.4.2") != engine_on(name, chip)


def test_steps_that_nobody_captured_wait_for_their_host() -> None:
    """VLLM's issue 45709: Qwen3-30B-A3B on four cards takes 34 to 35 ms a step."""
    where = tf.cluster("4xL40S")
    model, profile = tf.read_model("Qwen3-30B-A3B"), tf.profile_of(where.accelerator, "vllm")
    engine = engine_on("vllm", where.accelerator)

    def seconds(own: Engine) -> float:
        of = Server(model, Serving(3500, 1500, 8), where, profile, engine=own)
        return float(of.decode(serving_plan(model, of.dtype, tp=4, etp=4)).value)

    assert seconds(engine.uncaptured()) == pytest.approx(34.8e-3, rel=0.05)
    assert seconds(engine) < 0.5 * seconds(engine.uncaptured())
    assert engine.uncaptured().graph_bytes == 0.0 < engine.graph_bytes


def test_an_all_reduce_that_leaves_the_node_is_the_vendors() -> None:
    """An engine's own kernel reads its peers' memory (vLLM's custom_all_reduce.py)."""
    where = tf.cluster("16xH100")
    own, vendors = (
        tf.Clock(where, tf.profile_of(where.accelerator, name)) for name in ("vllm", "plain")
    )

    def seconds(clock: tf.Clock, group: float, stride: float = 1.0) -> float:
        kind = CollectiveKind.ALL_REDUCE
        return float(clock.collective(kind, group, 14336.0, stride).seconds)

    assert seconds(own, 8.0) < 0.5 * seconds(vendors, 8.0)
    assert seconds(own, 16.0) == seconds(vendors, 16.0)
    assert seconds(own, 2.0, stride=8.0) == seconds(vendors, 2.0, stride=8.0)


@pytest.mark.parametrize("name", ["Llama-3.1-8B", "Qwen3-30B-A3B", "Qwen3-Next-80B-A3B"])
@pytest.mark.parametrize("requests", [1, 64, 512])
def test_no_server_is_faster_without_captured_graphs(name: str, requests: int) -> None:
    where = tf.cluster("4xH200")
    model = tf.read_model(name)
    for software in ("vllm", "sglang", "trt-llm"):
        engine = engine_on(software, where.accelerator)
        profile = tf.profile_of(where.accelerator, software)
        asked = Serving(1024, 256, requests)
        captured, eager = (
            Server(model, asked, where, profile, engine=own)
            for own in (engine, engine.uncaptured())
        )
        plan = serving_plan(model, captured.dtype, tp=4, etp=4)
        fast, slow = (of.predict(plan) for of in (captured, eager))
        assert slow.decode.value >= fast.decode.value
        assert slow.tpot.value >= fast.tpot.value * (1 - 1e-9)
        assert slow.tokens_per_second.value <= fast.tokens_per_second.value * (1 + 1e-9)


def test_every_layer_of_a_captured_prompt_has_kernels_that_the_host_issues() -> None:
    """VLLM splits a pass at a recurrent layer's kernels as it does at attention."""
    of = server("Qwen3-Next-80B-A3B", "4xH200")
    costs = of.passes.costs(serving_plan(of.model, of.dtype, tp=4, etp=4), 1.0, 256.0, 0.0)
    assert all(float(block.host["forward"]) > 60e-6 for block in costs.blocks)
