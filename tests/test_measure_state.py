"""The state of a device while it runs, and memory bandwidth."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from trueflops.measure import device, sensors, streams
from trueflops.measure.device import Device
from trueflops.measure.sensors import IDLE, POWER_CAP, TOO_HOT, Rapl, Reading
from trueflops.measure.state import COLUMNS, PERIOD, REASONS, Meter, Sample, words
from trueflops.records.measured import Record

CPU = Device("cpu")
NAN = math.nan


class Fake:
    """A reader that says what it is told to, and raises where it is told nothing."""

    def __init__(self, *readings: Reading) -> None:
        self.readings = list(readings)
        self.limits: dict[str, Any] = {}

    def read(self) -> Reading:
        return self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]


def gpu(kind: str, **identity: str) -> Device:
    device = Device("cuda")
    device.__dict__["identity"] = {"kind": kind, "name": "a chip", **identity}
    return device


def write(root: Path, files: dict[str, Any]) -> None:
    for name, value in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")


def meter_of(samples: list[Sample]) -> Meter:
    meter = Meter(CPU, reader=Fake((NAN,) * 5))
    meter.samples = samples
    meter._stop.set()  # what is past is past
    return meter


def test_means_and_joules_of_an_interval() -> None:
    meter = meter_of([Sample(t, 100.0 + t, 1000.0, 50.0, 0.0, 100.0 * t) for t in range(5)])
    assert meter.mean(1.0, 3.0) == (102.0, 1000.0, 50.0)
    assert all(math.isnan(value) for value in meter.mean(10.0, 11.0))
    assert meter.joules(0.5, 2.5) == pytest.approx(200.0)  # of the counter, between samples
    assert meter.now().watts == 104.0


def test_joules_without_a_counter_or_with_a_false_one() -> None:
    no_counter = meter_of([Sample(t, 300.0, NAN, NAN, NAN, NAN) for t in range(5)])
    assert no_counter.joules(1.0, 3.0) == pytest.approx(600.0)
    false = meter_of([Sample(t, 300.0, NAN, NAN, NAN, 15.0 * t) for t in range(5)])
    assert false.joules(1.0, 3.0) == pytest.approx(600.0)
    before = meter_of([Sample(t, 300.0, NAN, NAN, NAN, 290.0 * t) for t in range(5)])
    assert before.joules(-2.0, 3.0) == pytest.approx(1500.0)  # the counter does not reach back


class Moments:
    """A clock, and the event that stops a meter: to wait is to put the clock forward."""

    def __init__(self, end: float) -> None:
        self.now, self.end = 0.0, end

    def monotonic(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return self.now > self.end

    def is_set(self) -> bool:
        return self.now > self.end

    def set(self) -> None:
        self.end = -1.0


def test_a_meter_listens_ten_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    moments: Any = Moments(end=2.45)
    monkeypatch.setattr("trueflops.measure.state.time", moments)
    record = Record({}, {}, spent_seconds=100.0)
    meter = Meter(CPU, record, Fake((500.0, 1980.0, 60.0, POWER_CAP, NAN)))
    meter._stop = moments
    with meter:
        meter._thread.join()
        assert [sample.at for sample in meter.samples] == pytest.approx(
            [0.1 * i for i in range(25)]
        )
        assert meter.now() == (500.0, 1980.0, 60.0)
        assert meter.joules(1.0, 1.5) == pytest.approx(250.0)
    lines = [dict(zip(COLUMNS, state, strict=True)) for state in record.states]
    assert [line["seconds"] for line in lines] == pytest.approx([101.0, 102.0, 102.5], abs=0.11)
    for line in lines:
        assert (line["mhz"], line["watts"], line["celsius"]) == (1980.0, 500.0, 60.0)
        assert words(line["reasons"]) == "software power cap"
    assert not record.warnings


def test_a_meter_stops_without_waiting_for_its_next_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trueflops.measure.state.PERIOD", 3600.0)
    with Meter(CPU, reader=Fake((NAN,) * 5)) as meter:
        pass
    meter._thread.join(600.0)
    assert not meter._thread.is_alive()


def test_what_is_not_known_is_nan_and_the_file_stays_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trueflops.measure.state.time", Moments(end=0.0))
    record = Record({}, {})
    with Meter(CPU, record, Fake()) as meter:  # a driver that raises
        assert all(math.isnan(value) for value in meter.now())
        assert math.isnan(meter.joules(-1.0, 0.0))
    assert record.states == []
    with Meter(CPU, record, Fake((NAN, 1000.0, NAN, NAN, NAN))):
        pass
    assert record.states == [[0.0, 1000.0, 0.0, 0.0, 0.0]]
    json.dumps(record.encoded(), allow_nan=False)


def test_watts_of_a_device_that_tells_joules_alone() -> None:
    meter = Meter(CPU, reader=Fake((NAN,) * 4 + (0.0,), (NAN,) * 4 + (10.0,)))
    first = meter.sample()
    time.sleep(PERIOD)
    second = meter.sample()
    assert second.watts == pytest.approx(10.0 / (second.at - first.at))


def warnings_of(*readings: Reading) -> list[str]:
    record = Record({}, {})
    meter = Meter(CPU, record, Fake(*readings))
    for _ in readings:
        meter.sample()
    return record.warnings


def test_warnings() -> None:
    high = (600.0, 1980.0, 60.0, 0.0, NAN)
    assert warnings_of(high, (700.0, 1400.0, 60.0, POWER_CAP, NAN)) == []
    assert warnings_of(high, (100.0, 345.0, 60.0, IDLE | TOO_HOT, NAN)) == []
    assert warnings_of(high, (600.0, 1960.0, 60.0, TOO_HOT, NAN)) == []
    slow = warnings_of(high, *[(400.0, 1200.0, 79.0, POWER_CAP | TOO_HOT, NAN)] * 3)
    assert ["hardware thermal slowdown" in text for text in slow] == [True]
    hot = warnings_of(*[(600.0, 1980.0, degrees, 0.0, NAN) for degrees in (79.0, 81.0, 85.0)])
    assert ["80 °C" in text for text in hot] == [True]


def test_words() -> None:
    assert words(0.0) == words(NAN) == ""
    assert words(POWER_CAP | TOO_HOT) == "software power cap, hardware thermal slowdown"
    assert words(2.0 ** len(REASONS) - 1.0).count(",") == len(REASONS) - 1


def fake_nvml(asked: list[bytes], *, old: bool = False) -> SimpleNamespace:
    """As much of NVML as is asked for; sets what is pointed to and returns 0 for success."""

    def says(value: int) -> Any:
        def answer(*arguments: Any) -> int:
            arguments[-1]._obj.value = value
            return 0

        return answer

    def by(name: bytes, failed: int) -> int:
        asked.append(name)
        return failed

    def field_values(handle: Any, count: int, at: Any) -> int:
        assert (at._obj.field, count) == (186, 1)
        at._obj.status, at._obj.value = (3, 0) if old else (0, 694_000)
        return 0

    return SimpleNamespace(
        nvmlInit_v2=lambda: 0,
        nvmlDeviceGetHandleByUUID=lambda uuid, handle: by(uuid, 6 * old),
        nvmlDeviceGetHandleByPciBusId_v2=lambda bus, handle: 6,
        nvmlDeviceGetHandleByIndex_v2=lambda index, handle: by(b"%d" % index, 0),
        nvmlDeviceGetFieldValues=field_values,
        nvmlDeviceGetPowerUsage=says(650_000),
        nvmlDeviceGetClockInfo=says(1455),
        nvmlDeviceGetTemperature=lambda *_: 3,  # not supported
        nvmlDeviceGetCurrentClocksThrottleReasons=says(POWER_CAP),
        nvmlDeviceGetTotalEnergyConsumption=says(2**33 * 1000),
        nvmlDeviceGetEnforcedPowerLimit=says(700_000),
        nvmlDeviceGetMaxClockInfo=says(1980),
        nvmlSystemGetDriverVersion=lambda text, length: setattr(text, "value", b"580.1"),
    )


def test_nvml() -> None:
    asked: list[bytes] = []
    chip = sensors.nvml_sensors(gpu("cuda", uuid="6e86"), fake_nvml(asked))
    assert asked == [b"GPU-6e86"]
    watts, mhz, celsius, reasons, joules = chip.read()
    assert (watts, mhz) == pytest.approx((694.0, 1455.0))
    assert words(reasons) == "software power cap"
    assert math.isnan(celsius)
    assert joules == pytest.approx(2.0**33)  # of 64 bits
    told = {"power_cap_watts": pytest.approx(700.0), "max_mhz": 1980.0, "driver": "580.1"}
    assert chip.limits == told
    asked.clear()
    older = sensors.nvml_sensors(gpu("cuda", uuid="GPU-6e86"), fake_nvml(asked, old=True))
    assert asked == [b"GPU-6e86", b"0"]
    assert older.read()[0] == pytest.approx(650.0)


def test_amdsmi_of_two_releases() -> None:
    active = {"active_ppt_pwr": True, "active_hbm_thrm": 1, "active_vr_thrm": "N/A"}

    def library(power: dict[str, Any], clock: str, energy: str) -> SimpleNamespace:
        return SimpleNamespace(
            amdsmi_init=lambda: None,
            amdsmi_get_processor_handles=lambda: ["card"],
            amdsmi_get_gpu_device_bdf=lambda card: "0000:05:00.0",
            amdsmi_get_power_info=lambda card: power,
            amdsmi_get_clock_info=lambda card, kind: {clock: 2100, "max_clk": "N/A"},
            amdsmi_get_temp_metric=lambda card, kind, metric: 60 if kind == "junction" else 1 / 0,
            amdsmi_get_energy_count=lambda card: {energy: 10**9, "counter_resolution": 15.3},
            amdsmi_get_violation_status=lambda card: active,
            amdsmi_get_power_cap_info=lambda card: {"power_cap": 750 * 10**6},
            AmdSmiTemperatureType=SimpleNamespace(EDGE="edge", HOTSPOT="junction"),
            AmdSmiTemperatureMetric=SimpleNamespace(CURRENT=0),
            AmdSmiClkType=SimpleNamespace(GFX=0),
        )

    older = {"average_socket_power": 700, "current_socket_power": "N/A"}
    newer = {"current_socket_power": 700}
    for keys in ((older, "cur_clk", "power"), (newer, "clk", "energy_accumulator")):
        chip = sensors.amdsmi_sensors(gpu("rocm"), library(*keys))
        watts, mhz, celsius, reasons, joules = chip.read()
        assert (watts, mhz, celsius) == (700.0, 2100.0, 60.0)
        assert words(reasons) == "software power cap, hardware thermal slowdown"
        assert joules == pytest.approx(15300.0)
        assert chip.limits == {"power_cap_watts": pytest.approx(750.0)}


def test_hwmon(tmp_path: Path) -> None:
    cards = tmp_path / "sys/class/drm"
    write(cards / "card0/device", {"vendor": "0x8086", "hwmon/hwmon1/temp1_input": 1})
    told = {"power1_input": 250 * 10**6, "freq1_input": 2100 * 10**6, "temp1_input": 55_000}
    write(cards / "card1/device", {"vendor": "0x1002"})
    write(cards / "card1/device/hwmon/hwmon2", {**told, "power1_cap": 300 * 10**6})
    chip = sensors.hwmon_sensors(gpu("rocm"), tmp_path)
    assert chip.read()[:3] == pytest.approx((250.0, 2100.0, 55.0))
    assert chip.limits == {"power_cap_watts": pytest.approx(300.0)}
    assert all(math.isnan(x) for x in sensors.find_reader(gpu("rocm"), tmp_path / "none").read())


def test_rapl_wraps_around_and_counts_packages_alone(tmp_path: Path) -> None:
    power = tmp_path / "sys/class/powercap"
    for domain, name in (("0", "package-0"), ("0:0", "core"), ("1", "package-1"), ("2", "psys")):
        counter = {"max_energy_range_uj": 100 * 10**6, "energy_uj": 90 * 10**6}
        write(power / f"intel-rapl:{domain}", {"name": name, **counter})
    rapl = Rapl(tmp_path)
    assert rapl.joules() == 0.0
    for domain, joules in (("0", 5), ("0:0", 99), ("1", 93), ("2", 99)):
        write(power / f"intel-rapl:{domain}", {"energy_uj": joules * 10**6})
    assert rapl.joules() == pytest.approx(15.0 + 3.0)
    assert math.isnan(Rapl(tmp_path / "none").joules())


def test_the_clock_and_heat_of_a_cpu(tmp_path: Path) -> None:
    cpus, zones = tmp_path / "sys/devices/system/cpu", tmp_path / "sys/class/thermal"
    write(cpus / "cpu0/cpufreq", {"scaling_cur_freq": 3_000_000, "cpuinfo_max_freq": 3_500_000})
    write(cpus / "cpu1/cpufreq", {"scaling_cur_freq": 2_000_000})
    write(zones / "thermal_zone0", {"type": "acpitz", "temp": 99_000})
    write(zones / "thermal_zone1", {"type": "x86_pkg_temp", "temp": 61_000})
    chip = sensors.cpu_sensors(tmp_path)
    assert chip.read()[1:3] == pytest.approx((2500.0, 61.0))
    assert chip.limits == {"max_mhz": pytest.approx(3500.0)}
    write(tmp_path / "other", {"proc/cpuinfo": "cpu MHz\t: 2400.0\ncpu MHz\t: 2600.0"})
    assert sensors.cpu_sensors(tmp_path / "other").read()[1] == 2500.0
    assert all(math.isnan(x) for x in sensors.cpu_sensors(tmp_path / "none").read())


def test_bandwidth_of_this_cpu() -> None:
    jobs = streams.bandwidth_jobs(CPU)
    assert jobs[0].cells["op"] == "copy"
    assert jobs[0].cells["bytes"] == max(job.cells["bytes"] for job in jobs)
    assert {job.cells["op"] for job in jobs} == set(streams.OPS)
    size = 4 * streams.MIB
    for job in (job for job in jobs if job.cells["bytes"] == size):
        cells = job.measure()
        moved = size * streams.OPS[str(job.cells["op"])]
        assert cells["bandwidth"] == pytest.approx(moved / cells["latency_us"] * 10**6, rel=1e-3)
        assert 10**7 < cells["bandwidth"] < 10**13  # no memory is faster
        assert cells["p10_us"] <= cells["latency_us"] <= cells["p90_us"]
        assert job.smaller is not None
        assert job.smaller().cells["bytes"] == size // 4
    assert jobs[-1].smaller is None
    assert streams.host_jobs(CPU) == []


def test_caches_and_nodes_of_a_machine(tmp_path: Path) -> None:
    for cpu, shared in ((0, "0-1"), (1, "0-1"), (2, "2-3"), (3, "2-3")):
        for level, size, of in ((2, "512K", str(cpu)), (3, "32768K", shared)):
            folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/cache/index{level}"
            write(folder, {"level": level, "size": size, "shared_cpu_list": of})
    assert device.cache_bytes(tmp_path) == 64 * streams.MIB
    ours = min(os.sched_getaffinity(0))
    for node, cpus in enumerate((f"{ours},5000-5003", "", f"{ours}")):
        write(tmp_path / f"sys/devices/system/node/node{node}", {"cpulist": cpus})
    assert streams.numa_nodes(tmp_path) == {0: {ours}, 2: {ours}}
    asked = [(job.cells["node"], job.cells["memory_of"]) for job in streams.numa_jobs(tmp_path)]
    assert asked == [(0, 0), (2, 2), (0, 2), (2, 0)]


def test_a_node_reads_its_own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "NODE_SECONDS", 600.0)  # a busy machine takes long to load torch
    jobs = streams.numa_jobs()
    nodes = {job.cells["node"] for job in jobs}
    assert len(jobs) == len(nodes) ** 2
    if jobs:
        assert jobs[0].cells["node"] == jobs[0].cells["memory_of"]
        assert 10**7 < jobs[0].measure()["bandwidth"] < 10**13
