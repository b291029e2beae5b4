"""Tables of kernels and collectives, of aiconfigurator's database of measured kernels.

Its files hold some million rows, many of them neighbours; a table here is a sample that is spread
over the sizes. The draw is the one by which the shipped profiles were fitted and judged: generators
and seeds are fixed, and the checksum of the table says whether the same rows came out.
"""

from __future__ import annotations

import csv
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from io import BytesIO, StringIO
from statistics import median
from typing import Any, Final, NamedTuple

import numpy as np

from rebuild.sources import CannotFetch

CHIPS: Final = ("a100", "h100", "h200", "b200", "l40s")
SYSTEMS: Final = {"a100": "a100_sxm", "h100": "h100_sxm", "h200": "h200_sxm", "b200": "b200_sxm"}
NARROW: Final = 256  # products of fewer rows or columns of weights are drawn apart, one in eleven
PRODUCT_SEED: Final = 11
SHAPE_SEED: Final = 0
ATTENTION_OF_A_LENGTH: Final = 40
EXPERTS_OF_A_BATCH: Final = 12
ITEM_BYTES: Final = {"half": 2, "bfloat16": 2, "int8": 1}
LONGEST_NAME: Final = 40  # letters of a product's kernel that are kept
Files = Mapping[str, bytes]
Row = dict[str, Any]


class Part(NamedTuple):
    """Rows of one file: an engine's kernels on a chip, of some number formats."""

    chip: str
    backend: str
    version: str
    formats: tuple[str, ...] = ()
    drawn: int = 0  # products that are not narrow, of each format


PRODUCTS: Final = (
    Part("a100", "sglang", "0.5.10", ("bfloat16",), 4000),
    Part("a100", "trtllm", "1.0.0", ("int4_wo", "int8_wo", "sq"), 900),
    Part("h100", "vllm", "0.24.0", ("bfloat16", "fp8"), 4000),
    Part("h100", "trtllm", "1.3.0rc20", ("fp8_block",), 1500),
    Part("h200", "vllm", "0.24.0", ("bfloat16", "fp8"), 4000),
    Part("h200", "trtllm", "1.3.0rc20", ("fp8_block",), 1500),
    Part("h200", "trtllm", "1.2.0rc5", ("int4_wo", "int8_wo", "sq"), 900),
    Part("b200", "vllm", "0.24.0", ("bfloat16", "fp8", "nvfp4"), 4000),
    Part("b200", "trtllm", "1.3.0rc20", ("fp8_block",), 1500),
    Part("l40s", "vllm", "0.24.0", ("bfloat16", "fp8"), 4000),
    Part("l40s", "trtllm", "1.3.0rc20", ("fp8_block",), 1500),
    Part("l40s", "trtllm", "1.0.0", ("int4_wo", "int8_wo", "sq"), 900),
)
LAYERS: Final = tuple(  # attention and experts
    Part(chip, *(("sglang", "0.5.10") if chip == "a100" else ("vllm", "0.24.0"))) for chip in CHIPS
)
_LIBRARIES: Final = ("nccl", "sglang", "trtllm", "vllm")
_RELEASES: Final = {
    "a100": ("2.27.3", "0.5.10", "1.0.0", "0.14.0"),
    "h100": ("2.29.2", "0.5.14", "1.3.0rc20", "0.24.0"),
    "h200": ("2.29.2", "0.5.14", "1.3.0rc20", "0.24.0"),
    "b200": ("2.29.2", "0.5.14", "1.3.0rc20", "0.24.0"),
    "l40s": ("2.27.3", "0.5.14", "1.3.0rc20", "0.22.0"),
}
COLLECTIVES: Final = tuple(
    Part(chip, library, release)
    for chip in CHIPS
    for library, release in zip(_LIBRARIES, _RELEASES[chip], strict=True)
)


def product_table(files: Files) -> str:
    """ops/gemm.csv: of every format so many products, and a tenth as many narrow ones."""
    luck = random.Random(PRODUCT_SEED)  # one for all, so that chips are sampled at other shapes
    made = []
    for part in PRODUCTS:
        rows = _read(files, part, "gemm", "gemm_perf")
        for form in part.formats:
            shapes = [
                {
                    "gpu": part.chip,
                    "dtype": form,
                    "m": row["m"],
                    "n": row["n"],
                    "k": row["k"],
                    "latency_us": row["latency"],
                    "backend": part.backend,
                    "version": part.version,
                    "kernel": row["kernel_source"][:LONGEST_NAME],
                }
                for row in rows
                if row["gemm_dtype"] == form
            ]
            shapes.sort(key=lambda row: (row["m"], row["n"], row["k"]))
            narrow = [row for row in shapes if is_narrow(row)]
            wide = [row for row in shapes if not is_narrow(row)]
            made += luck.sample(wide, part.drawn) + luck.sample(narrow, part.drawn // 10)
    return written(_in_microseconds(made))


def is_narrow(row: Row) -> bool:
    """Whether a product's weights have few rows or columns."""
    return bool(min(row["n"], row["k"]) < NARROW)


def prefill_table(files: Files) -> str:
    """ops/attention_prefill.csv."""
    return _attention(files, "context_attention_perf", "isl", lambda row: row["isl"])


def decode_table(files: Files) -> str:
    """ops/attention_decode.csv: a sequence of `isl` tokens that is already `step` longer."""
    return _attention(
        files, "generation_attention_perf", "kv_len", lambda row: row["isl"] + row["step"]
    )


def _attention(files: Files, file: str, named: str, length: Callable[[Row], int]) -> str:
    """Attention without a window: so many shapes of every length and cache format."""
    sizes = ("head_dim", "num_heads", "num_kv_heads", "window", "batch", named)
    made = []
    for part in LAYERS:
        shapes = [
            {
                "gpu": part.chip,
                "attn_dtype": row["attn_dtype"],
                "kv_dtype": row["kv_cache_dtype"],
                "head_dim": row["head_dim"],
                "num_heads": row["num_heads"],
                "num_kv_heads": row["num_key_value_heads"],
                "window": 0,
                "batch": row["batch_size"],
                named: length(row),
                "latency_us": row["latency"],
                "backend": part.backend,
                "version": part.version,
                "kernel": row["kernel_source"],
            }
            for row in _read(files, part, "attention", file)
            if not row.get("window_size")
        ]
        made += drawn(shapes, ("attn_dtype", "kv_dtype"), sizes, named, ATTENTION_OF_A_LENGTH)
    return written(_in_microseconds(made))


def expert_table(files: Files) -> str:
    """ops/moe.csv: so many layers of every number of tokens and format."""
    sizes = (
        "num_tokens", "hidden", "inter", "topk", "experts", "moe_tp", "moe_ep", "distribution",
    )  # fmt: skip
    made = []
    for part in LAYERS:
        layers = [
            {
                "gpu": part.chip,
                "dtype": row["moe_dtype"],
                "num_tokens": row["num_tokens"],
                "hidden": row["hidden_size"],
                "inter": row["inter_size"],
                "topk": row["topk"],
                "experts": row["num_experts"],
                "moe_tp": row["moe_tp_size"],
                "moe_ep": row["moe_ep_size"],
                "distribution": row["distribution"],
                "latency_us": row["latency"],
                "backend": part.backend,
                "version": part.version,
                "kernel": row["kernel_source"],
            }
            for row in _read(files, part, "moe", "moe_perf")
        ]
        made += drawn(layers, ("dtype",), sizes, "num_tokens", EXPERTS_OF_A_BATCH)
    return written(_in_microseconds(made))


def collective_table(files: Files) -> str:
    """ops/collectives.csv: every row; sizes in bytes, where the files count elements."""
    made = []
    for part in COLLECTIVES:
        of_nccl = part.backend == "nccl"
        file, form = ("nccl_perf", "nccl") if of_nccl else ("custom_allreduce_perf", "allreduce")
        made += [
            {
                "gpu": part.chip,
                "op": row["op_name"],
                "library": part.backend if of_nccl else f"{part.backend}_custom_ar",
                "version": part.version,
                "dtype": row[f"{form}_dtype"],
                "gpus": row["num_gpus"],
                "bytes": row["message_size"] * ITEM_BYTES[row[f"{form}_dtype"]],
                "kernel": row["kernel_source"],
                "latency_us": row["latency"],
            }
            for row in _read(files, part, "comm", file)
        ]
    return written(_in_microseconds(sorted_by(made, list(made[0]))))


def drawn(
    rows: Iterable[Row], form: Sequence[str], sizes: Sequence[str], spread: str, most: int
) -> list[Row]:
    """Of every format and every value of the column `spread`, so many rows, sorted by size.

    Every draw starts from the same seed: where two chips were measured at the same shapes, the
    same shapes are drawn. What was measured twice counts once, its median.
    """
    repeats: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        repeats[tuple(row[column] for column in (*form, *sizes))].append(row)
    once = [
        {**same[0], "latency_us": median(row["latency_us"] for row in same)}
        for same in repeats.values()
    ]
    pools: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in sorted_by(once, sizes):
        pools[tuple(row[column] for column in (*form, spread))].append(row)
    chosen = []
    for pool in pools.values():
        order = np.random.RandomState(SHAPE_SEED).permutation(len(pool))
        chosen += [pool[at] for at in order[:most]]
    return sorted_by(chosen, (*form, *sizes))


def sorted_by(rows: Iterable[Row], columns: Sequence[str]) -> list[Row]:
    return sorted(rows, key=lambda row: [row[column] for column in columns])


def _read(files: Files, part: Part, kind: str, file: str) -> list[Row]:
    """A Parquet file as rows."""
    try:
        from pyarrow import parquet
    except ImportError:
        raise CannotFetch("pyarrow, which reads these files, is not installed") from None
    system = SYSTEMS.get(part.chip, part.chip)
    path = f"data/{system}/{kind}/{part.backend}/{part.version}/{file}.parquet"
    return parquet.read_table(BytesIO(files[path])).to_pylist()


def _in_microseconds(rows: Iterable[Row]) -> list[Row]:
    """The files count milliseconds, a table microseconds."""
    return [{**row, "latency_us": row["latency_us"] * 1e3} for row in rows]


def written(rows: Sequence[Row]) -> str:
    """A CSV file, with microseconds to the nanosecond."""
    out = StringIO()
    write = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    write.writeheader()
    write.writerows({**row, "latency_us": round(row["latency_us"], 3)} for row in rows)
    return out.getvalue()
