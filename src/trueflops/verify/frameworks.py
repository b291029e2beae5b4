"""The free text of `framework` as one key, and what such a framework does unless a row says else.

The key names the software that runs the step: the same plan takes other kernels and other
collectives under another one. The first line of the table whose words all occur decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_KEYS: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (("neuron",), "neuron"),
    (("megatron", "deepspeed"), "megatron-deepspeed"),
    (("deepspeed",), "deepspeed"),
    (("torchtitan",), "torchtitan"),
    (("maxtext",), "maxtext"),
    (("pax",), "maxtext"),
    (("jax",), "maxtext"),
    (("internevo",), "internevo"),
    (("megatron",), "megatron"),
    (("nemo",), "megatron"),
    (("primus",), "megatron"),
    (("foundry",), "composer"),
    (("composer",), "composer"),
    (("fsdp",), "fsdp"),
    (("compil",), "compiled"),
)


_COMPILED: Final = {"fsdp": "fsdp-compiled", "plain": "compiled"}


@dataclass(frozen=True)
class Habits:
    """What a framework does where a published row is silent."""

    zero: int
    fused: bool = True  # pointwise chains run as one kernel (hand-written, compiled or XLA)
    sp: bool = True  # sequence parallelism beside tp
    selective_layers: float = 0.0
    """What it calls selective recomputation: 0 attention's scores (Korthikanti et al. 2022), else
    about this share of the work (every other product, or every other layer) run again."""


HABITS: Final = {
    "megatron": Habits(zero=1),
    "megatron-deepspeed": Habits(zero=1, sp=False),
    "deepspeed": Habits(zero=1, fused=False, sp=False),
    "fsdp": Habits(zero=3, fused=False, selective_layers=0.5),
    "composer": Habits(zero=3, fused=False, selective_layers=0.5),
    "torchtitan": Habits(zero=3, selective_layers=0.75),
    "maxtext": Habits(zero=3),
    "xla-gpu": Habits(zero=3),
    "neuron": Habits(zero=1),
    "internevo": Habits(zero=1, fused=False),
    "fsdp-compiled": Habits(zero=3, selective_layers=0.5),
    "plain": Habits(zero=0, fused=False),
    "compiled": Habits(zero=0),
}


def framework_key(text: str, notes: str = "") -> str:
    """The canonical key of a framework's free text; what no line knows is `plain`."""
    folded = text.casefold()
    key = next((key for words, key in _KEYS if all(word in folded for word in words)), "plain")
    if "compile" in notes and not re.search(r"\b(no|without) (torch\.)?compile", notes):
        return _COMPILED.get(key, key)
    return key
