"""A parameter server: one process that holds the weights and changes them as gradients come.

In: a Job, in a world of one server and its workers. Out: Ran with what was Served. When a gradient
is used is predict/stragglers' Mode:
    synchronous   when those of all workers are there: their mean, as DDP takes it
    drops         when all but b are there; who comes later computes its sequences again
    bounded       at once; a worker more than s steps ahead of the slowest is not answered yet
    asynchronous  at once; nobody waits
Every sequence is used exactly once, so that losses compare. A gradient that is used alone is that
of 1/n of a batch, so it takes 1/n of the learning rate (Goyal et al. 2017, arXiv 1706.02677 §2.1).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from math import inf

import torch
import torch.distributed as dist
from torch import Tensor

from trueflops.predict.stragglers.simulate import Mode
from trueflops.predict.training.through_one import TASK_BYTES, Passed
from trueflops.run.counted import wire_bytes
from trueflops.run.job import Job
from trueflops.run.ran import Ran, StepRan
from trueflops.run.replicas import own_optimizer
from trueflops.run.served import Served, Used
from trueflops.run.tokens import Tokens
from trueflops.run.worker import GRADIENTS, NO_MORE, REPORT, SERVER, TASK, WEIGHTS, Copy, work


def run_served(
    job: Job,
    tokens: Tokens,
    device: torch.device,
    say: Callable[[StepRan], None],
    asked: Sequence[int],  # signals that came
) -> Ran:
    """Be the server, or one of its workers; every rank knows in the end what was served."""
    if dist.get_rank() == SERVER:
        server = _Server(job, say, asked)
        server.serve()
        told: list[object] = [Ran(ranks=(), steps=server.steps(), device=device.type, begun_at=0,
                                  served=server.served())]  # fmt: skip
    else:
        work(job, tokens, device)
        told = [None]
    dist.broadcast_object_list(told, SERVER)
    assert isinstance(told[0], Ran)
    return told[0]


class _Server:
    """Its weights, and where every worker is. Workers are counted from 0; their ranks from 1."""

    def __init__(self, job: Job, say: Callable[[StepRan], None], asked: Sequence[int]) -> None:
        self.job, self.say, self.asked = job, say, asked
        self.workers = n = int(job.plan.dp)
        self.in_rounds = job.updates in (Mode.SYNCHRONOUS, Mode.DROPS)
        self.bound = job.staleness if job.updates is Mode.BOUNDED else inf
        self.copy = Copy(job, torch.device("cpu"))
        rate = job.learning_rate if self.in_rounds else job.learning_rate / n
        self.optimizer = own_optimizer(self.copy.network.parameters(), job.plan, rate)
        self.tasks = deque(range(n * job.steps))
        self.active = set(range(n))
        self.version, self.dropped, self.most_ahead = 0, 0, 0
        self.done, self.read, self.task = [0] * n, [0] * n, [0] * n
        self.losses = [0.0] * n
        self.answered: dict[int, float] = {}  # workers whose gradient was taken, and when
        self.round: dict[int, Tensor] = {}
        self.waited = [0.0] * n  # of each worker, for its last answer
        self.all_waited, self.begun = 0.0, time.perf_counter()
        self.used: list[Used] = []
        self.compute: list[list[float]] = [[] for _ in range(n)]
        self.exchange: list[list[float]] = [[] for _ in range(n)]
        self.gradient_bytes = self.weight_bytes = 0
        self.sent_before = wire_bytes()

    def serve(self) -> None:
        """Hand out tasks until all are done, or somebody asks to stop."""
        report = torch.zeros(3, dtype=torch.float64)
        gradients = torch.empty_like(self.copy.gradients)
        for worker in range(self.workers):
            self._hand(worker)
        while self.active:
            worker = dist.recv(report, None, tag=REPORT) - 1
            dist.recv(gradients, worker + 1, tag=GRADIENTS)
            self.gradient_bytes += _bytes(report) + _bytes(gradients)
            self.losses[worker], computed, exchanged = report.tolist()
            self.compute[worker].append(computed)
            if self.done[worker]:  # before, there was no exchange to report
                self.exchange[worker].append(max(exchanged - self.waited[worker], 0.0))
            self.done[worker] += 1
            self.answered[worker] = time.perf_counter()
            if self.in_rounds:
                self._join_round(worker, gradients)
            else:
                self._use_alone(worker, gradients)

    def _join_round(self, worker: int, gradients: Tensor) -> None:
        if self.read[worker] == self.version:
            self.round[worker] = gradients.clone()
        else:  # of a round that is over
            self.dropped += 1
            self.tasks.appendleft(self.task[worker])
            self._hand(worker)
        enough = self.workers - (self.job.drop if self.job.updates is Mode.DROPS else 0)
        left = self.workers * self.job.steps - len(self.used)
        # At the end fewer sequences are left than workers; who has none will not come.
        if self.round and len(self.round) >= min(enough, left, len(self.active)):
            self._close_round()

    def _close_round(self) -> None:
        together = sorted(self.round)  # by worker, so that sums do not depend on who came first
        torch.sum(torch.stack([self.round[each] for each in together]), 0, out=self.copy.gradients)
        self.copy.gradients /= len(together)
        self.round.clear()
        self._update()
        for each in together:
            self._note(each, age=0)
        for each in together:
            self._hand(each)

    def _use_alone(self, worker: int, gradients: Tensor) -> None:
        self.copy.gradients.copy_(gradients)
        age = self.version - self.read[worker]
        self._update()
        self._note(worker, age)
        for each in sorted(self.answered):  # some may have waited for this one
            if self.done[each] - self._slowest() <= self.bound:
                self._hand(each)

    def _slowest(self) -> int:
        return min(self.done[worker] for worker in self.active)

    def _update(self) -> None:
        self.optimizer.step()
        self.version += 1

    def _hand(self, worker: int) -> None:
        """A task and the newest weights; or that there is no more."""
        if worker in self.answered:
            self.waited[worker] = time.perf_counter() - self.answered.pop(worker)
            self.all_waited += self.waited[worker]
        more = bool(self.tasks) and not self.asked
        task = self.tasks.popleft() if more else NO_MORE
        dist.send(torch.tensor([task]), worker + 1, tag=TASK)
        if not more:
            self.active.discard(worker)
            return
        self.task[worker], self.read[worker] = task, self.version
        if not self.in_rounds:
            self.most_ahead = max(self.most_ahead, self.done[worker] - self._slowest())
        self.weight_bytes += TASK_BYTES + _bytes(self.copy.weights)
        dist.send(self.copy.weights, worker + 1, tag=WEIGHTS)

    def _note(self, worker: int, age: int) -> None:
        now = time.perf_counter() - self.begun
        self.used.append(Used(worker, self.task[worker], age, now, self.losses[worker]))
        if len(self.used) % self.workers == 0:
            self.say(self._step(self.used[-self.workers :], len(self.used) // self.workers))

    def _step(self, some: Sequence[Used], number: int) -> StepRan:
        """As many gradients as one step of all workers has."""
        before = [each.at for each in self.used if each.at < min(u.at for u in some)]
        return StepRan(
            step=number,
            loss=sum(each.loss for each in some) / len(some),
            seconds=max(each.at for each in some) - (before[-1] if before else 0.0),
            counted=False,
        )

    def steps(self) -> tuple[StepRan, ...]:
        """The loss of every batch, of the same sequences whatever the mode, in the mean time."""
        ordered = sorted(self.used, key=lambda each: each.task)
        n = self.workers
        batches = [ordered[at : at + n] for at in range(0, len(ordered) - n + 1, n)]
        rate = self.served().tokens_per_second
        lasted = self.job.workload.tokens_per_step / rate if rate else 0.0
        return tuple(
            StepRan(step=number, loss=sum(each.loss for each in batch) / n, seconds=lasted,
                    counted=False)
            for number, batch in enumerate(batches, 1)
        )  # fmt: skip

    def served(self) -> Served:
        """All that was seen."""
        after, n = wire_bytes(), self.workers
        sent = None if after is None or self.sent_before is None else after - self.sent_before
        gradients = max(sum(self.done), 1)
        each_in, each_out = self.gradient_bytes / gradients, self.weight_bytes / gradients
        return Served(
            updates=self.job.updates,
            staleness=self.job.staleness,
            drop=self.job.drop,
            tokens_per_gradient=self.job.workload.tokens_per_step / n,
            used=tuple(self.used),
            dropped=self.dropped,
            most_ahead=self.most_ahead,
            waited_seconds=self.all_waited,
            lasted_seconds=time.perf_counter() - self.begun,
            compute_seconds=tuple(map(tuple, self.compute)),
            exchange_seconds=tuple(map(tuple, self.exchange)),
            passed=(Passed("gradients", False, n * each_in), Passed("weights", True, n * each_out)),
            socket_bytes=sent,
        )


def _bytes(x: Tensor) -> int:
    return x.numel() * x.element_size()
