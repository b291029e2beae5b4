"""The lightning indexer of sparse attention: which keys each query sees.

Narrow queries of some heads meet the one index key of every token before them; a weighted sum over
the heads is the score, and the keys with the highest are chosen (deepseek-ai/DeepSeek-V3.2-Exp,
inference/model.py, Indexer). Index keys lie in 8 bits beside the latent cache, and every rank
scores all index heads (vLLM's models/deepseek_v2.py, Indexer: ReplicatedLinear).
"""

from __future__ import annotations

from typing import Final

from trueflops.graph.build.layout import Layout
from trueflops.graph.ir import Tensor
from trueflops.graph.kinds import Kind, Role
from trueflops.model import Indexer

KEY_BITS: Final = 8.0
BLOCK_BITS: Final = 16.0  # of a key by which blocks are chosen (vLLM's indexer_kv_dtype: bf16)
SCALE_BYTES: Final = 4.0  # one fp32 scale for a key (vLLM's indexer_k_quant_and_cache)
_WIDE_BITS: Final = 32.0  # of scores, and of the places of the chosen


def index_key_bytes(indexer: Indexer) -> float:
    """What a token keeps for the indexer in the cache of one layer; nothing, where it is shared
    (vLLM's models/deepseek_v2.py makes no Indexer for such a layer, and so no cache of its own).
    """
    if indexer.shared:
        return 0.0
    if indexer.block > 1:
        return indexer.head_dim * BLOCK_BITS / 8.0
    return indexer.head_dim * KEY_BITS / 8.0 + SCALE_BYTES


def choose_keys(
    at: Layout, indexer: Indexer, x: Tensor, low: Tensor, pool: Tensor | None = None, rate: int = 1
) -> None:
    """From the normed stream and the queries' latent to the places of the chosen keys, one for each
    token, or a pool of `rate` tokens.

    Where every key is seen, an engine still writes index keys, for the tokens after these. SGLang
    leaves the queries out there; they are priced here all the same, so that their weights count.
    """
    heads, wide = ("index_heads", indexer.heads), ("index_dim", indexer.head_dim)
    q = at.linear(["attention.index_q"], low, [at.tensor("index.q", heads, wide)])
    k = pool or at.norm(
        "attention.index_norm", at.linear(["attention.index_k"], x, [at.tensor("index.k", wide)])
    )
    weight = at.linear(["attention.index_weigh"], x, [at.tensor("index.weight", heads)])
    narrow = Tensor("index.q.narrow", q.dims, KEY_BITS), Tensor("index.k.narrow", k.dims, KEY_BITS)
    at.op(Kind.ROPE, "attention.index_rope", [q, k], narrow, flop_per_element=3.0)
    run = at.run
    if run.training:
        return
    kept = Tensor("index.k.cached", k.dims, KEY_BITS, role=Role.INDEX)
    at.op(Kind.CACHE, "attention.index_cache", [narrow[1]], [kept])
    if run.sparse is None:
        return
    scores = Tensor("index.scores", (*at.tokens, ("keys", run.keys / rate)), _WIDE_BITS)
    none = Tensor("index.v", (("value_dim", 0.0),), KEY_BITS)  # scores are all that is wanted
    at.op(
        Kind.ATTENTION_DECODE if run.decoding else Kind.ATTENTION,
        "attention.index_scores",
        [narrow[0], narrow[1], none, weight],
        [scores],
        dtype=run.sparse.scores,
        keys=run.keys / rate,
        seen=run.keys_seen(0) / rate,
        key_bits=run.bits,  # a kernel of its own: DeepGEMM's fp8_mqa_logits
        cache_bytes=run.batch * run.keys / rate * index_key_bytes(indexer),
    )
    places = (*at.tokens, ("keys", indexer.top))
    chosen = Tensor("index.chosen", places, _WIDE_BITS, role=Role.INDEX)
    at.op(Kind.STREAM, "attention.index_top", [scores], [chosen])


def choose_blocks(at: Layout, indexer: Indexer, q: Tensor, k: Tensor) -> None:
    """Which blocks of keys each head of keys is asked for, by the highest score of any key in them.

    MiniMax-M3 (MiniMaxM3VLIndexer of transformers; vLLM's models/minimax_m3/common/indexer.py,
    whose index keys have 16 bits unless asked otherwise).
    """
    run = at.run
    q, k = at.norm("attention.index_q_norm", q), at.norm("attention.index_norm", k)
    turned = Tensor("index.q.rotated", q.dims, q.bits), Tensor("index.k.rotated", k.dims, k.bits)
    at.op(Kind.ROPE, "attention.index_rope", [q, k], turned, flop_per_element=3.0)
    if run.training:
        return
    kept = Tensor("index.k.cached", k.dims, run.bits, role=Role.INDEX)
    at.op(Kind.CACHE, "attention.index_cache", [turned[1]], [kept])
    if run.sparse is None:
        return
    heads = ("kv_heads", indexer.heads)
    scored = (*at.tokens, heads, ("keys", run.keys / indexer.block))
    scores = Tensor("index.scores", scored, _WIDE_BITS)
    none = Tensor("index.v", (("value_dim", 0.0),), run.bits)
    at.op(
        Kind.ATTENTION_DECODE if run.decoding else Kind.ATTENTION,
        "attention.index_scores",
        [*turned, none],
        [scores],
        keys=run.keys,
        seen=run.keys_seen(0),
        key_bits=run.bits,
        cache_bytes=run.batch * run.keys * indexer.head_dim * run.bits / 8.0,
    )
    places = (*at.tokens, heads, ("keys", indexer.top / indexer.block))
    chosen = Tensor("index.chosen", places, _WIDE_BITS, role=Role.INDEX)
    at.op(Kind.STREAM, "attention.index_top", [scores], [chosen])
