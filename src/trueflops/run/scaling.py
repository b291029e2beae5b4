"""Loss scaling of fp16: the loss is multiplied, so that small gradients do not become zero.

In: a Job. Out: a GradScaler, off where products are not fp16. Its rule is that of Micikevicius et
al. 2018 (arXiv 1710.03740 §3.2): a step whose gradients overflowed is left out and the scale is
halved; after 2,000 steps without one it is doubled. bf16 has the range of fp32 and needs none.
"""

from __future__ import annotations

import torch

from trueflops.run.job import FIRST_SCALE, Job


def loss_scaler(job: Job, device: torch.device) -> torch.amp.GradScaler:
    """As torch begins, at 65,536, or at the scale that the job fixes."""
    narrow = job.plan.compute == "fp16" and job.plan.autocasts
    return scaler(device, job.loss_scale, enabled=narrow)


def scaler(device: torch.device, scale: float, *, enabled: bool) -> torch.amp.GradScaler:
    """Dynamic where `scale` is 0; else whoever steps hands the scale to `update` every time."""
    return torch.amp.GradScaler(device.type, scale or FIRST_SCALE, enabled=enabled)
