"""What frameworks hang around a model's modules: host work beside that of the model's own calls.

    torch      DDP: a hook a weight as its gradient is made. FSDP: one unit a layer that is gathered
               before its forward and again before its backward, and scattered after it
    deepspeed  ZeRO-1 and 2: a hook a weight as its gradient is made. ZeRO-3: modules fetch and
               release their weights before and after each forward and backward
Measured with a world of one (truth/h200/framework_hosts.csv, benchmarks/framework_hosts.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from trueflops.plan import Plan
from trueflops.predict.costs import Costs, PieceCost
from trueflops.profile import Profile
from trueflops.sizes import Size

AGAIN = "recompute"


def hooked(costs: Costs, plan: Plan, profile: Profile) -> Costs:
    """The same pieces with what the host does in the framework's hooks around them."""
    by_weight, by_unit = _hooks(plan, profile)
    fetches = np.asarray(plan.zero) >= 3  # frozen weights too
    if not (by_weight or by_unit):
        return costs

    def with_hooks(piece: PieceCost) -> PieceCost:
        weights = np.where(fetches, piece.weight_tensors, piece.trained_tensors)
        host = {
            phase: seconds + weights * by_weight.get(phase, 0.0) + by_unit.get(phase, 0.0)
            for phase, seconds in piece.host.items()
        }
        return replace(piece, host=host)

    return replace(
        costs,
        blocks=tuple(with_hooks(block) for block in costs.blocks),
        embedding=with_hooks(costs.embedding),
        head=with_hooks(costs.head),
    )


Phases = Mapping[str, Size]


def _hooks(plan: Plan, profile: Profile) -> tuple[Phases, Phases]:
    """Seconds by phase, of each weight and of each unit."""
    framework, law = profile.curve("framework"), profile.curve("dispatch")
    zero = np.asarray(plan.zero)
    if framework["hooks_deepspeed"]:
        fetched = np.where(zero >= 3, law["zero3_forward"], 0.0)
        made = np.choose(zero.astype(int), (0.0, law["zero1"], law["zero2"], law["zero3_backward"]))
        return {"forward": fetched, AGAIN: fetched, "backward": made}, {}
    if framework["hooks_torch"]:
        shared = np.asarray(plan.dp * plan.cp) > 1
        half = np.where(shared & (zero >= 2), law["fsdp_unit"] / 2.0, 0.0)
        made = np.where(shared & (zero < 2), law["ddp"], 0.0)
        return {"backward": made}, {"forward": half, "backward": half}
    return {}, {}
