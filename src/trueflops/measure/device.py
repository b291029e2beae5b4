"""Which device is measured, what it is, and how to wait for it.

CUDA and ROCm GPUs (torch calls both cuda), CPUs; XPU, MPS and HPU where torch has them.
"""

from __future__ import annotations

import math
import os
import platform
import subprocess
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import torch

from trueflops.errors import BadInput

KINDS: Final = ("cuda", "xpu", "hpu", "mps", "cpu")  # the first that is there is measured
DRAWN: Final = 2**20
CPU_ROOM: Final = 0.5  # of what memory is free, for buffers: a CPU shares it with everyone


@dataclass(frozen=True)
class Device:
    """One device as torch names it."""

    kind: str
    index: int = 0
    generators: dict[int, torch.Generator] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        """As torch writes it."""
        return self.kind if self.kind in ("cpu", "mps") else f"{self.kind}:{self.index}"

    @property
    def at(self) -> torch.device:
        """Where tensors are made."""
        return torch.device(str(self))

    @property
    def is_cpu(self) -> bool:
        """Whether launches return when they are done."""
        return self.kind == "cpu"

    @property
    def has_graphs(self) -> bool:
        """Whether launches can be captured and replayed without the host."""
        return self.kind == "cuda"

    @property
    def _module(self) -> Any:
        return getattr(torch, self.kind)

    def synchronize(self) -> None:
        """Wait until everything launched is done."""
        if not self.is_cpu:
            self._module.synchronize()

    def release(self, full: float = 0.0) -> None:
        """Give cached memory back, once more than a share of all memory is cached.

        What a captured graph allocated stays apart until then.
        """
        if self.is_cpu or not hasattr(self._module, "empty_cache"):
            return
        cached = torch.cuda.memory_reserved() if self.kind == "cuda" else math.inf
        if cached > full * self.identity["memory_bytes"]:
            self._module.empty_cache()

    @property
    def free_bytes(self) -> float:
        """What buffers may take."""
        if self.kind == "cuda":
            return float(torch.cuda.mem_get_info(self.index)[0])
        if self.is_cpu:
            return CPU_ROOM * _proc("/proc/meminfo", "MemAvailable", 8.0 * 2**20) * 1024.0
        return 0.5 * float(self.identity.get("memory_bytes") or 8 * 2**30)

    def normal(self, *shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        """Random data: zeros need less power and run 13-15 % faster on a GPU."""
        if self.is_cpu:  # drawing takes a CPU longer than most kernels: a block of it, repeated
            count = math.prod(shape)
            return self._drawn.repeat(-(-count // DRAWN))[:count].reshape(shape).to(dtype)
        wide = torch.empty(shape, device=self.at, dtype=torch.float32)
        return wide.normal_(generator=self._generator).to(dtype)

    def integers(
        self, low: int, high: int, *shape: int, dtype: torch.dtype = torch.int64
    ) -> torch.Tensor:
        """Random whole numbers."""
        made = torch.randint(low, high, shape, generator=self._generator, device=self.at)
        return made.to(dtype)

    @cached_property
    def _drawn(self) -> torch.Tensor:
        return torch.empty(DRAWN).normal_(generator=self._generator)

    @property
    def _generator(self) -> torch.Generator | None:
        """One of our own: the default one belongs to a graph in capture."""
        if self.kind in ("mps", "hpu"):
            return None
        if 0 not in self.generators:
            self.generators[0] = torch.Generator(self.at).manual_seed(0)
        return self.generators[0]

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What this device is: name, uuid, memory, units."""
        if self.kind == "cuda":
            found = torch.cuda.get_device_properties(self.index)
            return {
                "kind": "rocm" if torch.version.hip else "cuda",
                "name": found.name,
                "uuid": str(getattr(found, "uuid", "")),
                "memory_bytes": found.total_memory,
                "units": found.multi_processor_count,
                "l2_bytes": max(getattr(found, "L2_cache_size", 0), _behind_l2(found)),
                "capability": found.gcnArchName
                if torch.version.hip
                else f"{found.major}.{found.minor}",
            }
        if self.is_cpu:
            return _cpu_identity()
        if self.kind == "mps":
            total = int(torch.mps.recommended_max_memory())
            return {"kind": "mps", "name": _apple(), "uuid": _host(), "memory_bytes": total}
        name = getattr(self._module, "get_device_name", lambda _: self.kind)(self.index)
        known = getattr(self._module, "get_device_properties", lambda _: None)(self.index)
        total = int(getattr(known, "total_memory", 0)) or 8 * 2**30  # of any such device, at least
        return {"kind": self.kind, "name": str(name), "uuid": _host(), "memory_bytes": total}


def _cpu_identity() -> dict[str, Any]:
    name = platform.processor() or platform.machine()
    for line in _lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            name = line.partition(":")[2].strip()
            break
    else:
        part = _text("/sys/devices/virtual/dmi/id/sys_vendor")
        name = f"{part} {platform.machine()}".strip() or name
    return {
        "kind": "cpu",
        "name": f"{name} CPU" if "cpu" not in name.lower() else name,
        "uuid": _host(),
        "memory_bytes": int(_proc("/proc/meminfo", "MemTotal", 0.0) * 1024),
        "units": torch.get_num_threads(),
        "l2_bytes": cache_bytes(),
        "capability": torch.backends.cpu.get_cpu_capability(),
    }


def cache_bytes(root: Path = Path("/")) -> int:
    """The last-level caches of all of a machine's sockets and chiplets together."""
    levels: dict[int, dict[str, int]] = {}
    for index in (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cache/index*"):
        try:
            level, shared, size = (
                (index / name).read_text().strip() for name in ("level", "shared_cpu_list", "size")
            )
            levels.setdefault(int(level), {})[shared] = int(size.removesuffix("K")) * 2**10
        except (OSError, ValueError):
            continue
    return sum(levels[max(levels)].values()) if levels else 32 * 2**20


def _behind_l2(properties: Any) -> int:
    """CDNA3 and 4 have 256 MiB of Infinity Cache, which torch does not tell of."""
    arch = str(getattr(properties, "gcnArchName", "")) if torch.version.hip else ""
    return 256 * 2**20 if arch.startswith(("gfx94", "gfx95")) else 0


def _apple() -> str:
    try:
        asked = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "Apple GPU"


def _host() -> str:
    """Tells machines apart whose devices have no number, without naming them."""
    return f"host-{crc32(platform.node().encode()):08x}"


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _lines(path: str) -> list[str]:
    return _text(path).splitlines()


def _proc(path: str, key: str, usual: float) -> float:
    for line in _lines(path):
        if line.startswith(key):
            return float(line.split()[1])
    return usual


def find_device(text: str = "") -> Device:
    """The device of a name such as cuda:1 or cpu; the first accelerator where none is named."""
    kind, _, index = text.partition(":")
    if text and (kind not in KINDS or (index and not index.isdigit())):
        raise BadInput(f"--device {text[:40]!r}: one of {', '.join(KINDS)}, as cuda:1")
    for each in [kind] if kind else KINDS:
        count = device_count(each)
        if count > int(index or 0):
            return _activated(Device(each, int(index or 0)))
        if kind:
            raise BadInput(
                f"--device {text}: torch {torch.__version__} sees {count} of {kind} here"
            )
    raise BadInput("torch sees no device")  # never: a CPU is always there


def _activated(device: Device) -> Device:
    """Work goes to a stream of our own: what runs on the default one cannot be captured."""
    if device.kind in ("cuda", "xpu", "hpu"):
        getattr(torch, device.kind).set_device(device.index)
    if device.kind == "cuda":
        torch.cuda.set_stream(torch.cuda.Stream())
    return device


def device_count(kind: str) -> int:
    """How many devices of a kind torch can use."""
    if kind == "cpu":
        return 1
    if kind == "mps":
        return int(torch.backends.mps.is_available())
    module = getattr(torch, kind, None)
    return int(module.device_count()) if module is not None and module.is_available() else 0


def software() -> dict[str, str]:
    """Versions that decide which kernels run."""
    found = {"torch": torch.__version__, "python": platform.python_version()}
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    if torch.version.hip:
        found["hip"] = torch.version.hip
    if torch.backends.cudnn.is_available():
        found["cudnn"] = str(torch.backends.cudnn.version())
    if not torch.cuda.is_available():
        found["threads"] = str(torch.get_num_threads())
        found["blas"] = "mkl" if torch.backends.mkl.is_available() else "openblas"
    return found | {k: os.environ[k] for k in ("NVIDIA_TF32_OVERRIDE",) if k in os.environ}
