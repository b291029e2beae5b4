"""PyTorch alone or under DistributedDataParallel: gradients are of the weights' dtype.

autograd makes them in the backward and `zero_grad` lets them go, so that with one micro-batch they
grow as activations shrink (torch/csrc/autograd/functions/accumulate_grad.h: the first is stolen,
later ones are added in place). DDP copies them into buckets that it holds from its start
(torch/csrc/distributed/c10d/reducer.cpp, initialize_buckets).
"""

from __future__ import annotations

import numpy as np

from trueflops.plan import BYTES
from trueflops.predict.training.held.rank import (
    NEVER,
    Backward,
    Holding,
    NamedLogits,
    Rank,
)
from trueflops.sizes import Size


class TorchDdp:
    """torch.nn.parallel.DistributedDataParallel with gradient_as_bucket_view=False."""

    casts = True
    flat_from = NEVER
    dtensors_from = NEVER
    looks_ahead = False
    torch_loss = True
    names_logits: NamedLogits = ""

    def standing(self, rank: Rank) -> Holding:
        """Weights, states, buckets; gradients too where micro-batches are accumulated."""
        held = rank.parameters
        summed = held.all * rank.weight_bytes
        return Holding(
            held.weights * rank.weight_bytes,
            summed * rank.accumulates,
            rank.states,
            summed * rank.replicated,
        )

    def forward(self, rank: Rank, block: Size) -> Holding:
        """Nothing more."""
        return Holding()

    def backward(self, rank: Rank, at: Backward) -> Holding:
        """What was made so far; one weight's where it is added to what is there, or let go of."""
        width = rank.weight_bytes
        one_by_one = (rank.accumulates > 0.0) | (rank.lets_go > 0.0)
        made = np.where(one_by_one, at.opened, at.made + at.fresh) * width
        # Autocast's product makes a narrow gradient first, which is then widened.
        narrow = at.opened * BYTES["bf16"] if rank.plan.autocasts else 0.0
        return Holding(gradients=made, buffers=narrow)

    def reduced(self, rank: Rank, at: Backward) -> Holding:
        """All of the piece."""
        return self.backward(rank, at)

    def step(self, rank: Rank) -> Holding:
        """All gradients, and the optimizer's temporaries."""
        made = rank.parameters.all * rank.weight_bytes * (1.0 - rank.accumulates)
        stays = 1.0 - rank.lets_go
        return Holding(gradients=made * stays, buffers=rank.beside_update)

    def bucket(self, rank: Rank) -> None:
        """None that holds up anything."""
