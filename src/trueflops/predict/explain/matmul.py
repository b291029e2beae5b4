"""How one product [m,k]·[k,n] runs on a chip: limits, tiles, traffic, down to the mma instruction.

In: a Clock and a matmul Op. Out: MatmulExplained. Seconds are those of `price_kernels`, tiles and
limits those of the law of `clock/matmul.py`; what a chip learnt from measurements (the residual)
multiplies every tile shape alike. Traffic is counted beside it and prices nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, sqrt
from typing import Final

import numpy as np

from trueflops.catalog import Accelerator
from trueflops.catalog.peaks import computed_peak
from trueflops.clock import Clock
from trueflops.clock.matmul import (
    MATMUL,
    MatmulWork,
    Tiling,
    best_limits,
    by_tile,
    hot_share,
    tiling,
)
from trueflops.clock.silicon import Silicon
from trueflops.clock.works import law_work, own_pricing
from trueflops.graph.ir import Op
from trueflops.graph.rules import work
from trueflops.graph.variants import variant_name
from trueflops.predict.explain.kernel import KernelExplained, check_room, curve_of, one
from trueflops.predict.explain.padding import PaddedProduct, padded_product
from trueflops.predict.kernels import price_kernels
from trueflops.predict.mapping import WarpMapping, map_tile
from trueflops.profile import Curve, fact_of_die
from trueflops.sizes import Array, Size

LIMITS: Final = ("compute", "memory", "serial", "start")  # serial: one tile's chain over k


@dataclass(frozen=True)
class TileShape:
    """One shape of block tile laid over the product, and the time it would take."""

    rows: int
    columns: int
    down: int
    across: int
    waves: float  # tiles over units
    split: float  # ways in which k is divided, on average
    busy: float  # part of the units that have work
    padded: float  # computed over needed
    quantised: float  # whole waves over waves
    seconds: float

    @property
    def tiles(self) -> int:
        """Tiles that cover the result."""
        return self.down * self.across

    @property
    def last_wave(self) -> float:
        """Part of the units that the last wave fills."""
        return self.busy if self.waves <= 1.0 else (self.waves - floor(self.waves)) or 1.0

    @property
    def padding_lost(self) -> float:
        """Share of the computed flop that lie beyond the edges of the result."""
        return 1.0 - 1.0 / self.padded

    @property
    def quantisation_lost(self) -> float:
        """Share of the units' time in which they wait for the last wave."""
        return 1.0 - 1.0 / self.quantised if self.waves > 1.0 else 1.0 - self.busy


@dataclass(frozen=True)
class Traffic:
    """Bytes by level. `input_reads` times each block of x passes through the cache."""

    input_bytes: float
    weight_bytes: float
    output_bytes: float
    input_reads: int
    weight_reads: int
    kept_bytes: float | None  # of the last-level cache; None: no size on record
    hot_share: float  # of the weights, still cached from the time before
    input_loads: int  # times from memory, estimated
    weight_loads: int

    @property
    def compulsory_bytes(self) -> float:
        """Everything once."""
        return self.input_bytes + self.weight_bytes + self.output_bytes

    @property
    def cache_bytes(self) -> float:
        """What the block tiles ask of the last-level cache."""
        read = self.input_bytes * self.input_reads + self.weight_bytes * self.weight_reads
        return read + self.output_bytes

    @property
    def memory_bytes(self) -> float | None:
        """What the cache cannot serve, estimated; None where its size is not on record."""
        if self.kept_bytes is None:
            return None
        read = self.input_bytes * self.input_loads + self.weight_bytes * self.weight_loads
        return read + self.output_bytes


@dataclass(frozen=True, kw_only=True)
class MatmulExplained(KernelExplained):
    """Everything that `trueflops explain matmul` shows, in SI units."""

    m: int
    n: int
    k: int
    copies: float
    best: TileShape
    shapes: tuple[TileShape, ...]
    traffic: Traffic
    mapping: WarpMapping | None
    padded: PaddedProduct | None  # where n or k is odd, and padding it saves time
    flop_per_cycle: float | None  # of one unit at the dense peak; None: no clock on record

    @property
    def name(self) -> str:
        """'bf16 4096×11008×4096'."""
        return f"{self.form} {self.m}×{self.n}×{self.k}"

    @property
    def tile_k(self) -> float:
        """Elements of k that one tile sums over."""
        return ceil(self.k / self.best.split)

    @property
    def tile_flop(self) -> float:
        """Work of one block tile, padding included."""
        return 2.0 * self.best.rows * self.best.columns * self.tile_k

    def tile_intensity(self, rows: int, columns: int) -> float:
        """Useful flop per byte read by a tile of this shape: 2·rows·columns over one step of k."""
        rows, columns = min(rows, self.m), min(columns, self.n)  # edges are not read
        per_input = self.traffic.input_bytes / (self.m * self.k)
        per_weight = self.traffic.weight_bytes / (self.n * self.k)
        return 2.0 * rows * columns / (rows * per_input + columns * per_weight)


def explain_matmul(clock: Clock, op: Op) -> MatmulExplained:
    """Gather what the law, the chip and the profile say of one product."""
    chip, silicon = clock.chip, clock.silicon
    choice = curve_of(clock, op, MATMUL)
    law = choice.curve
    done = work(op)
    asked: MatmulWork = law_work(own_pricing(op, done), [op], [done])
    m, n, k = (round(one(size)) for size in (asked.m, asked.n, asked.k))
    check_room(chip, one(asked.weight_bytes + asked.other_bytes), "this product's matrices")
    priced = price_kernels(clock, [op], None, 1)
    seconds = priced.seconds.pick(0)
    plain = by_tile(asked, silicon, law.values).ravel()
    correction = float(seconds.value) / float(plain.min())
    at = tiling(asked, silicon, law.values)
    shapes = _shapes(at, asked, plain * correction)
    chosen = int(plain.argmin())
    traffic = _traffic(op, asked, silicon, law, shapes[chosen])
    limits = best_limits(asked, silicon, law.values)
    return MatmulExplained(
        chip=chip,
        profile=clock.profile.name,
        choice=choice,
        form=variant_name(op.variant) or op.dtype,
        dtype=op.dtype,
        m=m,
        n=n,
        k=k,
        copies=one(asked.copies),
        seconds=seconds,
        flop=one(priced.flop),
        moved_bytes=traffic.compulsory_bytes,
        peak=chip.peak_flop_per_second(op.dtype),
        bandwidth=silicon.bandwidth,
        efficiency=law["efficiency"],
        units=silicon.units,
        units_known=fact_of_die(chip, "compute.units") is not None,
        limits=dict(zip(LIMITS, map(one, limits), strict=True)),
        correction=correction,
        best=shapes[chosen],
        shapes=shapes,
        traffic=traffic,
        mapping=map_tile(chip, op.dtype, shapes[chosen].rows, shapes[chosen].columns),
        padded=padded_product(clock, op),
        flop_per_cycle=_flop_per_cycle(chip, op.dtype),
    )


def _flop_per_cycle(chip: Accelerator, dtype: str) -> float | None:
    """Of one unit: by architecture, since some peaks are printed at another clock, or divided."""
    hertz, count = (fact_of_die(chip, f"compute.{what}") for what in ("clock", "units"))
    if not hertz or not count:
        return None
    whole = computed_peak(chip, dtype) or chip.peak_flop_per_second(dtype)
    return whole / (hertz * count)


def _shapes(at: Tiling, w: MatmulWork, seconds: Array) -> tuple[TileShape, ...]:
    m, n = round(one(w.m)), round(one(w.n))
    columns = (at.waves, at.split, at.busy, at.padded, at.quantised, seconds)
    numbers = np.stack([_each(column, at) for column in columns], axis=1).tolist()
    sides = zip(np.ravel(at.rows).tolist(), np.ravel(at.columns).tolist(), strict=True)
    return tuple(
        TileShape(int(r), int(c), ceil(m / r), ceil(n / c), *row)
        for (r, c), row in zip(sides, numbers, strict=True)
    )


def _traffic(op: Op, w: MatmulWork, chip: Silicon, law: Curve, tile: TileShape) -> Traffic:
    """Count re-reads; a wave covers a region as square as its tiles allow, k step by k step.

    A matrix that the cache can keep is loaded once, and so is the other; else a band of the region
    stays while the other matrix passes; else both are loaded again for every region.
    """
    x, weight, y = (one(t.bytes) for t in (op.inputs[0], op.weights[0], op.outputs[0]))
    side = sqrt(chip.units * tile.rows * tile.columns)
    down = min(max(1, round(side / tile.rows)), tile.down)
    across = min(max(1, ceil(chip.units / down)), tile.across)
    times_x, times_w = -(-tile.across // across), -(-tile.down // down)
    kept = law["cache_share"] * chip.l2_bytes
    ways = [(times_x, times_w)]
    if min(x, weight) <= kept:
        ways.append((1, 1))
    if x * down / tile.down <= kept:
        ways.append((1, times_w))
    if weight * across / tile.across <= kept:
        ways.append((times_x, 1))
    loads = min(ways, key=lambda way: x * way[0] + weight * way[1])
    hot = one(hot_share(w, chip, law.values))
    known = kept if chip.l2_bytes else None
    return Traffic(x, weight, y, tile.across, tile.down, known, hot, *loads)


def _each(size: Size, at: Tiling) -> Array:
    """One number per tile shape, also of what no tile shape changes."""
    flat = np.ravel(size)
    return np.broadcast_to(flat, (at.rows.size,)) if flat.size == 1 else flat
