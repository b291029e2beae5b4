"""Attention: projections (full or through a latent), position, and softmax(QKᵀ)V op by op."""

from __future__ import annotations

from typing import Any

import numpy as np

from trueflops.graph.build.core import Keys, core, write_cache
from trueflops.graph.build.indexing import choose_blocks, choose_keys
from trueflops.graph.build.layout import Layout, Pass
from trueflops.graph.build.pooled import attend_pooled
from trueflops.graph.ir import Tensor
from trueflops.graph.kinds import Kind, Role
from trueflops.graph.variants import AttentionKernel
from trueflops.model import Attention, Block, Latent


def attend(at: Layout, block: Block, x: Tensor) -> Tensor:
    """From the normed residual stream to the output projection."""
    a = block.attention
    assert a is not None
    if a.pooled:
        return attend_pooled(at, block, a, a.pooled, x)
    if a.latent and (at.run.decoding or (a.indexer and at.run.sparse)):
        mixed = _absorbed(at, a, a.latent, x)
    elif a.latent:
        mixed = core(at, block, *_latent(at, a, a.latent, x))
    else:
        q, k, v, gate = _projections(at, a, x)
        if not a.borrows:
            write_cache(at, k, v)
        mixed = core(at, block, q, k, v, _chosen_blocks(at.run, a))
        if a.gated:
            mixed = at.op(Kind.MULTIPLY, "attention.gating", [mixed, gate], [_like(mixed, "gated")])
    return at.linear(["attention.out"], mixed, [at.branch("attention.out.y", mixed)])


def _chosen_blocks(run: Pass, a: Attention) -> Keys | None:
    """The keys in blocks that were chosen, of all that prompts read; None where all are seen."""
    if a.indexer is None or run.sparse is None:
        return None
    read = np.minimum(run.keys, run.seq * a.indexer.top)
    return Keys(run.keys, read, run.keys_seen(a.indexer.top))


def _like(t: Tensor, name: str) -> Tensor:
    return Tensor(f"{t.name}.{name}", t.dims, t.bits)


def _projections(at: Layout, a: Attention, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Queries, keys, values and, where heads have one, their gate."""
    if a.borrows:
        return _with_borrowed_keys(at, a, x)
    bits = at.made_bits(x)
    q = at.tensor("q", ("heads", a.heads), ("head_dim", a.head_dim), bits=bits)
    k = at.tensor("k", ("kv_heads", a.kv_heads), ("head_dim", a.head_dim), bits=bits)
    v = at.tensor("v", ("kv_heads", a.kv_heads), ("value_dim", a.value_dim), bits=bits)
    one = {"packed": 1.0} if a.packed else {}
    gate = at.tensor("gate", ("heads", a.heads), ("value_dim", a.gate_dim), bits=bits)
    names, made = ["attention.q", "attention.k", "attention.v"], [q, k, v]
    if a.keys_as_values:
        names, made = names[:2], made[:2]
    if a.gated and not a.one_gate:  # queries and gate are one weight (Qwen3NextAttention, q_proj)
        names, made = [*names, "attention.gate"], [*made, gate]
    if a.indexer:  # in the same product (vLLM's models/minimax_m3/nvidia/model.py)
        narrow = ("index_dim", a.indexer.head_dim)
        asks = at.tensor("index.q", ("kv_heads", a.indexer.heads), narrow, bits=bits)
        key = at.tensor("index.k", narrow, bits=bits)
        names, made = [*names, "attention.index_q", "attention.index_k"], [*made, asks, key]
    at.linear(names, x, made, **one)
    if a.indexer:
        choose_blocks(at, a.indexer, *made[-2:])
    if a.one_gate:  # a product of its own (Step3p7Attention, g_proj)
        at.linear(["attention.gate"], x, [gate])
    if a.value_norm:
        normed = _like(v, "normed")
        own = k if a.keys_as_values else v
        v = at.op(Kind.NORM, "attention.v_norm", [own], [normed], part="norm", flop_per_element=5.0)
    if a.qk_norm != "none":
        q, k = at.norm("attention.q_norm", q), at.norm("attention.k_norm", k)
    if a.rope:
        turned = Tensor("q.rotated", q.dims, q.bits), Tensor("k.rotated", k.dims, k.bits)
        at.op(Kind.ROPE, "attention.rope", [q, k], turned, flop_per_element=3.0)
        q, k = turned
    return q, k, v, gate


def _with_borrowed_keys(
    at: Layout, a: Attention, x: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Queries of this layer; keys and values as an earlier layer made them. Their gradient is left
    to that layer: what the two ways into it are summed by is not counted.
    """
    bits = at.made_bits(x)
    q = at.tensor("q", ("heads", a.heads), ("head_dim", a.head_dim), bits=bits)
    given = (*at.tokens, ("kv_heads", a.kv_heads))
    k = Tensor("k.borrowed", (*given, ("head_dim", a.head_dim)), bits, role=Role.INDEX)
    v = Tensor("v.borrowed", (*given, ("value_dim", a.value_dim)), bits, role=Role.INDEX)
    at.linear(["attention.q"], x, [q])
    if a.qk_norm != "none":
        q = at.norm("attention.q_norm", q)
    if a.rope:
        turned = Tensor("q.rotated", q.dims, q.bits)
        q = at.op(Kind.ROPE, "attention.rope", [q], [turned], flop_per_element=3.0)
    return q, k, v, q


def _latent(at: Layout, a: Attention, low: Latent, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """MLA as trained: down to the latents, up to full heads (arXiv 2405.04434 eq. 9–19)."""
    q, kv, key_rope = _from_latents(at, a, low, x)
    write_cache(at, kv, key_rope)
    both = ("key_and_value_dim", low.nope_dim + a.value_dim)
    up = at.linear(["attention.kv_up"], kv, [at.tensor("kv.up", ("heads", a.heads), both)])
    turned = Tensor("q.rotated", q.dims, q.bits)
    k = at.tensor("k", ("kv_heads", a.heads), ("head_dim", a.head_dim))
    v = at.tensor("v", ("kv_heads", a.heads), ("value_dim", a.value_dim))
    # The rotated key is shared by all heads; joining it to theirs writes K (and V) in full.
    at.op(Kind.ROPE, "attention.rope", [q, up, key_rope], [turned, k, v], flop_per_element=1.0)
    return turned, k, v


def _from_latents(
    at: Layout, a: Attention, low: Latent, x: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, the latent of keys and values, and the key that is rotated.

    Engines that serve hold both ways down side by side, as one product (vLLM's deepseek_v2.py,
    fused_qkv_a_proj; SGLang's fused_qkv_a_proj_with_mqa; TensorRT-LLM's kv_a_proj_with_mqa, of
    q_lora_rank + kv_lora_rank + qk_rope_head_dim columns).
    """
    q = at.tensor("q", ("heads", a.heads), ("head_dim", a.head_dim))
    down = at.tensor("q.low", ("q_rank", low.q_rank))
    latent = at.tensor("kv.low", ("kv_rank", low.kv_rank))
    key_rope = at.tensor("key.rope", ("rope_dim", low.rope_dim))
    joined = bool(low.q_rank) and not at.run.training
    if joined:
        at.linear(["attention.q_down", "attention.kv_down"], x, [down, latent, key_rope])
    elif low.q_rank:
        at.linear(["attention.q_down"], x, [down])
    made_of = at.norm("attention.q_norm", down) if low.q_rank else x
    if a.indexer and not a.indexer.shared:
        choose_keys(at, a.indexer, x, made_of)
    at.linear(["attention.q_up" if low.q_rank else "attention.q"], made_of, [q])
    if not joined:
        at.linear(["attention.kv_down"], x, [latent, key_rope])
    return q, at.norm("attention.kv_norm", latent), key_rope


def _absorbed(at: Layout, a: Attention, low: Latent, x: Tensor) -> Tensor:
    """MLA as served: the up-projections move to the query and the output, so that attention reads
    the latent cache itself, once for all heads (arXiv 2405.04434 §2.1.2). With keys chosen for each
    query, a prompt is read so, too, each of its tokens as a sequence of its own.
    """
    run, heads, rank = at.run, ("heads", a.heads), ("kv_rank", low.kv_rank)
    nope, value = ("head_dim", low.nope_dim), ("value_dim", a.value_dim)
    wide = ("head_dim", low.kv_rank + low.rope_dim)
    up_key = Tensor("attention.kv_up.key", (heads, nope, rank), run.bits, role=Role.WEIGHT)
    up_value = Tensor("attention.kv_up.value", (heads, rank, value), run.bits, role=Role.WEIGHT)

    q, latent, key_rope = _from_latents(at, a, low, x)
    q_nope, q_rope = (
        at.tensor("q.nope", heads, nope),
        at.tensor("q.rope", heads, ("rope_dim", low.rope_dim)),
    )
    at.op(Kind.ROPE, "attention.rope", [q, key_rope], [q_nope, q_rope], flop_per_element=1.0)
    write_cache(at, latent, key_rope)
    in_latent = at.tensor("q.latent", heads, rank)
    at.op(Kind.MATMUL, "attention.absorb_key", [q_nope], [in_latent], (up_key,))
    sparse, tokens, facts = run.sparse if a.indexer else None, at.tokens, _seen_keys(run, a)
    if sparse and a.indexer:
        tokens = (("batch", run.batch * run.seq), ("seq", 1.0))
        facts |= dict.fromkeys(("keys", "seen"), sparse.keys(run, a.indexer.top))
        facts["head_tile"] = sparse.head_tile
    query = Tensor("q.absorbed", (*tokens, heads, wide), run.bits)
    at.op(Kind.STREAM, "attention.join", [in_latent, q_rope], [query])
    key = at.tensor("k.cache", ("kv_heads", 1.0), wide, bits=run.cache_bits)
    val = at.tensor("v.cache", ("kv_heads", 1.0), ("value_dim", low.kv_rank), bits=run.cache_bits)
    mixed = at.op(
        Kind.ATTENTION_DECODE,
        "attention.core",
        [query, key, val],
        [at.tensor("mixed.latent", heads, rank)],
        part="core",
        variant=AttentionKernel.MLA,
        **facts,
    )
    out = at.tensor("mixed", heads, value)
    return at.op(Kind.MATMUL, "attention.absorb_value", [mixed], [out], (up_value,))


def _seen_keys(run: Pass, a: Attention) -> dict[str, Any]:
    """Of a latent cache that is read once for all heads."""
    keys = run.keys_read(a.window)
    if a.indexer and run.sparse:  # what is read of memory: all queries may choose the same keys
        keys = np.minimum(keys, run.seq * a.indexer.top)
    cache = run.batch * keys * a.cache_width * run.cache_bits / 8.0
    return {"keys": keys, "seen": run.keys_seen(a.window), "cache_bytes": cache}
