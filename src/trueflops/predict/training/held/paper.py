"""ZeRO as its paper describes it (Rajbhandari 2020, arXiv 1910.02054), where no code is known.

Stage 1 shares states, 2 also gradients, 3 also weights; gradients are there all the time. Two
pieces are gathered at a time, this one and the next, and one whole gradient waits to be summed.
"""

from __future__ import annotations

import numpy as np

from trueflops.predict.training.held.rank import (
    NEVER,
    Backward,
    Holding,
    NamedLogits,
    Rank,
)
from trueflops.predict.training.schedule import weight_copies
from trueflops.sizes import Size


class Paper:
    """What the paper's formulas say."""

    casts = True
    flat_from = NEVER
    dtensors_from = NEVER
    looks_ahead = False
    torch_loss = False
    names_logits: NamedLogits = ""

    def standing(self, rank: Rank) -> Holding:
        """Shares of everything, and the pieces at work of what is divided or kept outside."""
        plan, held, copies = rank.plan, rank.parameters, weight_copies(rank.plan)
        # Of pieces that are divided as well, those at work are gathered: they are counted there.
        here = np.where(plan.zero >= 3, 0.0, np.minimum(2.0 * held.largest, held.weights))
        here = here * plan.offload_parameters
        weights = held.weights * (1.0 - plan.offload_parameters) + here
        # With the states gradients leave for the host as the backward makes them, and are added
        # up there; a piece at a time waits on the way (ZeRO-Offload, arXiv 2101.06840 §4.1).
        gone = plan.offload_optimizer
        leaving = np.where(gone > 0.0, np.minimum(held.largest, held.gradients), 0.0)
        gradients = held.gradients * (1.0 - gone) + leaving * gone
        piece = np.minimum(held.largest, gradients)
        gradients = gradients + rank.lets_go * (piece - gradients)
        zero = plan.zero
        whole = np.where(zero >= 3, 2.0 * rank.weight_bytes, 0.0)
        whole = whole + np.where(zero >= 2, rank.gradient_bytes, 0.0)
        return Holding(
            weights * rank.weight_bytes * copies,
            gradients * rank.gradient_bytes * copies,
            rank.states * copies,
            whole * held.largest,
        )

    def forward(self, rank: Rank, block: Size) -> Holding:
        """Nothing more."""
        return Holding()

    def backward(self, rank: Rank, at: Backward) -> Holding:
        """Nothing more."""
        return Holding()

    def reduced(self, rank: Rank, at: Backward) -> Holding:
        """Nothing more."""
        return Holding()

    def step(self, rank: Rank) -> Holding:
        """What the update makes."""
        return Holding(buffers=rank.beside_update)

    def bucket(self, rank: Rank) -> None:
        """None that holds up anything."""
