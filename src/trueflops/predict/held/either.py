"""DistributedDataParallel where nothing but states is shared, fully_shard where more is.

PyTorch alone has no ZeRO-2 or 3; who trains by it turns to FSDP2, as Accelerate does for Trainer.
In: many plans at once. Out: what one or the other holds, plan by plan.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from trueflops.predict.held.fsdp import Fsdp2
from trueflops.predict.held.rank import Backward, Holding, Rank
from trueflops.predict.held.torch_ddp import TorchDdp
from trueflops.sizes import Size


class Torch:
    """Both, by the ZeRO stage."""

    casts = True
    looks_ahead = True
    torch_loss = True

    def __init__(self) -> None:
        self.whole, self.shared = TorchDdp(), Fsdp2()

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
    shares = rank.plan.zero >= 2
    if not np.any(shares):
        return whole
    return Holding(
        *(np.where(shares, getattr(shared, f.name), getattr(whole, f.name)) for f in fields(whole))
    )
