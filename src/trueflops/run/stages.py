"""The pieces of a model along a pipeline, run by torch.distributed.pipelining's schedules.

In: this rank's pieces, as the plan replicates them. Out: one step's forwards and backwards, in the
order of the plan's schedule. Pieces lie in a loop over the ranks; those of zb-v in a V.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import (
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleZBVZeroBubble,
)

from trueflops.plan import Plan
from trueflops.run.mesh import Meshes

_SCHEDULES: Final[dict[str, Any]] = {
    "gpipe": ScheduleGPipe,
    "1f1b": Schedule1F1B,
    "interleaved": ScheduleInterleaved1F1B,
    "zb-h1": ScheduleInterleavedZeroBubble,
    "zb-v": ScheduleZBVZeroBubble,
}


def pipeline(
    modules: dict[int, nn.Module],
    plan: Plan,
    meshes: Meshes,
    micro_batches: int,
    loss: Callable[[Tensor, Tensor], Tensor],
    device: torch.device,
) -> Any:
    """The schedule that runs a step: `schedule.step(ids, target=…, losses=[])`."""
    group = meshes.axes.get_group("pp")
    every = int(plan.pp) * int(plan.pieces)
    stages = [
        PipelineStage(module, number, every, device, group=group)
        for number, module in modules.items()
    ]
    name = "interleaved" if plan.schedule == "1f1b" and plan.vpp > 1 else plan.schedule
    kind = _SCHEDULES[name]
    several = name in ("interleaved", "zb-h1", "zb-v")
    return kind(stages if several else stages[0], micro_batches, loss_fn=loss, scale_grads=False)
