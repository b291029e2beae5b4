"""What is fitted to a record is what the clock then computes."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trueflops.calibrate.device import device_chip, limits_of
from trueflops.calibrate.measured import fit_record
from trueflops.calibrate.profiles import rebuild
from trueflops.catalog import accelerator, cluster
from trueflops.clock import Clock
from trueflops.errors import BadInput
from trueflops.graph.kinds import CollectiveKind
from trueflops.interop.kernels import batch_kernels
from trueflops.profile import CurveKey, profile_of
from trueflops.profile.host_speed import USUAL_LOOP_SECONDS
from trueflops.records.measured import Record, Row
from trueflops.records.rows import identity, measured_seconds
from trueflops.records.tables import Table, read_table

H100: dict[str, Any] = {"kind": "cuda", "name": "NVIDIA H100 80GB HBM3", "l2_bytes": 50 * 2**20}


def ring(gpus: int, size: int, nodes: int = 1) -> Row:
    """An all-reduce by a ring of 350 GB/s, 12 µs and 1.5 µs a hop."""
    around = 2.0 * (gpus - 1)
    seconds = 12e-6 + around * 1.5e-6 + around / gpus * size / 350e9
    return {"op": "all_reduce", "gpus": gpus, "bytes": size, "nodes": nodes, "backend": "nccl",
            "latency_us": seconds * 1e6, "busbw": around / gpus * size / seconds}  # fmt: skip


def test_collectives_are_fitted_on_the_tiers_they_are_priced_on() -> None:
    rows = [ring(gpus, 4**i * 1024) for gpus in (2, 4, 8) for i in range(11)]
    far = [{**ring(16, 4**i * 1024, nodes=2), "latency_us": 1e6} for i in range(11)]
    record = Record(dict(H100), {"torch": "2"}, {"collective": rows + far})
    chip = device_chip(record)
    assert chip.name == "H100-SXM5-80GB"
    profile = profile_of(chip, given=fit_record(record))
    clock = Clock(cluster("8xH100"), profile)
    for row in rows:
        group, size = float(row["gpus"]), float(row["bytes"])
        priced = clock.collective(
            CollectiveKind.ALL_REDUCE, np.array([group]), np.array([size]), 1.0
        ).seconds
        assert float(np.ravel(priced)[0]) == pytest.approx(
            float(row["latency_us"]) * 1e-6, rel=0.12
        )


def products(scale: float, count: int = 60) -> list[Row]:
    """Products at a share of an H100's peak."""
    rows: list[Row] = []
    for i in range(count):
        m, n, k = 256 * (1 + i % 7), 1024 * (1 + i % 5), 512 * (1 + i % 11)
        seconds = 4e-6 + 2.0 * m * n * k / (scale * 989.4e12)
        rows.append({"dtype": "bf16", "m": m, "n": n, "k": k, "layout": "nt", "copies": 6,
                     "cast": 0, "latency_us": seconds * 1e6})  # fmt: skip
    return rows


def test_a_measured_number_is_read_as_the_same_number_in_a_file(tmp_path: Path) -> None:
    rows = [{"gpu": "H100", **row} for row in products(0.7)]
    file = tmp_path / "rows.csv"
    lines = [",".join(map(str, cells)) for cells in (rows[0], *(row.values() for row in rows))]
    file.write_text("\n".join(lines))
    kept, read = Table.of("matmul", rows), read_table(file)
    [measured], [written] = (batch_kernels(table)[0] for table in (kept, read))
    assert measured.form == written.form
    for name, column in measured.columns.items():
        assert column.tolist() == written.columns[name].tolist()
    for one, other in zip(measured.rows, written.rows, strict=True):
        assert identity(one) == identity(other)
        assert measured_seconds(one) == measured_seconds(other)


def test_rows_that_physics_forbids_are_dropped_when_a_bare_nodes_file_is_fitted() -> None:
    rows = products(0.7)
    odd = {**rows[0], "m": 8192, "latency_us": 1.0}
    record = Record(
        dict(H100), {"torch": "2"}, {"matmul": [*rows, odd], "race": [dict(odd, lap=1)]}
    )
    profile = fit_record(record)
    assert record.tables["matmul"] == rows
    assert record.tables["race"] == []
    assert len(record.warnings) == 2
    assert all("peak of bf16" in warning for warning in record.warnings)
    held = profile.curve("matmul").held_out
    assert held is not None
    assert held.rows == len(rows)
    assert held.median < 0.05


def test_an_amd_vector_peak_is_no_limit_of_its_matrix_cores() -> None:
    assert "peak.fp32" not in limits_of(accelerator("MI210"))
    assert "peak.bf16" in limits_of(accelerator("MI210"))


def load(clock: float, seconds: float, watts: float, idle: float = 0.0, **more: Any) -> Row:
    return {"load": "matmul", "dtype": "bf16", "m": 8192, "n": 8192, "k": 8192, "flop": 1.0995e12,
            "bytes": 4.03e8, "idle_share": idle, "seconds_per_launch": seconds, "watts": watts,
            "mean_watts": watts, "clock_mhz": clock, "flop_per_second": 1.0995e12 / seconds,
            **more}  # fmt: skip


def test_power_of_few_loads_stays_near_what_is_known() -> None:
    copy = load(1980.0, 1e-3, 650.0, load="copy", flop=0.0, bytes=4.3e9, m=1, n=0, k=0)
    loads = [load(1430.0, 1.72e-3, 695.0), copy,
             load(1315.0, 0.94e-3, 690.0, dtype="fp8", flop=1.0995e12),
             load(1380.0, 1.79e-3, 695.0, dtype="fp16")]  # fmt: skip
    record = Record(
        {**H100, "power_cap_watts": 500.0}, {}, {"power": loads, "matmul": products(0.7)}
    )
    power = fit_record(record).curve("power").values
    assert 0.1 < power["static"] < 0.3
    assert power["cap_watts"] == 500.0  # someone lowered it
    known = profile_of(accelerator("H200")).curve("power").values["clocked"]
    assert power["clocked"] == pytest.approx(known, rel=0.05)  # one clock tells no slope


def test_a_measured_profile_issues_calls_at_its_hosts_speed() -> None:
    usual = profile_of(device_chip(Record(dict(H100), {}, {}))).curve("dispatch")
    slow = {**H100, "python_loop_seconds": 2 * USUAL_LOOP_SECONDS}
    found = fit_record(Record(slow, {"torch": "2"}, {"matmul": products(0.7)})).curve("dispatch")
    assert found["issue"] > 1.5 * usual["issue"]
    unknown = fit_record(Record(dict(H100), {"torch": "2"}, {"matmul": products(0.7)}))
    assert CurveKey("dispatch") not in unknown.curves


def test_some_curves_are_fitted_anew_and_the_others_stay(tmp_path: Path) -> None:
    data = Path(str(resources.files("trueflops.profile") / "data"))
    names = ("H100-SXM5-80GB.json", "transfer.json")
    for name in names:
        (tmp_path / name).write_bytes((data / name).read_bytes())
    before = [json.loads((tmp_path / name).read_text())["curves"] for name in names]
    tables = tmp_path / "tables"
    tables.mkdir()
    rows = [{"gpu": "H100", **row} for row in products(0.35, 80)]
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    (tables / "matmul.csv").write_text("\n".join(lines))
    with pytest.raises(BadInput, match="no rows of attention are there"):
        rebuild([tables], tmp_path, lambda _: None, ["attention"])
    rebuild([tables], tmp_path, lambda _: None, ["matmul"])
    for name, old in zip(names, before, strict=True):
        new = json.loads((tmp_path / name).read_text())["curves"]
        assert new.keys() == old.keys()
        assert {key for key in new if new[key] != old[key]} == {"matmul"}
    halved = json.loads((tmp_path / names[0]).read_text())["curves"]["matmul"]["values"]
    assert halved["efficiency"] < 0.7 * before[0]["matmul"]["values"]["efficiency"]


def test_another_vendors_chips_teach_their_own_alone(tmp_path: Path) -> None:
    tables, said = tmp_path / "tables", list[str]()
    tables.mkdir()
    rows = [{"gpu": "MI300X", **row} for row in products(0.35, 80)]
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    (tables / "matmul.csv").write_text("\n".join(lines))
    (tables / "of_no_law.csv").write_text("gpu,tokens,latency_us\nMI300X,8,2.5\n")
    written = rebuild([tables], tmp_path, said.append)
    assert {path.name for path in written} == {"MI300X.json", "transfer-AMD.json"}
    assert any("of_no_law.csv: its header names no kernels" in line for line in said)
    for path in written:
        assert json.loads(path.read_text())["curves"].keys() == {"matmul"}
    (tables / "of_nvidia.csv").write_text("\n".join(lines).replace("MI300X", "H100"))
    with pytest.raises(BadInput, match="too few rows of attention"):
        rebuild([tables], tmp_path, said.append)
