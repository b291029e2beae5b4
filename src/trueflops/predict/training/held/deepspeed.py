"""DeepSpeed's ZeRO, by its code: runtime/zero/stage_1_and_2.py, stage3.py and config.py (0.19).

Weights and gradients are 16 bits wide; gradients pass through a bucket of `reduce_bucket_size`
elements, which is made whole however small the model is; stages 1 and 2 make two of them where they
reduce beside the backward (setup_buckets: overlap_comm). When one is full, stages 2 and 3 reduce a
copy of what it holds (allreduce_bucket: flatten; __avg_scatter_grads: cat). Every rank's share of
the gradients is widened for the optimizer's step.

Without ZeRO (runtime/engine.py, buffered_allreduce_fallback; runtime/fp16/fused_optimizer.py) there
is no such bucket: gradients of the weights are summed at the end, some at a time, and all of them
are widened one by one, and these flattened, before the optimizer's step.
"""

from __future__ import annotations

from typing import Any, Final

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

BUCKET: Final = 5e8  # elements: config.py, reduce_bucket_size
MAX_LIVE: Final = 2.0 * BUCKET  # parameters: config.py, stage3_max_live_parameters
SUB_GROUP: Final = 2.0 * BUCKET  # parameters that ZeRO-3 updates at a time: sub_group_size
_WIDE: Final = BYTES["fp32"]


class DeepSpeed:
    """`deepspeed.initialize` with its default configuration."""

    casts = False
    flat_from = 1  # groups are flattened before they are divided (stage_1_and_2.py; stage3.py)
    dtensors_from = NEVER
    looks_ahead = False
    torch_loss = True
    names_logits: NamedLogits = ""

    def standing(self, rank: Rank) -> Holding:
        """ZeRO-3 has its bucket, and each rank's share of gradients, from the start."""
        held, plan = rank.parameters, rank.plan
        third = plan.zero >= 3
        away = np.where(third, plan.offload_parameters, 0.0)
        own = held.gradients * rank.compute_bytes * rank.on_device
        whole = held.all * rank.compute_bytes * rank.accumulates
        summed = np.where(plan.zero >= 2, 0.0, whole)
        bucketed = third | ((rank.accumulates > 0.0) & ~_without_zero(rank))
        return Holding(
            held.weights * rank.compute_bytes * (1.0 - away),
            np.where(third, own, np.where(plan.zero == 2, own * rank.accumulates, summed)),
            rank.states + self._own_weights(rank),
            np.where(bucketed, self._buckets(rank), 0.0),
        )

    def forward(self, rank: Rank, block: Size) -> Holding:
        """Prefetching stops once so many parameters are gathered."""
        return Holding(buffers=self._gathered(rank, rank.parameters.all))

    def backward(self, rank: Rank, at: Backward) -> Holding:
        """Stage 1 keeps whole gradients; 2 and 3 only that of the weight at hand."""
        begins = (at.made + at.fresh > 0.0) & ~_without_zero(rank)
        begun = np.where(begins, self._buckets(rank), 0.0)
        made = np.where(rank.accumulates > 0.0, at.opened, at.made + at.fresh)
        first = rank.plan.zero <= 1
        there = (rank.plan.zero >= 3) | (rank.accumulates > 0.0)
        own = np.where(rank.plan.zero == 2, (at.made + at.fresh) * self._own(rank), 0.0)
        own = own * (1.0 - rank.accumulates) * rank.on_device
        return Holding(
            gradients=np.where(first, made, at.opened + own) * rank.compute_bytes,
            buffers=np.where(there, 0.0, begun) + self._gathered(rank, at.left),
        )

    def reduced(self, rank: Rank, at: Backward) -> Holding:
        """The copy of a bucket that is full, or of all there is."""
        found = self.backward(rank, at)
        filled = np.minimum(at.made + at.block, self._elements(rank))
        copied = np.where(rank.plan.zero >= 2, filled * rank.compute_bytes, 0.0)
        return found + Holding(buffers=copied * rank.replicated)

    def step(self, rank: Rank) -> Holding:
        """A share of the gradients as it was, flattened, and widened where the optimizer has wide
        weights; what stages 1 and 2 had accumulated is then part of it, and their bucket is gone.
        ZeRO-3 goes through its share in groups (_prepare_fp32_grad_for_sub_group).
        """
        zero, before = rank.plan.zero, self.standing(rank)
        third = zero >= 3
        narrow = np.where(third, 1.0, 2.0) * rank.compute_bytes
        wide = _WIDE if rank.plan.has_master else 0.0
        share = rank.parameters.states
        at_once = np.where(third, np.minimum(share, SUB_GROUP), share)
        widened = at_once * rank.on_device * (narrow + wide)
        # Narrow as they were made, each of them wide, and all of these in one.
        whole = share * rank.on_device * (rank.compute_bytes + 2.0 * wide)
        widened = np.where(_without_zero(rank), whole, widened)
        return Holding(
            gradients=widened - np.where(third, 0.0, before.gradients),
            buffers=rank.updating(at_once) - np.where(third, 0.0, before.buffers),
        )

    def bucket(self, rank: Rank) -> Size:
        """Once it is full; stage 1 sums at the end of the backward."""
        full = np.minimum(self._elements(rank), rank.parameters.all)
        return np.where(rank.plan.zero >= 2, full, rank.parameters.all)

    def _own_weights(self, rank: Rank) -> Size:
        """The optimizer's flat copy of its share of the weights, where these are narrow and it is
        no wider (fp32_partitioned_groups_flat, with bf16_master_weights_and_grads).
        """
        narrow = rank.compute_bytes < _WIDE and not rank.plan.has_master
        copied = rank.compute_bytes if narrow and not rank.plan.adapters else 0.0
        return rank.parameters.states * copied * rank.on_device

    def _elements(self, rank: Rank) -> float:
        return rank.plan.reduce_bucket or BUCKET

    def _buckets(self, rank: Rank) -> Size:
        """One is filled while the other is reduced."""
        both = rank.plan.overlap & (np.asarray(rank.plan.zero) < 3)
        return self._elements(rank) * rank.compute_bytes * np.where(both, 2.0, 1.0)

    def _own(self, rank: Rank) -> Size:
        return rank.parameters.gradients / np.maximum(rank.parameters.all, 1.0)

    def _gathered(self, rank: Rank, ahead: Size) -> Size:
        """partitioned_param_coordinator.py, fetch_sub_module: parameters that this step will still
        read are gathered ahead of time, up to max_live_parameters, and stay until they were read.
        """
        some = np.minimum(ahead, MAX_LIVE) * rank.compute_bytes
        return np.where(rank.plan.zero >= 3, some, 0.0)


def _without_zero(rank: Rank) -> Any:
    """Where no stage of ZeRO runs. One rank alone shares nothing, whatever its stage: who trains so
    by DeepSpeed has asked for one.
    """
    return (np.asarray(rank.plan.zero) == 0) & (np.asarray(rank.plan.world) > 1.0)


class MegatronDeepSpeed(DeepSpeed):
    """Megatron's model under DeepSpeed: its own cross-entropy, of split vocabularies."""

    torch_loss = False
