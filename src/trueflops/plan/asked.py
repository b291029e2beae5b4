"""What a rule of plans may look at: the question, and the sizes that degrees must divide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueflops.model import Model
from trueflops.plan.plan import Plan
from trueflops.workload import Training

Mask = NDArray[np.bool_] | bool


@dataclass(frozen=True)
class Ask:
    """Everything a rule may look at. `training` is None when the plan is for serving."""

    plan: Plan
    model: Model
    accelerators: int
    training: Training | None

    def every(self, sizes: set[int], degree: Any) -> Mask:
        """Whether a degree divides all of these sizes."""
        fine: Mask = True
        for size in sizes:
            fine = fine & (size % np.asarray(degree) == 0)
        return fine


def heads(ask: Ask) -> set[int]:
    """Of queries, in groups where these leave together, and of states."""
    model = ask.model
    own = {a.pooled.out_groups if a.pooled else a.heads for a in model.attentions}
    return own | {r.heads for r in model.recurrences}


def kv_heads(ask: Ask) -> set[int]:
    """Of keys and values, where these have heads of their own."""
    own = {a.kv_heads for a in ask.model.attentions if not (a.latent or a.pooled)}
    return own | {r.key_heads for r in ask.model.recurrences if r.rule != "scan"}


def ffns(ask: Ask) -> set[int]:
    """Columns of dense and shared layers."""
    dense = {b.ffn.width for b in ask.model.blocks if b.ffn}
    return dense | {b.experts.shared_width for b in ask.model.blocks if b.experts} - {0}


def experts(ask: Ask) -> set[int]:
    """How many."""
    return {b.experts.count for b in ask.model.blocks if b.experts}


def expert_ffns(ask: Ask) -> set[int]:
    """Columns of one of them."""
    return {b.experts.width for b in ask.model.blocks if b.experts}
