"""What `measure show` says of a measured profile: ceilings, conditions, rates, what is unsure."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from trueflops.catalog import Accelerator, accelerator
from trueflops.catalog.accelerators import accelerator_measured
from trueflops.errors import BadInput
from trueflops.profile import Curve, CurveKey, HeldOut, Profile
from trueflops.records.measured import Record, Row
from trueflops.report.encode import to_json
from trueflops.report.measured import encode_measured, plot_measured, show_measured
from trueflops.report.measured_plot import ceilings

Capture = pytest.CaptureFixture[str]
H200 = accelerator("H200-SXM-141GB")
CPU = accelerator_measured(
    "some CPU", "cpu", {"peak.fp32": 70e9, "memory.bandwidth": 50e9}, "trueflops measure"
)
M = 4096


def product(dtype: str, tera: float, m: int = M, **more: int) -> Row:
    """A product of m×4096×4096 that ran at so many TFLOP/s."""
    taken = 2.0 * m * M * M / (tera * 1e12)
    return {"dtype": dtype, "m": m, "n": M, "k": M, "copies": 2, "latency_us": taken * 1e6, **more}


def load(dtype: str, tera: float, idle: float = 0.0) -> Row:
    return {
        "load": "matmul", "dtype": dtype, "m": M, "n": M, "k": M, "idle_share": idle,
        "seconds_per_launch": 2.0 * M**3 / (tera * 1e12), "watts": 690.0, "mean_watts": 700.0,
        "flop": 2.0 * M**3, "bytes": 6.0 * M * M, "flop_per_second": tera * 1e12,
    }  # fmt: skip


def stream(op: str, size: int, tera: float) -> Row:
    return {"op": op, "bytes": size, "bandwidth": tera * 1e12}


def collective(size: int, microseconds: float, bus: float) -> Row:
    return {
        "op": "all_reduce", "gpus": 8, "nodes": 1, "backend": "nccl", "bytes": size,
        "latency_us": microseconds, "busbw": bus, "slowest_rank": 5,
    }  # fmt: skip


def gpu_record() -> Record:
    return Record(
        device={"kind": "cuda", "name": "NVIDIA H200", "l2_bytes": 60 * 2**20,
                "power_cap_watts": 700.0, "max_mhz": 1980.0},
        software={"torch": "2.11.0", "cuda": "13.0", "driver": "580.1"},
        states=[[1.0, 1980.0, 100.0, 34.0, 0], [2.0, 1500.0, 690.0, 60.0, 4],
                [3.0, 1400.0, 690.0, 61.0, 4], [4.0, 0.0, 0.0, 0.0, 0]],
        warnings=["above 80 °C: better cooled, this device may be faster"],
        started="2026-11-15T09:44:44Z",
        spent_seconds=180.5,
        finished=True,
        tables={
            "matmul": [product("bf16", 850.0), product("bf16", 4.0, 1), product("fp32", 50.0),
                       product("fp32", 40.0, 128), product("fp8", 1400.0)],
            "other_products": [product("bf16_2:4", 1000.0)],
            "race": [  # the fastest lap is not of the shape that is the fastest
                product("bf16", 900.0, 512, lap=1), product("bf16", 700.0, 512, lap=2),
                product("bf16", 700.0, 512, lap=3), product("bf16", 800.0, 256, lap=1),
                product("bf16", 790.0, 256, lap=2), product("bf16", 810.0, 256, lap=3),
                product("fp8", 1400.0, lap=1), product("fp8_row", 1300.0, lap=1),
            ],
            "power": [load("bf16", 650.0), load("bf16", 600.0), load("bf16", 790.0, 0.5),
                      load("fp8", 1200.0), {"load": "idle", "watts": 120.0},
                      {"load": "copy", "dtype": "bf16", "idle_share": 0.0, "bytes": 4e9,
                       "seconds_per_launch": 1e-3, "watts": 600.0, "flop": 0.0}],
            "bandwidth": [stream("read", 2**30, 4.5), stream("read", 2**20, 6.0),
                          stream("read", 2**27, 9.9), stream("copy", 2**30, 4.2),
                          stream("copy", 2**25, 9.9)],
            "host": [{"way": way, "pinned": pin, "bytes": size, "bandwidth": rate * size}
                     for way in ("to_device", "to_host") for size in (1, 1000)
                     for pin, rate in ((1, 50e6), (0, 9e6))],
            "launch": [{"kind": kind, "eager_us": us, "graph_us": us / 10}
                       for kind, us in (("add", 6.0), ("mm", 16.0), ("linear", 20.0))],
            "collective": [collective(1024, 20.0, 1e8), collective(2**30, 5000.0, 4e11)],
            "gpus": [{"gpu": i, "uuid": str(i), "burst": 8e14 + i * 1e13, "sustained": 6.5e14,
                      "bandwidth": 4.2e12, "celsius": 50 + i} for i in range(8)],
            "sentinel": [{"seconds": 1.0, "latency_us": us} for us in (100.0, 103.0, 101.0)],
        },
    )  # fmt: skip


def cpu_record() -> Record:
    return Record(
        {"kind": "cpu", "name": "some CPU", "l2_bytes": 2**25}, {"torch": "2.13", "threads": "64"},
        {
            "matmul": [product("fp32", 0.07)],
            "race": [product("fp32", 0.068, lap=1), product("fp32", 0.066, lap=2)],
            "bandwidth": [stream("read", 2**28, 0.05)],
            "numa": [{"node": a, "memory_of": b, "bandwidth": 60e9 if a == b else 45e9}
                     for a in (0, 1) for b in (0, 1)],
        },
    )  # fmt: skip


def fitted(name: str) -> Profile:
    special = Curve({"a": 1.0}, 0.05, "measured", "", None, 40, HeldOut(40, 0.026, 0.082))
    share = {"static": 0.2, "byte": 0.8, "exponent": 1.1, "flop_bf16": 1.6}
    power = Curve(share, 0.05, "measured", "", None, 3, HeldOut(3, 1e-9, 1e-8))
    names = {"attention": special, "attention.cudnn": special, "matmul": special, "power": power}
    curves = {CurveKey.parse(key): curve for key, curve in names.items()}
    return Profile(f"{name}, measured", name, curves)


GPU = fitted(H200.name), gpu_record(), H200


def said(capsys: Capture, monkeypatch: pytest.MonkeyPatch, *of: Any) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    show_measured(*of)
    return capsys.readouterr().out


def row_of(text: str, name: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(name))


class TestCeilings:
    def test_the_best_median_wins_not_the_best_lap(self) -> None:
        found = {c.dtype: c for c in ceilings(gpu_record(), H200)}
        assert found["bf16"].shape == (256, M, M)
        assert found["bf16"].burst == pytest.approx(800e12)
        assert found["bf16"].laps == 3
        assert found["bf16"].sustained == pytest.approx(650e12)  # not the one with rests
        assert list(found) == ["bf16", "fp8", "fp8_row", "fp32", "bf16_2:4"]

    def test_without_a_race_the_best_single_timing(self) -> None:
        found = {c.dtype: c for c in ceilings(gpu_record(), H200)}
        assert found["fp32"].burst == pytest.approx(50e12)
        assert found["fp32"].laps == 0

    def test_variants_are_held_against_their_own_peaks(self) -> None:
        found = {c.dtype: c for c in ceilings(gpu_record(), H200)}
        assert found["fp8_row"].datasheet == H200.get("peak.fp8")
        assert found["bf16_2:4"].datasheet == 2.0 * H200.need("peak.bf16")


class TestTerminal:
    def test_burst_and_sustained_as_shares_of_the_datasheet(
        self, capsys: Capture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        text = said(capsys, monkeypatch, *GPU)
        for share in (800e12 / 989.4e12, 650e12 / 989.4e12):
            assert f"{100 * share:.1f} %" in row_of(text, "bf16")
        assert "256×4096×4096" in row_of(text, "bf16")
        assert "50.0*" in row_of(text, "fp32")
        assert "* not confirmed" in text
        assert "1,300†" in row_of(text, "fp8 row scales")

    def test_every_part_is_there_and_fits_80_columns(
        self, capsys: Capture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        text = said(capsys, monkeypatch, *GPU)
        assert max(map(len, text.splitlines())) <= 80
        assert "…" not in text
        for words in (
            "NVIDIA H200", H200.name, "3.01 min, finished", "driver 580.1", "700 W power cap",
            "34 – 61 °C", "1.45 GHz mean clock", "Link to the host", "eager 16.0 µs",
            "graph 1.60 µs", "All 8 GPUs", "835", "drifted by 3.0 %", "warning: above 80 °C",
            "3 loads for 4 parameters", "Roofline", "datasheet", "▲",
        ):  # fmt: skip
            assert words in text, words
        assert "400 GB/s" in row_of(text, "all_reduce")
        assert "20.0 µs" in row_of(text, "all_reduce")

    def test_curves_by_what_they_miss(
        self, capsys: Capture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        text = said(capsys, monkeypatch, *GPU)
        assert " ".join(row_of(text, "attention.cudnn").split()) == "attention.cudnn 40 2.6 % 8.2 %"
        assert not any(line.startswith(("attention ", "power")) for line in text.splitlines())

    def test_without_a_datasheet_nothing_is_a_share_of_it(
        self, capsys: Capture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        text = said(capsys, monkeypatch, fitted("some CPU"), cpu_record(), CPU)
        assert "no datasheet: ceilings are the measured ones" in text
        assert "share" not in text
        assert "GFLOP/s" in text
        assert "67.0" in row_of(text, "fp32")
        assert "%" not in row_of(text, "fp32")
        assert "not finished" in text
        assert "60.0 GB/s of own memory, 45.0 GB/s of another's (25.0 % less)" in text

    def test_a_record_that_holds_nothing_yet(
        self, capsys: Capture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        empty = Record({"name": "NVIDIA \x1b[31mH200"}, {})
        text = said(capsys, monkeypatch, fitted(H200.name), empty, H200)
        assert "\x1b" not in text
        assert "Matrix products" not in text
        assert "Roofline" not in text


class TestJson:
    def test_units_stand_in_the_names(self) -> None:
        answer = json.loads(to_json(encode_measured(*GPU)))
        assert answer["schema_version"] == 1
        assert answer["datasheet"] is True
        assert answer["conditions"]["mean_clock_under_load_hertz"] == pytest.approx(1.45e9)
        bf16, fp32 = answer["products"]["bf16"], answer["products"]["fp32"]
        assert bf16["flop_per_second"] == pytest.approx(800e12)
        assert bf16["share_of_datasheet"] == pytest.approx(800 / 989.4)
        assert bf16["sustained_share_of_datasheet"] == pytest.approx(650 / 989.4)
        assert (bf16["confirmed"], fp32["confirmed"]) == (True, False)
        assert fp32["sustained_flop_per_second"] is None
        assert answer["host"]["to_device"]["pinned_bytes_per_second"] == pytest.approx(50e9)
        assert answer["host"]["to_device"]["pageable_bytes_per_second"] == pytest.approx(9e9)
        assert answer["launch"] == pytest.approx({"eager_seconds": 16e-6, "graph_seconds": 1.6e-6})
        assert answer["collectives"][0]["bus_bytes_per_second"] == 4e11
        assert answer["collectives"][0]["seconds"] == pytest.approx(20e-6)
        assert answer["gpus"]["burst_flop_per_second"]["median"] == pytest.approx(8.35e14)
        assert answer["held_out"]["matmul"] == {"rows": 40, "median": 0.026, "p90": 0.082}
        assert answer["sentinel_drift"] == pytest.approx(0.03)

    def test_memory_is_what_no_cache_holds(self) -> None:
        found = encode_measured(*GPU)["memory"]
        assert found["read"]["bytes_per_second"] == pytest.approx(4.5e12)
        assert found["read"]["share_of_datasheet"] == pytest.approx(4.5 / 4.8)
        assert found["read"]["cache_bytes_per_second"] == pytest.approx(6e12)  # 128 MiB is between
        assert found["copy"]["cache_bytes_per_second"] is None  # two of 32 MiB are 64

    def test_energy_in_joules(self) -> None:
        found = encode_measured(*GPU)["energy"]
        assert found["bf16"]["drawn_joules"] == pytest.approx(700.0 / 650e12)
        assert found["bf16"]["fitted_joules"] == pytest.approx(1.6 * 700.0 / 989.4e12)
        assert found["byte"]["drawn_joules"] == pytest.approx(600.0 * 1e-3 / 4e9)
        assert found["byte"]["fitted_joules"] == pytest.approx(0.8 * 700.0 / 4.8e12)
        assert found["fp8"]["fitted_joules"] is None

    def test_no_datasheet(self) -> None:
        answer = encode_measured(fitted("some CPU"), cpu_record(), CPU)
        assert answer["datasheet"] is False
        assert answer["products"]["fp32"]["share_of_datasheet"] is None
        assert answer["memory"]["read"]["share_of_datasheet"] is None
        assert len(answer["numa"]) == 4
        assert to_json(answer)


class TestPicture:
    @pytest.mark.parametrize(
        ("record", "chip"), [(gpu_record(), H200), (cpu_record(), CPU)], ids=["GPU", "CPU"]
    )
    def test_is_drawn(self, record: Record, chip: Accelerator, tmp_path: Path) -> None:
        pytest.importorskip("matplotlib")
        file = tmp_path / "roofs.png"
        plot_measured(fitted(chip.name), record, chip, file)
        assert file.read_bytes().startswith(b"\x89PNG")

    def test_needs_matplotlib_a_png_and_measurements(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        with pytest.raises(BadInput, match=r"ends in \.png"):
            plot_measured(*GPU, tmp_path / "roofs.pdf")
        with pytest.raises(BadInput, match="resume it"):
            plot_measured(fitted("H200"), Record({"name": "H200"}, {}), H200, tmp_path / "a.png")
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        with pytest.raises(BadInput, match="pip install"):
            plot_measured(*GPU, tmp_path / "a.png")
