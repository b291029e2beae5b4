"""Collectives measured by real gloo ranks, and the law fitted to what they took."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import gloo_ranks
from trueflops.calibrate.collectives import fitted_collectives, plain_tiers
from trueflops.calibrate.datasets import Dataset
from trueflops.catalog import PROTOCOLS
from trueflops.errors import BadInput
from trueflops.interop.kernels import batch_kernels
from trueflops.measure.collectives import BUS, join_world
from trueflops.measure.device import Device
from trueflops.profile import HeldOut
from trueflops.records.measured import Record, Row, decode
from trueflops.records.tables import Table

ALL = 10_000.0  # a budget for every row, by the clock of gloo_ranks


@dataclass(frozen=True)
class Ran:
    record: Record
    said: list[str]

    @property
    def rows(self) -> list[Row]:
        return self.record.tables["collective"]


def run(folder: Path, ranks: int, budget: float = ALL, state: gloo_ranks.State = "whole") -> Ran:
    path = folder / f"{ranks} {state}.json"
    gloo_ranks.said_of(path).unlink(missing_ok=True)
    codes = gloo_ranks.run(path, ranks, budget, state)
    assert all(code == 0 for code in codes) == (state == "whole"), codes
    record = decode(json.loads(path.read_text()))
    assert record is not None
    return Ran(record, gloo_ranks.said_of(path).read_text().splitlines())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("collectives")


@pytest.fixture(scope="module")
def two(folder: Path) -> Ran:
    return run(folder, 2)


@pytest.fixture(scope="module")
def four(folder: Path) -> Ran:
    return run(folder, 4)


def what(row: Row) -> tuple[object, ...]:
    return tuple(row[name] for name in ("op", "gpus", "bytes", "nodes", "backend"))


def test_every_collective_is_there_or_missed_with_a_word(two: Ran, four: Ran) -> None:
    for ran, groups in ((two, [2]), (four, [2, 4])):
        asked = {(op, n) for op in BUS for n in groups if op != "send_recv" or n == 2}
        missed = {text.split()[0] for text in ran.record.warnings}
        assert {(row["op"], row["gpus"]) for row in ran.rows} == {
            (op, n) for op, n in asked if op not in missed
        }
        assert {"all_reduce", "all_gather", "broadcast"} <= {row["op"] for row in ran.rows}
        assert len({what(row) for row in ran.rows}) == len(ran.rows) == len(ran.said)
        assert {(row["nodes"], row["backend"]) for row in ran.rows} == {(1, "gloo")}


def test_small_messages_come_first(two: Ran) -> None:
    sizes = [int(row["bytes"]) for row in two.rows]
    assert sizes == sorted(sizes)
    assert set(sizes) == set(gloo_ranks.SIZES)


def test_rates_follow_from_bytes_and_time(two: Ran, four: Ran) -> None:
    """As nccl-tests defines them, in doc/PERFORMANCE.md."""
    for row in two.rows + four.rows:
        n, algbw = int(row["gpus"]), float(row["algbw"])
        assert algbw * float(row["latency_us"]) * 1e-6 == pytest.approx(int(row["bytes"]))
        factor = {"all_reduce": 2 * (n - 1) / n, "broadcast": 1.0, "send_recv": 1.0}
        assert row["busbw"] == algbw * factor.get(str(row["op"]), (n - 1) / n)


def test_quantiles_are_in_order_and_someone_is_slowest(two: Ran, four: Ran) -> None:
    for row in two.rows + four.rows:
        assert 0 < float(row["p10_us"]) <= float(row["latency_us"]) <= float(row["p99_us"])
        assert int(row["slowest_rank"]) in range(int(row["gpus"]))
        assert 0 < float(row["slowest_us"]) <= float(row["p99_us"])


def test_a_budget_ends_and_resuming_measures_only_what_is_missing(tmp_path: Path, two: Ran) -> None:
    first = run(tmp_path, 2, budget=len(two.rows) / 2 * gloo_ranks.TICK)
    assert len(first.rows) == pytest.approx(len(two.rows) / 2, abs=1)
    again = run(tmp_path, 2)
    assert again.rows[: len(first.rows)] == first.rows
    added = again.rows[len(first.rows) :]
    assert len(again.said) == len(added)
    assert {what(row) for row in again.rows} == {what(row) for row in two.rows}
    assert len(again.rows) == len(two.rows)


def test_wrong_results_are_left_out_and_a_death_costs_no_row(folder: Path) -> None:
    """A gather that moves nothing; and rank 0 dies after its first message of 4 KiB."""
    broken = run(folder, 2, state="broken")
    assert "all_gather of 2 ranks is left out: gloo gives a wrong result" in broken.record.warnings
    ops = {row["op"] for row in broken.rows}
    assert len(ops) > 1
    assert "all_gather" not in ops
    assert len(broken.rows) == len(broken.said)


def fitted(measured: list[Row]) -> dict[str, HeldOut]:
    table = Table.of("measured", measured)
    batches, refused = batch_kernels(table)
    assert not refused
    curves = fitted_collectives(batches, plain_tiers(measured), "test", Dataset("test"))
    found = {
        str(key): curve.held_out for key, curve in curves.items() if curve.held_out is not None
    }
    assert sum(held.rows for held in found.values()) == len(measured)  # each was left out once
    return found


def test_every_collective_that_was_measured_is_fitted(two: Ran, four: Ran) -> None:
    rows = two.rows + four.rows
    assert set(fitted(rows)) == {f"collective.{row['op']}" for row in rows}


def test_the_fit_speaks_for_rows_it_has_not_seen() -> None:
    """Two cores that run four ranks do not do so evenly: half of the rows are off by a quarter."""
    draw = np.random.default_rng(0)
    rows: list[Row] = []
    for op, bus in BUS.items():
        for n in (2, 4) if op != "send_recv" else (2,):
            for size in gloo_ranks.SIZES:
                seconds = (50e-6 * n + bus(n) * size / 1e9) * np.exp(draw.normal(0.0, 0.37))
                row: Row = {"op": op, "gpus": n, "bytes": size, "latency_us": seconds * 1e6}
                rows.append(row | {"busbw": bus(n) * size / seconds})
    found = fitted(rows)
    assert set(found) == {f"collective.{op}" for op in BUS}
    # No fit can know the noise of a row; one that followed the others' would miss by far more.
    assert np.median([held.median for held in found.values()]) < 0.35


@pytest.mark.parametrize(("start", "hop"), [(5e-6, 1e-6), (0.0, 3e-4), (1e-3, 1e-3)])
def test_few_rows_suffice_for_a_ring_as_slow_as_may_be(start: float, hop: float) -> None:
    rows: list[Row] = []
    for n in (2, 4, 8):
        for size in (4**power for power in range(5, 16)):
            moved = 2 * (n - 1) / n * size
            seconds = start + 2 * (n - 1) * hop + moved / 5e9
            row: Row = {"op": "all_reduce", "gpus": n, "bytes": size}
            rows.append(row | {"latency_us": seconds * 1e6, "busbw": moved / seconds})
    held = fitted(rows)["collective.all_reduce"]
    assert held.median < 0.01
    assert held.p90 < 0.03


def test_a_plain_machine_has_one_tier() -> None:
    rows: list[Row] = [
        {"op": "all_reduce", "gpus": 4, "latency_us": 60.0, "busbw": 1e5},
        {"op": "all_gather", "gpus": 2, "latency_us": 500.0, "busbw": 3e9},
    ]
    (tier,) = plain_tiers(rows)
    assert (tier.reach, tier.bandwidth, tier.origin) == (4.0, 3e9, "measured")
    assert dict(tier.latency) == pytest.approx(dict.fromkeys(PROTOCOLS, 10e-6))  # six hops
    assert plain_tiers([]) == ()


def test_a_rank_alone_is_told_how_to_be_several(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(BadInput, match=r"torchrun --nproc-per-node N -m trueflops\.measure"):
        join_world(Device("cpu"))
