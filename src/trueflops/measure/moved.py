"""Which of torch's own kernels are timed that put elements elsewhere: copies, look-ups, sorts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from trueflops.measure.calls import Case
from trueflops.measure.device import Device
from trueflops.measure.eager import BF16, FP32, Operands, aten, case, normal, within


def moving_cases(*, on_cpu: bool) -> Iterator[Case]:
    """Everything, larger on an accelerator than on a CPU."""
    most = 2**22 if on_cpu else 2**28
    for dtype in (FP32,) if on_cpu else (BF16, FP32):
        yield from _copies(dtype, most)
        yield from _picked(dtype, most)
    yield from _sorted(most)


# ── copies ───────────────────────────────────────────────────────────────────────────────────────


def _copies(dtype: torch.dtype, most: int) -> Iterator[Case]:
    """Copies that change the order of dimensions, join, cut, pad, roll."""
    turns = [
        *(((b, s, h, d), (0, 2, 1, 3)) for b, s, h, d in (
            (1, 2048, 12, 64), (8, 1024, 16, 64), (4, 4096, 32, 128), (32, 197, 12, 64),
            (64, 49, 8, 32), (16, 512, 12, 64))),
        *(((n, c, s, s), (0, 2, 3, 1)) for n, c, s in (
            (32, 3, 224), (32, 64, 112), (32, 256, 56), (64, 512, 28), (64, 2048, 7),
            (16, 96, 56))),
        *(((n, s, s, c), (0, 3, 1, 2)) for n, c, s in (
            (32, 3, 224), (32, 64, 112), (32, 256, 56), (64, 512, 28), (64, 2048, 7))),
        *(((r, c), (1, 0)) for r, c in (
            (256, 256), (1024, 1024), (4096, 4096), (8192, 1024), (1024, 50257), (16384, 768))),
        *(((b, c, t), (0, 2, 1)) for b, c, t in ((16, 512, 1500), (8, 80, 3000), (32, 768, 499))),
        ((64, 7, 8, 7, 8, 96), (0, 1, 3, 2, 4, 5)), ((16, 14, 4, 14, 4, 384), (0, 1, 3, 2, 4, 5)),
    ]  # fmt: skip
    for shape, order in turns:
        if next(within(most, shape), None):
            yield case("turned", partial(_turned, order), normal(shape, dtype=dtype))
    for shape in within(most, (2048, 768), (8192, 4096), (16384, 1024), (512, 512)):
        r, c = shape
        yield case(
            "part", lambda x: x[:, : x.shape[1] // 3].contiguous(), normal(shape, dtype=dtype)
        )
        yield case(
            "part", lambda x: x[: x.shape[0] // 2, ::2].contiguous(), normal(shape, dtype=dtype)
        )
        yield case("cat", lambda a, b: torch.cat((a, b), -1), normal(shape, (r, c), dtype=dtype))
        yield case("cat", lambda a, b: torch.cat((a, b), 0), normal(shape, (r, c), dtype=dtype))
        yield case("cat", lambda *t: torch.cat(t, -1), normal(*[(r, c // 8)] * 8, dtype=dtype))
        yield case("pad", lambda x: functional.pad(x, (0, 7)), normal(shape, dtype=dtype))
        yield case("roll", lambda x: torch.roll(x, 3, 0), normal(shape, dtype=dtype))
        yield case("repeat", lambda x: x.repeat(1, 2), normal(shape, dtype=dtype))
        yield case(
            "put", lambda x, y: x[:, : y.shape[1]].copy_(y), normal(shape, (r, c // 2), dtype=dtype)
        )
        yield case("tril", torch.tril, normal(shape, dtype=dtype))
    for n, c, s in ((16, 64, 56), (32, 256, 28), (64, 512, 14), (64, 128, 7)):
        two = normal((n, c, s, s), (n, c, s, s), dtype=dtype)
        yield case("cat", lambda a, b: torch.cat((a, b), 1), two)
        pictures = normal((n, c, s, s), dtype=dtype)
        yield case("pad", lambda x: functional.pad(x, (1, 1, 1, 1)), pictures)
        yield case("unfold", lambda x: aten.im2col(x, [3, 3], [1, 1], [1, 1], [1, 1]), pictures)


def _turned(order: tuple[int, ...], x: torch.Tensor) -> torch.Tensor:
    return aten.clone(x.permute(order), memory_format=torch.contiguous_format)


# ── look-ups ─────────────────────────────────────────────────────────────────────────────────────


def _indices(
    table: int, count: tuple[int, ...], *shapes: tuple[int, ...], dtype: torch.dtype
) -> Operands:
    def operands(device: Device) -> tuple[Any, ...]:
        made = (device.normal(*shape, dtype=dtype) for shape in shapes)
        return (device.integers(0, table, *count), *made)

    return operands


def _picked(dtype: torch.dtype, most: int) -> Iterator[Case]:
    """Rows and elements picked from a table, and put or added into one."""
    for table in (1000, 30522, 1_000_000):
        for rows in (64, 2048, 32768, 262144):
            for columns in (16, 64, 768):
                if table * columns > most or rows * columns > most // 4:
                    continue
                of = partial(_indices, table, (rows,), dtype=dtype)
                whole, part = (table, columns), (rows, columns)
                yield case("embedding", lambda i, t: aten.embedding(t, i), of(whole))
                yield case("index_select", lambda i, t: t.index_select(0, i), of(whole))
                yield case("index", lambda i, t: aten.index(t, [i]), of(whole))
                yield case("index_add", lambda i, t, x: t.index_add_(0, i, x), of(whole, part))
                yield case("table gradient", partial(_table_gradient, table), of(part))
                yield case(
                    "put rows", lambda i, t, x: aten.index_put_(t, [i], x, True), of(whole, part)
                )
                yield case("scatter_add", _scatter_add, of(whole, part))
    for rows, columns in ((1024, 32), (8192, 1024), (65536, 128)):
        of = partial(_indices, columns, (rows, columns), dtype=dtype)
        one = (rows, columns)
        yield case("gather", lambda i, t: t.gather(1, i), of(one))
        yield case("scatter_add", lambda i, t, x: t.scatter_add_(1, i, x), of(one, one))
    for rows, columns in ((1024, 1000), (8192, 32000), (16384, 50257)):
        logits = _indices(columns, (rows,), (rows, columns), dtype=dtype)
        yield case("nll", lambda i, x: aten.nll_loss_forward(x, i, None, 1, -100), logits)
    for table, bags, each, columns in ((100_000, 2048, 32, 64), (1_000_000, 8192, 8, 128)):
        if table * columns <= most:
            yield case("embedding_bag", _bag, _bags(table, bags, each, columns, dtype))


def _table_gradient(table: int, index: torch.Tensor, grad: torch.Tensor) -> Any:
    return aten.embedding_dense_backward(grad, index, table, -1, False)


def _scatter_add(index: torch.Tensor, table: torch.Tensor, x: torch.Tensor) -> Any:
    return table.scatter_add_(0, index[:, None].expand_as(x), x)


def _bags(table: int, bags: int, each: int, columns: int, dtype: torch.dtype) -> Operands:
    def operands(device: Device) -> tuple[Any, ...]:
        starts = torch.arange(0, bags * each, each, device=device.at)
        return (
            device.normal(table, columns, dtype=dtype),
            device.integers(0, table, bags * each),
            starts,
        )

    return operands


def _bag(table: torch.Tensor, index: torch.Tensor, starts: torch.Tensor) -> Any:
    return aten._embedding_bag(table, index, starts, False, 0)


def _sorted(most: int) -> Iterator[Case]:
    for rows, columns in within(
        most, (1, 65536), (1, 2**22), (4096, 64), (1024, 4096), (64, 65536)
    ):
        wide = normal((rows, columns), dtype=FP32)
        yield case("sort", lambda x: torch.sort(x, -1), wide)
        yield case("topk", lambda x: torch.topk(x, min(8, x.shape[1])), wide)
        yield case("cumsum", lambda x: torch.cumsum(x, -1), wide)
        yield case("argmax", lambda x: torch.argmax(x, -1), wide)
    for batch, length in ((64, 4096), (256, 1024), (16, 65536), (4096, 512)):
        yield case(
            "rfft", lambda x: aten._fft_r2c(x, [1], 0, True), normal((batch, length), dtype=FP32)
        )
