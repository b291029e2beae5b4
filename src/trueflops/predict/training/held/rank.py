"""What an implementation of data parallelism is asked about: a rank, and moments of its step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, Protocol

import numpy as np

from trueflops.plan import BYTES, Plan
from trueflops.predict.training.adafactor import Adafactor
from trueflops.predict.training.blockwise import Blockwise
from trueflops.predict.training.foreach import temporary_bytes
from trueflops.predict.training.memory import Held
from trueflops.sizes import Size

NEVER: Final = 4  # a stage that there is not
NamedLogits = Literal["", "narrow", "wide"]


@dataclass(frozen=True, kw_only=True)
class Rank:
    """One rank of each stage: its parameters, and in which widths they are kept."""

    plan: Plan
    parameters: Held
    micro_batches: Size
    by_lists: bool  # the optimizer walks over lists of tensors
    adafactor: Adafactor | None = None
    blockwise: Blockwise | None = None

    @property
    def weight_bytes(self) -> float:
        """Of a parameter as it is stored."""
        return BYTES[self.plan.trained_dtype]

    @property
    def gradient_bytes(self) -> float:
        """Of a gradient as it is added up."""
        return BYTES[self.plan.summed_dtype]

    @property
    def compute_bytes(self) -> float:
        """Of a parameter as products read it; below 16 bits they are narrowed for each product."""
        return self.plan.wide_bytes

    @property
    def accumulates(self) -> Size:
        """1.0 where gradients of earlier micro-batches are there when a backward begins."""
        return np.where(self.micro_batches > 1.0, 1.0, 0.0)

    @property
    def replicated(self) -> Size:
        """1.0 where there is another replica to agree with; ranks of cp are some, too."""
        return np.where(self.plan.dp * self.plan.cp > 1.0, 1.0, 0.0)

    @property
    def share(self) -> Size:
        """The part of all parameters whose weights ZeRO-3 leaves here."""
        return self.parameters.weights / np.maximum(self.parameters.all, 1.0)

    @property
    def lets_go(self) -> Size:
        """1.0 where a gradient is let go of once its weight is updated, as soon as it is made: what
        is added up over micro-batches stays.
        """
        return 1.0 - self.accumulates if self.plan.update_in_backward else 0.0

    @property
    def on_device(self) -> Size:
        """The part of states that is not kept outside the accelerator. Paged ones are in unified
        memory, which PyTorch does not count and the driver moves away where room is short
        (bitsandbytes/optim/optimizer.py, get_state_buffer: cudaMallocManaged).
        """
        return 0.0 if self.plan.paged_states else 1.0 - self.plan.offload_optimizer

    @property
    def states(self) -> Size:
        """Bytes of optimizer states on the device."""
        own = self.parameters.states * self.plan.state_bytes
        if self.adafactor is not None:
            own = own + self.adafactor.state_bytes(self.parameters)
        if self.blockwise is not None:
            own = own + self.blockwise.state_bytes(self.parameters)
        return own * self.on_device

    @property
    def beside_update(self) -> Size:
        """The same where weights may be updated in the backward: lists then have one."""
        return self.temporaries * (1.0 if self.adafactor is not None else 1.0 - self.lets_go)

    @property
    def temporaries(self) -> Size:
        """The roots of the variances, whole, while AdamW over lists updates the weights
        (torch/optim/adam.py, _multi_tensor_adam: exp_avg_sq_sqrt); what Adafactor makes of a
        weight.
        """
        return self.updating()

    def updating(self, piece: Size | None = None) -> Size:
        """The same, where the optimizer is given flat pieces of so many elements at a time."""
        if self.adafactor is not None:
            return self.adafactor.temporary_bytes(self.parameters, piece) * self.on_device
        if not self.by_lists:
            return 0.0
        return temporary_bytes(self.plan, self.parameters.states) * self.on_device


@dataclass(frozen=True, kw_only=True)
class Backward:
    """A moment of the backward, counted in parameters of the rank."""

    made: Size  # of pieces whose backward is over: their gradients exist
    fresh: Size  # of the piece at work, likewise
    opened: Size  # of these, the weight whose gradient is being made right now
    block: Size  # of the block at work; 0 in the embedding or the head
    left: Size  # of pieces that are still to come, the one at work included
    first: bool = False  # whether no block was before it


@dataclass(frozen=True)
class Holding:
    """Bytes at one moment, beside activations."""

    weights: Size = 0.0
    gradients: Size = 0.0
    states: Size = 0.0
    buffers: Size = 0.0

    def __add__(self, other: Holding) -> Holding:
        return Holding(
            self.weights + other.weights,
            self.gradients + other.gradients,
            self.states + other.states,
            self.buffers + other.buffers,
        )


class Keeper(Protocol):
    """How one implementation holds weights, gradients and states."""

    casts: bool
    """Whether autocast narrows stored weights, which the backward of their products keeps."""

    torch_loss: bool
    """Whether the loss is usually PyTorch's functions, and not a kernel of the framework's."""

    names_logits: NamedLogits
    """Which logits whoever calls the model has a name for while the backward runs: those that the
    head made, or what they were widened to.
    """

    flat_from: int
    """The ZeRO stage from which on the optimizer is given flat pieces of weights, no matrices."""

    dtensors_from: int
    """The same, from which on they are DTensors, which not every optimizer runs on."""

    looks_ahead: bool
    """Whether beside a block at work the next one's weights or the last one's gradients wait."""

    def standing(self, rank: Rank) -> Holding:
        """All the time."""

    def forward(self, rank: Rank, block: Size) -> Holding:
        """Beside that, while a block of so many parameters, or with 0 the head, runs forward."""

    def backward(self, rank: Rank, at: Backward) -> Holding:
        """Beside that, at a moment of the backward."""

    def reduced(self, rank: Rank, at: Backward) -> Holding:
        """Beside that, when the piece at work is done and its gradients are summed over ranks."""

    def step(self, rank: Rank) -> Holding:
        """Beside that, in the optimizer's step."""

    def bucket(self, rank: Rank) -> Size | None:
        """After how many parameters gradients are first summed; None: piece by piece, or last."""
