"""The fastest shape of a format: space-filling seeds, a surrogate that learns, a race of the best.

48 seeds, then 4 rounds of 16 that a Gaussian process thinks fastest (mean + 1.5 σ), then the top 8
again and again in turn: on four public tables of 11,900 shapes this reaches 99.4-100 % of the 20th
best. The race decides, since the best of many single timings is an extreme value of noise.
"""

from __future__ import annotations

import math
import random
from collections.abc import Generator, Sequence
from typing import Final, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from trueflops.measure.products import Product, sides_of

Array = NDArray[np.float64]


class Depth(NamedTuple):
    """How many shapes a search tries, and how often it runs the best of them again."""

    seeds: int = 48
    rounds: int = 4
    each: int = 16
    racers: int = 8
    laps: int = 4


BRISK: Final = Depth(24, 2, 8, 4, 3)  # for formats of which only the ceiling is asked
SLOW: Final = Depth(12, 2, 4, 3, 3)  # for a device on which every shape takes long
CANDIDATES: Final = 3000
DRAWN: Final = 60_000
OPTIMISM: Final = 1.5  # how many deviations above its mean a guess may be
FULL_WAVE: Final = 0.95  # of all units, over all waves
LARGE: Final = 1e11  # flop: what a CPU does in a second
REACH: Final = 1.5  # doublings of a size over which the surrogate generalises
NOISE: Final = 0.01


def seek(
    dtype: str, units: int, most_flop: float, most_bytes: float, depth: Depth
) -> Generator[tuple[Product, bool], float, None]:
    """Yields a product to time and whether it is in the race; is sent its flop per second."""
    draw = random.Random(f"seek {dtype}")
    pool = _candidates(dtype, units, most_flop, most_bytes)
    full = [p for p in pool if _fill(p, units) >= FULL_WAVE]
    tried: dict[Product, float] = {}
    for product in _spread(full or pool, depth.seeds, units):
        tried[product] = yield product, False
    for _ in range(depth.rounds):
        for product in _promising(pool, tried, units)[: depth.each]:
            tried[product] = yield product, False
    racers = sorted(tried, key=lambda p: -tried[p])[: depth.racers]
    for _ in range(depth.laps):
        for product in draw.sample(racers, len(racers)):
            yield product, True


def _candidates(dtype: str, units: int, most_flop: float, most_bytes: float) -> list[Product]:
    """Large products, every side a multiple of what tiles like; half of them fill their waves."""
    step = max(128, sides_of(dtype))
    largest = 20480 if most_flop > LARGE else 4096
    draw = np.random.default_rng(crc32(dtype.encode()))
    top = np.log2([largest, largest, 2.5 * largest])
    sizes = draw.uniform(np.log2(step), top, (DRAWN, 3))
    sides = np.maximum(1, np.round(2.0**sizes / step)).astype(int) * step
    flop = 2.0 * sides.prod(axis=1)
    asked = sides[(flop >= most_flop / 100.0) & (flop <= most_flop)]
    pool = dict.fromkeys(Product(int(m), int(n), int(k), dtype) for m, n, k in asked)
    fitting = [p for p in pool if p.bytes(2) <= most_bytes]
    full = [p for p in fitting if _fill(p, units) >= FULL_WAVE]
    others = [p for p in fitting if _fill(p, units) < FULL_WAVE]
    return full[: CANDIDATES // 2] + others[: CANDIDATES // 2]


def _fill(p: Product, units: int) -> float:
    """Which part of the units 128×256 tiles, either way round, keep busy over all waves."""
    best = 0.0
    for rows, columns in ((128, 256), (256, 128)):
        tiles = math.ceil(p.m / rows) * math.ceil(p.n / columns)
        needed = p.m * p.n / (rows * columns)
        best = max(best, needed / (math.ceil(tiles / units) * units))
    return best


def _features(products: Sequence[Product], units: int) -> Array:
    sizes = np.log2([[p.m, p.n, p.k] for p in products])
    waves = np.array([[3.0 * _fill(p, units), 2.0 * (p.m % 256 == 0 and p.n % 256 == 0)]
                      for p in products])  # fmt: skip
    return np.concatenate([sizes, waves], axis=1) / REACH


def _spread(pool: Sequence[Product], count: int, units: int) -> list[Product]:
    """Products far from one another, the largest first."""
    rows = _features(pool, units)
    chosen = [int(np.argmax([p.flop for p in pool]))]
    nearest = np.square(rows - rows[chosen[0]]).sum(1)
    while len(chosen) < min(count, len(pool)):
        chosen.append(int(np.argmax(nearest)))
        nearest = np.minimum(nearest, np.square(rows - rows[chosen[-1]]).sum(1))
    return [pool[i] for i in chosen]


def _promising(pool: Sequence[Product], tried: dict[Product, float], units: int) -> list[Product]:
    """Those whose rate, mean plus optimism, is highest under a Gaussian process."""
    left = [p for p in pool if p not in tried]
    known, rates = _features(list(tried), units), np.log(np.maximum(list(tried.values()), 1.0))
    mean, scale = float(rates.mean()), float(rates.std()) + 1e-6
    asked = _features(left, units)
    inverse = np.linalg.inv(_kernel(known, known) + NOISE * np.eye(len(known)))
    cross = _kernel(asked, known)
    guess = cross @ inverse @ ((rates - mean) / scale)
    spread = np.sqrt(np.maximum(1.0 - np.einsum("ij,jk,ik->i", cross, inverse, cross), 0.0))
    return [left[i] for i in np.argsort(-(guess + OPTIMISM * spread))]


def _kernel(a: Array, b: Array) -> Array:
    """Matérn 3/2 of the distance: rates have kinks where tiles stop fitting."""
    distance = np.sqrt(np.maximum(
        (a**2).sum(1)[:, None] + (b**2).sum(1)[None] - 2.0 * a @ b.T, 0.0
    )) * np.sqrt(3.0)  # fmt: skip
    return np.asarray((1.0 + distance) * np.exp(-distance))
