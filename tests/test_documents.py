"""The arithmetic of the five documents, done by the product instead of by hand."""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest

from trueflops.catalog import accelerator, cluster
from trueflops.clock import Clock
from trueflops.graph.kinds import Kind, Role
from trueflops.model import Model, read_model
from trueflops.plan import Plan
from trueflops.predict import Server, Trainer, TrainingStep, training_bill
from trueflops.predict.training.communication import communicate
from trueflops.predict.training.memory import Held
from trueflops.predict.training.schedule import SlowestStage
from trueflops.profile import from_datasheet
from trueflops.workload import Serving, Training

STATES = ("weights", "gradients", "optimizer states")


def train(model: Model, on: str, plan: Plan, seq: int, batch: int, tokens: float) -> TrainingStep:
    where = cluster(on)
    trainer = Trainer(model, Training(seq, batch, tokens), where, from_datasheet(where.accelerator))
    return trainer.predict_one(plan)


def state_bytes(step: TrainingStep) -> float:
    return sum(float(step.memory[name].value) for name in STATES)


class TestStatesOfMixedPrecisionAdam:
    """Document 003: 16a = weights 2a + gradients 2a + Adam (8a + fp32 weights 4a)."""

    model = read_model("Megatron-7.5B")

    def states(self, zero: int) -> float:
        plan = Plan(dp_shard=64, zero=zero)
        return state_bytes(train(self.model, "64xA100", plan, 2048, 64, 1e9))

    def test_sixteen_bytes_a_parameter(self) -> None:
        assert self.states(0) == 16 * self.model.parameter_count

    def test_the_three_stages_of_zero(self) -> None:
        """ZeRO's own example, 7.5 B on 64: 120 GB become 31.4, 16.6 and 1.9 (arXiv 1910.02054)."""
        n = self.model.parameter_count
        assert self.states(1) == pytest.approx(4 * n + 12 * n / 64)
        assert self.states(2) == pytest.approx(2 * n + 14 * n / 64)
        assert self.states(3) == pytest.approx(16 * n / 64)
        for zero, gigabytes in ((0, 120), (1, 31.4), (2, 16.6), (3, 1.9)):
            assert self.states(zero) / 1e9 == pytest.approx(gigabytes, rel=0.01, abs=0.05)


def test_six_n_d() -> None:
    """Document 004: a token costs six operations a parameter, forward and backward."""
    model, seq, batch = read_model("Llama-2-70B"), 4096, 8
    step = train(model, "8xH100", Plan(tp=8, sp=True), seq, batch, 1e9)
    whole = step.work.model_flop * 8
    embedding = model.vocab * model.hidden  # a look-up, not a product
    norms = (2 * model.layers + 1) * model.hidden
    matrices = model.parameter_count - embedding - norms
    attention = 12 * model.layers * model.hidden * seq / 2 * (seq + 1) / seq  # causal: half
    tokens = seq * batch
    assert whole == pytest.approx((6 * matrices + attention) * tokens, rel=1e-9)
    assert whole == pytest.approx(6 * model.parameter_count * tokens, rel=0.1)


def test_llama_2_70b_takes_1_7_million_a100_hours() -> None:
    """Document 004, after Meta's own 1,720,320 for two trillion tokens."""
    plan = Plan(tp=8, sp=True, pp=4, dp_shard=64, zero=1)
    step = train(read_model("Llama-2-70B"), "2048xA100", plan, 4096, 1024, 2e12)
    hours = training_bill(step).accelerator_hours
    assert hours.low < 1.72e6 < hours.high
    assert hours.value == pytest.approx(1.72e6, rel=0.25)
    assert float(hours.value) / (24 * 365) == pytest.approx(200, rel=0.25)  # "one GPU: 200 years"


def test_175b_needs_88_cards_of_64_gb() -> None:
    """Document 002: fp32 weights are 700 GB; training takes eight times that, 5.6 TB: 88 cards.

    States alone are half of it (16 bytes a parameter); the other half is for activations.
    """
    model = read_model("GPT-3-175B")
    where = cluster("1024xA100")
    asked = Training(2048, 1536, 3e11)
    trainer = Trainer(model, asked, where, from_datasheet(where.accelerator))
    stages = trainer.memory_by_stage(Plan(tp=8, sp=True, pp=8, dp_replicate=16))
    states = 8 * sum(float(s[name].value) for s in stages for name in STATES)
    assert states == pytest.approx(16 * model.parameter_count, rel=0.01)
    assert ceil(2 * 16 * 175e9 / 64e9) == 88
    assert ceil(states / 64e9) == 44
    assert 4 * model.parameter_count / 1e9 == pytest.approx(700, rel=0.01)


class TestDataParallelAgainstRing:
    """Document 003: DataParallel's cost grows with the GPUs, ring all-reduce's does not."""

    def seconds(self, engine: str, replicas: int) -> float:
        where = cluster("72xGB200")  # one NVLink domain: only the count changes
        clock = Clock(where, from_datasheet(where.accelerator))
        plan = Plan(dp_replicate=replicas, engine=engine, overlap=False)  # type: ignore[arg-type]
        held = Held(dense=1e9, experts=0.0, largest=1e8)
        slow = SlowestStage(seconds={"forward": 1.0, "backward": 1.0}, layers=4.0)
        return float(communicate(clock, plan, held, 0.0, 1.0, slow).replicas.whole.seconds)

    def test_ring_is_nearly_constant(self) -> None:
        assert self.seconds("ddp", 64) / self.seconds("ddp", 8) < 1.25
        limit = 2 * self.seconds("ddp", 2)  # 2(n−1)/n grows from 1 to 2 and no further
        assert all(self.seconds("ddp", n) < 1.15 * limit for n in (2, 4, 8, 16, 32, 64))

    def test_data_parallel_is_linear(self) -> None:
        one = self.seconds("dataparallel", 2)
        for n in (4, 8, 16, 64):
            assert self.seconds("dataparallel", n) == pytest.approx((n - 1) * one)

    def test_a_parameter_server_is_linear_too(self) -> None:
        two = self.seconds("parameter-server", 2)
        assert self.seconds("parameter-server", 8) == pytest.approx(4 * two)


def test_h100_against_4090_corrected() -> None:
    """Document 004 compares 989 with 330: the 330 needs fp16 accumulation; it is six times."""
    h100, rtx = accelerator("H100"), accelerator("RTX 4090")
    assert h100.peak_flop_per_second("fp16") / rtx.peak_flop_per_second("fp16") == pytest.approx(
        6.0, rel=0.01
    )
    assert rtx.get("accumulate.fp16") == pytest.approx(330.3e12)
    assert h100.peak_flop_per_second("tf32") / rtx.peak_flop_per_second("tf32") == pytest.approx(
        6.0, rel=0.01
    )
    assert h100.need("memory.bandwidth") / rtx.need("memory.bandwidth") == pytest.approx(
        3.32, rel=0.01
    )


def test_eight_4090_hold_a_70b_in_fp16() -> None:
    """Document 000: an 8 × 4090 machine suffices for unquantised 70B inference; four do not."""

    def fits(on: str, tp: int) -> bool:
        where = cluster(on)
        server = Server(
            read_model("Llama-2-70B"),
            Serving(512, 128, 4),
            where,
            from_datasheet(where.accelerator),
            weights="fp16",
        )
        return server.predict(Plan(tp=tp)).fits

    assert fits("8xRTX4090", 8)
    assert not fits("4xRTX4090", 4)


def test_training_needs_three_to_four_times_the_matmuls_of_a_forward() -> None:
    """Document 001: twice for the gradients, once more with recomputation."""
    model = read_model("Llama-3.1-8B")
    plan = Plan(dp_shard=8, zero=3)
    plain = train(model, "8xH100", plan, 4096, 64, 1e9)
    again = train(model, "8xH100", plan.but(recompute="full"), 4096, 64, 1e9)
    forward = plain.work.model_flop / 3
    assert plain.work.hardware_flop / forward == pytest.approx(3.0, rel=0.03)
    assert again.work.hardware_flop / forward == pytest.approx(4.0, rel=0.05)
    assert again.work.model_flop == plain.work.model_flop


def test_pipeline_bubble_shrinks_with_more_micro_batches() -> None:
    """Documents 002 and 004: cut the batch into pieces so that stages do not wait."""
    model = read_model("Megatron-18.4B")  # 40 equal layers and a small vocabulary
    shares = []
    for batch in (8, 16, 64):
        step = train(model, "8xA100", Plan(pp=8), 2048, batch, 1e9)
        shares.append(float(step.step["pipeline bubble"].value) / float(step.step.value))
    assert shares[0] > shares[1] > shares[2]
    # (p−1)/(m+p−1) of an even pipeline; the head makes the last stage a little slower.
    assert shares[2] == pytest.approx(7 / 71, rel=0.2)


def test_the_ridge_rises_with_the_matrix() -> None:
    """Document 002: larger products reach the compute limit; 8×8 ones wait for memory."""
    where = cluster("A100")
    clock = Clock(where, from_datasheet(where.accelerator))
    from trueflops.graph.ir import Op, Tensor
    from trueflops.predict.kernels import price_kernels

    n = np.array([8.0, 64.0, 512.0, 4096.0, 16384.0])
    x = Tensor("x", (("rows", n), ("inner", n)))
    w = Tensor("w", (("columns", n), ("inner", n)), role=Role.WEIGHT)
    y = Tensor("y", (("rows", n), ("columns", n)))
    priced = price_kernels(clock, (Op("mm", Kind.MATMUL, (x,), (y,), weights=(w,)),), None, 5)
    rates = priced.flop / np.asarray(priced.seconds.value)
    assert (np.diff(rates) > 0).all()
    assert priced.bound[0] == "start"
    assert priced.bound[-1] == "compute"
