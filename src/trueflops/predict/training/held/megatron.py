"""Megatron-core: gradients live in one buffer, undivided, whatever the optimizer divides; or, under
Megatron-FSDP, shares of everything, and the units at work.

core/distributed/param_and_grad_buffer.py (_ParamAndGradBuffer) makes a contiguous buffer of all
gradients, fp32 with grad_reduce_in_fp32, and under the distributed optimizer one of the weights;
core/optimizer/distrib_optimizer.py divides fp32 weights and moments by dp·cp. Products add their
weight gradients into the buffer (gradient_accumulation_fusion). Where products are narrower than
16 bits, Transformer Engine keeps narrow copies of their weights from the first micro-batch on, as
they are for the forward and transposed for the backward (transformer_engine/pytorch/module/
linear.py: weight_fp8, weight_t_fp8, since 2.0 rowwise and columnwise data of one workspace, cached
as core/extensions/transformer_engine.py passes is_first_microbatch); where the weights themselves
are as narrow (fp8_param_gather), their transposes alone.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from trueflops import units
from trueflops.plan import BYTES
from trueflops.predict.training.held.rank import (
    NEVER,
    Backward,
    Holding,
    NamedLogits,
    Rank,
)
from trueflops.predict.training.schedule import weight_copies
from trueflops.sizes import Size

NARROW: Final = {"fp8": 1.0, "fp4": 0.5}  # bytes of a number
QUEUED: Final = units.GIGA
"""Elements of gradients that may wait for their reduction, and half as many are gathered ahead:
these, or two units where those are more (core/distributed/fsdp/src/megatron_fsdp/megatron_fsdp.py,
suggested_communication_unit_size)."""


def narrow_copies(rank: Rank) -> float:
    """Bytes that Transformer Engine's copies of a weight take beside it."""
    layouts = 1.0 if rank.plan.trained_dtype == rank.plan.compute else 2.0
    return layouts * NARROW.get(rank.plan.compute, 0.0)


class Megatron:
    """DistributedDataParallel and get_megatron_optimizer of megatron-core."""

    casts = False
    flat_from = 1  # distrib_optimizer.py: pieces of one buffer
    dtensors_from = NEVER
    looks_ahead = False
    torch_loss = False
    names_logits: NamedLogits = ""

    def standing(self, rank: Rank) -> Holding:
        """Everything."""
        held, copies = rank.parameters, weight_copies(rank.plan)
        in_blocks = held.all - held.embedding - held.head  # the head's product stays wide
        narrow = in_blocks * narrow_copies(rank)
        return Holding(
            (held.weights * rank.weight_bytes + narrow) * copies,
            held.all * rank.gradient_bytes * copies,
            rank.states * copies,
        )

    def forward(self, rank: Rank, block: Size) -> Holding:
        """Nothing more."""
        return Holding()

    def backward(self, rank: Rank, at: Backward) -> Holding:
        """A placeholder for the gradient that went into the buffer, so that autograd's hooks run
        (core/tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication.backward).
        """
        return Holding(buffers=at.opened * rank.weight_bytes)

    def reduced(self, rank: Rank, at: Backward) -> Holding:
        """In place."""
        return Holding()

    def step(self, rank: Rank) -> Holding:
        """Gradients are read as views of the buffer; where that is narrow, this rank's own are
        copied to fp32 (core/optimizer/optimizer.py and distrib_optimizer.py,
        _copy_model_grads_to_main_grads: main_grad.float()).
        """
        if not rank.plan.has_master or rank.gradient_bytes >= BYTES["fp32"]:
            return Holding()
        return Holding(gradients=rank.parameters.states * BYTES["fp32"] * rank.on_device)

    def bucket(self, rank: Rank) -> None:
        """None that holds up anything."""


class MegatronByApex(Megatron):
    """The same buffers under apex's DistributedFusedAdam, as NeMo 1 trains: its kernel reads narrow
    gradients (nemo/core/optim/distributed_adam.py; apex/contrib/optimizers/
    distributed_fused_adam.py).
    """

    def step(self, rank: Rank) -> Holding:
        """In place."""
        return Holding()


class MegatronFsdp:
    """core/distributed/fsdp: `optim_grads_params` (ZeRO-3) and `optim_grads` (ZeRO-2).

    Each group of parameters has buffers of weights, main weights and main gradients, divided
    (megatron_fsdp/param_and_grad_buffer.py, ParamAndGradBuffer); layers are the units. Embedding
    and head are taken to stay gathered, as FSDP's root does.
    """

    casts = False
    flat_from = 2
    dtensors_from = NEVER
    looks_ahead = False
    torch_loss = False
    names_logits: NamedLogits = ""

    def standing(self, rank: Rank) -> Holding:
        """Shares; below ZeRO-3 weights whole."""
        held = rank.parameters
        return Holding(
            held.weights * rank.weight_bytes, held.gradients * rank.gradient_bytes, rank.states
        )

    def forward(self, rank: Rank, block: Size) -> Holding:
        """The ends, the unit, and what is gathered ahead."""
        return Holding(buffers=self._gathered(rank, block))

    def backward(self, rank: Rank, at: Backward) -> Holding:
        """The same, and gradients that wait for their reduction."""
        queue = np.maximum(QUEUED, 2.0 * rank.parameters.block)
        waiting = np.minimum(queue, at.made + at.fresh) * rank.gradient_bytes
        return Holding(buffers=self._gathered(rank, at.block) + waiting)

    def reduced(self, rank: Rank, at: Backward) -> Holding:
        """From where they wait."""
        return self.backward(rank, at)

    def step(self, rank: Rank) -> Holding:
        """Shares alone."""
        return Holding()

    def bucket(self, rank: Rank) -> None:
        """None that holds up anything."""

    def _gathered(self, rank: Rank, block: Size) -> Size:
        held = rank.parameters
        ahead = np.maximum(QUEUED / 2.0, held.block)
        whole = np.minimum(held.embedding + held.head + block + ahead, held.all)
        narrow = block * narrow_copies(rank)
        gathers = np.where(rank.plan.zero >= 3, 1.0, 0.0)
        return whole * rank.compute_bytes * gathers + narrow
