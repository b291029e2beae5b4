"""Adapters of linear layers: which layers have one, and the two matrices of each (LoRA).

In: names as PEFT's users write them (q, v; attention; all-linear). Out: Parameters. Where queries,
keys and values are one layer (c_attn, query_key_value, Wqkv) they share one adapter: qkv. Layers
that keep a state have an adapter for each part of their in_proj, and call the others as Mamba does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from trueflops.errors import UnknownName
from trueflops.model.architecture import Block, Model
from trueflops.model.parameters import Parameter

ALL_LINEAR: Final = "all-linear"  # PEFT's word: every linear layer but the head
_OF_ATTENTION: Final = ("q", "k", "v", "o")
JOINED: Final = "qkv"
_DOWN, _UP = ".lora_a", ".lora_b"
SCALED, ADDED = ".lora_scale", ".lora_add"
TARGETS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "q": ("attention.q", "attention.q_down", "attention.q_up"),
        "k": ("attention.k", "attention.kv_down", "attention.kv_up"),
        "v": ("attention.v", "attention.kv_down", "attention.kv_up"),
        "qkv": ("attention.q", "attention.k", "attention.v"),
        "o": ("attention.out",),
        "gate": ("ffn.gate", "experts.gate", "shared.gate"),
        "up": ("ffn.up", "experts.up", "shared.up"),
        "down": ("ffn.down", "experts.down", "shared.down"),
        "router": ("experts.router", "shared.weigh"),
        "in": (
            *(f"recurrent.{name}" for name in ("q", "k", "v", "gate", "rates")),
            *(f"recurrent.{name}" for name in ("gate_down", "gate_up", "rate_down")),
        ),
        "x": ("recurrent.narrow",),
        "dt": ("recurrent.rate_up",),
        "out": ("recurrent.out",),
    }
)
"""The linear layers that a target names; a latent's projections make keys and values together."""


def read_targets(text: str) -> tuple[str, ...]:
    """Keys of TARGETS from 'q,v', 'attention' or 'all-linear'.

    >>> read_targets("attention")
    ('q', 'k', 'v', 'o')
    """
    if text == ALL_LINEAR:
        return tuple(target for target in TARGETS if target != JOINED)
    words = [word.strip().removesuffix("_proj") for word in text.split(",")]
    found: list[str] = []
    for word in words:
        if word != "attention" and word not in TARGETS:
            raise UnknownName("layer for adapters", word, [*TARGETS, "attention", ALL_LINEAR])
        found += _OF_ATTENTION if word == "attention" else (word,)
    return tuple(dict.fromkeys(found))


def is_target(name: str, targets: tuple[str, ...]) -> bool:
    """Whether a linear layer is among them."""
    return any(name in TARGETS[target] for target in targets)


def is_adapter(name: str) -> bool:
    """Whether a weight is one of an adapter's."""
    return name.endswith((_DOWN, _UP))


def is_adapting(name: str) -> bool:
    """Whether an op scales what an adapter made, or adds it to what its layer made."""
    return name.endswith((SCALED, ADDED))


def adapted_together(names: Sequence[str], targets: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The linear layers among these that have an adapter, by which of them share one."""
    joined = TARGETS[JOINED]
    if JOINED in targets and set(joined) <= set(names):
        others = [name for name in names if name not in joined]
        return [joined, *adapted_together(others, targets)]
    return [(name,) for name in names if is_target(name, targets)]


def adapter_parameters(of: Sequence[Parameter], rank: int) -> tuple[Parameter, ...]:
    """A [rank, inputs] and B [outputs, rank] of one linear layer, or of layers that share A."""
    low, first = ("lora_rank", rank), of[0]
    into = first.dims[-first.inputs :]
    experts = tuple(dim for dim in first.dims if dim[0] == "experts")  # each has its own
    down = Parameter(f"{first.name}{_DOWN}", (*experts, low, *into), routed=first.routed)
    ups = []
    for layer in of:
        out = tuple(dim for dim in layer.dims[: -layer.inputs] if dim[0] != "experts")
        dims = (*experts, *out, low)
        ups.append(Parameter(f"{layer.name}{_UP}", dims, routed=layer.routed))
    return (down, *ups)


def adapter_count(model: Model, rank: int, targets: tuple[str, ...]) -> int:
    """Trained parameters where only adapters are trained."""

    def of_block(block: Block) -> int:
        if block.frozen:
            return 0
        own = {p.name: p for p in block.parameters(model.hidden)}
        groups = adapted_together(list(own), targets)
        found = [adapter_parameters([own[name] for name in group], rank) for group in groups]
        return sum(parameter.elements for adapter in found for parameter in adapter)

    each = [of_block(block) for block in model.blocks]
    return sum(each[kind] for kind in model.pattern)
