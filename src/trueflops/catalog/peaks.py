"""Peaks from first principles: units × FMA per clock and unit × 2 × clock.

FMA per clock and unit are facts of the architecture, dense and per dtype; where a chip's units and
clock are known the product must give its printed peak (a test).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trueflops.catalog.accelerators import Accelerator

# Tensor cores are cut as a whole (`compute.tensor_share` of a chip) or, on GeForce cards, where
# they sum in fp32 (`consumer_share` of an architecture).
_SUMMED_IN_FP32: Final = ("tf32", "fp16", "bf16", "fp8")
_BY_TENSOR_CORES: Final = (*_SUMMED_IN_FP32, "int8", "int4")


def computed_peak(chip: Accelerator, dtype: str) -> float | None:
    """Units × FMA/clock × 2 × clock, or None where the facts do not allow it."""
    clock, count = chip.get("compute.clock"), chip.get("compute.units")
    fma = chip.architecture.fma_per_clock.get(dtype)
    if fma is None or clock is None or count is None:
        return None
    if dtype in _BY_TENSOR_CORES:
        fma *= chip.get("compute.tensor_share") or 1.0
    if dtype in _SUMMED_IN_FP32 and chip.form == "consumer":
        fma *= chip.architecture.consumer_share
    return count * fma * 2.0 * clock


DEPARTURES: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "A10G": (("fp16", "bf16", "int8", "int4"), "published rates are 0.55 of an A10's; unresolved"),
    "B200-SXM-180GB": (
        ("tf32", "fp16", "bf16", "fp8", "int8", "fp6", "fp4"),
        "printed at 1.856 GHz, below the boost clock",
    ),
    "H20-96GB": (
        ("fp64", "fp32"),
        "fp64 cut; fp32 printed at 2.2 GHz, which no GH100 runs at: unresolved",
    ),
    "TITAN V": (("fp16",), "printed at 1.34 GHz, below the boost clock"),
    **dict.fromkeys(
        (
            "H100-SXM5-80GB",
            "H100-SXM5-96GB-HBM2e",
            "H200-SXM-141GB",
            "GH200-96GB",
            "GH200-144GB",
        ),
        (("fp64", "fp64_tensor", "fp32"), "vector rates are printed at 1.98 GHz"),
    ),
    "H800-SXM5-80GB": (("fp64", "fp64_tensor", "fp32"), "fp64 cut; fp32 printed at 1.98 GHz"),
    "H800-PCIe-80GB": (
        ("fp64", "fp64_tensor", "tf32", "fp16", "bf16", "fp8", "int8"),
        "fp64 cut; tensor rates printed at 1.62 GHz",
    ),
    "H100-PCIe-80GB": (("tf32", "fp16", "bf16", "fp8", "int8"), "tensor rates printed at 1.62 GHz"),
    **dict.fromkeys(
        ("H100-NVL-94GB", "H200-NVL-141GB"),
        (("tf32", "fp16", "bf16", "fp8", "int8"), "tensor rates printed at 1.545 GHz"),
    ),
}
"""Printed peaks that are not units × FMA × 2 × the listed clock, and why."""
