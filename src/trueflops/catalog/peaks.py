"""Peaks from first principles: units × FMA per clock and unit × 2 × clock.

FMA per clock and unit follow from the architecture's whitepaper, dense and per dtype; where a
chip's units and clock are known the product must give its printed peak (a test).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from trueflops.catalog.accelerators import Accelerator

# Tensor or matrix FMA per clock and unit (SM, CU) of the whole die.
_FMA: Final[Mapping[str, Mapping[str, float]]] = {
    "Pascal GP100": {"fp64": 32, "fp32": 64, "fp16": 128},
    "Volta GV100": {"fp64": 32, "fp32": 64, "fp16": 512},
    "Turing TU102": {"fp32": 64, "fp16": 512, "int8": 1024, "int4": 2048},
    "Turing TU104": {"fp32": 64, "fp16": 512, "int8": 1024, "int4": 2048},
    "Ampere GA100": {
        "fp64": 32,
        "fp64_tensor": 64,
        "fp32": 64,
        "tf32": 512,
        "fp16": 1024,
        "bf16": 1024,
        "int8": 2048,
        "int4": 4096,
    },
    "Ampere GA10x": {
        "fp32": 128,
        "tf32": 256,
        "fp16": 512,
        "bf16": 512,
        "int8": 1024,
        "int4": 2048,
    },
    "Ada AD10x": {
        "fp32": 128,
        "tf32": 256,
        "fp16": 512,
        "bf16": 512,
        "fp8": 1024,
        "int8": 1024,
        "int4": 2048,
    },
    "Hopper GH100": {
        "fp64": 64,
        "fp64_tensor": 128,
        "fp32": 128,
        "tf32": 1024,
        "fp16": 2048,
        "bf16": 2048,
        "fp8": 4096,
        "int8": 4096,
    },
    "Blackwell GB100": {
        "tf32": 2048,
        "fp16": 4096,
        "bf16": 4096,
        "fp8": 8192,
        "int8": 8192,
        "fp6": 8192,
        "fp4": 16384,
    },
    "Blackwell GB20x": {
        "fp32": 128,
        "tf32": 256,
        "fp16": 512,
        "bf16": 512,
        "fp8": 1024,
        "int8": 1024,
        "fp4": 2048,
    },
    "CDNA1 gfx908": {"fp64": 32, "fp32": 64, "fp16": 512, "bf16": 256, "int8": 512},
    "CDNA2 gfx90a": {
        "fp64": 64,
        "fp64_tensor": 128,
        "fp32": 64,
        "fp16": 512,
        "bf16": 512,
        "int8": 512,
    },
    "CDNA3 gfx942": {
        "fp64": 64,
        "fp64_tensor": 128,
        "fp32": 128,
        "tf32": 512,
        "fp16": 1024,
        "bf16": 1024,
        "fp8": 2048,
        "int8": 2048,
    },
    "CDNA4 gfx950": {
        "fp64": 64,
        "fp32": 128,
        "fp16": 2048,
        "bf16": 2048,
        "fp8": 4096,
        "int8": 4096,
        "fp6": 8192,
        "fp4": 8192,
    },
}
# Forms and chips whose tensor rates are cut, with fp32 accumulation or altogether: dtypes, factor.
_GEFORCE: Final = ("tf32", "fp16", "bf16", "fp8")
_SHARED: Final = re.compile(r"(Ampere GA10|Ada AD10|Blackwell GB20)[2-9B]$")  # one kind of SM
_CUT: Final[Mapping[str, tuple[tuple[str, ...], float]]] = {
    "consumer": (_GEFORCE, 2.0),
    "L40": ((*_GEFORCE, "int8", "int4"), 2.0),
    "H20-96GB": ((*_GEFORCE, "int8"), 4.0),
}
_WHOLE: Final[tuple[tuple[str, ...], float]] = ((), 1.0)


def computed_peak(chip: Accelerator, dtype: str) -> float | None:
    """Units × FMA/clock × 2 × clock, or None where the facts do not allow it."""
    clock, count = chip.get("compute.clock"), chip.get("compute.units")
    name = chip.architecture
    if name.startswith("Grace Hopper"):
        name = "Hopper GH100"
    elif name.startswith("Grace Blackwell (2x GB100"):
        name = "Blackwell GB100"
    elif name.startswith("CDNA3 gfx942"):
        name = "CDNA3 gfx942"
    elif die := _SHARED.match(name):
        name = f"{die[1]}x"
    fma = _FMA.get(name, {}).get(dtype)
    if fma is None or clock is None or count is None:
        return None
    form = _WHOLE if name.startswith("Volta") else _CUT.get(chip.form, _WHOLE)  # not TITAN V
    dtypes, ways = _CUT.get(chip.name, form)
    if dtype in dtypes:
        fma /= ways
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
