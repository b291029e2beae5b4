"""The free text of `framework` as one key of `profile/data/frameworks.toml`.

The key names the software that runs the step: the same plan takes other kernels and other
collectives under another one. The first line of the table whose words all occur decides.
"""

from __future__ import annotations

import re
from typing import Final

PLAIN: Final = "plain"
HUGGING_FACE: Final = "transformers"
"""Also of those that write their models as Hugging Face does, one function after another."""
_LIKE_HUGGING_FACE: Final = (
    "trainer", "accelerate", "peft", "trl", "transformers", "hf ", "hugging", "axolotl", "swift",
    "factory", "unsloth", "torchtune", "litgpt", "xtuner",
)  # fmt: skip
_KEYS: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (("neuron",), "neuron"),
    (("megatron", "deepspeed"), "megatron-deepspeed"),
    (("deepspeed",), "deepspeed"),
    (("torchtitan",), "torchtitan"),
    (("maxtext",), "maxtext"),
    (("pax",), "maxtext"),
    (("jax",), "maxtext"),
    (("internevo",), "internevo"),
    (("automodel",), HUGGING_FACE),  # NeMo's way of training Hugging Face's models
    (("bridge",), "nemo"),
    (("nemo",), "nemo"),
    (("megatron",), "megatron"),
    (("primus",), "megatron"),
    (("foundry",), "composer"),
    (("composer",), "composer"),
    # Compiled, and unlike Hugging Face's its attention gets no mask as a tensor (litgpt/model.py,
    # CausalSelfAttention: is_causal where there is none).
    (("litgpt", "thunder"), "compiled"),
    *(((word,), HUGGING_FACE) for word in _LIKE_HUGGING_FACE),
    (("fsdp",), "fsdp"),
    (("compil",), "compiled"),
    (("torch",), PLAIN),
)


_COMPILED: Final = {
    "fsdp": "fsdp-compiled",
    PLAIN: "compiled",
    HUGGING_FACE: "transformers-compiled",
}


def framework_key(text: str, notes: str = "", compiled: str = "") -> str:
    """The canonical key of a framework's free text; what no line knows is judged as `plain`.

    `compiled` is what a row says of torch.compile: y, n, or nothing.
    """
    key = _found(text) or PLAIN
    noted = "compile" in notes and not re.search(r"\b(no|without) (torch\.)?compile", notes)
    if compiled.casefold() in ("y", "yes", "true") or (noted and not compiled):
        return _COMPILED.get(key, key)
    return key


def knows_framework(text: str) -> bool:
    """Whether some line of the table knows it."""
    return _found(text) is not None


def _found(text: str) -> str | None:
    folded = text.casefold()
    return next((key for words, key in _KEYS if all(word in folded for word in words)), None)
