"""FSDP1 and FSDP2: layers are units, and so is the root, which has the embedding and the head.

The root stays whole from the first layer's forward to the end of the backward. A backward gathers
the next unit while one is at work (torch/distributed/fsdp/_runtime_utils.py, BACKWARD_PRE;
_fully_shard/_fsdp_param_group.py, _backward_prefetch). Gradients of the weights' dtype, divided,
are what lasts.
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
from trueflops.sizes import Size


def _root(rank: Rank) -> Size:
    return (rank.parameters.embedding + rank.parameters.head) * _gathers(rank)


def _gathers(rank: Rank) -> Size:
    """1.0 where weights are divided; below ZeRO-3 (SHARD_GRAD_OP) all stay whole."""
    return np.where(rank.plan.zero >= 3, 1.0, 0.0)


class _Fsdp:
    """What both have in common."""

    casts = False
    flat_from = NEVER
    dtensors_from = NEVER
    looks_ahead = True
    torch_loss = True
    names_logits: NamedLogits = ""

    def standing(self, rank: Rank) -> Holding:
        """Shares of weights, states and accumulated gradients."""
        held = rank.parameters
        weights = held.weights * rank.weight_bytes
        return Holding(
            weights * (1.0 - rank.plan.offload_parameters),
            held.gradients * rank.weight_bytes * rank.accumulates,
            rank.states,
        )

    def step(self, rank: Rank) -> Holding:
        """Shares of all gradients; nothing is gathered."""
        made = rank.parameters.gradients * rank.weight_bytes * (1.0 - rank.accumulates)
        stays = 1.0 - rank.lets_go
        return Holding(gradients=made * stays, buffers=rank.beside_update)

    def bucket(self, rank: Rank) -> None:
        """Units are reduced one by one."""

    def _lasting(self, rank: Rank, at: Backward) -> Size:
        """Shares of the gradients of units that were reduced: those of blocks."""
        of_head = np.minimum(at.made, rank.parameters.head)
        own = rank.parameters.gradients / np.maximum(rank.parameters.all, 1.0)
        lasts = (1.0 - rank.accumulates) * (1.0 - rank.lets_go)
        return (at.made - of_head) * own * rank.weight_bytes * lasts

    def _next(self, rank: Rank, at: Backward) -> Size:
        """Parameters of the unit that is gathered beside: none after the last block."""
        more = at.left - at.block > rank.parameters.embedding
        return np.where(more, rank.parameters.block, 0.0) * _gathers(rank)


class Fsdp2(_Fsdp):
    """fully_shard: gathered into one buffer and copied out of it (_fsdp_collectives.py)."""

    dtensors_from = 2

    def forward(self, rank: Rank, block: Size) -> Holding:
        """The unit, and the buffer it came in, which is held until the next one has come."""
        gathered = (_root(rank) + 2.0 * block * _gathers(rank)) * rank.compute_bytes
        return Holding(buffers=gathered + self._shares(rank))

    def _shares(self, rank: Rank) -> Size:
        """Below ZeRO-3 each rank's share lies beside the weights that stay gathered
        (_fsdp_param.py: sharded_param and unsharded_param).
        """
        shared = np.where(rank.plan.zero == 2, rank.replicated, 0.0)
        return shared * rank.parameters.states * rank.weight_bytes

    def backward(self, rank: Rank, at: Backward) -> Holding:
        """The unit, the next one's buffer, whole gradients of the root so far and of the unit, and
        what the unit before is reduced from (reduce_scatter_states), in the dtype of the sum.
        """
        whole = _root(rank) + at.block * _gathers(rank) + self._next(rank, at)
        before = 0.0 if at.first else at.block
        of_head = np.minimum(at.made, rank.parameters.head)
        return Holding(
            gradients=self._lasting(rank, at),
            buffers=(whole + of_head + at.fresh) * rank.compute_bytes
            + before * rank.gradient_bytes
            + self._shares(rank),
        )

    def reduced(self, rank: Rank, at: Backward) -> Holding:
        """The unit is let go of; its gradients are copied into a buffer of the sum's dtype and let
        go of, too, before there is a share of the sum (foreach_reduce).
        """
        unit, of_head = _reducing(rank, at)
        rest = np.where(at.block > 0.0, _root(rank), 0.0)
        whole = (rest + self._next(rank, at) + of_head) * rank.compute_bytes
        beside = np.maximum(rank.compute_bytes, rank.share * rank.gradient_bytes)
        return Holding(
            gradients=self._lasting(rank, at),
            buffers=whole + unit * (rank.gradient_bytes + beside) + self._shares(rank),
        )


class Fsdp2WithLogits(Fsdp2):
    """fully_shard in a training loop that holds what the model returned, cast to fp32, until its
    next step (prime-rl, src/prime_rl/trainer/sft/train.py: `out` outlives `del logits`).
    """

    names_logits: NamedLogits = "wide"


class Fsdp1(_Fsdp):
    """FullyShardedDataParallel: a unit is one flat parameter (_flat_param.py), of which a rank has
    a piece that knows no rows.
    """

    flat_from = 2

    def forward(self, rank: Rank, block: Size) -> Holding:
        """The unit."""
        return Holding(buffers=(_root(rank) + block * _gathers(rank)) * rank.compute_bytes)

    def backward(self, rank: Rank, at: Backward) -> Holding:
        """The unit, the next one, whole gradients of the root so far and of the unit."""
        of_head = np.minimum(at.made, rank.parameters.head)
        whole = _root(rank) + at.block * _gathers(rank) + self._next(rank, at)
        whole = whole + of_head + at.fresh
        return Holding(gradients=self._lasting(rank, at), buffers=whole * rank.compute_bytes)

    def reduced(self, rank: Rank, at: Backward) -> Holding:
        """Gradients are joined into the flat one while the unit is still there; after it was let
        go of, that is widened where the sum is fp32, which takes as much (_runtime_utils.py,
        _post_backward_hook).
        """
        unit, of_head = _reducing(rank, at)
        whole = _root(rank) + at.block * _gathers(rank) + self._next(rank, at) + of_head
        return Holding(
            gradients=self._lasting(rank, at),
            buffers=(whole + 2.0 * unit) * rank.compute_bytes,
        )


def _reducing(rank: Rank, at: Backward) -> tuple[Size, Size]:
    """Parameters of the unit that is reduced, and of the root's beside it that have gradients."""
    of_block = at.block > 0.0
    of_head = np.minimum(at.made, rank.parameters.head)
    root = rank.parameters.embedding + rank.parameters.head
    return np.where(of_block, at.block, root), np.where(of_block, of_head, 0.0)
