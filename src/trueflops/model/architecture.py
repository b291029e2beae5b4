"""What is computed: a frozen description of a decoder-only transformer.

A Model is an embedding, a pattern of Blocks (few distinct ones, in layer order) and a head.
It knows no hardware and no plan. Names are the field's own: heads, kv_heads, ffn, experts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from trueflops.model.parameters import (
    Parameter,
    attention_parameters,
    embedding_parameters,
    expert_parameters,
    ffn_parameters,
    head_parameters,
    norm_parameters,
)
from trueflops.model.quantization import Released

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
    out_bias: bool = False
    qk_norm: Literal["none", "head", "width", "unweighted"] = "none"
    sinks: bool = False
    latent: Latent | None = None

    @property
    def cache_width(self) -> int:
        """Values kept per token in the KV cache: K and V, or the latent and its rope key."""
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

    count: int
    per_token: int
    width: int
    gated: bool = True
    bias: bool = False
    router_bias: bool = False
    shared_width: int = 0
    shared_gate: bool = False
    activation: str = "silu"


@dataclass(frozen=True, slots=True)
class Block:
    """One transformer layer: attention, then a dense FFN or experts, around a residual stream."""

    attention: Attention
    ffn: Ffn | None
    experts: Experts | None
    norm: Literal["rms", "layer"] = "rms"
    norm_bias: bool = False
    norms: NormPlacement = "pre"
    parallel: bool = False  # attention and FFN read the same input (GPT-J, Falcon, GPT-NeoX)
    shared_norm: bool = False  # … and the same normed input (Falcon-7B)
    dropout: float = 0.0
    attention_dropout: float = 0.0

    def parameters(self, hidden: int) -> tuple[Parameter, ...]:
        """Every weight of the layer, with its shape by named dimension."""
        parts = [*norm_parameters(self, hidden), *attention_parameters(self.attention, hidden)]
        if self.ffn:
            parts += ffn_parameters("ffn", self.ffn, hidden)
        if self.experts:
            parts += expert_parameters(self.experts, hidden)
        return tuple(parts)


@dataclass(frozen=True)
class Model:
    """A whole network: embedding, layers in order, final norm, head.

    >>> import trueflops as tf
    >>> model = tf.read_model("DeepSeek-V3")
    >>> model.layers, model.is_moe, model.released.format
    (61, True, 'fp8_block')
    """

    name: str
    family: str
    hidden: int
    vocab: int
    blocks: tuple[Block, ...]
    pattern: tuple[int, ...]  # layer -> index into blocks
    tied: bool
    max_positions: int
    learned_positions: int = 0
    embedding_dim: int = 0  # OPT-350M embeds narrower than hidden; 0: the same
    embedding_norm: bool = False
    final_norm: bool = True
    head_bias: bool = False
    notes: tuple[str, ...] = field(default=())
    released: Released = field(default_factory=Released)  # the format of the checkpoint's weights

    @property
    def layers(self) -> int:
        """How many transformer layers."""
        return len(self.pattern)

    @cached_property
    def parameter_count(self) -> int:
        """All parameters, tied ones once; equals transformers' own count (a test)."""
        ends = sum(p.elements for p in (*embedding_parameters(self), *head_parameters(self)))
        per_block = [sum(p.elements for p in b.parameters(self.hidden)) for b in self.blocks]
        return ends + sum(per_block[i] for i in self.pattern)

    @cached_property
    def active_parameter_count(self) -> int:
        """Parameters that one token passes through: of the routed experts only the chosen ones."""
        idle = 0
        for index in self.pattern:
            experts = self.blocks[index].experts
            if experts:
                routed = [p for p in expert_parameters(experts, self.hidden) if p.routed]
                idle += sum(p.elements // experts.count for p in routed) * (
                    experts.count - experts.per_token
                )
        return self.parameter_count - idle

    @property
    def is_moe(self) -> bool:
        """Whether any layer routes tokens to experts."""
        return any(b.experts for b in self.blocks)
