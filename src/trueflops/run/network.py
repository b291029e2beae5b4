"""A plain transformer of any Model: the reference that a plan is carried out with.

In: a Model, the layers that this piece of a pipeline holds, a Layout. Out: an nn.Module from token
ids or hidden states to hidden states or logits. Weights are drawn from the seed and their name, so
they are the same whatever the plan. Norms, rotations and activations are written with the functions
that Hugging Face's code calls, which is what the implementation `eager` of a plan predicts.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from trueflops.errors import BadInput
from trueflops.language import say
from trueflops.model import Block, Model
from trueflops.model.layers import Attention
from trueflops.plan import Plan
from trueflops.plan.shares import Share, block_shares, embedding_shares, head_shares
from trueflops.predict.training.sent import Part
from trueflops.run.layout import Layout
from trueflops.run.routed import routed

DTYPES: Final = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
EPSILON: Final = 1e-5
ROPE_BASE: Final = 10000.0  # Su 2021, arXiv 2104.09864; no tensor's size depends on it
SPREAD: Final = 0.02  # standard deviation of weights (GPT-2)
_ACTIVATIONS: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "relu": F.relu,
}


def seeded(share: Share, name: str, seed: int, place: int) -> Tensor:
    """This rank's part of a weight that is drawn whole: gains are one, biases zero."""
    if share.name.endswith(".bias"):
        return torch.zeros(share.shape)
    if share.name.endswith("norm"):
        return torch.ones(share.shape)
    generator = torch.Generator().manual_seed(zlib.crc32(f"{seed}/{name}".encode()))
    whole = torch.empty(share.whole).normal_(0.0, SPREAD, generator=generator)
    if not share.axis or share.ways == 1:
        return whole
    return whole.chunk(share.ways, dim=share.cut)[place].clone()


class _Holder(nn.Module):
    """Weights by the names that trueflops.model.parameters gives them."""

    def hold(self, given: Sequence[Share], prefix: str, seed: int, layout: Layout) -> None:
        """Draw them; what tp and ep cut is this rank's part."""
        self.shares, self.prefix = tuple(given), prefix
        for share in given:
            drawn = seeded(share, prefix + share.name, seed, layout.place(share.axis))
            self.register_parameter(share.name.replace(".", "_"), nn.Parameter(drawn))

    def held(self) -> list[Held]:
        """Its own weights, as whoever divides them between replicas has them now."""
        found = []
        for share in self.shares:
            parameter = self._parameters[share.name.replace(".", "_")]
            assert parameter is not None
            found.append(Held(self.prefix + share.name, parameter, share))
        return found

    def weight(self, name: str) -> Tensor:
        """A weight that must be there."""
        found = self._parameters[name.replace(".", "_")]
        assert found is not None
        return found

    def maybe(self, name: str) -> Tensor | None:
        """A weight that some models lack."""
        return self._parameters.get(name.replace(".", "_"))

    def linear(self, name: str, x: Tensor) -> Tensor:
        """A product, with its bias where every rank adds its own part of it."""
        return F.linear(x, self.weight(name), self.maybe(f"{name}.bias"))

    def norm(self, name: str, x: Tensor, kind: str) -> Tensor:
        """RMSNorm, function by function, or LayerNorm."""
        gain, bias = self.weight(name), self.maybe(f"{name}.bias")
        if kind == "layer":
            return F.layer_norm(x, x.shape[-1:], gain, bias, EPSILON)
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)
        return gain * wide.to(x.dtype)


class Held(NamedTuple):
    """One weight of a piece, under its name in the whole model."""

    name: str
    parameter: nn.Parameter
    share: Share

    @property
    def routed(self) -> bool:
        """Whether it is of a routed expert."""
        return self.share.axis == "ep"


class Places(NamedTuple):
    """Where tokens stand: what turns their queries and keys, and which keys each one sees."""

    cos: Tensor | None
    sin: Tensor | None
    mask: Tensor | None  # None: every one before it


class Experts(_Holder):
    """The routed experts of a layer; those of other ranks of ep are reached by all-to-all."""

    def __init__(
        self, given: Sequence[Share], prefix: str, seed: int, at: Layout, b: Block
    ) -> None:
        super().__init__()
        assert b.experts is not None
        self.layout, self.experts = at, b.experts
        self.hold(given, prefix, seed, at)

    def forward(self, x: Tensor, scores: Tensor) -> Tensor:
        """Every token by its chosen experts, weighted by their renormalised scores (Mixtral)."""
        chosen, which = scores.softmax(-1).topk(self.experts.per_token, dim=-1)
        chosen = (chosen / chosen.sum(-1, keepdim=True)).to(x.dtype)
        rows = x.flatten(0, 1)
        made = routed(rows, which.flatten(0, 1), chosen.flatten(0, 1), self.one, self.experts.count,
                      self.layout.ep)  # fmt: skip
        return made.view_as(x)

    def one(self, expert: int, x: Tensor) -> Tensor:
        """One of this rank's experts."""

        def product(name: str, x: Tensor) -> Tensor:
            bias = self.maybe(f"experts.{name}.bias")
            return F.linear(x, self.weight(f"experts.{name}")[expert],
                            None if bias is None else bias[expert])  # fmt: skip

        bend = _activation(self.experts.activation)
        if not self.experts.gated:
            return product("down", bend(product("up", x)))
        return product("down", bend(product("gate", x)) * product("up", x))


class Layer(_Holder):
    """One transformer layer: attention, then a dense FFN or experts, around a residual stream."""

    def __init__(self, model: Model, plan: Plan, layer: int, layout: Layout, seed: int) -> None:
        super().__init__()
        self.block = model.blocks[model.pattern[layer]]
        self.layout = layout
        every = block_shares(model, plan, layer)
        prefix = f"layers.{layer}."
        self.hold([s for s in every if s.axis != "ep"], prefix, seed, layout)
        if self.block.experts:
            own = [s for s in every if s.axis == "ep"]
            self.experts = Experts(own, prefix, seed, layout, self.block)

    def forward(self, x: Tensor, places: Places) -> Tensor:
        """From the residual stream to the residual stream."""
        x = x + self._attend(self.norm("attention.norm", x, self.block.norm), places)
        return x + self._widen(self.norm("ffn.norm", x, self.block.norm))

    def _attend(self, x: Tensor, places: Places) -> Tensor:
        a, at = self.block.attention, self.layout
        assert a is not None
        x = at.as_tensor(x)
        q = self._heads("attention.q", x, a.head_dim)
        k = self._heads("attention.k", x, a.head_dim)
        v = self._heads("attention.v", x, a.value_dim)
        cos, sin, mask = places
        if a.rope and cos is not None and sin is not None:
            q, k = _turned(q, cos, sin), _turned(k, cos, sin)
        k, v = at.gathered_keys(k, 2), at.gathered_keys(v, 2)
        repeats = a.heads // a.kv_heads
        shares = mask is None or not x.is_cuda  # CUDA's kernels with a mask share no keys
        if repeats > 1 and not shares:
            k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
        mixed = F.scaled_dot_product_attention(
            q, k, v, mask, is_causal=mask is None, enable_gqa=repeats > 1 and shares
        )
        mixed = mixed.transpose(1, 2).flatten(2)
        return self._back("attention.out", mixed)

    def _heads(self, name: str, x: Tensor, width: int) -> Tensor:
        return self.linear(name, x).unflatten(-1, (-1, width)).transpose(1, 2)

    def _back(self, name: str, x: Tensor) -> Tensor:
        """A product over what tp splits: the terms are summed before the bias is added, once."""
        y = self.layout.as_token(F.linear(x, self.weight(name)))
        bias = self.maybe(f"{name}.bias")
        return y if bias is None else y + bias

    def _widen(self, x: Tensor) -> Tensor:
        if self.block.experts:
            scores = self.linear("experts.router", x).float()
            made: Tensor = self.experts(x, scores)
            return made + self._dense("shared", x, gated=True) if self._shared else made
        assert self.block.ffn is not None
        return self._dense("ffn", x, self.block.ffn.gated, self.block.ffn.activation)

    @property
    def _shared(self) -> bool:
        return bool(self.block.experts and self.block.experts.shared_width)

    def _dense(self, name: str, x: Tensor, gated: bool, activation: str = "silu") -> Tensor:
        x, bend = self.layout.as_tensor(x), _activation(activation)
        if not gated:
            return self._back(f"{name}.down", bend(self.linear(f"{name}.up", x)))
        wide = bend(self.linear(f"{name}.gate", x)) * self.linear(f"{name}.up", x)
        return self._back(f"{name}.down", wide)


class Network(_Holder):
    """A piece of the model."""

    def __init__(self, model: Model, plan: Plan, piece: Part, layout: Layout, seed: int) -> None:
        super().__init__()
        self.model, self.plan, self.piece, self.layout = model, plan, piece, layout
        ends = embedding_shares(model, plan) if piece.first else []
        ends += head_shares(model, plan) if piece.last else []
        self.hold(ends, "", seed, layout)
        self.layers = nn.ModuleList(Layer(model, plan, n, layout, seed) for n in piece.layers)

    def every_weight(self) -> list[Held]:
        """Of the piece and all its layers."""
        holders = (module for module in self.modules() if isinstance(module, _Holder))
        return [held for holder in holders for held in holder.held()]

    def forward(self, x: Tensor) -> Tensor:
        """Ids or hidden states in; hidden states or, from the last piece, logits out.

        Autocast ends with the forward: it keeps narrowed weights until then.
        """
        narrow = DTYPES[self.plan.compute]
        with torch.autocast(x.device.type, narrow, enabled=self.plan.autocasts):
            return self._forward(x)

    def _forward(self, x: Tensor) -> Tensor:
        if self.piece.first:
            x = self._embed(x)
        places = self._places(x)
        for place, layer in enumerate(self.layers):
            again = self.plan.recompute == "full" and place < self.plan.recompute_layers
            x = checkpoint(layer, x, places, use_reentrant=False) if again else layer(x, places)
        return self._score(x) if self.piece.last else x

    def _places(self, x: Tensor) -> Places:
        """Once for all layers, and made on the device: a copy to it would wait for all before."""
        at = self.layout
        turned = next((a for a in self.model.attentions if a.rope), None)
        within = x.shape[1] * (at.tp_size if at.sp else 1)
        seq = within * at.cp_size
        own, mask = at.positions(seq, x.device), None
        if at.cp is not None:
            every = torch.cat([at.positions(seq, x.device, rank) for rank in range(at.cp_size)])
            mask = own[:, None] >= every[None, :]
        cos, sin = _angles(own, turned, x.dtype) if turned else (None, None)
        return Places(cos, sin, mask)

    def _embed(self, ids: Tensor) -> Tensor:
        table = self.weight("embedding.tokens")
        local = ids - self.layout.place("tp") * table.shape[0]
        here = (local >= 0) & (local < table.shape[0])
        if self.layout.tp is None:
            x = F.embedding(ids, table)
        else:  # rows of other ranks are theirs to add
            x = F.embedding(local.clamp(0, table.shape[0] - 1), table) * here.unsqueeze(-1)
        x = self.layout.as_token(x)
        places = self.maybe("embedding.positions")
        if places is None:
            return x
        seq = ids.shape[1] * self.layout.cp_size
        own = self.layout.own_tokens(self.layout.positions(seq, x.device))
        return x + F.embedding(own, places)

    def _score(self, x: Tensor) -> Tensor:
        if self.model.final_norm:
            x = self.norm("head.norm", x, self.model.blocks[-1].norm)
        x = self.layout.as_tensor(x)
        if self.model.tied:
            return F.linear(x, self.weight("embedding.tokens"))
        return self.linear("head.logits", x)


def _activation(name: str) -> Callable[[Tensor], Tensor]:
    if name in _ACTIVATIONS:
        return _ACTIVATIONS[name]
    if name == "gelu_new":
        return _new_gelu
    if name.startswith("gelu"):
        return lambda x: F.gelu(x, approximate="tanh")
    raise BadInput(
        say("activation {name}: run knows {known}", name=name, known=", ".join(_ACTIVATIONS))
    )


def _new_gelu(x: Tensor) -> Tensor:
    """Function by function, as transformers' NewGELUActivation has it."""
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
    return 0.5 * x * (1.0 + torch.tanh(inner))


def _angles(positions: Tensor, a: Attention, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    width = a.head_dim
    steps = torch.arange(0, width, 2, device=positions.device) / width
    angles = positions[:, None] / (ROPE_BASE**steps)[None, :]
    both = torch.cat([angles, angles], -1)
    return both.cos().to(dtype), both.sin().to(dtype)


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    one, other = x.chunk(2, -1)
    return x * cos + torch.cat([-other, one], -1) * sin
