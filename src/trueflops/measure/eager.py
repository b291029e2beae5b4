"""Which of torch's own kernels are timed, over sizes, layouts and types: those that need no layer.

Pointwise ops and casts, reductions, products side by side, lists of tensors. Copies, look-ups and
sorts are in moved.py, kernels of layers (norms, windows) in layers.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import torch
from torch.nn import functional

from trueflops.measure.calls import Case
from trueflops.measure.device import Device

Operands = Callable[[Device], tuple[Any, ...]]
aten: Final = torch.ops.aten
BF16, FP32 = torch.bfloat16, torch.float32
_ELEMENTS: Final = tuple(2**n for n in (12, 16, 19, 22, 24, 26, 28))


def case(family: str, launch: Callable[..., Any], operands: Operands) -> Case:
    """A launch on operands of its own."""

    def make(device: Device) -> Callable[[], Any]:
        return partial(launch, *operands(device))

    return Case(family, make)


def normal(*shapes: tuple[int, ...], dtype: torch.dtype = BF16) -> Operands:
    """Tensors of random numbers."""
    return lambda device: tuple(device.normal(*shape, dtype=dtype) for shape in shapes)


def eager_cases(*, on_cpu: bool) -> Iterator[Case]:
    """Everything, larger on an accelerator than on a CPU."""
    types = (FP32,) if on_cpu else (BF16, FP32)
    most = 2**22 if on_cpu else 2**28
    for dtype in types:
        yield from _pointwise(dtype, most)
        yield from _broadcast(dtype, most)
        yield from _reduced(dtype, most)
        yield from _softmax(dtype, most)
        yield from _lists(dtype, most)
    if not on_cpu:
        yield from _mixed()
        yield from _batched()


def drawn_rows(what: str, most: int, count: int) -> Iterator[tuple[int, int]]:
    """Numbers and lengths of rows as programs have them, and others between."""
    draw = random.Random(what)
    usual = (32, 49, 64, 96, 128, 197, 256, 384, 512, 768, 1024, 1280, 1600, 2048, 2560, 3072, 4096,
             5120, 6144, 8192, 11008, 14336, 20480, 28672)  # fmt: skip
    for _ in range(count):
        columns = draw.choice((draw.choice(usual), round(2 ** draw.uniform(4.0, 15.0))))
        rows = round(2 ** draw.uniform(4.0, 17.0))
        if rows * columns <= most:
            yield rows, columns


def within(most: int, *shapes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for shape in shapes:
        count = 1
        for size in shape:
            count *= size
        if count <= most:
            yield shape


_UNARY: Final[dict[str, Callable[[torch.Tensor], Any]]] = {
    "relu": torch.relu, "silu": functional.silu, "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"), "tanh": torch.tanh,
    "sigmoid": torch.sigmoid, "exp": torch.exp, "sin": torch.sin, "square": torch.square,
    "rsqrt": torch.rsqrt, "pow": lambda x: torch.pow(x, 3.0), "scaled": lambda x: x * 0.5,
    "softplus": functional.softplus, "clone": torch.clone, "fill": lambda x: x.fill_(0.5),
    "hardswish": functional.hardswish, "dropout": lambda x: torch.native_dropout(x, 0.1, True),
    "bernoulli": lambda x: x.bernoulli_(0.9), "uniform": lambda x: x.uniform_(),
    "normal": lambda x: x.normal_(), "isnan": torch.isnan,
}  # fmt: skip
_BINARY: Final[dict[str, Callable[..., Any]]] = {
    "add": torch.add, "mul": torch.mul, "div": torch.div,
    "gelu_backward": aten.gelu_backward, "silu_backward": aten.silu_backward,
    "tanh_backward": aten.tanh_backward, "sigmoid_backward": aten.sigmoid_backward,
    "relu_backward": lambda g, x: aten.threshold_backward(g, x, 0),
    "mse": lambda a, b: aten.mse_loss(a, b, 0),
}  # fmt: skip


def _pointwise(dtype: torch.dtype, most: int) -> Iterator[Case]:
    for count in _ELEMENTS:
        if count > most:
            continue
        for name, unary in _UNARY.items():
            yield case(name, unary, normal((count,), dtype=dtype))
        for name, binary in _BINARY.items():
            yield case(name, binary, normal((count,), (count,), dtype=dtype))
        yield case("addcmul", torch.addcmul, normal(*[(count,)] * 3, dtype=dtype))
        yield case("masked_fill", _masked, normal((count,), (count,), dtype=dtype))


def _masked(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.masked_fill(y.view(torch.uint8)[: x.numel()].view(torch.bool), 0.0)


def _broadcast(dtype: torch.dtype, most: int) -> Iterator[Case]:
    """An operand that is smaller: a row, a column, a channel, a head."""
    shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((r, c), small)
        for r, c in ((256, 768), (2048, 768), (8192, 1024), (16384, 4096), (8192, 14336))
        for small in ((c,), (r, 1))
    ]
    shapes += [
        ((n, c, s, s), (1, c, 1, 1)) for n, c, s in ((32, 64, 56), (64, 256, 28), (32, 512, 7))
    ]
    shapes += [
        ((n, c, s, s), (n, c, 1, 1)) for n, c, s in ((32, 64, 112), (64, 240, 28), (64, 960, 7))
    ]
    shapes += [((8, 16, 1024, 64), (1, 1, 1024, 64)), ((32, 12, 512, 512), (32, 1, 1, 512))]
    for large, small in shapes:
        if next(within(most, large), None):
            yield case("broadcast", torch.mul, normal(large, small, dtype=dtype))
            yield case("broadcast", torch.add, normal(large, small, dtype=dtype))


def _mixed() -> Iterator[Case]:
    """Of two types: casts, and ops that convert as they load."""
    for count in _ELEMENTS:
        yield case("widen", lambda x: x.float(), normal((count,)))
        yield case("narrow", lambda x: x.bfloat16(), normal((count,), dtype=FP32))
        yield case("mixed", torch.mul, _two_types((count,)))
        yield case("index_cast", lambda x: x.long(), normal((count,)))


def _two_types(shape: tuple[int, ...]) -> Operands:
    return lambda device: (device.normal(*shape), device.normal(*shape, dtype=FP32))


def _batched() -> Iterator[Case]:
    """Products side by side, as attention without a kernel of its own runs them."""
    for batch, m, n, k in (
        (96, 512, 512, 64), (384, 512, 64, 512), (384, 512, 512, 64), (192, 197, 197, 64),
        (2048, 49, 49, 32), (2048, 49, 32, 49), (64, 1024, 1024, 40), (64, 1024, 40, 1024),
        (16, 4096, 77, 40), (16, 4096, 40, 77), (16, 4096, 4096, 80), (32, 1500, 1500, 64),
        (128, 1, 1024, 64), (128, 1, 64, 1024), (1024, 27, 27, 128), (2048, 27, 128, 27),
        (64, 256, 256, 150), (64, 256, 150, 256), (512, 64, 64, 108), (64, 8, 8, 8192),
        (256, 128, 130, 96), (48, 1000, 1001, 65), (32, 2048, 2048, 128), (256, 256, 256, 256),
        (12, 128, 256, 30000), (8, 1024, 4096, 1024), (64, 96, 2048, 512), (64, 33, 2048, 513),
    ):  # fmt: skip
        for dtype in (BF16, FP32):
            plain, turned = (
                normal((batch, m, k), (batch, k, n), dtype=dtype),
                normal((batch, m, k), (batch, n, k), dtype=dtype),
            )
            yield case("batched", torch.bmm, plain)
            yield case("batched", lambda a, b: torch.bmm(a, b.transpose(1, 2)), turned)


# ── reductions ───────────────────────────────────────────────────────────────────────────────────


def _reduced(dtype: torch.dtype, most: int) -> Iterator[Case]:
    sides = [(r, c) for r in (32, 512, 4096, 32768, 262144) for c in (8, 64, 768, 3072, 16384)]
    for r, c in (*within(most, *sides), *drawn_rows("sums", most, 60)):
        x = normal((r, c), dtype=dtype)
        yield case("sum rows", lambda x: torch.sum(x, [1]), x)
        yield case("sum columns", lambda x: torch.sum(x, [0], True), x)
        if c <= 3072:
            yield case("mean", lambda x: torch.mean(x, [-1], True), x)
            yield case("max", lambda x: torch.amax(x, [-1]), x)
    for count in _ELEMENTS[1:]:
        if count <= most:
            yield case("sum all", torch.sum, normal((count,), dtype=dtype))
            yield case("norm", torch.linalg.vector_norm, normal((count,), dtype=dtype))
    for n, c, s in ((32, 64, 112), (64, 256, 56), (64, 2048, 7), (16, 768, 14), (128, 10, 32)):
        if n * c * s * s <= most:
            x = normal((n, c, s, s), dtype=dtype)
            yield case("sum channels", lambda x: torch.sum(x, [0, 2, 3]), x)
            yield case("mean places", lambda x: torch.mean(x, [2, 3]), x)
            last = lambda d, shape=(n, c, s, s): (  # noqa: E731
                d.normal(*shape, dtype=dtype).to(memory_format=torch.channels_last),
            )
            yield case("sum channels", lambda x: torch.sum(x, [0, 2, 3]), last)
            yield case("mean places", lambda x: torch.mean(x, [2, 3]), last)


def _softmax(dtype: torch.dtype, most: int) -> Iterator[Case]:
    rows_of = ((64, 32000), (2048, 32000), (8192, 50257), (8192, 1000), (98304, 64), (98304, 128),
               (49152, 512), (16384, 1024), (16384, 2048), (4096, 4096), (65536, 49), (65536, 197),
               (1024, 10), (16384, 30522), (2048, 128256))  # fmt: skip
    for r, c in (*within(most, *rows_of), *drawn_rows("softmax", most, 70)):
        x, two = normal((r, c), dtype=dtype), normal((r, c), (r, c), dtype=dtype)
        yield case("softmax", lambda x: torch.softmax(x, -1), x)
        yield case("log_softmax", lambda x: torch.log_softmax(x, -1), x)
        yield case("softmax backward", _softmax_backward, two)
        yield case("log_softmax backward", _log_softmax_backward, two)
    for n, c, s in ((8, 21, 128), (16, 64, 64), (4, 150, 128)):
        yield case(
            "softmax channels", lambda x: torch.log_softmax(x, 1), normal((n, c, s, s), dtype=dtype)
        )


def _softmax_backward(grad: torch.Tensor, y: torch.Tensor) -> Any:
    return aten._softmax_backward_data(grad, y, -1, y.dtype)


def _log_softmax_backward(grad: torch.Tensor, y: torch.Tensor) -> Any:
    return aten._log_softmax_backward_data(grad, y, -1, y.dtype)


# ── lists ────────────────────────────────────────────────────────────────────────────────────────


def _lists(dtype: torch.dtype, most: int) -> Iterator[Case]:
    """Foreach ops and fused optimizers, over few large and many small tensors."""
    for tensors, each in ((12, 2**14), (12, 2**20), (12, 2**23), (100, 2**10), (160, 2**20),
                          (400, 2**12), (400, 2**18)):  # fmt: skip
        if tensors * each * 4 > most * 2:
            continue
        yield case(
            "foreach mul",
            lambda *t: torch._foreach_mul_(list(t), 0.9),
            normal(*[(each,)] * tensors, dtype=dtype),
        )
        three = normal(*[(each,)] * (3 * tensors), dtype=dtype)
        yield case("foreach addcmul", partial(_addcmul, tensors), three)
        yield case(
            "foreach sqrt",
            lambda *t: torch._foreach_sqrt(list(t)),
            normal(*[(each,)] * tensors, dtype=dtype),
        )
        yield case(
            "foreach norm",
            lambda *t: torch._foreach_norm(list(t)),
            normal(*[(each,)] * tensors, dtype=dtype),
        )
        yield case(
            "fused adamw",
            partial(_fused_adamw, tensors),
            normal(*[(each,)] * (4 * tensors), dtype=dtype),
        )


def _addcmul(count: int, *tensors: torch.Tensor) -> Any:
    a, b, c = (list(tensors[i * count : (i + 1) * count]) for i in range(3))
    return torch._foreach_addcmul_(a, b, c, 0.1)


_STEPS: Final[dict[torch.device, torch.Tensor]] = {}


def _fused_adamw(count: int, *tensors: torch.Tensor) -> Any:
    weights, grads, first, second = (list(tensors[i * count : (i + 1) * count]) for i in range(4))
    where = weights[0].device
    if where not in _STEPS:
        _STEPS[where] = torch.ones((), device=where)
    step = _STEPS[where]
    return torch._fused_adamw_(
        weights, grads, first, second, [], [step] * count, lr=1e-5, beta1=0.9, beta2=0.999,
        weight_decay=0.01, eps=1e-8, amsgrad=False, maximize=False,
    )  # fmt: skip
