"""One implementation where at most states are shared, another where gradients or weights are.

PyTorch alone has no ZeRO-2 or 3: who trains by it turns to FSDP2, as Accelerate does for Trainer.
Who shards weights by Megatron-core runs Megatron-FSDP (--use-megatron-fsdp).
In: many plans at once. Out: what one or the other holds, plan by plan.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from trueflops.predict.training.held.rank import Backward, Holding, Keeper, Rank
from trueflops.sizes import Size

SHARES_GRADIENTS = 2  # the ZeRO stage


class ByStage:
    """Both, by the ZeRO stage."""

    def __init__(self, whole: Keeper, shared: Keeper) -> None:
        self.whole, self.shared = whole, shared
        self.casts = whole.casts
        self.dtensors_from = min(whole.dtensors_from, shared.dtensors_from)
        self.flat_from = min(whole.flat_from, shared.flat_from)
        self.looks_ahead = shared.looks_ahead
        self.torch_loss = whole.torch_loss
        self.names_logits = whole.names_logits

    def standing(self, rank: Rank) -> Holding:
        """All the time."""
        return _either(rank, self.whole.standing(rank), self.shared.standing(rank))

    def forward(self, rank: Rank, block: Size) -> Holding:
        """In a block's forward."""
        return _either(rank, self.whole.forward(rank, block), self.shared.forward(rank, block))

    def backward(self, rank: Rank, at: Backward) -> Holding:
        """In the backward."""
        return _either(rank, self.whole.backward(rank, at), self.shared.backward(rank, at))

    def reduced(self, rank: Rank, at: Backward) -> Holding:
        """When gradients are summed."""
        return _either(rank, self.whole.reduced(rank, at), self.shared.reduced(rank, at))

    def step(self, rank: Rank) -> Holding:
        """In the optimizer's step."""
        return _either(rank, self.whole.step(rank), self.shared.step(rank))

    def bucket(self, rank: Rank) -> None:
        """None that holds up anything."""


def _either(rank: Rank, whole: Holding, shared: Holding) -> Holding:
    shares = rank.plan.zero >= SHARES_GRADIENTS
    if not np.any(shares):
        return whole
    return Holding(
        *(np.where(shares, getattr(shared, f.name), getattr(whole, f.name)) for f in fields(whole))
    )
