"""The parts of a transformer layer, as the papers name them: attention, dense FFN, experts."""

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
    inference/model.py).
    """

    heads: int
    head_dim: int
    top: int


@dataclass(frozen=True, slots=True)
class State:
    """Linear attention: each head keeps key_dim × value_dim numbers, whatever the context.

    The gated delta rule (Yang et al. 2024, arXiv 2412.06464) as Qwen3-Next has it. Heads, their
    dimensions and those of queries and keys (`kv_heads`) are the Attention's.
    """

    conv: int  # tokens that the causal convolution over queries, keys and values looks at
    rates: int = 2  # numbers of a token and head: how much is forgotten, how much is written
    bits: float = 32.0  # of a number of the state


@dataclass(frozen=True, slots=True)
class Attention:
    """One attention layer. GQA and MQA are kv_heads < heads; MLA has a `latent`, linear attention a
    `state`.
    """

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
    sinks: bool = False
    latent: Latent | None = None
    indexer: Indexer | None = None  # beside a latent
    gated: bool = False  # what a head answers is multiplied by a gate of its own
    state: State | None = None

    @property
    def cache_width(self) -> int:
        """Values kept per token in the KV cache: K and V, or the latent and its rope key."""
        if self.state:
            return 0
        if self.latent:
            return self.latent.kv_rank + self.latent.rope_dim
        return self.kv_heads * (self.head_dim + self.value_dim)


@dataclass(frozen=True, slots=True)
class Ffn:
    """A dense feed-forward layer; gated ones (SwiGLU, GeGLU) have two input projections."""

    width: int
    gated: bool
    bias: bool = False
    activation: str = "silu"


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
