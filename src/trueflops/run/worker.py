"""A worker of a parameter server: weights in, the gradient of some sequences out.

Messages with the server, rank 0: a task (which sequences; −1: no more) and all weights to the
worker; a report (loss, seconds of computing and of the last exchange) and all gradients back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import torch
import torch.distributed as dist
from torch import Tensor

from trueflops.plan import Plan
from trueflops.predict.training.sent import parts
from trueflops.run.job import Job
from trueflops.run.layout import Layout
from trueflops.run.network import DTYPES, Network
from trueflops.run.tokens import Tokens

SERVER: Final = 0  # its rank
TASK, WEIGHTS, REPORT, GRADIENTS = range(4)  # tags of messages
NO_MORE: Final = -1


class Copy:
    """A whole model whose weights, and whose gradients, are one buffer each: one message."""

    def __init__(self, job: Job, device: torch.device) -> None:
        piece = parts(job.model, job.plan, 0)[0]
        self.layout = Layout()
        self.network = Network(job.model, job.plan, piece, self.layout, job.seed)
        self.network.to(device, DTYPES[job.plan.parameter_dtype])
        own = list(self.network.parameters())
        sizes = [p.numel() for p in own]
        self.weights = torch.cat([p.detach().flatten() for p in own])
        self.gradients = torch.zeros_like(self.weights)
        both = zip(own, self.weights.split(sizes), self.gradients.split(sizes), strict=True)
        for parameter, weight, gradient in both:
            parameter.data = weight.view_as(parameter)
            parameter.grad = gradient.view_as(parameter)


def work(job: Job, tokens: Tokens, device: torch.device) -> None:
    """Until the server has no more tasks."""
    copy = Copy(job, device)
    passing = torch.empty_like(copy.weights, device="cpu")  # what gloo sends is in host memory
    task, report = torch.zeros(1, dtype=torch.int64), torch.zeros(3, dtype=torch.float64)
    first, workers = dist.get_rank() == SERVER + 1, int(job.plan.dp)
    exchanging, exchanged = time.perf_counter(), 0.0
    while True:
        dist.recv(task, SERVER, tag=TASK)
        if int(task) == NO_MORE:
            return
        dist.recv(passing, SERVER, tag=WEIGHTS)
        copy.weights.copy_(passing)
        exchanged = time.perf_counter() - exchanging
        rows = tokens.batch(int(task) // workers).chunk(workers)[int(task) % workers]
        begun = time.perf_counter()
        if first:
            time.sleep(job.pause_seconds)
        loss = gradient(job.plan, copy, rows.to(device))
        passing.copy_(copy.gradients)
        exchanging = time.perf_counter()
        report.copy_(torch.tensor([loss, exchanging - begun, exchanged], dtype=torch.float64))
        dist.send(report, SERVER, tag=REPORT)
        dist.send(passing, SERVER, tag=GRADIENTS)


def gradient(
    plan: Plan, copy: Copy, rows: Tensor, scaled: Callable[[Tensor], Tensor] = lambda loss: loss
) -> float:
    """Of the mean over these sequences, micro-batch by micro-batch; their loss, not scaled."""
    copy.gradients.zero_()
    total = torch.zeros((), device=rows.device)
    for some in rows.split(int(plan.micro_batch)):
        ids, targets = some[:, :-1], some[:, 1:]
        summed = copy.layout.cross_entropy(copy.network(ids), targets)
        loss = summed / rows[:, 1:].numel()
        scaled(loss).backward()
        total += loss.detach()
    return float(total)
