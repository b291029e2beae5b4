"""What a rank of each pipeline stage holds, in parameters, and what a micro-batch leaves there.

In: Costs, a Plan, the Stages. Out: Held. Ways follow ZeRO (Rajbhandari 2020, arXiv 1910.02054):
stage 1 shares the optimizer's states, 2 also gradients, 3 also weights. Bytes: moments.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from trueflops.plan import Plan
from trueflops.predict.costs import Costs, PieceCost
from trueflops.predict.tensors import (
    EXPERT_SIDES,
    LARGEST,
    MATRICES,
    NEIGHBOURS,
    SIDES,
    TENSORS,
)
from trueflops.predict.training.stages import Stages
from trueflops.sizes import Size, plain, weighs
from trueflops.tables import by_value, summed


@dataclass(frozen=True, kw_only=True)
class Held:
    """What a rank of each stage holds: parameters, and what a micro-batch leaves there."""

    dense: Size  # trained parameters before ZeRO divides them
    experts: Size
    largest: Size  # of the pieces that are gathered and reduced one at a time
    embedding: Size = 0.0  # those pieces: the two ends,
    head: Size = 0.0
    block: Size = 0.0  # and the largest block
    kept_bytes: Size = 0.0  # of one micro-batch, until its backward
    frozen: Size = 0.0  # parameters that are not trained, and their bytes: dense, experts', of
    frozen_dense_bytes: Size = 0.0  # the largest piece
    frozen_expert_bytes: Size = 0.0
    frozen_largest_bytes: Size = 0.0
    tensors: Size = 0.0  # of an optimizer that goes through them one by one: how many,
    matrices: Size = 0.0  # of these matrices,
    sides: Size = 0.0  # elements of their rows and columns and of vectors: dense, experts',
    expert_sides: Size = 0.0
    widest: Size = 0.0  # of the largest of them, and of the two largest neighbours
    neighbours: Size = 0.0
    ways: tuple[tuple[Size, Size], ...] = ((1.0, 1.0),) * 3
    """By how many ranks ZeRO divides dense parameters and experts: states, gradients, weights."""

    @property
    def all(self) -> Size:
        """Trained parameters, dense and experts', undivided."""
        return self.dense + self.experts

    @property
    def frozen_bytes(self) -> Size:
        """Bytes of the weights that are not trained, undivided."""
        return self.frozen_dense_bytes + self.frozen_expert_bytes

    @property
    def own_frozen_bytes(self) -> Size:
        """Those of them that are this rank's own."""
        dense, experts = self.ways[2]
        return self.frozen_dense_bytes / dense + self.frozen_expert_bytes / experts

    @property
    def states(self) -> Size:
        """Parameters whose optimizer states are this rank's own."""
        return self._own(0)

    @property
    def gradients(self) -> Size:
        """Parameters whose gradients are."""
        return self._own(1)

    @property
    def weights(self) -> Size:
        """Parameters whose weights are."""
        return self._own(2)

    @property
    def own_sides(self) -> Size:
        """Rows and columns of the weights whose optimizer states are this rank's own."""
        dense, experts = self.ways[0]
        return self.sides / dense + self.expert_sides / experts

    def _own(self, what: int) -> Size:
        dense, experts = self.ways[what]
        own = self.dense / dense
        return own + self.experts / experts if weighs(self.experts) else own

    def times(self, copies: Size) -> Held:
        """Those of a rank that holds so many stages like this one; activations are of one."""
        if np.all(copies == 1.0):
            return self
        kept = (
            "ways", "largest", "block", "kept_bytes", "frozen_largest_bytes", "widest", "neighbours"
        )  # fmt: skip
        more = {f.name: copies * getattr(self, f.name) for f in fields(self) if f.name not in kept}
        return replace(self, **more)

    def most(self) -> Held:
        """Those of the stage that holds the most, plan by plan."""
        largest: dict[str, Any] = {
            field.name: plain(np.max(getattr(self, field.name), axis=0))
            for field in fields(self)
            if field.name != "ways" and np.ndim(getattr(self, field.name))
        }
        return replace(self, **largest)


def hold(costs: Costs, plan: Plan, stages: Stages) -> Held:
    """What each stage's rank holds; a table tied across one stage is held once.

    Dense states are shared by dp_shard and cp, those of experts by what ep and etp leave.
    """
    head = costs.head.dense_parameters - stages.has_first * costs.head.tied_parameters
    dense = stages.first * costs.embedding.dense_parameters + stages.last * head
    experts: Size = 0.0
    # The ends are gathered whole, like a block.
    whole_ends = stages.has_first * costs.embedding.dense_parameters, stages.has_last * head
    ends = stages.first * costs.embedding.dense_parameters, stages.last * head
    largest_block: Size = np.zeros_like(stages.index)
    frozen = _Frozen(costs, stages)
    kept = stages.first * costs.embedding.kept_bytes
    again = stages.recomputed
    for layers, block, whole in zip(stages.layers, costs.blocks, costs.kept_whole, strict=True):
        dense = dense + layers * block.dense_parameters
        if weighs(block.expert_parameters):
            experts = experts + layers * block.expert_parameters
        own = np.where(layers > 0.0, block.dense_parameters + block.expert_parameters, 0.0)
        largest_block = np.maximum(largest_block, own)
        frozen.add(layers, block)
        kept = kept + layers * ((1.0 - again) * whole + again * block.kept_bytes)
    return Held(
        dense=dense,
        experts=experts,
        largest=np.maximum(np.maximum(*whole_ends), largest_block),
        embedding=ends[0],
        head=ends[1],
        block=largest_block,
        kept_bytes=kept,
        ways=tuple(_ways(plan, stage) for stage in (1, 2, 3)),
        frozen=frozen.parameters,
        frozen_dense_bytes=frozen.dense_bytes,
        frozen_expert_bytes=frozen.expert_bytes,
        frozen_largest_bytes=frozen.largest_bytes,
        **(_one_by_one(costs, stages) if plan.goes_one_by_one else {}),
    )


def _one_by_one(costs: Costs, stages: Stages) -> dict[str, Size]:
    """What an optimizer sees of each stage that goes through its weights one by one, in their
    order: the embedding first, the head last.
    """
    tied = np.where(np.asarray(costs.head.tied_parameters) > 0.0, 1.0, 0.0)
    first, last = stages.first, stages.last
    first = first + tied * last * (1.0 - stages.has_first)  # a table of the last stage's own
    ends = ((first, costs.embedding.trained), (last, costs.head.trained))
    blocks = list(zip(stages.layers, (b.trained for b in costs.blocks), strict=True))

    def of_all(name: str) -> Size:
        return summed(count * sizes[name] for count, sizes in (*ends, *blocks))

    def largest(name: str, some: Iterable[tuple[Size, dict[str, Size]]]) -> Size:
        found: Size = np.zeros_like(stages.index)
        for count, sizes in some:
            found = np.maximum(found, np.where(count > 0.0, sizes[name], 0.0))
        return found

    at_end, inside = largest(LARGEST, ends), largest(LARGEST, blocks)
    return {
        "tensors": of_all(TENSORS),
        "matrices": of_all(MATRICES),
        "sides": of_all(SIDES),
        "expert_sides": of_all(EXPERT_SIDES),
        "widest": np.maximum(at_end, inside),
        "neighbours": np.maximum(at_end + inside, largest(NEIGHBOURS, blocks)),
    }


def _ways(plan: Plan, stage: int) -> tuple[Size, Size]:
    """By how many ranks dense parameters and experts are divided from a stage of ZeRO on."""
    shares = plan.zero >= stage
    if not np.any(shares):
        return 1.0, 1.0
    dense = np.where(shares, plan.dp_shard * plan.cp, 1.0)
    experts = np.where(shares, plan.expert_ways(plan.dp_shard), 1.0)
    return by_value(dense, f"ways {stage}"), by_value(experts, f"ways of experts {stage}")


class _Frozen:
    """What each stage holds of weights that are not trained."""

    def __init__(self, costs: Costs, stages: Stages) -> None:
        first, last, ends = stages.first, stages.last, (costs.embedding, costs.head)
        at_ends = [
            first * costs.embedding.frozen_bytes,
            last * (costs.head.frozen_bytes - stages.has_first * costs.head.tied_bytes),
        ]
        self.parameters: Size = first * ends[0].frozen_parameters + last * ends[1].frozen_parameters
        self.dense_bytes: Size = at_ends[0] + at_ends[1]
        self.expert_bytes: Size = 0.0
        self.largest_bytes: Size = np.maximum(*at_ends)

    def add(self, layers: Size, block: PieceCost) -> None:
        """So many more layers of a kind."""
        self.parameters = self.parameters + layers * block.frozen_parameters
        self.dense_bytes = self.dense_bytes + layers * block.frozen_bytes
        self.expert_bytes = self.expert_bytes + layers * block.frozen_expert_bytes
        whole = block.frozen_bytes + block.frozen_expert_bytes
        self.largest_bytes = np.maximum(self.largest_bytes, whole)
