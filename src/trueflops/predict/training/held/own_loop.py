"""megatron-core's modules in a training loop of one's own, without its DistributedDataParallel.

Weights and gradients are PyTorch's; Transformer Engine keeps narrow copies of the weights for the
backward whoever calls it (megatron.py). GPTModel returns logits, batch first, where it gets no
labels (core/models/gpt/gpt_model.py), and the loop has a name for them until its next step.
"""

from __future__ import annotations

from trueflops.predict.training.held.megatron import narrow_copies
from trueflops.predict.training.held.rank import Holding, NamedLogits, Rank
from trueflops.predict.training.held.torch_ddp import TorchDdp


class OwnLoop(TorchDdp):
    """As PyTorch alone, and what those modules and the loop keep."""

    names_logits: NamedLogits = "narrow"

    def standing(self, rank: Rank) -> Holding:
        """Narrow copies of what multiplies in blocks, too."""
        held = rank.parameters
        in_blocks = held.all - held.embedding - held.head
        return super().standing(rank) + Holding(weights=in_blocks * narrow_copies(rank))
