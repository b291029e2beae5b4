"""torch's own kernels one by one, as a program runs that is not compiled.

A row holds what the law of them asks for: the bytes that must be moved, the elements that are
looked up one by one, the launches that one call makes (clock/eager.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from math import ceil
from typing import Any, Final, NamedTuple

import torch
from torch.nn import functional

from trueflops.measure.device import Device
from trueflops.measure.job import Job
from trueflops.measure.timing import Launch, copies_of, time_launch
from trueflops.records.measured import Row

CHUNK: Final = 65536 * 320  # elements that one launch of a foreach kernel covers
_LISTED: Final = 12  # tensors of a list


class EagerCall(NamedTuple):
    """One call, its operands made: what it launches, and what that must move."""

    launch: Callable[[tuple[torch.Tensor, ...]], Any]
    operands: Callable[[], tuple[torch.Tensor, ...]]
    moved_bytes: float
    indexed: float = 0.0  # elements looked up one by one; the file's column is named `walked`
    launches: float = 1.0


Make = Callable[[Device, int, int, torch.dtype], EagerCall]


def eager_jobs(device: Device) -> Iterator[Job]:
    """Every kind over sizes and types, in random order, each kind met early."""
    wide = (768, 2048, 4096, 14336)
    sizes = [(r, c) for c in wide for r in (256, 2048, 8192, 16384)]
    large = [(r, c) for c in (32000, 128256) for r in (2048, 8192)]
    types = [torch.bfloat16, torch.float32]
    if device.is_cpu:
        sizes = [(r, c) for c in (256, 2048) for r in (64, 512, 2048)]
        large, types = [(r, 8000) for r in (128, 1024)], [torch.float32]
    jobs = [
        _job(device, kind, make, r, c, dtype)
        for kind, make in KINDS.items()
        for dtype in types
        for r, c in (large if "softmax" in kind else sizes)
        if not (kind == "widen" and (dtype == torch.float32 or device.is_cpu))
    ]
    random.Random("eager").shuffle(jobs)
    met: dict[Any, Job] = {}
    for job in jobs:
        met.setdefault((job.cells["kernel"], job.cells["variant"]), job)
    yield from met.values()
    yield from (job for job in jobs if job not in met.values())


def _job(device: Device, kind: str, make: Make, rows: int, columns: int, dtype: torch.dtype) -> Job:
    kernel = make(device, rows, columns, dtype)
    cells: Row = {
        "kernel": kind.partition(" ")[0], "dtype": str(dtype).removeprefix("torch."),
        "rows": rows, "columns": columns, "variant": kind.partition(" ")[2],
        "bytes": kernel.moved_bytes, "walked": kernel.indexed, "launches": kernel.launches,
    }  # fmt: skip

    def measure() -> dict[str, float]:
        copies = 1 if device.is_cpu else copies_of(kernel.moved_bytes / 2, device, least=1, most=24)
        sets = [kernel.operands() for _ in range(copies)]
        turn: Launch = lambda i: kernel.launch(sets[i])  # noqa: E731
        return time_launch(device, turn, copies).cells()

    return Job("eager", cells, measure)


# ── kinds ────────────────────────────────────────────────────────────────────────────────────────


def _pair(launch: Callable[..., Any], shapes: Callable[[int, int], Any], *, indexes: bool) -> Make:
    """A pointwise op on x[r,c] and another operand of some shape."""

    def make(device: Device, r: int, c: int, dtype: torch.dtype) -> EagerCall:
        other = shapes(r, c)
        size = dtype.itemsize
        count = 1 if other is None else 2 if other == (r, c) else 1
        small = 0 if other in (None, (r, c)) else (other[0] * other[1])
        moved = (count + 1) * r * c * size + small * size

        def operands() -> tuple[torch.Tensor, ...]:
            x = device.normal(r, c, dtype=dtype)
            return (x,) if other is None else (x, device.normal(*other, dtype=dtype))

        return EagerCall(lambda t: launch(*t), operands, moved, float(r * c) if indexes else 0.0)

    return make


def _turned(device: Device, r: int, c: int, dtype: torch.dtype) -> EagerCall:
    """Heads and tokens change places: [tokens, heads, 64] -> [heads, tokens, 64] in memory."""
    heads = max(1, c // 64)

    def operands() -> tuple[torch.Tensor, ...]:
        return (device.normal(r, heads, 64, dtype=dtype).transpose(0, 1),)

    count = r * heads * 64
    return EagerCall(lambda t: t[0].contiguous(), operands, 2.0 * count * dtype.itemsize, count)


def _joined(device: Device, r: int, c: int, dtype: torch.dtype) -> EagerCall:
    def operands() -> tuple[torch.Tensor, ...]:
        x = device.normal(r, c, dtype=dtype)
        return x[:, : c // 2], x[:, c // 2 :]

    return EagerCall(lambda t: torch.cat(t, -1), operands, 2.0 * r * c * dtype.itemsize, r * c)


def _widened(device: Device, r: int, c: int, dtype: torch.dtype) -> EagerCall:
    def operands() -> tuple[torch.Tensor, ...]:
        return (device.normal(r, c, dtype=dtype),)

    return EagerCall(lambda t: t[0].float(), operands, r * c * (dtype.itemsize + 4.0), r * c)


def _drawn(device: Device, r: int, c: int, dtype: torch.dtype) -> EagerCall:
    def operands() -> tuple[torch.Tensor, ...]:
        return (device.normal(r, c, dtype=dtype),)

    return EagerCall(lambda t: t[0].bernoulli_(0.9), operands, 1.0 * r * c * dtype.itemsize, r * c)


def _picked(device: Device, r: int, c: int, dtype: torch.dtype) -> EagerCall:
    table = 32000

    def operands() -> tuple[torch.Tensor, ...]:
        return device.normal(table, c, dtype=dtype), device.integers(0, table, r)

    moved = 2.0 * r * c * dtype.itemsize + 8.0 * r
    return EagerCall(lambda t: functional.embedding(t[1], t[0]), operands, moved, r * c)


def _added(device: Device, r: int, c: int, dtype: torch.dtype) -> EagerCall:
    table = 32000

    def operands() -> tuple[torch.Tensor, ...]:
        sums = device.normal(table, c, dtype=dtype)
        return sums, device.integers(0, table, r), device.normal(r, c, dtype=dtype)

    moved = 2.0 * r * c * dtype.itemsize + 8.0 * r
    return EagerCall(lambda t: t[0].index_add_(0, t[1], t[2]), operands, moved, r * c)


def _summed(axis: int) -> Make:
    def make(device: Device, r: int, c: int, dtype: torch.dtype) -> EagerCall:
        def operands() -> tuple[torch.Tensor, ...]:
            return (device.normal(r, c, dtype=dtype),)

        moved = (r * c + (r if axis == -1 else c)) * float(dtype.itemsize)
        return EagerCall(lambda t: t[0].sum(axis), operands, moved)

    return make


def _softmax(device: Device, r: int, c: int, dtype: torch.dtype) -> EagerCall:
    def operands() -> tuple[torch.Tensor, ...]:
        return (device.normal(r, c, dtype=dtype),)

    return EagerCall(lambda t: t[0].log_softmax(-1), operands, 2.0 * r * c * dtype.itemsize)


def _softmax_backward(device: Device, r: int, c: int, dtype: torch.dtype) -> EagerCall:
    def operands() -> tuple[torch.Tensor, ...]:
        x = device.normal(r, c, dtype=dtype)
        return device.normal(r, c, dtype=dtype), x.log_softmax(-1)

    def launch(t: tuple[torch.Tensor, ...]) -> Any:
        return torch.ops.aten._log_softmax_backward_data(t[0], t[1], -1, dtype)

    return EagerCall(launch, operands, 3.0 * r * c * dtype.itemsize)


def _norm(device: Device, r: int, c: int, dtype: torch.dtype) -> EagerCall:
    def operands() -> tuple[torch.Tensor, ...]:
        return device.normal(r, c, dtype=dtype), device.normal(c, dtype=dtype)

    moved = 2.0 * r * c * dtype.itemsize
    return EagerCall(lambda t: functional.layer_norm(t[0], (c,), t[1]), operands, moved)


def _norm_backward(device: Device, r: int, c: int, dtype: torch.dtype) -> EagerCall:
    def operands() -> tuple[torch.Tensor, ...]:
        x, weight = device.normal(r, c, dtype=dtype), device.normal(c, dtype=dtype)
        _, mean, spread = torch.native_layer_norm(x, (c,), weight, weight, 1e-5)
        return device.normal(r, c, dtype=dtype), x, mean, spread, weight

    def launch(t: tuple[torch.Tensor, ...]) -> Any:
        grad, x, mean, spread, weight = t
        return torch.ops.aten.native_layer_norm_backward(
            grad, x, [c], mean, spread, weight, weight, [True, True, True]
        )

    return EagerCall(launch, operands, 3.0 * r * c * dtype.itemsize)


def _listed(launch: Callable[..., Any], lists: int, read: int, written: int) -> Make:
    """A foreach op on lists of tensors, each list of which holds r·c elements."""

    def make(device: Device, r: int, c: int, dtype: torch.dtype) -> EagerCall:
        rows = max(1, r // _LISTED)

        def operands() -> tuple[torch.Tensor, ...]:
            return tuple(device.normal(rows, c, dtype=dtype) for _ in range(lists * _LISTED))

        def run(t: tuple[torch.Tensor, ...]) -> Any:
            return launch(*(list(t[i * _LISTED : (i + 1) * _LISTED]) for i in range(lists)))

        count = rows * c * _LISTED
        moved = float((read + written) * count * dtype.itemsize)
        return EagerCall(run, operands, moved, float(count), float(ceil(count / CHUNK)))

    return make


def _fused_adam(device: Device, r: int, c: int, dtype: torch.dtype) -> EagerCall:
    def operands() -> tuple[torch.Tensor, ...]:
        return tuple(device.normal(r, c, dtype=dtype).abs() for _ in range(4))

    steps = device.normal(1, dtype=torch.float32).abs().reshape(()) + 1.0

    def launch(t: tuple[torch.Tensor, ...]) -> Any:
        return torch._fused_adamw_(
            [t[0]], [t[1]], [t[2]], [t[3]], [], [steps], lr=1e-5, beta1=0.9, beta2=0.999,
            weight_decay=0.01, eps=1e-8, amsgrad=False, maximize=False,
        )  # fmt: skip

    return EagerCall(
        launch, operands, 7.0 * r * c * dtype.itemsize, float(r * c), float(ceil(r * c / CHUNK))
    )


KINDS: Final[dict[str, Make]] = {
    "vector add": _pair(torch.add, lambda r, c: (r, c), indexes=False),
    "math silu": _pair(functional.silu, lambda r, c: None, indexes=True),
    "copy": _pair(torch.clone, lambda r, c: None, indexes=False),
    "fill": lambda d, r, c, t: EagerCall(
        lambda o: o[0].fill_(0.5),
        lambda: (d.normal(r, c, dtype=t),),
        1.0 * r * c * t.itemsize,
    ),
    "strided row": _pair(torch.mul, lambda r, c: (1, c), indexes=True),
    "strided column": _pair(torch.mul, lambda r, c: (r, 1), indexes=True),
    "strided heads": _turned,
    "cat": _joined,
    "widen": _widened,
    "random": _drawn,
    "gather": _picked,
    "scatter": _added,
    "reduce_rows": _summed(-1),
    "reduce_columns": _summed(0),
    "softmax": _softmax,
    "softmax_backward": _softmax_backward,
    "norm": _norm,
    "norm_backward": _norm_backward,
    "foreach multiply": _listed(lambda a: torch._foreach_mul_(a, 0.9), 1, 1, 1),
    "foreach square": _listed(lambda a, b, c: torch._foreach_addcmul_(a, b, c, 0.1), 3, 3, 1),
    "fused_optimizer": _fused_adam,
}
"""Kind of kernel, and after a space which of it; the latter half only tells rows apart."""
