"""Kernels that are bound by memory: norms, activations, losses, the optimizer; and launches."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any, Final

import torch
from torch.nn import functional

from trueflops.measure.attention import usual_dtype
from trueflops.measure.device import Device
from trueflops.measure.job import Job
from trueflops.measure.timing import MICRO, Launch, copies_of, time_launch
from trueflops.records.measured import Row

LAUNCHES: Final = 300
BATCHES: Final = 9
Make = Callable[[int, int, int], Launch]  # rows, columns, copies


def memory_jobs(device: Device) -> Iterator[Job]:
    """Norms, activations, losses, lookups and the optimizer, over sizes, in random order."""
    kinds = memory_kinds(device)
    draw = random.Random("memory")
    wide = (768, 1024, 1600, 2048, 3072, 4096, 5120, 8192, 14336)
    sizes = [(r, c) for c in wide for r in (16, 64, 256, 1024, 4096, 16384) if r * c <= 2**27]
    logits = [(r, c) for c in (32000, 50304, 128256) for r in (512, 2048, 8192)]
    if device.is_cpu:
        sizes = [(r, c) for c in (256, 512, 1024, 2816) for r in (32, 256, 1024, 4096)]
        logits = [(r, c) for c in (1000, 8000, 32000) for r in (64, 256, 1024)]
    jobs = [
        memory_job(device, kind, make, r, c)
        for kind, make in kinds.items()
        for r, c in (logits if kind.startswith("cross") else sizes)
    ]
    draw.shuffle(jobs)
    # Every kind is met early, and the one that needs the default generator before all graphs.
    met: dict[Any, Job] = {}
    for job in jobs:
        met.setdefault(job.cells["kind"], job)
    first = sorted(met.values(), key=lambda job: job.cells["kind"] != "dropout")
    yield from first
    yield from (job for job in jobs if job not in first)


def memory_job(device: Device, kind: str, make: Make, rows: int, columns: int) -> Job:
    """One kind of kernel over so many rows and columns."""
    dtype = usual_dtype(device)
    cells: Row = {"kind": kind, "dtype": "fp32" if dtype == torch.float32 else "bf16",
                  "rows": rows, "columns": columns}  # fmt: skip
    # On a CPU an op finds what the one before it wrote in cache, if that is large enough.
    each = float(dtype.itemsize * rows * columns)
    copies = 1 if device.is_cpu else copies_of(each, device, least=1, most=24)
    return Job(
        "memory", cells, lambda: time_launch(device, make(rows, columns, copies), copies).cells()
    )


def memory_kinds(device: Device) -> dict[str, Make]:
    """Kind -> a maker of launches."""
    dtype = usual_dtype(device)

    def normal(*shape: int) -> torch.Tensor:
        return device.normal(*shape, dtype=dtype)

    def unary(function: Callable[[torch.Tensor], Any]) -> Make:
        def make(r: int, c: int, n: int) -> Launch:
            xs = [normal(r, c) for _ in range(n)]
            return lambda i: function(xs[i])

        return make

    def add(r: int, c: int, n: int) -> Launch:
        xs, ys = ([normal(r, c) for _ in range(n)] for _ in range(2))
        return lambda i: torch.add(xs[i], ys[i])

    def graded(function: Callable[..., torch.Tensor], *, weighted: bool = False) -> Make:
        def make(r: int, c: int, n: int) -> Launch:
            more = [normal(c).requires_grad_()] if weighted else []
            xs = [normal(r, c).requires_grad_() for _ in range(n)]
            outs = [function(x, *more) for x in xs]
            gs = [normal(r, c) for _ in xs]
            return lambda i: torch.autograd.grad(outs[i], (xs[i], *more), gs[i], retain_graph=True)

        return make

    def normed(function: Callable[..., torch.Tensor]) -> Make:
        def make(r: int, c: int, n: int) -> Launch:
            weight, xs = normal(c), [normal(r, c) for _ in range(n)]
            return lambda i: function(xs[i], weight)

        return make

    def layer(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x, (x.shape[-1],), w, None)

    def rms(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, (x.shape[-1],), w)

    def loss(r: int, c: int, n: int) -> Launch:
        xs, ids = [normal(r, c) for _ in range(n)], device.integers(0, c, r)
        return lambda i: functional.cross_entropy(xs[i].float(), ids)

    def loss_backward(r: int, c: int, n: int) -> Launch:
        xs, ids = [normal(r, c).requires_grad_() for _ in range(n)], device.integers(0, c, r)
        outs = [functional.cross_entropy(x.float(), ids) for x in xs]
        return lambda i: torch.autograd.grad(outs[i], xs[i], retain_graph=True)

    def lookup(r: int, c: int, n: int) -> Launch:
        table, ids = normal(50304, c), [device.integers(0, 50304, r) for _ in range(n)]
        return lambda i: functional.embedding(ids[i], table)

    def gelu(x: torch.Tensor) -> torch.Tensor:
        return functional.gelu(x, approximate="tanh")

    def softmax(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1)

    kinds: dict[str, Make] = {
        "copy": unary(torch.clone), "add": add, "gelu": unary(gelu), "gelu_backward": graded(gelu),
        "silu": unary(functional.silu), "silu_backward": graded(functional.silu),
        "dropout": unary(lambda x: functional.dropout(x, 0.1)),
        "layer_norm": normed(layer), "layer_norm_backward": graded(layer, weighted=True),
        "rms_norm": normed(rms), "rms_norm_backward": graded(rms, weighted=True),
        "softmax": unary(softmax), "softmax_backward": graded(softmax),
        "cross_entropy": loss, "cross_entropy_backward": loss_backward, "embedding": lookup,
        "adamw" if device.is_cpu else "adamw_fused": _adam(device),
    }  # fmt: skip
    if not device.is_cpu:
        kinds["to_fp32"] = unary(lambda x: x.float())
    return kinds


def _adam(device: Device) -> Make:
    """A step over one of several sets of weights and states: a real one finds none in cache."""

    def optimizer(r: int, c: int) -> torch.optim.Optimizer:
        weight = torch.nn.Parameter(device.normal(r, c, dtype=torch.float32))
        weight.grad = device.normal(r, c, dtype=torch.float32)
        gpu = not device.is_cpu
        made = torch.optim.AdamW(
            [weight], lr=1e-4, fused=gpu or None, capturable=gpu and device.has_graphs
        )
        made.step()
        return made

    def make(r: int, c: int, n: int) -> Launch:
        sets = [optimizer(r, c) for _ in range(n)]
        return lambda i: sets[i].step()

    return make


# ── launch ───────────────────────────────────────────────────────────────────────────────────────


def launch_jobs(device: Device) -> list[Job]:
    """Seconds between kernels that do nothing: issued one by one, and replayed from a graph."""
    dtype = usual_dtype(device)
    x, w = (device.normal(64, 64, dtype=dtype) for _ in range(2))
    kinds: dict[str, Callable[[], Any]] = {
        "add": lambda: torch.add(x, x),
        "mm": lambda: torch.mm(x, w),
        "layer_norm": lambda: functional.layer_norm(x, (64,)),
        "linear": lambda: functional.linear(x, w),
    }

    def job(kind: str, launch: Callable[[], Any]) -> Job:
        def measure() -> dict[str, float]:
            eager = _eager_seconds(device, launch)
            found = {"eager_us": round(eager / MICRO, 3)}
            if device.has_graphs:
                found["graph_us"] = time_launch(device, lambda _: launch()).cells()["latency_us"]
            return found

        return Job("launch", {"kind": kind}, measure)

    return [job(kind, launch) for kind, launch in kinds.items()]


def _eager_seconds(device: Device, launch: Callable[[], Any]) -> float:
    """The median of several runs: other threads of a host take their turns in between."""
    times = []
    for _ in range(BATCHES + 1):
        device.synchronize()
        begun = time.perf_counter()
        for _ in range(LAUNCHES):
            launch()
        device.synchronize()
        times.append((time.perf_counter() - begun) / LAUNCHES)
    return median(times[1:])
