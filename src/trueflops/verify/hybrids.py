"""Layers of hybrids that are published: three in four keep a state of fixed size, no cache.

In: a checkpoint's name. Out: its Layers, of which stand_in.py builds a model. Sources: THUDM/slime
scripts/models/*.sh, which train from these checkpoints; of Qwen3.5-9B the config.json that
paiml.github.io/aprender quotes; of linear layers the defaults of vLLM's configs/qwen3_5_moe.py
(16 heads of queries and keys, 128 numbers each, a convolution over 4 tokens).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from trueflops.model.families.hybrid import gated_delta
from trueflops.model.layers import Experts, Recurrent

HEAD: Final = 256  # numbers of a head of full attention, in all of them
STATE_HEAD: Final = 128  # and of a head with a state
STATE_KEYS: Final = 16  # heads of queries and keys that those share
CONV: Final = 4


class Layers(NamedTuple):
    """How many, how wide, with which heads; of a mixture its experts."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    state_heads: int  # of a linear layer, each with a state of 128 × 128
    vocab: int
    experts: Experts | None = None


def _experts(count: int, per_token: int, width: int) -> Experts:
    """With a shared one of the same width, which is weighed."""
    return Experts(count, per_token, width, shared_width=width, shared_gate=True)


# Qwen3.6 and later releases of one size have the layers of Qwen3.5's.
_PUBLISHED: Final[tuple[tuple[str, Layers], ...]] = (
    (r"Qwen3\.[5-9]-9B", Layers(32, 4096, 16, 4, 32, 248320)),
    (r"Qwen3\.[5-9]-27B", Layers(64, 5120, 24, 4, 48, 248320)),
    (r"Qwen3\.[5-9]-35B-A3B", Layers(40, 2048, 16, 2, 32, 248320, _experts(256, 8, 512))),
    (r"Qwen3\.[5-9]-397B-A17B", Layers(60, 4096, 32, 2, 64, 248320, _experts(512, 10, 1024))),
    (r"Qwen3-Next-80B-A3B", Layers(48, 2048, 16, 2, 32, 151936, _experts(512, 10, 512))),
)  # fmt: skip


def linear(heads: int, keys: int, side: int) -> Recurrent:
    """A layer of linear attention."""
    return gated_delta(heads, keys, side, side, CONV)


def layers_of(name: str) -> Layers | None:
    """Of the checkpoint, None where they are not known."""
    return next((own for word, own in _PUBLISHED if re.match(word, name, re.IGNORECASE)), None)
