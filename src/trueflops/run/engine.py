"""A plan at work: this rank's modules, and one step of them.

In: a Job, in a world that has been joined. Out: the loss of every step, the same whatever the plan.
The loss of a token counts 1 / tokens of the whole batch. DDP and FSDP take the mean over replicas,
so each scales its own by how many these are.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from trueflops.predict.training.sent import parts
from trueflops.predict.training.through_one import Passed
from trueflops.run.dataparallel import DataParallel
from trueflops.run.job import Job
from trueflops.run.mesh import Meshes
from trueflops.run.network import DTYPES, Network
from trueflops.run.replicas import (
    finish_gradients,
    last_micro_batch,
    optimizer_of,
    replicate,
)
from trueflops.run.scaling import loss_scaler
from trueflops.run.stages import pipeline


class Engine:
    """One rank of a job."""

    def __init__(self, job: Job, device: torch.device) -> None:
        self.job, self.plan, self.device = job, job.plan, device
        # DataParallel is one process: of its replicas no mesh knows.
        self.copies = int(job.plan.dp) if job.plan.engine == "dataparallel" else 1
        if self.copies > 1:
            self.plan = job.plan.but(dp_replicate=1, dp_shard=1)
        self.meshes = Meshes.of(self.plan, device.type)
        self.layout = self.meshes.layout(self.plan)
        pieces = parts(job.model, job.plan, self.meshes.place("pp"))
        self.networks = {
            number: Network(job.model, job.plan, piece, self.layout, job.seed).to(
                device, DTYPES[job.plan.parameter_dtype]
            )
            for number, piece in pieces.items()
        }
        self.modules: dict[int, nn.Module] = {
            number: replicate(network, self.plan, self.meshes)
            for number, network in self.networks.items()
        }
        if self.copies > 1:
            self.modules = {0: DataParallel(self.networks[0], _devices(device, self.copies))}
        self.optimizer = optimizer_of(
            self.networks.values(), job.plan, self.meshes, job.learning_rate
        )
        self.replicas = self.meshes.replicas["replicas"].size()
        self.scaler = loss_scaler(job, device)
        self.schedule: Any = None
        if job.plan.pp > 1:
            self.schedule = pipeline(
                self.modules, job.plan, self.meshes, job.micro_batches, self._loss, device
            )

    def step(self, batch: Tensor) -> Tensor:
        """Forward, backward and update on this rank's part of a batch; its part of the loss."""
        ids, targets = self._own(batch)
        self.optimizer.zero_grad()
        run = self._pipelined if self.schedule else self._accumulated
        loss = run(ids, targets)
        finish_gradients(self.networks.values(), self.plan, self.meshes)
        self.scaler.step(self.optimizer)  # but for a step whose gradients overflowed
        self.scaler.update(self.job.loss_scale or None)
        return loss

    def passed(self) -> tuple[Passed, ...]:
        """What passed DataParallel's first device since this was asked last."""
        module = self.modules.get(0)
        return module.passed() if isinstance(module, DataParallel) else ()

    def whole_loss(self, part: Tensor) -> float:
        """The mean over the batch, of every rank's part; ranks of tp have the same one."""
        last = any(network.piece.last for network in self.networks.values())
        counts = last and self.layout.place("tp") == 0
        whole = part.detach().clone() / self.replicas if counts else torch.zeros_like(part)
        dist.all_reduce(whole)
        return float(whole)

    def _own(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        """The sequences of this replica, the tokens of this rank of cp; targets are one later."""
        plan, at = self.plan, self.meshes
        replica = at.place("dp_replicate") * int(plan.dp_shard) + at.place("dp_shard")
        rows = batch.chunk(int(plan.dp))[replica].to(self.device)
        own = self.layout.positions(self.job.workload.seq, self.device)
        return rows[:, :-1][:, own].contiguous(), rows[:, 1:][:, own].contiguous()

    def _loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        summed = self.layout.cross_entropy(logits, targets)
        return summed * (self.replicas / self.job.workload.tokens_per_step)

    def _accumulated(self, ids: Tensor, targets: Tensor) -> Tensor:
        module, size = self.modules[0], int(self.plan.micro_batch) * self.copies
        total = torch.zeros((), device=self.device)
        pairs = list(zip(ids.split(size), targets.split(size), strict=True))
        for number, (some, wanted) in enumerate(pairs, 1):
            last = number == len(pairs)
            last_micro_batch(module, self.plan, last)
            apart = isinstance(module, DistributedDataParallel) and not last
            with module.no_sync() if apart else nullcontext():  # type: ignore[operator]
                loss = self._loss(module(some), wanted)
                self.scaler.scale(loss).backward()
            total += loss.detach()
        return total

    def _pipelined(self, ids: Tensor, targets: Tensor) -> Tensor:
        losses: list[Tensor] = []
        first = any(network.piece.first for network in self.networks.values())
        last = any(network.piece.last for network in self.networks.values())
        wanted = {"target": targets, "losses": losses} if last else {}
        # Else logits of all micro-batches stay, and are joined, for nobody (torchtitan does so).
        self.schedule.step(*((ids,) if first else ()), **wanted, return_outputs=False)
        return torch.stack(losses).sum() if losses else torch.zeros((), device=self.device)


def _devices(first: torch.device, count: int) -> list[torch.device]:
    """One GPU a replica, or the one CPU for all."""
    on_gpu = first.type == "cuda"
    return [torch.device("cuda", place) if on_gpu else first for place in range(count)]
