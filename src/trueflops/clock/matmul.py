"""The law of a matmul: tiles dealt to units in waves, fed by memory and cache.

For every tile shape a library may choose,
    compute = padded flop · waves^a / (e·P) / busy · (1 + k₀/k)    quantisation, fill of the pipe
    memory  = (activations + cold weights) / (b·BW) + hot weights / L2
    serial  = k/split · τ                                          one tile cannot run faster
    t       = start + min over tiles of [computeᵠ + memoryᵠ + serialᵠ]^(1/q) + join of the splits
A product with fewer tiles than units splits its k (split-k, stream-K: Osama 2023).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from trueflops.clock.law import Law, Parameter, Values, log2, stacked, together
from trueflops.clock.silicon import Silicon
from trueflops.graph.alignment import FULL
from trueflops.sizes import Array, Size

TILES: Final = ((16, 128), (64, 64), (128, 64), (64, 128), (128, 128), (256, 128), (128, 256))
_SPEEDS: Final = ("tile_2048", "tile_4096", "tile_8192", "tile_8192", "tile_16384", "", "")


class MatmulWork(NamedTuple):
    """`batch` products of [m,k]·[k,n]; `copies` sets of weights are read before these are again."""

    dtype: str
    batch: Size
    m: Size
    n: Size
    k: Size
    weight_bytes: Size
    other_bytes: Size  # activations read and written
    copies: Size
    loads: Size = FULL  # bytes at whose multiples rows of the operands start,
    stores: Size = FULL  # and those of the result: graph/alignment.py
    window: Size = 1.0  # of a convolution: places that one result looks at
    turned: Size = 0.0  # 1 where a library has to bring channels together first
    portable: float = 0.0  # 1 where sides keep it from the chip's own instruction

    @property
    def flop(self) -> Size:
        """Multiplications and additions."""
        return 2.0 * self.batch * self.m * self.n * self.k


class Tiling(NamedTuple):
    """How tile shapes, along the first axis, cover a product on a chip; `explain` shows it."""

    rows: Array
    columns: Array
    speed: Array  # efficiency of this tile shape, of the large ones'
    tiles: Size
    waves: Size
    padded: Size  # computed over needed, tile edges included
    quantised: Size  # whole waves over waves
    split: Size  # ways in which k is divided
    busy: Size  # part of the units that have work


class Limits(NamedTuple):
    """What bounds a product under each tiling, in seconds."""

    compute: Size
    memory: Size
    serial: Size
    join: Size


def tiling(w: MatmulWork, chip: Silicon, p: Values) -> Tiling:
    """Cover [m,n] with tiles of each shape and deal them to the units."""
    deep = (len(TILES),) + (1,) * np.ndim(np.asarray(w.m) + np.asarray(w.n))
    rows, columns = (np.array(side, np.float64).reshape(deep) for side in zip(*TILES, strict=True))
    speed = np.array([p[name] if name else 1.0 for name in _SPEEDS]).reshape(deep)
    down, across = np.ceil(w.m / rows), np.ceil(w.n / columns)
    tiles = w.batch * down * across
    waves = tiles / chip.units
    most = np.maximum(1.0, p["split"] * np.sqrt(w.k / 1024.0))
    split = np.clip(chip.units / tiles, 1.0, most)
    return Tiling(
        rows, columns, speed, tiles, waves,
        padded=down * rows * across * columns / (w.m * w.n),
        quantised=np.where(waves > 1.0, np.ceil(waves) / np.maximum(waves, 1e-9), 1.0),
        split=split,
        busy=np.minimum(1.0, tiles * split / chip.units),
    )  # fmt: skip


def hot_share(w: MatmulWork, chip: Silicon, p: Values) -> Size:
    """Which part of the weights is still in the last-level cache from the time before."""
    held = p["cache_share"] * chip.l2_bytes
    return np.clip(held / (w.copies * w.weight_bytes + w.other_bytes), 0.0, 1.0) ** 2


def limits(w: MatmulWork, chip: Silicon, at: Tiling, p: Values) -> Limits:
    """Seconds that each limit alone would take."""
    wave = at.quantised ** p["wave_loss"]
    peak = chip.peak(w.dtype) * (chip.portable if w.portable else 1.0)
    rate = peak * p["efficiency"] * at.speed * at.busy
    compute = w.flop * at.padded * wave / rate * (1.0 + p["fill"] * at.split / w.k)
    hot = hot_share(w, chip, p)
    cold = (w.other_bytes + w.weight_bytes * (1.0 - hot)) / (p["bandwidth"] * chip.bandwidth)
    cached = w.weight_bytes * hot / (chip.units * chip.hertz * p["cache_bytes"])
    reach = p["idle_bandwidth"] + (1.0 - p["idle_bandwidth"]) * at.busy
    serial = w.k / at.split * p["step_cycles"] / chip.hertz
    join = p["join_cycles"] / chip.hertz * np.log2(at.split)
    return Limits(compute, (cold + cached) / reach, serial, join)


def by_tile(w: MatmulWork, chip: Silicon, p: Values) -> Array:
    """Seconds under each tile shape, along the first axis."""
    each = limits(w, chip, tiling(w, chip, p), p)
    taken = together(p["sharpness"], each.compute, each.memory, each.serial) + each.join
    return np.asarray(p["start_cycles"] / chip.hertz + taken)


# Unit and meaning of what a profile may say of products of few rows: assumed, not fitted.
VECTOR: Final = {
    "vector_flop": (
        "flop/cycle",
        "of a unit a cycle, where vector units multiply",
    ),
    "vector_bandwidth": ("", "of the memory's, there"),
    "vector_bytes": ("B/cycle", "bytes a unit loads a cycle, there"),
    "vector_start_cycles": ("cycles", "cycles before the first row, there"),
    "vector_codes": ("weights/cycle", "that a unit unpacks a cycle, of a format that packs them"),
    "vector_rows": ("rows", "products of at most so many all run there"),
}


def by_vector(w: MatmulWork, chip: Silicon, p: Values) -> Array:
    """Seconds without the matrix engine: products of few rows pad no tile on vector units."""
    compute = w.flop / (p["vector_flop"] * chip.units * chip.hertz)
    asked_for = p["vector_bytes"] * chip.units * chip.hertz  # loads that all units have in flight
    reach = np.minimum(p["vector_bandwidth"] * chip.bandwidth, asked_for)
    if "vector_codes" in p:  # beside the product, on the same units
        compute = compute + w.batch * w.n * w.k / (p["vector_codes"] * chip.units * chip.hertz)
    start = p["vector_start_cycles"] / chip.hertz
    moved = (w.weight_bytes + w.other_bytes) / reach
    return np.asarray(start + together(p["sharpness"], compute, moved))


def unpacked(w: MatmulWork, chip: Silicon, p: Values) -> tuple[MatmulWork, Size]:
    """The product of widened weights, and the seconds of the kernel that widens them.

    Engines without a product for a narrow format write the weights out in 16 bits and call the
    vendor's library: they are read narrow, written wide and read wide again, at the share `unpack`
    of the memory's bandwidth.
    """
    wide = np.maximum(2.0 * w.batch * w.n * w.k, w.weight_bytes)
    narrow = wide > w.weight_bytes
    moved = np.where(narrow, w.weight_bytes + wide, 0.0)
    return w._replace(weight_bytes=wide), moved / (p["unpack"] * chip.bandwidth)


def best_limits(w: MatmulWork, chip: Silicon, p: Values) -> Limits:
    """What bounds each product under its fastest tile shape; `join` holds the start as well."""
    taken = by_tile(w, chip, p)
    best = np.argmin(taken, axis=0)[None]
    compute, memory, serial, join = (
        np.take_along_axis(np.broadcast_to(size, taken.shape), best, axis=0)[0]
        for size in limits(w, chip, tiling(w, chip, p), p)
    )
    return Limits(compute, memory, serial, join + p["start_cycles"] / chip.hertz)


def formula(w: MatmulWork, chip: Silicon, p: Values) -> Array:
    """Seconds of the best tiling, or of vector units where a profile says what those reach.

    An engine of its own kernels gives all products of up to `vector_rows` to them.
    """
    widening: Size = 0.0
    product = w
    if "unpack" in p:
        product, widening = unpacked(w, chip, p)
    tiled = by_tile(product, chip, p).min(axis=0) + widening
    if "vector_flop" not in p:
        return np.asarray(tiled)
    few = np.asarray(w.m) <= p.get("vector_rows", 0.0)
    vector = by_vector(w, chip, p)
    return np.where(few, vector, np.minimum(tiled, vector))


def _features(w: MatmulWork, chip: Silicon) -> Array:
    def loss(rows: int, columns: int) -> Size:
        waves = w.batch * np.ceil(w.m / rows) * np.ceil(w.n / columns) / chip.units
        return np.log2(np.clip(np.ceil(waves) / waves, 1.0, 4.0))

    ragged = (np.asarray(w.m) % 8 != 0) & (np.asarray(w.m) > 16)  # rows that no vector load fits
    losses = (loss(128, 128), loss(256, 128), loss(64, 64))
    return stacked(log2(w.m), log2(w.n), log2(w.k), ragged * 1.0, *losses)


def _unaligned_features(w: MatmulWork, chip: Silicon) -> Array:
    """Which kernel of the portable instruction runs hangs on what is narrow: loads or stores."""
    waves = w.batch * np.ceil(w.m / 128) * np.ceil(w.n / 128) / chip.units
    loss = np.log2(np.clip(np.ceil(waves) / waves, 1.0, 4.0))
    lying = (log2(w.loads), log2(w.stores))
    return stacked(log2(w.m), log2(w.n), log2(w.k), log2(w.batch), *lying, loss)


def _window_features(w: MatmulWork, chip: Silicon) -> Array:
    """Which kernel of cuDNN's runs hangs on the window and on how pictures lie."""
    sizes = (log2(w.m), log2(w.n), log2(w.k), log2(w.batch), log2(w.window))
    return stacked(*sizes, log2(w.loads), w.turned)


MATMUL: Final = Law(
    formula,
    {
        "start_cycles": Parameter(
            4000.0, 0.0, 12000.0, "cycles before the first tile", "low", unit="cycles"
        ),
        "efficiency": Parameter(0.8, 0.05, 1.1, "of the dense peak, in a full tile", "high", True),
        "bandwidth": Parameter(0.85, 0.2, 1.05, "of the memory's", "high", True),
        "sharpness": Parameter(2.5, 1.2, 8.0, "exponent with which limits overlap", "both"),
        "fill": Parameter(
            120.0, 0.0, 800.0, "elements of k lost to filling the pipe", "low", unit="elements"
        ),
        "step_cycles": Parameter(
            4.0, 0.0, 30.0, "cycles for one element of k in one tile", "low", unit="cycles"
        ),
        "split": Parameter(3.0, 1.0, 64.0, "most ways to divide a k of 1024", "low"),
        "wave_loss": Parameter(0.3, 0.0, 1.2, "how much of a ragged last wave is lost", "low"),
        "join_cycles": Parameter(
            900.0, 0.0, 5000.0, "cycles to add up, a halving of k", "low", unit="cycles"
        ),
        "tile_2048": Parameter(0.4, 0.15, 0.8, "efficiency of 16×128 tiles, of the large ones'"),
        "tile_4096": Parameter(0.6, 0.2, 1.0, "of 64×64", "high"),
        "tile_8192": Parameter(0.75, 0.3, 1.0, "of 128×64", "high"),
        "tile_16384": Parameter(0.9, 0.5, 1.0, "of 128×128", "high"),
        "cache_bytes": Parameter(
            25.0, 5.0, 64.0, "bytes a unit reads from cache a cycle", "high", unit="B/cycle"
        ),
        "cache_share": Parameter(0.5, 0.1, 1.0, "of the last-level cache for weights", "high"),
        "idle_bandwidth": Parameter(0.5, 0.0, 1.0, "of the bandwidth that one unit draws", "both"),
    },
    _features,
    reach=(3.0, 3.0, 3.0, 0.7, 1.5, 1.5, 1.5),
)

# The same law for kernels that other things decide: their landmarks lie in other spaces.
UNALIGNED: Final = replace(
    MATMUL, features=_unaligned_features, reach=(3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 1.5)
)
WINDOWS: Final = replace(
    MATMUL, features=_window_features, reach=(3.0, 3.0, 3.0, 2.0, 2.0, 1.5, 0.7)
)
