"""Physical limits: a rate above one is a timer's error, not a discovery.

Limits are the datasheet's, as {"peak.bf16": flop/s, "memory.bandwidth": bytes/s, …}; where a
device has no datasheet there is none to break. Standard library alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trueflops.records.ceilings import FROM_MEMORY, cell
from trueflops.records.formats import peak
from trueflops.records.measured import Row

TOLERANCE: Final = 1.02  # of a limit: what a clock's jitter and rounding may add
_DTYPES: Final = {"bfloat16": "bf16", "float32": "fp32"}
_PRODUCTS: Final = {"forward": 1.0, "backward": 2.5}

Limits = Mapping[str, float]


def beyond(table: str, row: Row, limits: Limits) -> str:
    """Which limit a row breaks, and by how much; empty where it breaks none."""
    for rate, limit, name in _rates(table, row, limits):
        if limit and rate > TOLERANCE * limit:
            return f"{rate:.4g} is {rate / limit:.2f} × the limit {name} = {limit:.4g}"
    return ""


def _rates(table: str, row: Row, limits: Limits) -> list[tuple[float, float, str]]:
    """(rate, limit, its name) of a row; a limit of 0 is not known."""
    seconds = cell(row, "latency_us") * 1e-6 or cell(row, "seconds_per_launch")
    if seconds <= 0.0:
        return []
    dtype = str(row.get("dtype", ""))
    if table in ("matmul", "other_products", "race") or row.get("load") == "matmul":
        flop = 2.0 * cell(row, "m") * cell(row, "n") * cell(row, "k")
        return [(flop / seconds, peak(dtype, limits), f"peak of {dtype}")]
    if table == "attention":
        pairs = cell(row, "batch") * cell(row, "num_heads") * cell(row, "isl") ** 2 / 2.0
        flop = _PRODUCTS.get(str(row.get("direction")), 1.0) * pairs * 4.0 * cell(row, "head_dim")
        name = str(row.get("attn_dtype", ""))
        name = _DTYPES.get(name, name)
        return [(flop / seconds, peak(name, limits), f"peak of {name}")]
    cache = limits.get("memory.l2", float("inf"))
    if table == "bandwidth" and cell(row, "bytes") > FROM_MEMORY * cache:
        return [(cell(row, "bandwidth"), limits.get("memory.bandwidth", 0.0), "memory.bandwidth")]
    if table == "host":
        both = 2.0 if row.get("way") == "both" else 1.0
        return [
            (cell(row, "bandwidth"), both * limits.get("host.bandwidth", 0.0), "host.bandwidth")
        ]
    return []
