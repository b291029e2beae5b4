"""The parts of a layer, as papers name them: attention, recurrence, dense FFN, experts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

NormPlacement = Literal["pre", "post", "sandwich"]
"""pre: x + f(norm(x)); post (OLMo-2): x + norm(f(x)); sandwich (Gemma): x + norm(f(norm(x)))."""


@dataclass(frozen=True, slots=True)
class Latent:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434 §2.1)."""

    q_rank: int  # 0: queries are projected directly
    kv_rank: int
    nope_dim: int
    rope_dim: int


@dataclass(frozen=True, slots=True)
class Indexer:
    """DeepSeek Sparse Attention's lightning indexer: narrow heads of its own score every key before
    a query, which then attends to the `top` of them (deepseek-ai/DeepSeek-V3.2-Exp,
    inference/model.py). A layer that shares another's choice has no heads and no keys for it
    (IndexCache, arXiv 2603.12201; GlmMoeDsaAttention of transformers).
    """

    heads: int
    head_dim: int
    top: int
    shared: bool = False  # its keys are those that the last layer with an indexer chose
    block: int = 1  # keys that are chosen together, by the highest score of any


@dataclass(frozen=True, slots=True)
class Pooled:
    """Attention of DeepSeek-V4 (DeepseekV4Attention of transformers, "paper §2.3" in its words).

    One key of a token is its own value, for all heads. A query sees those of a window and, before
    it, keys that are pooled of `rate` tokens each by learned weights: all of them (heavily
    compressed attention), or those that an indexer chose (compressed sparse attention). Heads leave
    by groups through a low rank.
    """

    q_rank: int
    rope_dim: int  # of a key, the numbers that are rotated
    out_groups: int
    out_rank: int
    rate: int = 0  # tokens whose keys become one; 0: the window is all that is seen
    overlaps: bool = False  # each is pooled of its own tokens and of those of the one before

    @property
    def ways(self) -> int:
        """How often a token's key is made, for as many pools as it is part of."""
        return 2 if self.overlaps else 1


@dataclass(frozen=True, slots=True)
class Attention:
    """One attention layer. GQA and MQA are kv_heads < heads; MLA has a `latent`."""

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    window: int = 0  # 0: sees everything before it; else only this many keys
    chunked: bool = False  # the window does not slide: it is the chunk the query lies in
    rope: bool = True
    qkv_bias: bool = False
    packed: bool = False  # one weight makes queries, keys and values, as the family's code has it
    out_bias: bool = False
    qk_norm: Literal["none", "head", "width", "unweighted"] = "none"
    value_norm: bool = False  # values are normed, too, without a gain (Gemma 4)
    keys_as_values: bool = False  # values are keys before their norm: no projection of their own
    borrows: bool = False  # keys and values are an earlier layer's: no projections, no cache
    sinks: bool = False
    latent: Latent | None = None
    indexer: Indexer | None = None  # beside a latent, over pooled keys, or for each head of keys
    pooled: Pooled | None = None
    gated: bool = False  # what a head answers is multiplied by a gate of its own
    one_gate: bool = False  # the gate is one number for each head, not one for each value

    @property
    def gate_dim(self) -> int:
        """Numbers of a head's gate."""
        return 1 if self.one_gate else self.value_dim

    @property
    def cache_width(self) -> int:
        """Values kept per token in the KV cache: K and V, the latent and its rope key, or a key
        that is its own value.
        """
        if self.latent:
            return self.latent.kv_rank + self.latent.rope_dim
        if self.pooled:
            return self.head_dim
        return self.kv_heads * (self.head_dim + self.value_dim)


Rule = Literal["delta", "decay", "scan", "filter"]
"""How a token changes a recurrent layer's state S, α being what is kept of it:
delta  S ← α·S + β·(v − α·S·k)·kᵀ: what stands under a key is corrected (the gated delta rule, Yang
       et al. 2024, arXiv 2412.06464; with an α for each channel of a key, Kimi Delta Attention,
       arXiv 2510.26692);
decay  S ← α·S + v·kᵀ (Mamba-2, Dao and Gu 2024, arXiv 2405.21060; lightning attention, whose α are
       fixed, arXiv 2501.08313);
scan   the same with an α for each number of the state, so that tokens of a prompt cannot be taken
       together as products (Mamba, Gu and Dao 2023, arXiv 2312.00752);
filter there is no S: a short causal filter of v·k, whose result is multiplied by q (LFM2, arXiv
       2511.23404; Lfm2ShortConv of transformers).
"""


@dataclass(frozen=True, slots=True)
class Recurrent:
    """A layer of linear attention or of a state space: it keeps a state instead of a cache.

    Each head has key_dim × value_dim numbers, whatever the context. State-space layers are the same
    in other words (arXiv 2405.21060 §7): their C, B and x are queries, keys and values, groups are
    heads of queries and keys, and Δ is a rate.
    """

    rule: Rule
    heads: int  # of values; each has a state
    key_heads: int  # of queries and of keys, which heads share
    key_dim: int
    value_dim: int
    rates: int = 0  # numbers of a token and head: how much is forgotten, how much is written
    learned: int = 0  # numbers that a head has of its own: its decay, the rates' bias, a way past S
    rank: int = 0  # a narrow product between the input and what is made for every channel
    conv: int = 0  # tokens that a causal convolution looks at; 0: there is none
    conv_bias: bool = False
    bias: bool = False  # of the projections
    out_bias: bool = False
    norm: Literal["none", "head", "group", "width"] = "head"  # what the result is normed over
    inner_norms: Literal["none", "unweighted", "weighted"] = "none"  # of rates, queries and keys
    chunk: int = 64  # tokens of a prompt that are taken together
    bits: float = 32.0  # of a number of the state while serving


@dataclass(frozen=True, slots=True)
class Ffn:
    """A dense feed-forward layer; gated ones (SwiGLU, GeGLU) have two input projections."""

    width: int
    gated: bool
    bias: bool = False
    activation: str = "silu"
    learned: int = 0  # numbers that the activation has learned (xIELU)


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts, with the shared expert that some families always run beside it."""

    count: int  # copies included
    per_token: int
    width: int
    gated: bool = True
    bias: bool = False
    router_bias: bool = False
    shared_width: int = 0
    shared_gate: bool = False
    activation: str = "silu"
    copies: int = 0  # of popular ones, which a server adds to keep its ranks even
    latent: int = 0  # width in which routed experts work, where it is not the model's
    scaled: bool = False  # the router has an own scale of its input, and one for each expert
