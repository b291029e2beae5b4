"""The law of fused experts: one layer's routed FFN on one rank, as serving engines run it.

    compute = padded rows · (n + n₀)(k + k₀) · 2 / (e·P)      gate with up, then down
              P of the portable instruction for Marlin, whatever else the chip has
    memory  = touched experts' weights / (b·BW·busyᶻ)
    t       = start + Σ [computeᵠ + memoryᵠ]^(1/q) + activations / BW
Kernels that take an expert map still walk over all copies of all tokens to activate and to add
up, local or not: that traffic is counted apart from the rank's own rows.

Rows laid out in blocks, each of one expert, are one product whose weights change from block to
block (DeepGEMM's m_grouped_fp8_gemm_nt_contiguous). An engine that does not know how many rows an
expert got makes room for the most there can be, and the empty blocks are multiplied as well:
    rows = ⌈(copies + experts · (block − 1)) / block⌉ · block
    t    = start + Σ product(rows, n, k; touched experts' weights) + what lies between / BW
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from trueflops.clock import matmul
from trueflops.clock.law import Law, Parameter, Values, log2, stacked, together
from trueflops.clock.silicon import Silicon
from trueflops.graph.shapes import ExpertShape
from trueflops.sizes import Array, Size
from trueflops.units import MILLION

WIDE: Final = 2.0  # bytes of an activation
EVER_COLD: Final = MILLION  # other layers' weights pass through the cache in between


class ExpertWork(NamedTuple):
    """One layer of experts on one rank."""

    shape: ExpertShape
    weight_bits: float
    skewed: Size  # 1 where the routing is not balanced
    dtype: str
    portable: float = 0.0  # 1 where kernels of mma.sync multiply: Marlin, for weights of int4
    block: float = 1.0  # rows that each expert's share is rounded up to


def _formula(work: ExpertWork, chip: Silicon, p: Values) -> Array:
    w = work.shape
    rows = np.maximum(w.rows / w.touched, 1.0)
    # The last tile of each expert is half empty on average, unless there is hardly a first one.
    ragged = p["tile_rows"] / 2.0 * (1.0 - np.exp(-rows / p["tile_rows"]))
    padded = w.touched * (rows + ragged)
    rate = chip.peak(work.dtype) * p["efficiency"] * (chip.portable if work.portable else 1.0)
    busy_for: Size = 0.0
    for n, k in ((w.up_ways * w.width, w.hidden), (w.hidden, w.width)):
        compute = 2.0 * padded * (n + p["n_fill"]) * (k + p["k_fill"]) / rate
        tiles = np.ceil(n / 128.0) * np.maximum(w.touched, padded / 128.0)
        busy = np.minimum(1.0, tiles / chip.units) ** p["idle_loss"]
        weights = w.touched * n * k * work.weight_bits / 8.0
        memory = weights / (chip.bandwidth * p["bandwidth"] * busy)
        busy_for = busy_for + together(p["sharpness"], compute, memory)
    per_row = 2.0 * ((w.up_ways + 1.0) * w.width + w.hidden)  # bytes through the activation
    moved = p["all_rows"] * w.tokens * w.per_token * per_row
    moved = moved + p["own_rows"] * w.rows * (per_row + 2.0 * w.hidden)
    moved = moved + 4.0 * w.tokens * w.hidden
    return np.asarray(p["start_cycles"] / chip.hertz + busy_for + moved / chip.bandwidth)


def laid_out_rows(shape: ExpertShape, block: float) -> Size:
    """Rows of a layout in blocks that has room for every split of the copies among experts."""
    return np.ceil((shape.rows + shape.experts * (block - 1.0)) / block) * block


def _laid_out(work: ExpertWork, chip: Silicon, p: Values) -> Array:
    w = work.shape
    rows, bits = laid_out_rows(w, work.block), work.weight_bits
    taken: Size = p["route_cycles"] / chip.hertz
    for n, k in ((w.up_ways * w.width, w.hidden), (w.hidden, w.width)):
        weights = w.touched * n * k * bits / 8.0
        others = rows * (k * bits / 8.0 + n * WIDE)
        one = matmul.MatmulWork(work.dtype, 1.0, rows, n, k, weights, others, EVER_COLD)
        taken = taken + matmul.formula(one, chip, p)
    # The activation reads both ways and writes one; narrowing reads that and writes the narrow one.
    between = rows * w.width * ((w.up_ways + 2.0) * WIDE + bits / 8.0)
    return np.asarray(taken + between / (chip.bandwidth * p["bandwidth"]))


def _features(work: ExpertWork, chip: Silicon) -> Array:
    w = work.shape
    return stacked(
        log2(w.tokens),
        log2(w.hidden * w.width),
        log2(w.experts),
        log2(w.ranks),
        log2(w.per_token),
        work.skewed,
    )


EXPERTS: Final = Law(
    _formula,
    {
        "start_cycles": Parameter(
            40000.0, 0.0, 300000.0, "cycles to route, sort and launch", "low", unit="cycles"
        ),
        "efficiency": Parameter(0.6, 0.05, 1.2, "of the dense peak, in full tiles", "high", True),
        "bandwidth": Parameter(0.75, 0.1, 1.2, "of the memory's, for weights", "high", True),
        "sharpness": Parameter(2.0, 1.05, 10.0, "exponent with which limits overlap", "both"),
        "tile_rows": Parameter(
            64.0, 1.0, 256.0, "rows of a tile that an expert fills in part", "low", unit="rows"
        ),
        "k_fill": Parameter(
            100.0, 0.0, 2000.0, "elements of k lost to filling the pipe", "low", unit="elements"
        ),
        "n_fill": Parameter(
            50.0, 0.0, 500.0, "columns lost at the edge of tiles", "low", unit="elements"
        ),
        "all_rows": Parameter(0.5, 0.0, 6.0, "passes over the copies of all ranks", "low"),
        "own_rows": Parameter(1.0, 0.0, 10.0, "passes over the copies of this one", "low"),
        "idle_loss": Parameter(0.3, 0.0, 1.0, "bandwidth lost when few units have work", "both"),
    },
    _features,
    reach=(5.0, 5.0, 5.0, 6.0, 5.0, 2.0),
)

LAID_OUT: Final = Law(
    _laid_out,
    {
        **matmul.MATMUL.parameters,
        "route_cycles": EXPERTS.parameters["start_cycles"],
    },
    _features,
    reach=EXPERTS.reach,
)
