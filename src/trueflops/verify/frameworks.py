"""The free text of `framework` as one key of `profile/data/frameworks.toml`.

The key names the software that runs the step: the same plan takes other kernels and other
collectives under another one. The first line of the table whose words all occur decides.
"""

from __future__ import annotations

import re
from typing import Final

PLAIN: Final = "plain"
_KEYS: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (("neuron",), "neuron"),
    (("megatron", "deepspeed"), "megatron-deepspeed"),
    (("deepspeed",), "deepspeed"),
    (("torchtitan",), "torchtitan"),
    (("maxtext",), "maxtext"),
    (("pax",), "maxtext"),
    (("jax",), "maxtext"),
    (("internevo",), "internevo"),
    (("bridge",), "nemo"),
    (("nemo",), "nemo"),
    (("megatron",), "megatron"),
    (("primus",), "megatron"),
    (("foundry",), "composer"),
    (("composer",), "composer"),
    (("fsdp",), "fsdp"),
    (("compil",), "compiled"),
    (("transformers",), "transformers"),
    (("trainer",), "transformers"),
    (("accelerate",), "transformers"),
    (("peft",), "transformers"),
    (("litgpt",), PLAIN),
    (("torch",), PLAIN),
)


_COMPILED: Final = {"fsdp": "fsdp-compiled", PLAIN: "compiled"}


def framework_key(text: str, notes: str = "") -> str:
    """The canonical key of a framework's free text; what no line knows is judged as `plain`."""
    key = _found(text) or PLAIN
    if "compile" in notes and not re.search(r"\b(no|without) (torch\.)?compile", notes):
        return _COMPILED.get(key, key)
    return key


def knows_framework(text: str) -> bool:
    """Whether some line of the table knows it."""
    return _found(text) is not None


def _found(text: str) -> str | None:
    folded = text.casefold()
    return next((key for words, key in _KEYS if all(word in folded for word in words)), None)
