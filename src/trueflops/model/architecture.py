"""What is computed: a frozen description of a decoder-only language model.

A Model is an embedding, a pattern of Blocks (few distinct ones, in layer order) and a head.
It knows no hardware and no plan. Names are the field's own: heads, kv_heads, ffn, experts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from trueflops.model.layers import Attention, Experts, Ffn, NormPlacement, Recurrent
from trueflops.model.parameters import (
    Parameter,
    attention_parameters,
    beside_parameters,
    expert_parameters,
    ffn_parameters,
    join_parameters,
    linear,
    mixing_parameter,
    norm_parameter,
    norm_parameters,
    own_parameters,
    recurrent_parameters,
)
from trueflops.model.quantization import Released


@dataclass(frozen=True, slots=True)
class Block:
    """One layer around a residual stream: what mixes tokens, then a dense FFN, experts, or both.

    Tokens are mixed by attention, by a recurrence, or by both side by side, which read one normed
    input and whose results are added (Falcon-H1). Layers of some hybrids mix, or widen, alone
    (Nemotron-H).
    """

    attention: Attention | None
    ffn: Ffn | None
    experts: Experts | None
    recurrent: Recurrent | None = None
    norm: Literal["rms", "layer"] = "rms"
    norm_bias: bool = False
    norms: NormPlacement = "pre"
    parallel: bool = False  # attention and FFN read the same input (GPT-J, Falcon, GPT-NeoX)
    shared_norm: bool = False  # … and the same normed input (Falcon-7B)
    dropout: float = 0.0
    attention_dropout: float = 0.0
    frozen: bool = False  # not trained: `freeze_first` of model/freezing.py
    joins: bool = False  # begins with a join of two streams: `predict_further` of predicting.py
    # Residual streams: several are collapsed into what a part reads, and what it makes is spread
    # over all of them, which mix (manifold-constrained hyper-connections, DeepseekV4HyperConnection
    # of transformers).
    streams: int = 1
    # Width of an input that the layer is given of its own, beside the stream (Gemma 4's per-layer
    # embeddings, Gemma4TextDecoderLayer of transformers).
    own: int = 0

    @property
    def mixer(self) -> str:
        """What mixes tokens, by the name of its first part; empty where nothing does."""
        return "attention" if self.attention else "recurrent" if self.recurrent else ""

    @property
    def parts(self) -> tuple[str, ...]:
        """The one or two halves, each with its norm and its sum with the residual stream."""
        widens = "ffn" if self.ffn or self.experts else ""
        return tuple(part for part in (self.mixer, widens) if part)

    def parameters(self, hidden: int) -> tuple[Parameter, ...]:
        """Every weight of the layer, with its shape by named dimension."""
        normed = self.parts[:1] if self.shared_norm else self.parts
        parts = norm_parameters(normed, self.norms, hidden, bias=self.norm_bias)
        if (n := self.streams) > 1:  # into a part, out of it, and from each stream to each
            parts += [
                mixing_parameter(f"{part}.mix", n, (2 + n) * n, 3, hidden) for part in self.parts
            ]
        if self.attention:
            parts += attention_parameters(self.attention, hidden)
        if self.recurrent:
            parts += recurrent_parameters(self.recurrent, hidden)
        if self.joins:
            parts += join_parameters(hidden, apart=self.streams > 1)
        if self.ffn:
            parts += ffn_parameters("ffn", self.ffn, hidden)
        if self.experts:
            parts += expert_parameters(self.experts, hidden)
        if self.ffn and self.experts:
            parts += beside_parameters(hidden)
        if self.own:
            parts += own_parameters(self.own, hidden)
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
    own_rows: int = 0  # of a second table, from which each layer has an input of its own
    final_norm: bool = True
    head_bias: bool = False
    modules: int = 0  # of the last layers, those that predict further tokens, each by the head
    notes: tuple[str, ...] = field(default=(), compare=False)  # what it is beyond: beyond.py
    released: Released = field(default_factory=Released)  # the format of the checkpoint's weights

    @property
    def layers(self) -> int:
        """How many."""
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
        if self.own_rows:
            one = self.blocks[0].own
            wide = ("own", one * self.layers)
            parts += [
                Parameter("embedding.own", (("vocab", self.own_rows), wide)),
                Parameter("embedding.own_project", (wide, h)),
                Parameter("embedding.own_norm", (("own_width", one),)),
            ]
        return parts

    def head_parameters(self) -> list[Parameter]:
        """Final norm and the output projection; a tied head owns no matrix of its own."""
        h, vocab = ("hidden", self.hidden), ("vocab", self.vocab)
        parts = []
        if self.streams > 1:
            parts.append(mixing_parameter("head.mix", self.streams, self.streams, 1, self.hidden))
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
    def attentions(self) -> tuple[Attention, ...]:
        """Of every distinct block that has one."""
        return tuple(block.attention for block in self.blocks if block.attention)

    @property
    def recurrences(self) -> tuple[Recurrent, ...]:
        """Of every distinct block that has one."""
        return tuple(block.recurrent for block in self.blocks if block.recurrent)

    @property
    def streams(self) -> int:
        """Residual streams that layers hand on."""
        return self.blocks[-1].streams

    @property
    def is_moe(self) -> bool:
        """Whether any layer routes tokens to experts."""
        return any(b.experts for b in self.blocks)

    @property
    def has_latent(self) -> bool:
        """Whether any layer keeps latents instead of keys and values."""
        return any(attention.latent for attention in self.attentions)
