"""Attention over a window and over pooled keys, as DeepSeek-V4 has it.

A token's key is its own value. Pools of `rate` tokens are summed by weights of their own, normed,
rotated and kept in the place of their tokens; an engine keeps what the next pool needs in fp32
(vLLM's models/deepseek_v4: attention.py, compressor.py, nvidia/flashmla.py; in training as
DeepseekV4Attention of transformers). Queries attend to both kinds of keys in one kernel, prompts
as decode steps, every token as a sequence of its own. In training the keys that an indexer would
choose are counted, and masks cost nothing.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from trueflops.graph.build.core import Keys, core, write_cache
from trueflops.graph.build.indexing import choose_keys
from trueflops.graph.build.layout import Layout, Pass
from trueflops.graph.formats import EIGHT_BITS
from trueflops.graph.ir import Dims, Tensor
from trueflops.graph.kinds import Kind, Role
from trueflops.graph.variants import AttentionKernel
from trueflops.model import Attention, Block, Pooled

STATE_BITS: Final = 32.0  # of what is not yet pooled (CompressorStateCache)
HEAD_TILE: Final = 64.0  # FlashMLA's kernels run 64 heads or 128 (get_padded_num_q_heads)
SCALE_BYTES: Final = 8.0  # of a key in 8 bits: a scale for 64 numbers, and one byte to fill up


def key_bytes(wide: int, rope: int, bits: float) -> float:
    """Of a key in the cache; in 8 bits its rotated part stays in 16 (compressor.py,
    _token_stride and _scale_dim: 448 + 2 · 64 + 8 bytes).
    """
    if bits > EIGHT_BITS:
        return wide * bits / 8.0
    return wide - rope + 2.0 * rope + SCALE_BYTES


def attend_pooled(at: Layout, block: Block, a: Attention, p: Pooled, x: Tensor) -> Tensor:
    """From the normed residual stream to the output projection."""
    low, key = at.tensor("q.low", ("q_rank", p.q_rank)), at.tensor("kv", ("kv_rank", a.head_dim))
    if at.run.training:
        at.linear(["attention.q_down"], x, [low])
        at.linear(["attention.kv"], x, [key])
    else:  # one product: fused_wqa_wkv
        at.linear(["attention.q_down", "attention.kv"], x, [low, key])
    low, key = at.norm("attention.q_norm", low), at.norm("attention.kv_norm", key)
    q = at.tensor("q", ("heads", a.heads), ("head_dim", a.head_dim))
    q = at.norm("attention.q_head_norm", at.linear(["attention.q_up"], low, [q]))
    dims = (*_queries(at.run), *q.dims[2:])
    turned = Tensor("q.rotated", dims, q.bits), Tensor("kv.rotated", key.dims, key.bits)
    at.op(Kind.ROPE, "attention.rope", [q, key], turned, flop_per_element=3.0)
    q, key = turned
    pools = [_pool(at, p, "pool", x, a.head_dim, at.run.cache_bits)] if p.rate else []
    if a.indexer:
        chosen_of = _pool(at, p, "index", x, a.indexer.head_dim, at.run.bits)
        choose_keys(at, a.indexer, x, low, chosen_of, p.rate)
    write_cache(at, key)
    mixed = _mixed(at, block, a, q, [key, *pools])
    groups = ("heads", p.out_groups), ("group_dim", a.heads * a.value_dim // p.out_groups)
    grouped = at.tensor("mixed.grouped", *groups)  # what rotated a value is undone
    at.op(Kind.STREAM, "attention.rope_back", [mixed], [grouped], flop_per_element=3.0)
    narrow = at.tensor("out.low", ("heads", p.out_groups), ("out_rank", p.out_rank))
    narrow = at.linear(["attention.out_low"], grouped, [narrow])
    return at.linear(["attention.out"], narrow, [at.branch("attention.out.y", narrow)])


def _pool(at: Layout, p: Pooled, name: str, x: Tensor, wide: int, bits: float) -> Tensor:
    """Keys of whole pools; a server reads back what it kept of the tokens before.

    A pool that overlaps reads twice its tokens. On average a decode step closes 1 / rate of one.
    """
    run, made = at.run, ("pooled", float(p.ways * wide))
    wider = run.bits if run.training else STATE_BITS
    kv, gate = (
        at.tensor(f"{name}.kv", made, bits=wider),
        at.tensor(f"{name}.gate", made, bits=wider),
    )
    at.linear([f"attention.{name}_kv", f"attention.{name}_gate"], x, [kv, gate])
    dims = (("batch", run.batch), ("seq", run.seq / p.rate), ("pooled_dim", float(wide)))
    pooled = Tensor(f"{name}.pooled", dims, run.bits if run.training else bits)
    state: list[Tensor] = []
    kept: list[Tensor] = []
    if not run.training:
        both = ("pooled", 2.0 * p.ways * wide)
        kept = [Tensor(f"{name}.kept", (*at.tokens, both), STATE_BITS, role=Role.INDEX)]
        reads = ("ways", float(p.ways))
        state = [Tensor(f"{name}.state", (*at.tokens, reads, both), STATE_BITS, role=Role.INDEX)]
    weights = at.weights(f"attention.{name}_place", f"attention.{name}_norm")
    return at.op(
        Kind.MULTIPLY, f"attention.{name}", [kv, gate, *state], [pooled, *kept], weights,
        flop_per_element=8.0 * p.ways * p.rate,
    )  # fmt: skip


def keys_of(run: Pass, a: Attention, p: Pooled) -> Keys:
    """Of the window and of the pools: those there are, those read, those a query sees."""
    there, read, seen = Keys.under(run, a)
    if not p.rate:
        return Keys(there, read, seen)
    pools, top = run.keys / p.rate, a.indexer.top if a.indexer else 0
    most = np.minimum(pools, run.seq * top) if top else pools
    return Keys(there + pools, read + most, seen + run.keys_seen(top * p.rate) / p.rate)


def _is_dense(run: Pass) -> bool:
    """Whether queries are masked, not given keys of their own."""
    return run.training or (run.sparse is None and not run.decoding)


def _queries(run: Pass) -> Dims:
    """Where each has keys of its own, a token is a sequence to the kernel."""
    if _is_dense(run):
        return (("batch", run.batch), ("seq", run.seq))
    return (("batch", run.batch * run.seq), ("seq", 1.0))


def _mixed(at: Layout, block: Block, a: Attention, q: Tensor, keys: list[Tensor]) -> Tensor:
    """Heads over one key, which is its own value."""
    run, p = at.run, a.pooled
    assert p is not None
    found = keys_of(run, a, p)
    if _is_dense(run):
        held = run.seq * (1.0 + 1.0 / p.rate if p.rate else 1.0)
        dims = (("batch", run.batch), ("seq", held), ("kv_heads", 1.0))
        k = Tensor("k", (*dims, ("head_dim", float(a.head_dim))), run.bits)
        v = Tensor("v", (*dims, ("value_dim", float(a.value_dim))), run.bits)
        at.op(Kind.STREAM, "attention.join", keys, [k, v])
        return core(at, block, q, k, v, found)
    wide = ("kv_heads", 1.0), ("head_dim", float(a.head_dim))
    key = at.tensor("k.cache", *wide, bits=run.cache_bits)
    value = at.tensor("v.cache", wide[0], ("value_dim", float(a.value_dim)), bits=run.cache_bits)
    cache = run.batch * found.read * key_bytes(a.head_dim, p.rope_dim, run.cache_bits)
    return at.op(
        Kind.ATTENTION_DECODE, "attention.core", [q, key, value],
        [at.tensor("mixed", ("heads", a.heads), ("value_dim", a.value_dim))],
        at.weights("attention.sinks"), part="core", variant=AttentionKernel.MLA,
        keys=found.seen, seen=found.seen, cache_bytes=cache, head_tile=HEAD_TILE,
    )  # fmt: skip
