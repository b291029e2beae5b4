"""Precisions of a training, and what each did to its gradients and updates. Needs no torch.

In: nothing; PRECISIONS are the ways that a run compares. Out: Rounded, one for each.
A wide copy of the weights is what mixed precision is about (Micikevicius et al. 2018, arXiv
1710.03740 §3.1): fp16 has 11 significant bits, bf16 8, so that an update smaller than half of the
last bit of its weight, 2⁻¹² or 2⁻⁹ of it, is lost in rounding, every time anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Precision:
    """In which dtype products are computed, and weights kept from one step to the next."""

    compute: str
    weights: str
    scaled: bool = False  # the loss, dynamically


PRECISIONS: Final = (
    Precision("fp32", "fp32"),
    Precision("bf16", "fp32"),
    Precision("fp16", "fp32", scaled=True),
    Precision("fp16", "fp32"),
    Precision("fp16", "fp16", scaled=True),
    Precision("bf16", "bf16"),
)


@dataclass(frozen=True, kw_only=True)
class Rounded:
    """One training from the same weights on the same tokens."""

    precision: Precision
    losses: tuple[float, ...]
    loss_scale: float  # at the end
    skipped: int  # steps whose gradients overflowed
    zero_share: float  # of gradients, in the last step
    swamped_share: float  # of weights with a gradient: those that the last step left as they were
    moved: float  # distance of all weights from where they began: the root of the sum of squares
