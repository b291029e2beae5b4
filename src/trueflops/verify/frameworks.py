"""The free text of `framework` as one key of `profile/data/frameworks.toml`.

The key names the software that runs the step: the same plan takes other kernels and other
collectives under another one. The first line of the table whose words all occur decides.
"""

from __future__ import annotations

import re
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


def framework_key(text: str, notes: str = "") -> str:
    """The canonical key of a framework's free text; what no line knows is `plain`."""
    folded = text.casefold()
    key = next((key for words, key in _KEYS if all(word in folded for word in words)), "plain")
    if "compile" in notes and not re.search(r"\b(no|without) (torch\.)?compile", notes):
        return _COMPILED.get(key, key)
    return key
