"""What a device tells of itself, one reading at a time.

NVIDIA through NVML, which comes with the driver; AMD through amdsmi, else the kernel's hwmon; CPUs
through RAPL, cpufreq and thermal zones. What cannot be read is nan, and nothing fails for it.
"""

from __future__ import annotations

import ctypes
import importlib
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import torch

from trueflops.measure.device import Device

REASONS: Final = (  # bit i of a mask; the order is NVML's own
    "idle", "clock set by hand", "software power cap", "hardware slowdown", "sync boost",
    "software thermal slowdown", "hardware thermal slowdown", "hardware power brake",
    "display clock",
)  # fmt: skip
IDLE, POWER_CAP, SLOWDOWN, WARM, TOO_HOT, BRAKE = (1 << bit for bit in (0, 2, 3, 5, 6, 7))
CLOCKS_READ: Final = 16  # of a CPU's cores: each reading may wake an idle one
AMD: Final = "0x1002"  # PCI vendor
POWER_INSTANT: Final = 186  # NVML_FI_DEV_POWER_INSTANT, mW; GetPowerUsage is a mean over a second
Reading = tuple[float, float, float, float, float]


class Reader(Protocol):
    """Reads one sample; may raise, and then nothing is known."""

    limits: dict[str, Any]  # power_cap_watts, max_mhz, driver, as far as known

    def read(self) -> Reading:
        """Watts, MHz, °C, reasons and the joules of a counter; nan where not known."""


def words(reasons: float) -> str:
    """The names of a mask of reasons."""
    mask = 0 if math.isnan(reasons) else int(reasons)
    return ", ".join(name for bit, name in enumerate(REASONS) if mask >> bit & 1)


def unknown() -> float:
    """A quantity that a device does not tell."""
    return math.nan


def _or_nan(sensor: Callable[[], float]) -> float:
    try:
        return float(sensor())
    except Exception:  # a sensor that fails is a sensor that is not there
        return math.nan


@dataclass
class Sensors:
    """A reader made of one sensor a quantity."""

    watts: Callable[[], float] = unknown
    mhz: Callable[[], float] = unknown
    celsius: Callable[[], float] = unknown
    reasons: Callable[[], float] = unknown
    joules: Callable[[], float] = unknown
    limits: dict[str, Any] = field(default_factory=dict)

    def read(self) -> Reading:
        """Whatever answers."""
        return (
            _or_nan(self.watts), _or_nan(self.mhz), _or_nan(self.celsius),
            _or_nan(self.reasons), _or_nan(self.joules),
        )  # fmt: skip

    def know(self, **limits: Callable[[], Any]) -> Sensors:
        """Keep the limits that are told."""
        for name, told in limits.items():
            try:
                value = told()
            except Exception:  # as _or_nan
                continue
            if value and value == value:
                self.limits[name] = value
        return self


def find_reader(device: Device, root: Path = Path("/")) -> Reader:
    """The reader of a device; one that knows nothing where there is none."""
    makers: list[Callable[[], Sensors]] = []
    if device.is_cpu:
        makers = [lambda: cpu_sensors(root)]
    elif device.kind == "cuda" and device.identity["kind"] == "rocm":
        makers = [lambda: amdsmi_sensors(device), lambda: hwmon_sensors(device, root)]
    elif device.kind == "cuda":
        makers = [lambda: nvml_sensors(device)]
    for make in makers:
        try:
            return make()
        except Exception:  # no driver library, no such card: the next way, or none
            continue
    return Sensors()


class FieldValue(ctypes.Structure):
    """nvmlFieldValue_t."""

    _fields_ = (
        ("field", ctypes.c_uint), ("scope", ctypes.c_uint), ("timestamp", ctypes.c_longlong),
        ("latency", ctypes.c_longlong), ("type", ctypes.c_uint), ("status", ctypes.c_uint),
        ("value", ctypes.c_uint), ("upper", ctypes.c_uint),
    )  # fmt: skip


def nvml_sensors(device: Device, library: Any = None) -> Sensors:
    """NVIDIA: the driver's own library."""
    if library is None:
        library = ctypes.CDLL("nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1")
    if library.nvmlInit_v2():
        raise OSError("NVML does not start")
    handle, uuid = ctypes.c_void_p(), str(device.identity.get("uuid", ""))
    uuid = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
    if (
        library.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle))
        and library.nvmlDeviceGetHandleByPciBusId_v2(_pci(device).encode(), ctypes.byref(handle))
        and library.nvmlDeviceGetHandleByIndex_v2(device.index, ctypes.byref(handle))
    ):
        raise OSError("NVML does not know the device")

    def ask(name: str, *which: int, wide: bool = False) -> float:
        found = ctypes.c_ulonglong() if wide else ctypes.c_uint()
        failed = getattr(library, name)(handle, *which, ctypes.byref(found))
        return math.nan if failed else float(found.value)

    def watts() -> float:
        asked = FieldValue(field=POWER_INSTANT)
        failed = library.nvmlDeviceGetFieldValues(handle, 1, ctypes.byref(asked))
        milli = ask("nvmlDeviceGetPowerUsage") if failed or asked.status else asked.value
        return float(milli) * 1e-3

    def driver() -> str:
        text = ctypes.create_string_buffer(80)
        library.nvmlSystemGetDriverVersion(text, 80)
        return text.value.decode()

    why = "nvmlDeviceGetCurrentClocksEventReasons"  # since driver 535; Throttle before
    why = why if hasattr(library, why) else "nvmlDeviceGetCurrentClocksThrottleReasons"
    return Sensors(
        watts,
        lambda: ask("nvmlDeviceGetClockInfo", 1),  # 1: the SMs
        lambda: ask("nvmlDeviceGetTemperature", 0),  # 0: the chip
        lambda: ask(why, wide=True),
        lambda: ask("nvmlDeviceGetTotalEnergyConsumption", wide=True) * 1e-3,
    ).know(
        power_cap_watts=lambda: ask("nvmlDeviceGetEnforcedPowerLimit") * 1e-3,
        max_mhz=lambda: ask("nvmlDeviceGetMaxClockInfo", 1),
        driver=driver,
    )


def _pci(device: Device) -> str:
    """0000:05:00.0, which NVML, amdsmi and sysfs all know; empty where torch does not tell."""
    props = torch.cuda.get_device_properties(device.index) if torch.cuda.is_available() else None
    found = [getattr(props, f"pci_{part}_id", -1) for part in ("domain", "bus", "device")]
    return "{:04x}:{:02x}:{:02x}.0".format(*found) if min(found) >= 0 else ""


def amdsmi_sensors(device: Device, library: Any = None) -> Sensors:
    """AMD: its Python package, whose keys changed over the releases."""
    smi: Any = library or importlib.import_module("amdsmi")
    smi.amdsmi_init()
    handles = smi.amdsmi_get_processor_handles()
    bus = [str(smi.amdsmi_get_gpu_device_bdf(each)).lower() for each in handles]
    here = _pci(device)
    card = handles[bus.index(here) if here in bus else device.index]

    def first(found: Any, *keys: str) -> float:
        told = [float(found[k]) for k in keys if isinstance(found.get(k), int | float)]
        return next((value for value in told if 0 < value < 0xFFFF), math.nan)  # 0xFFFF…: none

    def celsius() -> float:
        kinds, now = smi.AmdSmiTemperatureType, smi.AmdSmiTemperatureMetric.CURRENT
        there = [getattr(kinds, k) for k in ("EDGE", "HOTSPOT", "JUNCTION") if hasattr(kinds, k)]
        asked = (partial(smi.amdsmi_get_temp_metric, card, kind, now) for kind in there)
        return _first(heat for heat in map(_or_nan, asked) if heat > 0.0)

    def reasons() -> float:
        found = smi.amdsmi_get_violation_status(card)
        causes = {"ppt_pwr": POWER_CAP, "prochot_thrm": SLOWDOWN, "socket_thrm": TOO_HOT,
                  "vr_thrm": TOO_HOT, "hbm_thrm": TOO_HOT}  # fmt: skip
        return sum({bit for name, bit in causes.items() if found.get(f"active_{name}") == 1})

    def joules() -> float:
        found = smi.amdsmi_get_energy_count(card)
        count = found.get("energy_accumulator", found.get("power"))
        return float(count) * float(found["counter_resolution"]) * 1e-6

    def clock() -> Any:
        return smi.amdsmi_get_clock_info(card, smi.AmdSmiClkType.GFX)

    return Sensors(
        lambda: first(
            smi.amdsmi_get_power_info(card), "current_socket_power", "average_socket_power"
        ),
        lambda: first(clock(), "clk", "cur_clk"), celsius, reasons, joules,
    ).know(
        power_cap_watts=lambda: smi.amdsmi_get_power_cap_info(card)["power_cap"] * 1e-6,
        max_mhz=lambda: first(clock(), "max_clk"),
        driver=lambda: str(smi.amdsmi_get_gpu_driver_info(card)["driver_version"]),
    )  # fmt: skip


def _number(path: Path, scale: float = 1.0) -> float:
    """A file of sysfs; nan where it cannot be read."""
    return _or_nan(lambda: float(path.read_text()) * scale)


def _first(values: Iterable[float]) -> float:
    return next((value for value in values if value == value), math.nan)


def _mean(values: Iterable[float]) -> float:
    known = [value for value in values if value == value]
    return sum(known) / len(known) if known else math.nan


def hwmon_sensors(device: Device, root: Path = Path("/")) -> Sensors:
    """AMD: what the kernel tells."""
    cards = sorted((root / "sys/class/drm").glob("card[0-9]*/device/hwmon/hwmon*"))
    cards = [c for c in cards if (c.parents[1] / "vendor").read_text().strip() == AMD]
    here = [c for c in cards if c.parents[1].resolve().name == _pci(device)]
    card = here[0] if here else cards[device.index]
    return Sensors(
        lambda: _first(_number(card / f"power1_{n}", 1e-6) for n in ("average", "input")),
        lambda: _number(card / "freq1_input", 1e-6),
        lambda: _number(card / "temp1_input", 1e-3),
    ).know(power_cap_watts=lambda: _number(card / "power1_cap", 1e-6))


def cpu_sensors(root: Path = Path("/")) -> Sensors:
    """A CPU: what the kernel tells, where it does; RAPL is often for root alone."""
    system = root / "sys/devices/system/cpu"
    clocks = sorted(system.glob("cpu[0-9]*/cpufreq/scaling_cur_freq"))
    clocks = clocks[:: max(1, len(clocks) // CLOCKS_READ)]
    zones = sorted((root / "sys/class/thermal").glob("thermal_zone*"))
    heats = [z / "temp" for z in zones if _is_cpu(z / "type", ("pkg", "cpu", "core", "soc"))]
    chips = sorted((root / "sys/class/hwmon").glob("hwmon*"))
    heats += [c / "temp1_input" for c in chips if _is_cpu(c / "name", ("k10temp", "coretemp"))]

    def mhz() -> float:
        if clocks:
            return _mean(_number(path, 1e-3) for path in clocks)
        lines = (root / "proc/cpuinfo").read_text().splitlines()
        return _mean(float(x.partition(":")[2]) for x in lines if x.startswith("cpu MHz"))

    def celsius() -> float:
        known = [heat for heat in (_number(path, 1e-3) for path in heats) if heat == heat]
        return max(known, default=math.nan)

    return Sensors(mhz=mhz, celsius=celsius, joules=Rapl(root).joules).know(
        max_mhz=lambda: _number(system / "cpu0/cpufreq/cpuinfo_max_freq", 1e-3)
    )


def _is_cpu(label: Path, names: tuple[str, ...]) -> bool:
    try:
        said = label.read_text().lower()
    except OSError:
        return False
    return any(name in said for name in names)


class Rapl:
    """Joules of all packages since the first reading; each counter wraps around at its range."""

    def __init__(self, root: Path) -> None:
        domains = (root / "sys/class/powercap").glob("intel-rapl:*")
        # intel-rapl:0:1 is a part of package 0, and psys holds the packages once more.
        self.packages = [d for d in sorted(domains) if _is_cpu(d / "name", ("package",))]
        self.ranges = [_number(d / "max_energy_range_uj") for d in self.packages]
        self.last = self._counters()
        self.total = 0.0  # µJ

    def _counters(self) -> list[float]:
        return [_number(package / "energy_uj") for package in self.packages]

    def joules(self) -> float:
        """What was used so far; nan where no counter may be read."""
        if not self.packages:
            return math.nan
        now = self._counters()
        for new, old, whole in zip(now, self.last, self.ranges, strict=True):
            self.total += new - old + (whole if new < old else 0.0)
        self.last = now
        return self.total * 1e-6
