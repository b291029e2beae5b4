"""What of a training step runs as CUDA graphs: parts of each layer, or the whole step.

In: a text of a plan, a flag or a row. Out: the parts, as clock/host.py tells them apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from trueflops.errors import BadInput, UnknownName
from trueflops.language import say

STEP: Final = "step"
NOTHING: Final = "none"
PARTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "attention": "with the norms before and after it",
        "ffn": "a dense feed-forward",
        "router": "what chooses experts, and shared experts",
        STEP: "forward and backward of all layers as one graph",
    }
)
"""Experts' own products are in none but the last: their tokens are counted on the device."""
LAYERS: Final = ",".join(sorted(PARTS.keys() - {STEP}))
"""What megatron-core captures of layers where no parts are named."""


def read_captures(text: str) -> frozenset[str]:
    """Parts from 'attention,router', 'step', 'none' or ''.

    >>> sorted(read_captures("router, attention"))
    ['attention', 'router']
    """
    words = [word.strip().casefold() for word in text.split(",") if word.strip()]
    if words == [NOTHING]:
        return frozenset()
    for word in words:
        if word not in PARTS:
            raise UnknownName("part for CUDA graphs", word, PARTS)
    if STEP in words and len(set(words)) > 1:
        raise BadInput(say("a step that is one CUDA graph has no parts of its own: say step alone"))
    return frozenset(words)


def captures_text(text: str) -> str:
    """The same parts as a plan holds them: each once, in order.

    >>> captures_text("router, attention, router")
    'attention,router'
    """
    return ",".join(sorted(read_captures(text)))
