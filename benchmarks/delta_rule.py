"""What a decode step of linear attention takes on a GPU: the gated delta rule, token by token.

    python benchmarks/delta_rule.py FILE.csv

Needs Triton. Every head of every sequence reads its state of 128 × 128 numbers in fp32 and writes
it back; a block has a warp and some columns of values, as the kernels of flash-linear-attention,
vLLM and SGLang have. Heads are those of Qwen3-Next and Qwen3.5 on one of 1 to 8 ranks. The
columns that are fastest on average are those that count: engines choose them once.
"""

from __future__ import annotations

import csv
import sys
from itertools import product
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

from trueflops.measure.device import Device, find_device
from trueflops.measure.timing import copies_of, time_launch

WIDE = 128  # of a key, and of a value
SEQUENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
HEADS = ((2, 4), (4, 8), (8, 16), (16, 32), (16, 64))  # of keys, and of values
COLUMNS = (8, 16, 32, 64)


@triton.jit  # type: ignore[untyped-decorator]
def step(  # type: ignore[no-untyped-def]
    q, k, v, rates, state, out,
    key_heads: tl.constexpr, value_heads: tl.constexpr, wide: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    """S ← α·S;  S ← S + β·(v − S·k)·kᵀ;  o = S·q: some columns of a head (arXiv 2412.06464)."""
    part, row = tl.program_id(0), tl.program_id(1)
    own = (row // value_heads) * key_heads + (row % value_heads) // (value_heads // key_heads)
    at_key, at_value = tl.arange(0, wide), part * columns + tl.arange(0, columns)
    keys = tl.load(k + own * wide + at_key).to(tl.float32)
    queries = tl.load(q + own * wide + at_key).to(tl.float32)
    keys = keys / tl.sqrt(tl.sum(keys * keys) + 1e-6)
    queries = queries / tl.sqrt(tl.sum(queries * queries) + 1e-6) * wide**-0.5
    forget = tl.exp(-tl.exp(tl.load(rates + 2 * row).to(tl.float32)))
    write = tl.sigmoid(tl.load(rates + 2 * row + 1).to(tl.float32))
    place = state + row * wide * wide + at_key[:, None] * wide + at_value[None, :]
    held = tl.load(place) * forget
    value = tl.load(v + row * wide + at_value).to(tl.float32)
    change = (value - tl.sum(held * keys[:, None], 0)) * write
    held += keys[:, None] * change[None, :]
    tl.store(out + row * wide + at_value, tl.sum(held * queries[:, None], 0).to(tl.bfloat16))
    tl.store(place, held)


def seconds_of(device: Device, sequences: int, keys: int, heads: int, columns: int) -> float:
    """Of one launch; states lie in memory, not in cache."""
    rows = sequences * heads
    moved = rows * WIDE * (2 * WIDE * 4 + 4)
    copies = copies_of(moved, device)

    def made(*shape: int, dtype: torch.dtype = torch.bfloat16) -> list[torch.Tensor]:
        return [torch.randn(shape, device="cuda", dtype=dtype) for _ in range(copies)]

    narrow = [made(sequences * keys, WIDE) for _ in range(2)]
    values, rates, outs = made(rows, WIDE), made(rows, 2), made(rows, WIDE)
    states = made(rows, WIDE, WIDE, dtype=torch.float32)

    def launch(at: int) -> Any:
        return step[(WIDE // columns, rows)](
            narrow[0][at], narrow[1][at], values[at], rates[at], states[at], outs[at],
            key_heads=keys, value_heads=heads, wide=WIDE, columns=columns, num_warps=1,
        )  # fmt: skip

    return time_launch(device, launch, copies).seconds


def main() -> None:
    """Every shape by every number of columns."""
    device = find_device("cuda")
    with Path(sys.argv[1]).open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("gpu", "sequences", "key_heads", "value_heads", "columns", "latency_us"))
        for sequences, (keys, heads), columns in product(SEQUENCES, HEADS, COLUMNS):
            taken = seconds_of(device, sequences, keys, heads, columns)
            rows.writerow(("h200", sequences, keys, heads, columns, f"{1e6 * taken:.3f}"))
            file.flush()


if __name__ == "__main__":
    main()
