"""Tables of kernels on AMD's accelerators, of what AITER's tuner measured.

AITER is the library whose kernels vLLM and SGLang run on them. Its configurations list, shape by
shape, the kernel that was fastest and the microseconds it took by torch's profiler: 101 calls, each
on operands of its own where memory holds so many (aiter/test_common.py, perftest). What narrows an
input is a kernel of its own, and not in the time. A file names the chip by its compute units alone:
304 are a MI300X's or a MI325X's, 256 of gfx950 a MI350X's or a MI355X's; rows are entered as of the
first and the last of these four.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator, Mapping
from io import StringIO
from typing import Any, Final

from rebuild.kernels import LONGEST_NAME, PRODUCT_SEED, drawn, is_narrow, sorted_by, written

CHIPS: Final = {("gfx942", "304"): "mi300x", ("gfx950", "256"): "mi355x"}
OF_UNITS: Final = {units: gfx for gfx, units in CHIPS}  # older files do not name the architecture
DRAWN: Final = 4000  # products of each chip and format that are not narrow
PER_TOKEN: Final = {"fp8": "fp8", "int8": "sq"}
NARROWEST: Final = "w4a4_mxfp4"
EXPERTS: Final = {
    ("bf16", "bf16", "No"): "bfloat16",
    ("bf16", "i4", "per_1x32"): "int4_wo",
    ("bf16", "fp4", "per_1x32"): "w4a16_mxfp4",
    ("fp4", "fp4", "per_1x32"): NARROWEST,
    ("fp8", "fp4", "per_1x32"): "w4a8_mxfp4_mxfp8",
    ("fp8", "fp8", "per_1x128"): "fp8_block",
    ("fp8", "fp8", "per_Token"): "fp8",
}
"""Formats of inputs and weights, and what shares a scale -> the format as tables call it."""
SHORT: Final = {
    "torch.bfloat16": "bf16",
    "torch.int4": "i4",
    "torch.int8": "int8",
    "torch.float4_e2m1fn_x2": "fp4",
    "torch.float8_e4m3fn": "fp8",
    "torch.float8_e4m3fnuz": "fp8",
}
Row = dict[str, Any]


def product_table(files: Mapping[str, bytes]) -> str:
    """amd/gemm.csv: of every chip and format so many products, and a tenth as many narrow ones."""
    luck = random.Random(PRODUCT_SEED)
    pools: dict[tuple[str, str], list[Row]] = {}
    for file, row in _rows(files, "gemm"):
        form = _format(file, row)
        if form:
            chip = CHIPS[row["gfx"], row["cu_num"]]
            made = {
                "gpu": chip,
                "dtype": form,
                **{side: int(row[side.upper()]) for side in "mnk"},
                "latency_us": float(row["us"]),
                "backend": "aiter",
                "version": "",
                "kernel": (row.get("libtype") or "")[:LONGEST_NAME],
                "copies": 101,
                "cast": "apart",
            }
            pools.setdefault((chip, form), []).append(made)
    chosen = []
    for _, pool in sorted(pools.items()):
        pool = sorted_by(pool, ("m", "n", "k", "latency_us"))
        for narrow, most in ((False, DRAWN), (True, DRAWN // 10)):
            side = [row for row in pool if is_narrow(row) == narrow]
            chosen += side if len(side) <= most else luck.sample(side, most)
    return written(chosen)


def expert_table(files: Mapping[str, bytes]) -> str:
    """amd/moe.csv: every layer, both of its products; sorting and narrowing are kernels apart."""
    sizes = ("num_tokens", "hidden", "inter", "topk", "experts")
    made = []
    for _, row in _rows(files, "fmoe"):
        said = (SHORT.get(row["q_dtype_a"], ""), SHORT.get(row["q_dtype_w"], ""))
        form = EXPERTS.get((*said, row["q_type"].removeprefix("QuantType.")))
        if form and row["use_g1u1"] == "1":
            made.append(
                {
                    "gpu": CHIPS[row["gfx"], row["cu_num"]],
                    "dtype": form,
                    "num_tokens": int(row["token"]),
                    "hidden": int(row["model_dim"]),
                    "inter": int(row["inter_dim"]),
                    "topk": int(row["topk"]),
                    "experts": int(row["expert"]),
                    "moe_tp": 1,
                    "moe_ep": 1,
                    "distribution": "balanced",
                    "latency_us": float(row["us"]),
                    "backend": "aiter",
                    "version": "",
                    "kernel": row["kernelName1"][:LONGEST_NAME],
                }
            )
    return written(drawn(made, ("gpu", "dtype"), sizes, "num_tokens", len(made)))


def _rows(files: Mapping[str, bytes], kind: str) -> Iterator[tuple[str, Row]]:
    """Measured rows of the chips that are taken, of the files of one kind, and the file of each."""
    for file in sorted(files):
        if kind not in file:
            continue
        for row in csv.DictReader(StringIO(files[file].decode())):
            row.setdefault("gfx", OF_UNITS.get(row["cu_num"], ""))
            if (row["gfx"], row["cu_num"]) in CHIPS and float(row["us"] or 0.0) > 0.0:
                yield file, row


def _format(file: str, row: Row) -> str:
    """The format of a product, by its file; empty of one that no table has."""
    if "a4w4" in file:
        return NARROWEST
    if "blockscale" in file:
        return "fp8_block"
    if "bf16" in file:
        return "bfloat16" if row["dtype"] == "torch.bfloat16" and row["bias"] == "False" else ""
    return PER_TOKEN.get(SHORT.get(row["q_dtype_w"], ""), "")
