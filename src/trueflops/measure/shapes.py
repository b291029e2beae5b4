"""Which products to time: those that models run, spread over all sizes, in a fixed random order.

A prefix of the list is as good a sample as the whole, so that a budget can end anywhere.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Final

from trueflops.measure.products import Product, sides_of

HIDDEN: Final = (
    768, 896, 1024, 1536, 1600, 2048, 2304, 2560, 3072, 3584, 4096, 5120, 6144, 7168, 8192, 10240,
    12288, 16384,
)  # fmt: skip
WIDE: Final = (
    2816, 4864, 5504, 6400, 8960, 11008, 13824, 14336, 18944, 20480, 28672, 32000, 50304, 128256,
)  # fmt: skip
RANKS: Final = (1, 1, 2, 4, 8)  # over which tensor parallelism cuts a side
MOST_ROWS: Final = 15.0  # doublings: a micro-batch of 32,768 tokens
_LAYOUTS: Final = ("nt", "nt", "nt", "nn", "tn")  # a forward and the two products of a backward
HOT: Final = 8  # one shape in so many is also timed with its weights in cache
_SMALL: Final = (
    64,
    128,
    192,
    256,
    344,
    384,
    512,
    688,
    768,
    1024,
    1376,
    1536,
    2048,
    2816,
    4096,
    8000,
)
_NARROW: Final = (16, 32, 48, 64, 96, 128, 192, 256, 320, 384, 512, 640)
_ODD: Final = (
    50257, 30522, 50265, 28996, 51865, 32003, 32001, 21841, 58101, 1001, 1, 2, 3, 4, 5, 6, 7, 10,
    13, 20, 21, 37, 77, 91, 100, 108, 150, 257, 300, 425, 650, 1500, 1023, 4095, 4098, 4100, 4102,
)  # fmt: skip
_SMALL_ROWS: Final = 12.0
LARGE: Final = 1e11  # flop: what a CPU does in a second


def products(dtype: str, most_flop: float, seed: int = 0) -> Iterator[Product]:
    """Products of transformers without end, no two the same.

    Sides are those of models, one of them cut over ranks; rows are any number of tokens, half the
    time a power of two.
    """
    draw = random.Random(f"{dtype} {seed}")
    large = most_flop >= LARGE
    sizes, most_rows = (HIDDEN + WIDE, MOST_ROWS) if large else (_SMALL, _SMALL_ROWS)
    step, seen = sides_of(dtype), set()
    while True:
        any_rows = round(2 ** draw.uniform(0.0, most_rows))
        m = draw.choice((any_rows, 2 ** draw.randint(0, round(most_rows))))
        n, k = draw.choice(sizes), draw.choice(sizes)
        cut = draw.choice(RANKS) if large else 1
        n, k = draw.choice(((n // cut, k), (n, k // cut)))
        layout = draw.choice(_LAYOUTS) if dtype in ("bf16", "fp16", "fp32", "tf32") else "nt"
        if layout == "tn":  # tokens are summed over: k is their number
            m, k = k, max(m, 16)
        elif layout == "nn":
            m = max(m, 16)
        if step > 1:
            m, n, k = (max(step, -(-size // step) * step) for size in (m, n, k))
        found = Product(m, n, k, dtype, layout)
        if found in seen or found.flop > most_flop or n * k > 2**28 or m * n > 2**29:
            continue
        seen.add(found)
        yield found


def odd_products(dtype: str, most_flop: float) -> Iterator[Product]:
    """Products of which 8 does not divide a side, without end, no two the same.

    Vocabularies, classes and widths as people have them, and others near usual sides; what no
    vector load fits are the sides that lie next to each other in memory.
    """
    draw, seen = random.Random(f"odd {dtype}"), set()
    while True:
        m = draw.choice((round(2 ** draw.uniform(0.0, MOST_ROWS)), 2 ** draw.randint(5, 15)))
        near = draw.choice(HIDDEN + WIDE + _NARROW) + draw.choice((-7, -6, -4, -3, -2, -1, 1, 2, 4))
        odd = draw.choice((draw.choice(_ODD), near, near))
        other = draw.choice((draw.choice(HIDDEN), draw.choice(_NARROW), draw.choice(_ODD)))
        n, k = draw.choice(((odd, other), (other, odd)))
        layout = draw.choice(_LAYOUTS)
        if layout == "tn":
            m, k = k, max(m, 16)
        found = Product(m, n, k, dtype, layout)
        if found in seen or found.flop > most_flop or n * k > 2**28 or m * n > 2**29:
            continue
        seen.add(found)
        yield found


def of_model(sides: Sequence[tuple[int, int]], dtype: str) -> list[Product]:
    """A model's weights (n, k) at the numbers of tokens that prompts and batches have."""
    step = sides_of(dtype)
    rows = [r for r in (4096, 8192, 16384, 2048, 1024, 512, 128, 64, 16, 1) if r >= step]
    found = [Product(m, n, k, dtype) for m in rows for n, k in dict.fromkeys(sides)]
    return [p for p in found if p.n % step == 0 and p.k % step == 0]
