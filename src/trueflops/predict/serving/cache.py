"""The KV cache as an engine keeps it: blocks, what a request takes, how many tokens fit.

In: a model's attention layers on one rank, an Engine. Out: a Cache, bytes by length of a request.
vLLM puts layers of one kind into groups of equal size, padded with layers that hold nothing, each
with its own table of blocks from one pool (v1/core/kv_cache_utils.py):
    concurrency = blocks / Σ over groups ⌈tokens that a layer keeps / block⌉
There a layer with a window is counted with window − 1 + the tokens of a step, as while its prompt
is read; later it keeps the window alone. SGLang gives such layers 0.8 places for each of the
others; engines that do not tell windows apart keep everything.
A layer that keeps a state has one block for each request, whatever its length, or two where
prefixes are cached: the state at the end of the last block is kept beside. vLLM's blocks are of one
size, so that those of attention grow until a state fits into one, in multiples of what kernels take
(models/config.py, HybridAttentionMambaModelConfig):
    tokens of a block = 16 · ⌈state / (16 · bytes of a token in a layer)⌉, of a latent 64 for 16
Where keys are spread (Plan.dcp) each rank keeps one token in so many, and a block of all of them
holds so many times the tokens (v1/core/single_type_kv_cache_manager.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from trueflops.graph.build.indexing import index_key_bytes
from trueflops.graph.build.pooled import STATE_BITS, key_bytes
from trueflops.graph.formats import EIGHT_BITS
from trueflops.model import Latent, Model
from trueflops.model.layers import Attention, Pooled, Recurrent
from trueflops.plan import Plan
from trueflops.profile import Engine

CACHE_BITS: Final[Mapping[str, float]] = {
    "fp32": 32.0, "bf16": 16.0, "fp16": 16.0, "fp8": 8.0, "int8": 8.0,
    "nvfp4": 4.5,  # one E4M3 scale for 16 numbers
    "q8_0": 8.5, "q4_0": 4.5,  # ggml: one fp16 scale for 32 numbers
}  # fmt: skip
"""Bits of one number of the cache, scales included."""
ALIKE: Final = 1.5  # groups of sizes nearer than this are padded to the larger one
ALIGNED: Final = 16  # tokens at whose multiples kernels of attention take blocks
ALIGNED_LATENT: Final = 64  # FlashMLA's


@dataclass(frozen=True)
class Kind:
    """Layers that keep the same: how many (padding included), bytes of a token in each."""

    layers: int
    token_bytes: float
    window: int  # 0: everything
    state: bool = False  # one block of a request, whatever its length


@dataclass(frozen=True)
class Cache:
    """Of one rank."""

    kinds: tuple[Kind, ...]
    engine: Engine
    state_bytes: float = 0.0  # of a request, what is in no blocks: states, keys not yet pooled
    block: int = 0  # tokens; 0 where nothing attends: a block is a request, however long

    @classmethod
    def of(cls, model: Model, plan: Plan, engine: Engine, bits: float) -> Cache:
        """The layers of the stage that has most of them, windows as the engine keeps them."""
        found: Counter[tuple[int, float]] = Counter()
        states: Counter[float] = Counter()
        unpooled = 0.0  # bytes of a request, whatever its length
        for index, layers in Counter(model.pattern).items():
            attention, recurrent = model.blocks[index].attention, model.blocks[index].recurrent
            if recurrent:
                states[_state_bytes(recurrent, int(plan.tp))] += layers
            if attention is None or attention.borrows:
                continue
            window = 0 if engine.windows == "whole" else attention.window
            size = _token_bytes(attention, int(plan.tp), bits, engine) / plan.dcp
            found[window, size] += layers
            if attention.pooled and attention.pooled.rate:
                found[0, _pooled_bytes(attention, attention.pooled, bits)] += layers
                own = _unpooled(attention, attention.pooled)
                unpooled += ceil(layers / int(plan.pp)) * own
        kinds = [
            Kind(ceil(layers / int(plan.pp)), size, window)
            for (window, size), layers in found.items()
        ]
        kept = {size: ceil(layers / int(plan.pp)) for size, layers in states.items()}
        if engine.windows != "groups" or not kinds:
            held = unpooled + sum(size * layers for size, layers in kept.items())
            return cls(tuple(kinds), engine, held, engine.block * plan.dcp if kinds else 0)
        latent = model.has_latent
        block = _block(kinds, kept, engine, plan, ALIGNED_LATENT if latent else ALIGNED)
        size = max(kind.token_bytes for kind in kinds)
        kinds += [Kind(layers, size, 0, state=True) for layers in kept.values()]
        return cls(tuple(_grouped(kinds)), engine, unpooled, block)

    @property
    def token_bytes(self) -> float:
        """Of one token where every layer keeps it; SGLang counts windows by its ratio."""
        every = (kind for kind in self.kinds if not kind.state)
        return sum(kind.layers * kind.token_bytes * self._weight(kind) for kind in every)

    @property
    def block_bytes(self) -> float:
        """Of one block: of one group of layers where there are several, else of all layers."""
        if not self.kinds:  # a model without attention: a block is what a request keeps
            return self.state_bytes
        if self.engine.windows == "groups" and len({k.token_bytes for k in self.kinds}) == 1:
            group = min(kind.layers for kind in self.kinds)
            return group * self.kinds[0].token_bytes * self.block
        return self.token_bytes * self.block

    def request_bytes(self, length: float) -> float:
        """Of a request that writes and has so many tokens, in whole blocks."""
        return self._bytes(length, 0)

    def longest_bytes(self, length: float) -> float:
        """What the engine counts for a request of at most so many tokens."""
        return self._bytes(length, self.engine.step_tokens)

    def _bytes(self, length: float, reads: int) -> float:
        return self.state_bytes + sum(
            kind.layers * kind.token_bytes * self.block * self._blocks(kind, length, reads)
            for kind in self.kinds
        )

    def tokens(self, pool: float, length: float) -> int:
        """What the engine prints as the size of a pool, for requests of at most `length` tokens."""
        several = self.engine.capacity_in == "requests" and len(self.kinds) > 1
        if several or self.state_bytes:
            return int(self.concurrency(pool, length) * length)
        every = self.token_bytes
        if self.engine.windows == "groups":  # blocks shared out evenly, whatever a group keeps
            every = sum(kind.layers * kind.token_bytes for kind in self.kinds)
        return int(pool / (every * self.block)) * self.block

    def concurrency(self, pool: float, length: float) -> float:
        """Requests of so many tokens that fit into a pool."""
        return pool / self.longest_bytes(length)

    def _weight(self, kind: Kind) -> float:
        return self.engine.window_ratio if kind.window and self.engine.windows == "ratio" else 1.0

    def _blocks(self, kind: Kind, length: float, reads: int) -> float:
        """Of one layer, while it reads so many tokens."""
        if kind.state:
            return float(self.engine.states_kept)
        whole = ceil(length / self.block)
        if not kind.window or self.engine.windows in ("ratio", "whole"):
            return whole * self._weight(kind)
        if self.engine.windows == "own":
            return min(ceil(kind.window / self.block), whole)
        # A window may begin inside a block.
        return min(ceil((kind.window - 1 + reads) / self.block) + 1, whole)


def _token_bytes(attention: Attention, tp: int, bits: float, engine: Engine) -> float:
    """Of one layer; a latent is on every rank, and of heads each rank has at least one."""
    if attention.latent:
        whole = attention.cache_width * bits / 8.0
        if attention.indexer:
            whole = _sparse_bytes(attention.latent, bits) + index_key_bytes(attention.indexer)
        return ceil(whole / engine.latent_align) * float(engine.latent_align)
    if attention.pooled:  # of the window
        return key_bytes(attention.head_dim, attention.pooled.rope_dim, bits)
    heads = max(ceil(attention.kv_heads / tp), 1)
    beside = index_key_bytes(attention.indexer) if attention.indexer else 0.0
    return heads * (attention.head_dim + attention.value_dim) * bits / 8.0 + beside


def _sparse_bytes(latent: Latent, bits: float) -> float:
    """Of a latent that FlashMLA's sparse kernels read: in 8 bits, 128 numbers have an fp32 scale
    and the rope key stays in 16 bits (vLLM's flashmla_sparse.py: 656 bytes in DeepSeek-V3.2).
    """
    if bits > EIGHT_BITS:
        return (latent.kv_rank + latent.rope_dim) * bits / 8.0
    return latent.kv_rank * (1.0 + 4.0 / 128.0) + latent.rope_dim * 2.0


def _pooled_bytes(attention: Attention, p: Pooled, bits: float) -> float:
    """Of a token's share in a pool, and in that of the indexer."""
    pool = key_bytes(attention.head_dim, p.rope_dim, bits)
    return (pool + (index_key_bytes(attention.indexer) if attention.indexer else 0.0)) / p.rate


def _unpooled(attention: Attention, p: Pooled) -> float:
    """Of a request in one layer: what is not yet pooled, keys and their weights, of all tokens that
    a pool reads (vLLM's models/deepseek_v4/compressor.py, CompressorStateCache).
    """
    wide = attention.head_dim + (attention.indexer.head_dim if attention.indexer else 0)
    return p.ways * p.rate * 2.0 * p.ways * wide * STATE_BITS / 8.0


def _state_bytes(recurrent: Recurrent, tp: int) -> float:
    """Of a request in one layer: its heads' states, and what the convolution looks back at."""
    values = ceil(recurrent.heads / tp) * recurrent.value_dim
    keys = 2 * max(ceil(recurrent.key_heads / tp), 1) * recurrent.key_dim
    filtered = values if recurrent.rule in ("scan", "filter") else keys + values
    looked_at = max(recurrent.conv - 1, 0) * filtered * CACHE_BITS["bf16"]
    state = 0.0 if recurrent.rule == "filter" else values * recurrent.key_dim * recurrent.bits
    return (state + looked_at) / 8.0


def _block(
    kinds: list[Kind], states: Mapping[float, int], engine: Engine, plan: Plan, aligned: int
) -> int:
    """Tokens of a block into which every state fits."""
    token = max(kind.token_bytes for kind in kinds)
    needed = max((aligned * ceil(size / (aligned * token)) for size in states), default=0)
    return max(engine.block * plan.dcp, needed)


def _grouped(kinds: list[Kind]) -> list[Kind]:
    """Kinds padded to whole groups of the smallest kind's size."""
    if len(kinds) < 2 or len({kind.token_bytes for kind in kinds}) > 1:
        return kinds
    sizes = [kind.layers for kind in kinds]
    group = max(sizes) if max(sizes) < ALIKE * min(sizes) else min(sizes)
    return [replace(kind, layers=ceil(kind.layers / group) * group) for kind in kinds]
