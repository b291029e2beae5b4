"""Curves: one law for one kind of work, fits that may be used, and what chips of one die share."""

from __future__ import annotations

import numpy as np
import pytest

from trueflops.catalog import cluster
from trueflops.clock import Clock
from trueflops.graph import Op, Tensor
from trueflops.graph.rules import work
from trueflops.model import read_model
from trueflops.plan import Plan
from trueflops.predict.memory import Held
from trueflops.predict.muon import Matrix, matrices_of, newton_schulz_seconds, products
from trueflops.profile import profile_of


def clock_on(name: str) -> Clock:
    where = cluster(name)
    return Clock(where, profile_of(where.accelerator))


def test_work_outside_a_graph_is_priced_by_the_law_of_streams() -> None:
    clock, million = clock_on("1xH200"), (("parameters", 1e6),)
    inputs, outputs = (
        tuple(Tensor(f"{way}{i}", million, 32.0) for i in range(count))
        for way, count in (("in", 4), ("out", 3))
    )
    adamw = Op("adamw", "optimizer", inputs, outputs)
    by_law = clock.op_seconds([adamw], [work(adamw)])[0]
    assert clock.stream(28e6, "optimizer") == pytest.approx(by_law)
    several = clock.stream(np.array([28e6, 56e6]), "optimizer", kernels=2.0)
    assert several == pytest.approx(2.0 * clock.stream(np.array([14e6, 28e6]), "optimizer"))


def test_muon_is_products_that_the_clock_prices() -> None:
    square, wide = Matrix(4096.0, 4096.0), Matrix(1024.0, 4096.0)
    assert sum(work(op).flop for op in products(square)) == pytest.approx(6.0 * 4096.0**3)
    flop = [work(op).flop for op in products(wide)]
    assert flop == pytest.approx([2.0 * 1024**2 * 4096, 2.0 * 1024**3, 2.0 * 1024**2 * 4096])

    model, clock = read_model("Llama-2-7B"), clock_on("8xH100")
    held = Held(np.array([6.7e9, 3.4e9]), 0.0, 0.0)
    plan = Plan(dp_replicate=np.array([1.0, 2.0]), optimizer="muon", zero=0)
    many = np.asarray(newton_schulz_seconds(model, plan, held, clock))
    assert many[0] == pytest.approx(2.0 * many[1], rel=0.02)
    # Whole matrices at what such products reach: slower than the peak, and not by much.
    ideal = 30.0 * model.hidden * 6.7e9 / clock.chip.peak_flop_per_second("bf16")
    assert 1.0 < many[0] / ideal < 1.6


def test_muon_orthogonalises_matrices_alone() -> None:
    model = read_model("DeepSeek-V3")
    parts = {p.name: p for b in model.blocks for p in b.parameters(model.hidden)}
    assert matrices_of(parts["attention.out"]) == {Matrix(7168.0, 128.0 * 128.0): 1}
    assert matrices_of(parts["attention.kv_up"]) == {Matrix(512.0, 128.0 * 256.0): 1}
    assert matrices_of(parts["experts.up"]) == {Matrix(2048.0, 7168.0): 256}
    assert not matrices_of(parts["attention.norm"])
    assert not matrices_of(parts["attention.kv_norm"])
