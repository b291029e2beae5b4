"""A profile for a chip known only by its datasheet: shares of its peaks that others like it reach.

In: an Accelerator. Out: a Profile whose curves say `assumed`, or `measured` where the catalog
holds a measured matmul rate. A measured profile replaces it in place.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

from trueflops import units
from trueflops.catalog import Accelerator, Origin
from trueflops.catalog.facts import read_toml
from trueflops.profile.profile import Curve, Profile

_DATA: Final = Path(__file__).parent / "data" / "datasheet.toml"
_MATRIX: Final = ("matmul", "experts", "attention", "attention_backward", "attention_decode")


@cache
def _constants() -> dict[str, Any]:
    return read_toml(_DATA)


def from_datasheet(chip: Accelerator) -> Profile:
    """The profile of last resort."""
    constants = _constants()
    curves = {
        name: Curve(_numbers(raw), raw["error"], "assumed", raw["why"])
        for name, raw in constants.items()
        if name != "vendors"
    }
    reached, error, origin, why = _matmul_share(chip)
    usual = curves["matmul"]["efficiency"]
    for name in _MATRIX:
        # What a vendor's software reaches of its peak in matmul it also reaches elsewhere.
        scaled = {**curves[name].values, "efficiency": curves[name]["efficiency"] * reached / usual}
        spread = error if name == "matmul" else max(error, curves[name].error)
        curves[name] = Curve(scaled, spread, origin, why)
    return Profile(f"{chip.name} by datasheet", chip.name, curves)


def _matmul_share(chip: Accelerator) -> tuple[float, float, Origin, str]:
    """The share of the bf16 peak that large matmuls reach: measured, the vendor's, or usual."""
    constants = _constants()
    measured = chip.get("measured.matmul_bf16")
    if measured:
        share = measured / chip.peak_flop_per_second("bf16") * constants["matmul"]["sustained"]
        source = chip.facts["measured.matmul_bf16"].source
        return share, constants["matmul"]["error"], "measured", source
    if chip.vendor == "NVIDIA":
        own = constants["matmul"]
    else:
        own = constants["vendors"].get(chip.vendor, constants["vendors"]["other"])
    return own["efficiency"], own["error"], "assumed", own["why"]


def _numbers(raw: dict[str, Any]) -> dict[str, float]:
    return {
        key: _si(value) if isinstance(value, str) else float(value)
        for key, value in raw.items()
        if key not in ("error", "why")
    }


def _si(text: str) -> float:
    dimension = "bytes" if text.endswith("B") else "seconds"
    return units.parse(text, dimension, what="profile/data/datasheet.toml")
