"""Kernels that no profile was fitted to: shapes of real models, drawn by another hand.

    python benchmarks/unseen_kernels.py FOLDER [--seconds 90] [--device cuda] [--without PROFILE]
writes matmul.csv, attention.csv and memory.csv in the columns of kernel tables. Then
    trueflops verify FOLDER/*.csv --profile PROFILE.json
says how far a measured profile misses them, and by how much less than the shipped one. Shapes are
those of model families cut over 1 to 8 ranks at any number of tokens, none twice and none that
PROFILE was fitted to.
"""

from __future__ import annotations

import argparse
import csv
import random
import time
from collections.abc import Iterator
from pathlib import Path

from trueflops.measure.attention import attention_job, attention_kernels
from trueflops.measure.device import Device, find_device
from trueflops.measure.job import Job
from trueflops.measure.kernels import memory_job, memory_kinds
from trueflops.measure.products import Product, has_kernel
from trueflops.measure.resume import read
from trueflops.measure.sections import product_job
from trueflops.records.measured import Row

# hidden, ffn, heads, kv heads, head dimension, vocabulary
MODELS = {
    "Llama-3.1-8B": (4096, 14336, 32, 8, 128, 128256),
    "Llama-3.1-70B": (8192, 28672, 64, 8, 128, 128256),
    "Llama-2-7B": (4096, 11008, 32, 32, 128, 32000),
    "Llama-2-13B": (5120, 13824, 40, 40, 128, 32000),
    "Qwen2.5-0.5B": (896, 4864, 14, 2, 64, 151936),
    "Qwen2.5-14B": (5120, 13824, 40, 8, 128, 152064),
    "Qwen3-4B": (2560, 9728, 32, 8, 128, 151936),
    "Mistral-Small-24B": (5120, 32768, 32, 8, 128, 131072),
    "Gemma-2-9B": (3584, 14336, 16, 8, 256, 256000),
    "Phi-3-mini": (3072, 8192, 32, 32, 96, 32064),
    "GPT-2-XL": (1600, 6400, 25, 25, 64, 50304),
    "GPT-3-13B": (5120, 20480, 40, 40, 128, 50304),
    "OPT-1.3B": (2048, 8192, 32, 32, 64, 50272),
}


def products(dtype: str) -> Iterator[Product]:
    """Projections of a model on one of 1 to 8 tensor-parallel ranks."""
    draw = random.Random(f"unseen {dtype}")
    step = 16 if dtype == "fp8" else 1
    while True:
        hidden, ffn, heads, kv, head_dim, vocab = draw.choice(list(MODELS.values()))
        tp = draw.choice((1, 1, 2, 4, 8))
        n, k = draw.choice(
            (
                ((heads + 2 * kv) * head_dim // tp, hidden),
                (hidden, heads * head_dim // tp),
                (2 * ffn // tp, hidden),
                (ffn // tp, hidden),
                (hidden, ffn // tp),
                (vocab // tp, hidden),
            )
        )
        tokens = draw.choice((round(2 ** draw.uniform(0, 14.3)), 2 ** draw.randrange(15)))
        m = max(step, -(-tokens // step) * step)
        product = Product(m, n // 16 * 16, k // 16 * 16, dtype)
        if product.flop <= 1e13 and m * n <= 2**29:
            yield product


def jobs(device: Device) -> dict[str, list[Iterator[Job]]]:
    """Tables, each filled from several streams in turn."""

    def timed(dtype: str) -> Iterator[Job]:
        return (product_job(device, p, "matmul", p.copies(device)) for p in products(dtype))

    def attended() -> Iterator[Job]:
        draw, kernel = random.Random("unseen attention"), attention_kernels(device)[0]
        while True:
            _, _, heads, kv, head_dim, _ = draw.choice(list(MODELS.values()))
            tp = draw.choice([t for t in (1, 2, 4, 8) if kv % t == 0 and heads % t == 0])
            seq, batch = (
                draw.choice((384, 512, 1536, 2048, 4096, 6000, 8192)),
                draw.choice((1, 2, 3, 6)),
            )
            if batch * heads // tp * seq**2 * head_dim <= 2**41:
                for way in ("forward", "backward"):
                    shape = (batch, seq, heads // tp, kv // tp, head_dim)
                    yield attention_job(device, shape, kernel, way)

    def moved() -> Iterator[Job]:
        draw, kinds = random.Random("unseen memory"), memory_kinds(device)
        while True:
            kind = draw.choice([k for k in kinds if k != "dropout"])
            hidden, ffn, *_, vocab = draw.choice(list(MODELS.values()))
            rows = round(2 ** draw.uniform(5, 14))
            columns = vocab if kind.startswith("cross") else draw.choice((hidden, ffn))
            if rows * columns <= 2**29:
                yield memory_job(device, kind, kinds[kind], rows, columns)

    dtypes = [d for d in ("bf16", "fp8", "fp32") if has_kernel(d, device)]
    wanted = dtypes if device.is_cpu else [d for d in dtypes if d != "fp32"]
    return {"matmul": [timed(d) for d in wanted], "attention": [attended()], "memory": [moved()]}


def _fitted(profile: Path | None) -> dict[str, list[Row]]:
    return read(profile).tables if profile else {}


def _told(table: str, cells: Row) -> str:
    """What a kernel is, cold or hot and in whatever layout."""
    left_out = ("latency_us", "p10_us", "p90_us", "layout", "copies", "cast", "eager")
    return f"{table} {sorted((k, str(v)) for k, v in cells.items() if k not in left_out)}"


def main() -> None:
    """Time as much as the seconds allow and write the tables."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("folder", type=Path)
    words.add_argument("--seconds", type=float, default=90.0)
    words.add_argument("--device", default="")
    words.add_argument("--without", type=Path, help="a profile whose shapes are left out")
    words.add_argument("--gpu", default="h200", help="the chip's name in the tables")
    asked = words.parse_args()
    words_seen = {_told(t, r) for t, rows in _fitted(asked.without).items() for r in rows}
    device = find_device(asked.device)
    streams = jobs(device)
    each = asked.seconds / sum(len(many) for many in streams.values())
    asked.folder.mkdir(parents=True, exist_ok=True)
    for table, many in streams.items():
        rows = []
        for stream in many:
            until = time.monotonic() + each
            while time.monotonic() < until:
                job = next(stream)
                if (told := _told(table, job.cells)) in words_seen:
                    continue
                words_seen.add(told)
                try:
                    rows.append({"gpu": asked.gpu, **job.cells, **job.measure()})
                except RuntimeError as error:
                    print(f"skipped {job.cells}: {str(error).splitlines()[0][:100]}")
                    device.release()
        with (asked.folder / f"{table}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        print(f"{table}: {len(rows)} rows")


if __name__ == "__main__":
    main()
