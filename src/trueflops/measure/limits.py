"""Physical limits: a rate above one is a timer's error, not a discovery.

Limits are the datasheet's, as {"peak.bf16": flop/s, "memory.bandwidth": bytes/s, …}; where a
device has no datasheet there is none to break. Standard library alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trueflops.measure.record import Row

TOLERANCE: Final = 1.02
_PEAK_OF: Final = {"fp8_row": "fp8", "fp8_fast": "fp8", "bf16_2:4": "bf16", "fp64": "fp64_tensor"}
_SPARSE: Final = {"bf16_2:4": 2.0}
_DTYPES: Final = {"bfloat16": "bf16", "float32": "fp32"}
LARGE: Final = 8.0  # times the cache: what surely comes from memory
_PRODUCTS: Final = {"forward": 1.0, "backward": 2.5}

Limits = Mapping[str, float]


def beyond(table: str, row: Row, limits: Limits) -> str:
    """Which limit a row breaks, and by how much; empty where it breaks none."""
    for rate, path, times in _rates(table, row, limits):
        limit = times * limits.get(path, 0.0)
        if limit and rate > TOLERANCE * limit:
            return f"{rate:.4g} is {rate / limit:.2f} × the limit {path} = {limit:.4g}"
    return ""


def _rates(table: str, row: Row, limits: Limits) -> list[tuple[float, str, float]]:
    """(rate, limit, times) of a row."""

    def cell(name: str) -> float:
        return float(row.get(name) or 0.0)

    seconds = cell("latency_us") * 1e-6 or cell("seconds_per_launch")
    if seconds <= 0.0:
        return []
    dtype = str(row.get("dtype", ""))
    if table in ("matmul", "other_products", "race") or row.get("load") == "matmul":
        flop = 2.0 * cell("m") * cell("n") * cell("k")
        peak = f"peak.{_PEAK_OF.get(dtype, dtype)}"
        return [(flop / seconds, peak, _SPARSE.get(dtype, 1.0))]
    if table == "attention":
        pairs = cell("batch") * cell("num_heads") * cell("isl") ** 2 / 2.0
        flop = _PRODUCTS.get(str(row.get("direction")), 1.0) * pairs * 4.0 * cell("head_dim")
        name = str(row.get("attn_dtype", ""))
        return [(flop / seconds, f"peak.{_DTYPES.get(name, name)}", 1.0)]
    if table == "bandwidth" and cell("bytes") > LARGE * limits.get("memory.l2", float("inf")):
        return [(cell("bandwidth"), "memory.bandwidth", 1.0)]
    if table == "host":
        both = 2.0 if row.get("way") == "both" else 1.0
        return [(cell("bandwidth"), "host.bandwidth", both)]
    return []
