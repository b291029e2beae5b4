"""The loop over steps: what `trueflops run` does on every rank.

In: a Job, in a world that has been joined. Out: Ran, on every rank. The first steps run under the
counter, and the last of these, which is like all later ones, is reported. A checkpoint is written
every few steps, at the end, and when the run is interrupted.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from trueflops import language
from trueflops.run.checkpoint import NotSaved as NotSaved
from trueflops.run.checkpoint import latest, load, save
from trueflops.run.counted import Counting, wire_bytes
from trueflops.run.engine import Engine
from trueflops.run.job import Job
from trueflops.run.ran import Ran, RankCount, StepRan
from trueflops.run.server import run_served
from trueflops.run.tokens import Tokens, read_text
from trueflops.run.traced import Tracing

WARM_UP: Final = 2
"""Steps before the one that is counted: in the first the optimizer makes its states, before the
second DDP makes its buckets anew."""


class Interrupted(Exception):
    """Ctrl-C, after what was reached has been saved."""


def run_job(job: Job, device: torch.device, say: Callable[[StepRan], None]) -> Ran:
    """Run all steps, from the last checkpoint on where there is one."""
    tokens, counting, done = tokens_of(job), Counting(), []
    with asked_to_stop() as asked:
        if job.plan.engine == "parameter-server":
            ran = run_served(job, tokens, device, say, asked)
            if len(ran.steps) < job.steps:
                raise Interrupted(language.say("stopped after step {step}", step=len(ran.steps)))
            return ran
        with counting:
            engine = Engine(job, device)
            begun = _resume(job, engine)
            first = range(begun, min(begun + WARM_UP, job.steps))
            done += [_step(engine, tokens, step, say, counting) for step in first]
            dist.barrier()
            counting.start(engine.meshes.axes_by_group())
            engine.passed()
            counts: list[RankCount] = []
            before = wire_bytes()
            if begun + WARM_UP < job.steps:
                done.append(
                    _step(
                        engine,
                        tokens,
                        begun + WARM_UP,
                        say,
                        counting,
                        stepped=lambda: counts.append(_count(engine, counting, before)),
                    )
                )
        with Tracing(job.trace if dist.get_rank() == 0 else None, device) as tracing:
            for step in range(begun + len(done), job.steps):
                if _anyone(asked):
                    break
                done.append(_step(engine, tokens, step, say, traced=tracing.on))
                tracing.step()
                reached = step + 1
                if job.checkpoint and (reached % job.save_every == 0 and reached < job.steps):
                    save(engine, job.checkpoint, reached)
        if job.checkpoint and done:
            save(engine, job.checkpoint, begun + len(done))
        if _anyone(asked):
            raise Interrupted(language.say("stopped after step {step}", step=begun + len(done)))
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, counts)
    every = tuple(chain.from_iterable(gathered))
    return Ran(ranks=every, steps=tuple(done), device=_name(device), begun_at=begun)


def tokens_of(job: Job) -> Tokens:
    """What a job trains on."""
    text = read_text(job.text, job.model.vocab, job.workload.seq) if job.text else None
    return Tokens(job.model.vocab, job.workload.global_batch, job.workload.seq, job.seed, text)


def _resume(job: Job, engine: Engine) -> int:
    found = latest(job.checkpoint) if job.checkpoint else None
    return load(engine, found) if found else 0


def _step(
    engine: Engine,
    tokens: Tokens,
    step: int,
    say: Callable[[StepRan], None],
    counting: Counting | None = None,
    stepped: Callable[[], None] = lambda: None,  # called before ranks agree on the loss
    traced: bool = False,
) -> StepRan:
    batch = tokens.batch(step)
    if engine.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(engine.device)
    begun = time.perf_counter()
    if engine.job.pause_seconds and dist.get_rank() == 0:
        time.sleep(engine.job.pause_seconds)
    part = engine.step(batch)
    stepped()
    loss = engine.whole_loss(part)  # reads it: the device has finished
    ran = StepRan(
        step=step + 1,
        loss=loss,
        seconds=time.perf_counter() - begun,
        counted=counting is not None,
        memory_bytes=_peak(engine.device, counting),
        traced=traced,
        loss_scale=engine.scaler.get_scale(),
    )
    say(ran)
    return ran


def _peak(device: torch.device, counting: Counting | None) -> int | None:
    """Of live tensors: CUDA's allocator always knows it, of a CPU only the counter does."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return counting.peak if counting else None


def _count(engine: Engine, counting: Counting, before: int | None) -> RankCount:
    after = wire_bytes()
    parameters = [p for network in engine.networks.values() for p in network.parameters()]
    states = engine.optimizer
    inner = getattr(states, "optim", states)  # ZeroRedundancyOptimizer wraps a rank's own
    return RankCount(
        rank=dist.get_rank(),
        stage=engine.meshes.place("pp"),
        moved=counting.moved(),
        wire_bytes=None if before is None or after is None else after - before,
        peak_bytes=counting.peak,
        passed=engine.passed(),
        weight_bytes=_bytes(parameters),
        gradient_bytes=_bytes(p.grad for p in parameters if p.grad is not None),
        state_bytes=_bytes(
            chain.from_iterable(
                (v for name, v in each.items() if name != "step") for each in inner.state.values()
            )
        ),
    )


def _bytes(tensors: Any) -> int:
    own = (t.to_local() if isinstance(t, DTensor) else t for t in tensors)
    return sum(t.numel() * t.element_size() for t in own if isinstance(t, Tensor))


@contextmanager
def asked_to_stop() -> Iterator[list[int]]:
    """Signals that came: a step is finished before any of them is obeyed.

    A launcher passes on what a terminal has told this rank already. So who was asked to leave is
    deaf from then on, or the second signal would interrupt Python's own clearing away.
    """
    asked: list[int] = []
    kinds = (signal.SIGINT, signal.SIGTERM)
    before = {kind: signal.signal(kind, lambda number, _: asked.append(number)) for kind in kinds}
    try:
        yield asked
    finally:
        for kind, handler in before.items():
            signal.signal(kind, signal.SIG_IGN if asked else handler)


def _anyone(asked: list[int]) -> bool:
    """Whether any rank was asked: all must leave together."""
    stop = torch.tensor(float(bool(asked)))
    if dist.get_backend() == "nccl":
        stop = stop.cuda()
    dist.all_reduce(stop, op=dist.ReduceOp.MAX)
    return bool(stop)


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
