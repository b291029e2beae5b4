"""What is computed: a frozen description of a decoder-only transformer.

A Model is an embedding, a pattern of Blocks (few distinct ones, in layer order) and a head.
It knows no hardware and no plan. Names are the field's own: heads, kv_heads, ffn, experts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from trueflops.model.layers import Attention, Experts, Ffn, NormPlacement
from trueflops.model.parameters import (
    Parameter,
    attention_parameters,
    expert_parameters,
    ffn_parameters,
    join_parameters,
    linear,
    norm_parameter,
    norm_parameters,
)
from trueflops.model.quantization import Released


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
    frozen: bool = False  # not trained: `freeze_first` of model/freezing.py
    joins: bool = False  # begins with a join of two streams: `predict_further` of predicting.py

    def parameters(self, hidden: int) -> tuple[Parameter, ...]:
        """Every weight of the layer, with its shape by named dimension."""
        norms = norm_parameters(self.norms, hidden, shared=self.shared_norm, bias=self.norm_bias)
        parts = [*norms, *attention_parameters(self.attention, hidden)]
        if self.joins:
            parts += join_parameters(hidden)
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
    modules: int = 0  # of the last layers, those that predict further tokens, each by the head
    notes: tuple[str, ...] = field(default=())
    released: Released = field(default_factory=Released)  # the format of the checkpoint's weights

    @property
    def layers(self) -> int:
        """How many transformer layers."""
        return len(self.pattern)

    def embedding_parameters(self) -> list[Parameter]:
        """Token table, learned positions, and the norm or projection that follows them."""
        h = ("hidden", self.hidden)
        narrow = self.embedding_dim and self.embedding_dim != self.hidden
        width = ("embedding_dim", self.embedding_dim) if narrow else h
        parts = [Parameter("embedding.tokens", (("vocab", self.vocab), width))]
        if self.learned_positions:
            parts.append(
                Parameter("embedding.positions", (("positions", self.learned_positions), h))
            )
        if narrow:
            parts.append(Parameter("embedding.project", (h, width)))
        if self.embedding_norm:
            parts.append(norm_parameter("embedding.norm", self.hidden, self.blocks[0].norm_bias))
        return parts

    def head_parameters(self) -> list[Parameter]:
        """Final norm and the output projection; a tied head owns no matrix of its own."""
        h, vocab = ("hidden", self.hidden), ("vocab", self.vocab)
        parts = []
        if self.final_norm:
            parts.append(norm_parameter("head.norm", self.hidden, self.blocks[-1].norm_bias))
        width = h
        if self.embedding_dim and self.embedding_dim != self.hidden:
            width = ("embedding_dim", self.embedding_dim)
            parts.append(Parameter("head.project", (width, h)))
        if not self.tied:
            parts.append(linear("head.logits", (vocab,), width, self.head_bias))
        return parts

    @cached_property
    def parameter_count(self) -> int:
        """All parameters, tied ones once; equals transformers' own count (a test)."""
        ends = sum(p.elements for p in (*self.embedding_parameters(), *self.head_parameters()))
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
