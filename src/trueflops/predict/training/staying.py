"""What a framework's layers keep beside what their gradients need: bytes of each stage.

Which do so, and whose code says it: profile/data/frameworks.toml (frozen_inputs, gathered_stays,
attention_copies).
"""

from __future__ import annotations

import numpy as np

from trueflops.plan import Plan
from trueflops.predict.costs import Costs
from trueflops.predict.training.stages import Stages
from trueflops.profile import Profile
from trueflops.sizes import Size


def inputs_that_stay(costs: Costs, plan: Plan, stages: Stages, profile: Profile) -> Size:
    """Where weights are frozen: gradients of checkpointed inputs that stay until the backward ends,
    as the inputs do.
    """
    if not profile.curve("framework")["frozen_inputs"]:
        return 0.0
    inputs: Size = np.zeros_like(stages.index)
    for layers, block in zip(stages.layers, costs.blocks, strict=True):
        frozen = np.where(block.frozen_parameters > 0.0, 1.0, 0.0)
        inputs = inputs + frozen * layers * stages.recomputed * block.kept_bytes
    return 2.0 * np.where(plan.zero >= 3, inputs, 0.0)


def copies_that_stay(costs: Costs, plan: Plan, stages: Stages, profile: Profile) -> Size:
    """What a framework's layers keep of a micro-batch beside what their gradients need: copies that
    attention makes, and the inputs of its products and the FFN's, gathered.
    """
    said = profile.curve("framework")
    gathered = np.where(plan.sp, 2.0 * (plan.tp - 1.0) * said["gathered_stays"], 0.0)
    each = (gathered + said["attention_copies"]) * costs.boundary_bytes
    return stages.all_layers * (1.0 - stages.recomputed) * each
