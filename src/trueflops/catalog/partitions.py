"""Slices of a GPU (MIG): which a chip can be divided into, and their shares of it.

In: a chip's name, memory and multiprocessors, and data/partitions.toml. Out: Slices, such as
3g.40gb. `accelerator("3g.40gb@H100")` is a device of its own. Slices reach one another only through
host memory: "No GPU-to-GPU P2P (either PCIe or NVLink) is supported" (NVIDIA's MIG user guide).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from trueflops.catalog.facts import DATA, read_toml
from trueflops.units import GIBI

AT: Final = "@"
SOURCE: Final = "nvidia-mig-guide"
_OF_COMPUTE: Final = ("peak.", "accumulate.", "measured.", "compute.units", "compute.tensor_cores")
_OF_MEMORY: Final = ("memory.capacity", "memory.bandwidth", "memory.l2")
WITHOUT: Final = ("links.scale_up", "links.scale_up_bandwidth", "links.scale_up_domain")


@dataclass(frozen=True)
class Slice:
    """One profile of a chip."""

    name: str  # 3g.40gb
    compute: float  # of the chip's multiprocessors
    memory: float  # of its memory, bandwidth and cache
    most: int  # on one chip

    def share(self, path: str) -> float:
        """Of a figure of the whole chip, what the slice has; power as multiprocessors."""
        if path.startswith(_OF_COMPUTE) or path == "power.tdp":
            return self.compute
        return self.memory if path in _OF_MEMORY else 1.0


def is_slice(name: str) -> bool:
    """Whether a name asks for a part of a chip."""
    return AT in name


def slices_of(chip: str, memory_bytes: float, units: float) -> tuple[Slice, ...]:
    """Every profile of a chip, the smallest first; none where it cannot be divided."""
    table = read_toml(DATA / "partitions.toml")
    counts: Mapping[str, Mapping[str, int]] = table["units"]
    counted = next((own for start, own in counts.items() if chip.startswith(start)), {})
    for kind in (table["sevenths"], table["fourths"]):
        if chip.startswith(tuple(kind["chips"])):
            return tuple(
                _slice(kind, each, memory_bytes, counted, units) for each in kind["profiles"]
            )
    return ()


def _slice(
    kind: Mapping[str, Any],
    each: Mapping[str, int],
    memory_bytes: float,
    counted: Mapping[str, int],
    units: float,
) -> Slice:
    memory = each["memory"] / kind["memory_slices"]
    gigabytes = int(memory_bytes / GIBI * memory + 0.5)
    share = each["compute"] / kind["compute_slices"]
    compute = str(each["compute"])
    if known := counted.get(f"{compute}.{each['memory']}", counted.get(compute)):
        share = known / units
    return Slice(f"{each['compute']}g.{gigabytes}gb", share, memory, each["most"])
