"""nanotron's FP32GradientAccumulator: optim/gradient_accumulator.py of huggingface/nanotron.

All gradients have a place in one fp32 buffer, whatever the optimizer divides (build_grad_buffers),
and those that autograd made in 16 bits are added to it when a micro-batch's backward is over
(backward). ZeRO-1 shares fp32 weights and moments (optim/zero.py).
"""

from __future__ import annotations

from trueflops.predict.training.held.rank import (
    NEVER,
    Backward,
    Holding,
    NamedLogits,
    Rank,
)
from trueflops.sizes import Size


class Nanotron:
    """With accumulate_grad_in_fp32, its examples' choice."""

    casts = False
    flat_from = 1  # optim/zero.py: pieces of flat tensors
    dtensors_from = NEVER
    looks_ahead = False
    torch_loss = False
    names_logits: NamedLogits = ""

    def standing(self, rank: Rank) -> Holding:
        """Weights, every gradient, this rank's states."""
        held = rank.parameters
        return Holding(
            held.weights * rank.weight_bytes, held.all * rank.gradient_bytes, rank.states
        )

    def forward(self, rank: Rank, block: Size) -> Holding:
        """Nothing more."""
        return Holding()

    def backward(self, rank: Rank, at: Backward) -> Holding:
        """What this micro-batch has made so far, as narrow as the weights."""
        return Holding(gradients=(at.made + at.fresh) * rank.weight_bytes)

    def reduced(self, rank: Rank, at: Backward) -> Holding:
        """The same: sums over replicas are in place."""
        return self.backward(rank, at)

    def step(self, rank: Rank) -> Holding:
        """Gradients are read as views of the buffer."""
        return Holding()

    def bucket(self, rank: Rank) -> None:
        """None that holds up anything."""
