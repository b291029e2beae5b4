"""The same training in several precisions, in one process: which gradients and updates get lost.

In: a Job. Out: Rounded. Narrow weights are rounded after every update, which itself is computed in
fp32 with fp32 states, as fused optimizers do it: what is lost then is lost to the weights alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace

import torch
from torch import Tensor

from trueflops.run.job import Job
from trueflops.run.network import DTYPES
from trueflops.run.products import WideSums
from trueflops.run.replicas import own_optimizer
from trueflops.run.rounded import PRECISIONS, Precision, Rounded
from trueflops.run.scaling import scaler
from trueflops.run.tokens import Tokens
from trueflops.run.worker import Copy, gradient


def compare_precisions(
    job: Job, tokens: Tokens, device: torch.device, say: Callable[[Rounded], None]
) -> Iterator[Rounded]:
    """One after the other."""
    for precision in PRECISIONS:
        rounded = train_in(job, tokens, device, precision)
        say(rounded)
        yield rounded


def train_in(job: Job, tokens: Tokens, device: torch.device, precision: Precision) -> Rounded:
    """All steps in one precision."""
    plan = job.plan.but(
        compute=precision.compute, parameter_dtype="fp32", gradient_dtype="fp32", mixed="autocast"
    )
    copy = Copy(replace(job, plan=plan), device)
    copy.weights.copy_(_kept(copy.weights, precision))
    begun = copy.weights.clone()
    optimizer = own_optimizer(copy.network.parameters(), plan, job.learning_rate)
    scaling = scaler(device, job.loss_scale, enabled=precision.scaled)
    losses, skipped, before = [], 0, begun
    for step in range(job.steps):
        before = copy.weights.clone()
        with WideSums() if plan.autocasts and device.type == "cpu" else nullcontext():
            losses.append(gradient(plan, copy, tokens.batch(step).to(device), scaling.scale))
        scaling.unscale_(optimizer)
        fine = bool(copy.gradients.isfinite().all()) or not precision.scaled
        skipped += not fine
        scaling.step(optimizer)
        scaling.update(job.loss_scale or None)
        copy.weights.copy_(_kept(copy.weights, precision))
    there = copy.gradients != 0
    lost = there & (copy.weights == before)
    return Rounded(
        precision=precision,
        losses=tuple(losses),
        loss_scale=scaling.get_scale(),
        skipped=skipped,
        zero_share=1.0 - float(there.float().mean()),
        swamped_share=float(lost.sum()) / max(float(there.sum()), 1.0),
        moved=float((copy.weights - begun).norm()),
    )


def _kept(weights: Tensor, precision: Precision) -> Tensor:
    """What is left of them until the next step."""
    return weights.to(DTYPES[precision.weights]).to(weights.dtype)
