"""Sizes of many plans that are computed once for every distinct combination of what they read."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from trueflops.catalog import cluster
from trueflops.model import read_model
from trueflops.plan import Plan, possible
from trueflops.predict import Trainer
from trueflops.predict.training.trainer import tabled
from trueflops.profile import profile_of
from trueflops.runtime import Term
from trueflops.sizes import Array, Rows, Size, counted, distinct
from trueflops.tables import (
    Batch,
    Tabled,
    by_row,
    by_value,
    column,
    on_rows,
    rows_of,
    summed,
    where_largest,
)
from trueflops.workload import Training

RANDOM = np.random.default_rng(7)
MANY = 4096
COLUMNS: dict[str, Array] = {
    "a": RANDOM.integers(1, 4, MANY).astype(np.float64),
    "b": np.where(RANDOM.random(MANY) < 0.5, np.inf, 3.0),
    "c": RANDOM.choice([0.25, 0.5, 7.0], MANY),
    "d": RANDOM.random(MANY),
    "e": np.full(MANY, 5.0),
}


@pytest.fixture
def sizes() -> dict[str, Size]:
    batch = Batch.of(COLUMNS, MANY)
    return {name: column(batch, name) for name in COLUMNS}


FORMULAS: list[Callable[..., Any]] = [
    lambda a, b, c, d, e: a + c,
    lambda a, b, c, d, e: (a - 2.0 * c) / e,
    lambda a, b, c, d, e: np.minimum(a * c, b) * d,
    lambda a, b, c, d, e: np.square(np.where((a > 1.0) & (b < 9.0), c, a)),
    lambda a, b, c, d, e: 1.0 - 7.0 // a,
    lambda a, b, c, d, e: np.max(np.array([[1.0], [2.0]]) * a / c, axis=0),
    lambda a, b, c, d, e: np.clip(a, 2.0, c),
    lambda a, b, c, d, e: (np.array([[3.0], [0.0]]) + a)[1] + -c,
    lambda a, b, c, d, e: np.sqrt(a) + np.where(b == 3.0, 0.0, e),
]


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_tabled_size_is_the_array_that_it_stands_for(
    sizes: dict[str, Size], formula: Callable[..., Any]
) -> None:
    np.testing.assert_array_equal(np.asarray(formula(**sizes)), formula(**COLUMNS))


def test_equal_plans_are_computed_once(sizes: dict[str, Size]) -> None:
    a, c = sizes["a"], sizes["c"]
    found = a * c
    assert isinstance(found, Tabled)
    assert found.values.shape == (9,)  # three values of either
    assert sizes["e"] == 5.0  # where all agree it is a number
    assert isinstance(a * sizes["d"], np.ndarray)  # where none do it is an array


def test_a_column_of_its_own_hides_what_it_came_from(sizes: dict[str, Size]) -> None:
    parity = by_value(np.where(sizes["a"] * sizes["c"] > 2.0, 1.0, 0.0), "parity")
    assert isinstance(parity, Tabled)
    assert parity.values.size == 2
    plain = np.where(COLUMNS["a"] * COLUMNS["c"] > 2.0, 1.0, 0.0)
    np.testing.assert_array_equal(np.asarray(parity + sizes["b"]), plain + COLUMNS["b"])


def test_sums_and_laws_and_the_largest_stage(sizes: dict[str, Size]) -> None:
    names = ("a", "c", "d", "e", "a")
    whole = sum((COLUMNS[name] for name in names), 0.0)
    np.testing.assert_allclose(np.asarray(summed(sizes[n] for n in names)), whole, rtol=1e-15)
    seen: list[int] = []

    def law(a: Array, c: Array) -> tuple[Array, Array]:
        seen.append(np.broadcast(a, c).size)
        return a + c, a - c

    one, other = on_rows(law, sizes["a"], sizes["c"])
    assert seen == [9]
    np.testing.assert_array_equal(np.asarray(one + other), 2.0 * COLUMNS["a"])
    keys, spread = by_row([sizes["a"], sizes["e"], sizes["c"]])
    assert keys.shape == (9, 3)
    np.testing.assert_array_equal(np.asarray(spread(keys[:, 2])), COLUMNS["c"])
    rows = np.array([[0.0], [1.0], [0.5]]) * sizes["a"] - np.array([[0.0], [2.0], [0.0]])
    at = np.argmax(np.asarray(rows), axis=0)
    chosen = where_largest(rows, "largest")(np.array([[3.0], [4.0], [5.0]]) + sizes["c"])
    np.testing.assert_array_equal(np.asarray(chosen), at + 3.0 + COLUMNS["c"])


def test_the_largest_stage_of_a_size_that_differs_from_plan_to_plan(
    sizes: dict[str, Size],
) -> None:
    rows = np.array([[0.0], [1.0], [0.5]]) * sizes["a"] - np.array([[0.0], [2.0], [0.0]])
    at = np.argmax(np.asarray(rows), axis=0)
    chosen = where_largest(rows, "largest")
    found = chosen(np.array([[1.0], [2.0], [4.0]]) * sizes["d"])
    np.testing.assert_array_equal(found, 2.0**at * COLUMNS["d"])
    np.testing.assert_array_equal(np.asarray(chosen(rows)), np.asarray(rows).max(axis=0))


def test_parts_of_a_batch_have_their_own_rows() -> None:
    batch = Batch.of(COLUMNS, MANY)
    batch.share(("a", "b", "c"))
    seen = []
    for rows in batch.parts(("a",), 1000):
        part = batch.part(rows)
        a, c = column(part, "a"), column(part, "c")
        np.testing.assert_array_equal(
            np.broadcast_to(np.asarray(a * c), rows.shape), (COLUMNS["a"] * COLUMNS["c"])[rows]
        )
        seen.append(np.unique(COLUMNS["a"][rows]).size)
        assert not isinstance(a, Tabled) or a.values.size == seen[-1]
    assert sum(seen) <= 3 + 4  # plans that agree come one after another
    keys, which = distinct([COLUMNS["a"], COLUMNS["e"]])
    np.testing.assert_array_equal(keys[which, 0], COLUMNS["a"])


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many codes were counted, table by table."""
    found: list[int] = []

    def counting(code: Rows, radix: int) -> tuple[Rows, Rows]:
        found.append(code.size)
        return counted(code, radix)

    monkeypatch.setattr("trueflops.tables.batch.counted", counting)
    return found


def test_a_table_of_fewer_columns_is_counted_on_the_rows_of_a_shared_one(seen: list[int]) -> None:
    batch = Batch.of(COLUMNS, MANY)
    batch.share(("a", "b", "c"))  # 3 × 2 × 3 rows
    seen.clear()
    keys, which = rows_of([column(batch, "a"), column(batch, "c")])
    assert seen == [18]
    np.testing.assert_array_equal(keys[which], np.stack([COLUMNS["a"], COLUMNS["c"]], axis=1))


def test_nothing_is_counted_for_what_differs_from_plan_to_plan(
    sizes: dict[str, Size], seen: list[int]
) -> None:
    seen.clear()
    apart = summed(sizes[name] for name in ("a", "c", "d"))
    assert not seen
    np.testing.assert_allclose(apart, sum(COLUMNS[name] for name in ("a", "c", "d")), rtol=1e-15)
    batch = Batch.of({name: COLUMNS[name] for name in ("a", "b", "c")}, MANY)
    seen.clear()
    a, b, c = (column(batch, name) for name in ("a", "b", "c"))
    np.testing.assert_array_equal(
        np.maximum(a, np.minimum(b, c)),
        np.maximum(COLUMNS["a"], np.minimum(COLUMNS["b"], COLUMNS["c"])),
    )
    assert seen == [MANY]  # of two columns; all three tell plans apart


def _plans(trainer: Trainer, **fixed: Any) -> Plan:
    axes = {
        "tp": [1.0, 2.0, 4.0, 8.0],
        "pp": [1.0, 2.0, 4.0],
        "vpp": [1.0, 2.0],
        "ep": [1.0, 4.0],
        "dp_replicate": [1.0, 2.0],
        "zero": [0.0, 1.0, 2.0, 3.0],
        "micro_batch": [1.0, 2.0],
        "recompute_layers": [1.0, 2.0, 3.0, 5.0, 8.0, np.inf],
    }
    rows = np.array(list(product(*axes.values())))
    columns: dict[str, Any] = {name: rows[:, i] for i, name in enumerate(axes)}
    columns["dp_shard"] = 64.0 / (columns["tp"] * columns["pp"] * columns["dp_replicate"])
    plan = Plan(**columns, sp=True, recompute="full").but(**fixed)
    fine = possible(plan, trainer.model, 64, trainer.workload)
    return plan.take(np.flatnonzero(fine))


@pytest.mark.parametrize("framework", ["plain", "megatron", "deepspeed", "fsdp", "transformers"])
@pytest.mark.parametrize(
    "fixed", [{}, {"schedule": "zb-h1", "vpp": 1.0}, {"offload_optimizer": 1.0}]
)
def test_many_plans_are_predicted_as_one_by_one(framework: str, fixed: dict[str, Any]) -> None:
    where, asked = cluster("64xH100"), Training(4096, 512, 1e12)
    profile = profile_of(where.accelerator, framework)
    trainer = Trainer(read_model("Mixtral-8x7B"), asked, where, profile)
    plans = _plans(trainer, **fixed)
    assert isinstance(tabled(plans).tp, Tabled)
    together = trainer.predict(plans)
    for index in RANDOM.choice(plans.count, 12, replace=False):
        alone = trainer.predict_one(plans.pick(int(index)))
        _equal(together.step.pick(int(index)), alone.step)
        _equal(together.memory.pick(int(index)), alone.memory)
        assert together.pick(int(index)).host_bytes == pytest.approx(alone.host_bytes, rel=1e-12)
    found = np.zeros(plans.count)
    for rows, step in trainer.predict_in_parts(plans):
        found[rows] = np.asarray(step.step.value)
    np.testing.assert_allclose(found, np.asarray(together.step.value), rtol=1e-12)


def _equal(many: Term, alone: Term) -> None:
    assert many.name == alone.name
    assert many.value == pytest.approx(alone.value, rel=1e-12, abs=1e-12)
    for one, other in zip(many.parts, alone.parts, strict=True):
        _equal(one, other)
