"""The laws of attention: a prompt or a training sequence (and its backward), and a decode step.

A prompt is cut into blocks of queries, each of which walks over the keys it may see
(FlashAttention-2, arXiv 2307.08691):
    total   = pairs visited · 2(d + dᵥ) / (e(d)·P)
    longest = keys · block · 2(d + dᵥ) / (e(d)·P/units)      the last block sees all keys
    t       = start + [totalᵠ + (s·longest)ᵠ + memoryᵠ]^(1/q) + blocks/units · set-up
              + pairs visited · drawing / units      with dropout, a random number for each pair
A decode step streams the cache once, split over sequences, key heads and stretches of keys
(flash-decoding), and multiplies groups of queries padded to a tensor core's 16 rows. Where several
tokens of a sequence are verified at once, their queries are rows of the same group. Of kernels that
do otherwise a profile says so (OTHERWISE):
    loads  = queries · heads · keys · 2(d + dᵥ) / (bytes a cycle · units)   each reads for itself
    serial = keys · rows · 2(d + dᵥ) / (P/units)    a block of queries walks over all keys alone
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from trueflops.clock.law import Law, Parameter, Values, log2, stacked, together
from trueflops.clock.silicon import Silicon
from trueflops.graph.shapes import AttentionShape
from trueflops.sizes import Array, Size

HEAD_DIMS: Final = (64.0, 128.0, 192.0, 256.0, 512.0)
KEY_BLOCK: Final = 128.0
SPLIT_KEYS: Final = 256.0  # a decode kernel gives each unit at least so many keys
TENSOR_ROWS: Final = 16.0  # rows of a tensor core's smallest product
WIDE_BYTES: Final = 2.0  # of a number; what narrow ones save in loads, widening them takes
# Unit and meaning of what a profile may say of a decode step's kernels: facts, not fitted.
OTHERWISE: Final = {
    "query_bytes": (
        "B/cycle",
        "bytes a unit loads a cycle, where each query head reads for itself",
    ),
    "serial_rows": ("rows", "of a block of verified tokens that walks over all keys alone"),
}


class AttentionWork(NamedTuple):
    """Queries of one rank and the keys they look at."""

    shape: AttentionShape
    cache_bytes: Size  # keys and values read
    other_bytes: Size  # queries read, results written
    products: Size  # matrix products per pair: 1 for a forward, 2.5 for a backward
    dtype: str
    drawing: Size = 0.0  # cycles of a unit that dropout takes for each pair


def efficiency(head_dim: Size, p: Values) -> Size:
    """Share of the peak at a head dimension, between those that are measured."""
    at = [p[f"efficiency_{d:.0f}"] for d in HEAD_DIMS]
    return np.interp(np.log2(head_dim), np.log2(HEAD_DIMS), at)


class QueryBlocks(NamedTuple):
    """How a prompt is cut into blocks of queries; `explain` shows it."""

    block: Size  # queries of one block
    blocks: Size
    visited: Size  # keys that each of its queries is multiplied with, those it may not see included


class Split(NamedTuple):
    """How a decode step is shared out; `explain` shows it."""

    splits: Size  # stretches that the keys of one sequence and key head are cut into
    shares: Size
    waves: Size
    busy: Size  # part of the units that have work
    hot: Size  # share of the cache that the last-level cache still holds
    group: Size  # rows of queries of one key head and token, padded to a tensor core's


class Limits(NamedTuple):
    """Seconds that each limit alone would take. `serial` is what shows of the longest block."""

    compute: Size
    memory: Size
    serial: Size
    start: Size  # the launch, and setting the blocks up


def query_blocks(work: AttentionWork, p: Values) -> QueryBlocks:
    """Cut the queries into blocks, each of which walks over the keys it may see."""
    w = work.shape
    most = np.where(np.asarray(w.head_dim) >= 256.0, 64.0, 128.0)
    fitting = np.clip(2.0 ** np.ceil(log2(w.queries)), TENSOR_ROWS, most)
    # Short prompts take smaller blocks, of a tensor core's rows at least.
    block = np.maximum(most + p["short_blocks"] * (fitting - most), TENSOR_ROWS)
    blocks = w.batch * w.heads * np.ceil(w.queries / block)
    # A block visits whole key blocks, and those on the diagonal in full.
    visited = np.minimum(w.seen + (block + KEY_BLOCK) / 2.0, np.maximum(w.keys, KEY_BLOCK))
    return QueryBlocks(block, blocks, visited)


def prompt_limits(work: AttentionWork, chip: Silicon, p: Values) -> Limits:
    """What bounds a prompt, or its backward."""
    w, at = work.shape, query_blocks(work, p)
    each = 2.0 * work.products * (w.head_dim + w.value_dim)
    rate = chip.peak(work.dtype) * efficiency(w.head_dim, p)
    total = at.blocks * at.block * at.visited * each / rate
    longest = np.minimum(w.keys, 2.0 * at.visited) * at.block * each / (rate / chip.units)
    memory = (work.cache_bytes + work.other_bytes) / (p["bandwidth"] * chip.bandwidth)
    begun = at.blocks / chip.units * p["block_cycles"] / chip.hertz
    drawn = at.blocks * at.block * at.visited * work.drawing / (chip.units * chip.hertz)
    start = p["start_cycles"] / chip.hertz + begun + drawn
    return Limits(total, memory, p["serial"] * longest, start)


def _prompt(work: AttentionWork, chip: Silicon, p: Values) -> Array:
    each = prompt_limits(work, chip, p)
    busy = together(p["sharpness"], each.compute, each.serial, each.memory)
    return np.asarray(each.start + busy)


def split_keys(work: AttentionWork, chip: Silicon) -> Split:
    """Share a decode step out over the units: sequences, key heads and stretches of keys."""
    w = work.shape
    pairs = w.batch * w.kv_heads
    room = np.maximum(1.0, 2.0 * chip.units / pairs)
    splits = np.maximum(1.0, np.minimum(w.keys / SPLIT_KEYS, room))
    shares = pairs * splits
    return Split(
        splits,
        shares,
        waves=np.maximum(shares / chip.units, 1.0),
        busy=np.minimum(1.0, shares / chip.units),
        hot=np.clip(0.6 * chip.l2_bytes / np.maximum(work.cache_bytes, 1.0), 0.0, 1.0),
        group=np.ceil(w.queries * w.heads / w.kv_heads / TENSOR_ROWS) * TENSOR_ROWS / w.queries,
    )


def decode_limits(work: AttentionWork, chip: Silicon, p: Values) -> Limits:
    """What bounds a decode step."""
    w, at = work.shape, split_keys(work, chip)
    ragged = (np.ceil(at.waves) / at.waves) ** p["wave_loss"]
    reach = p["bandwidth"] * (1.0 + at.hot * p["cache_gain"]) * at.busy ** p["idle_loss"]
    memory = (work.cache_bytes + work.other_bytes) / (chip.bandwidth * reach) * ragged
    pairs = w.batch * w.kv_heads
    flop = pairs * w.queries * w.seen * 2.0 * (w.head_dim + w.value_dim) * at.group
    compute = flop / (chip.peak(work.dtype) * p["efficiency"] * at.busy)
    if "query_bytes" in p:
        loaded = w.batch * w.queries * w.heads * w.seen * (w.head_dim + w.value_dim) * WIDE_BYTES
        compute = loaded / (p["query_bytes"] * chip.units * chip.hertz)
    serial = _walked_alone(work, chip, p) if "serial_rows" in p else 0.0
    return Limits(compute, memory, serial, p["start_cycles"] / chip.hertz)


def _walked_alone(work: AttentionWork, chip: Silicon, p: Values) -> Array:
    """Seconds of blocks of verified tokens that are not cut along the keys; of one token none."""
    w, rows = work.shape, p["serial_rows"]
    waves = np.ceil(w.batch * w.heads * np.ceil(w.queries / rows) / chip.units)
    flop = w.seen * rows * 2.0 * (w.head_dim + w.value_dim)
    return np.where(
        np.asarray(w.queries) > 1.0, waves * flop / (chip.peak(work.dtype) / chip.units), 0.0
    )


def _decode(work: AttentionWork, chip: Silicon, p: Values) -> Array:
    each = decode_limits(work, chip, p)
    limits = (each.memory, each.compute, each.serial)
    return np.asarray(each.start + together(p["sharpness"], *limits))


def _prompt_features(work: AttentionWork, chip: Silicon) -> Array:
    w = work.shape
    return stacked(
        log2(w.queries),
        log2(w.batch * w.heads),
        2.0 * log2(w.head_dim),
        log2(w.heads / w.kv_heads),
        log2(w.batch),
        log2(w.keys) - log2(w.seen),  # windows
    )


def _decode_features(work: AttentionWork, chip: Silicon) -> Array:
    w = work.shape
    return stacked(
        log2(w.keys),
        log2(w.batch * w.kv_heads),
        2.0 * log2(w.head_dim),
        1.5 * log2(w.heads / w.kv_heads),
        log2(w.batch),
    )


_HEAD_PARAMETERS = {
    f"efficiency_{d:.0f}": Parameter(
        usual, 0.005, 1.1, f"of the peak, heads of {d:.0f}", "high", True
    )
    for d, usual in zip(HEAD_DIMS, (0.5, 0.65, 0.65, 0.6, 0.4), strict=True)
}
ATTENTION: Final = Law(
    _prompt,
    {
        "start_cycles": Parameter(
            15000.0, 0.0, 60000.0, "cycles before the first block runs", "low", unit="cycles"
        ),
        **_HEAD_PARAMETERS,
        "sharpness": Parameter(1.5, 1.05, 8.0, "exponent with which limits overlap", "both"),
        "block_cycles": Parameter(
            300.0, 0.0, 6000.0, "cycles to set up one block", "low", unit="cycles"
        ),
        "bandwidth": Parameter(0.5, 0.1, 1.2, "of the memory's", "high", True),
        "serial": Parameter(0.8, 0.0, 2.0, "how much of the longest block shows", "low"),
        "short_blocks": Parameter(0.5, 0.0, 1.0, "how far blocks shrink for short prompts", "both"),
    },
    _prompt_features,
    reach=(3.0, 4.0, 2.0, 6.0, 8.0, 3.0),
)
DECODE: Final = Law(
    _decode,
    {
        "start_cycles": Parameter(
            12000.0, 0.0, 60000.0, "cycles before the first key is read", "low", unit="cycles"
        ),
        "bandwidth": Parameter(0.75, 0.1, 1.3, "of the memory's", "high", True),
        "sharpness": Parameter(2.0, 1.05, 10.0, "exponent with which limits overlap", "both"),
        "idle_loss": Parameter(0.5, 0.0, 1.2, "bandwidth lost when few units have work", "low"),
        "efficiency": Parameter(0.3, 0.02, 1.5, "of the dense peak", "high", True),
        "wave_loss": Parameter(0.5, 0.0, 1.0, "how much of a ragged last wave is lost", "both"),
        "cache_gain": Parameter(0.5, 0.0, 8.0, "how much faster keys come from cache", "low"),
    },
    _decode_features,
    reach=(3.0, 3.0, 2.0, 4.0, 8.0),
)
