"""Which kernels of layers are timed: norms, pooling, resampling, convolutions, recurrent layers.

Each with its gradients, pictures in both layouts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

import torch
from torch.nn import functional

from trueflops.measure.calls import Case, backward
from trueflops.measure.device import Device
from trueflops.measure.eager import BF16, FP32, Operands, aten, case, drawn_rows

PLAIN: Final = torch.contiguous_format
LAST: Final = torch.channels_last
_PICTURES: Final = (
    (32, 64, 112), (32, 64, 56), (64, 256, 56), (64, 128, 28), (64, 512, 28), (64, 256, 14),
    (128, 1024, 14), (64, 2048, 7), (32, 16, 112), (16, 24, 128), (8, 3, 224), (128, 576, 7),
    (2, 320, 64), (4, 1280, 16), (64, 96, 56), (256, 32, 32),
)  # fmt: skip
_FEW: Final = ((2, 8, 28), (2, 32, 14))  # of a CPU


def layer_cases(*, on_cpu: bool) -> Iterator[Case]:
    """Everything but convolutions, which have a table of their own."""
    pictures = _FEW if on_cpu else _PICTURES
    for dtype in (FP32,) if on_cpu else (BF16, FP32):
        yield from _rows(dtype, on_cpu=on_cpu)
        for shape in pictures:
            for layout in (PLAIN, LAST):
                yield from _on_pictures(shape, layout, dtype)
    if not on_cpu:
        yield from _recurrent()


def asking(
    *shapes: tuple[int, ...], dtype: torch.dtype, layout: torch.memory_format = PLAIN
) -> Operands:
    """Tensors whose gradients will be asked for; those of four dimensions lie as `layout` says."""

    def operands(device: Device) -> tuple[Any, ...]:
        made = (device.normal(*shape, dtype=dtype) for shape in shapes)
        laid = (t.contiguous(memory_format=layout) if t.dim() == 4 else t for t in made)
        return tuple(t.requires_grad_() for t in laid)

    return operands


def _both(family: str, launch: Callable[..., Any], operands: Operands) -> Iterator[Case]:
    forward = case(family, launch, operands)
    yield forward
    yield backward(forward)


def _rows(dtype: torch.dtype, *, on_cpu: bool) -> Iterator[Case]:
    """Norms of rows, by their length."""
    most = 2**21 if on_cpu else 2**27
    for columns in (64, 96, 128, 256, 384, 512, 768, 1024, 1600, 2048, 4096, 8192):
        for rows in (16, 512, 4096, 32768, 200704):
            if rows * columns > most:
                continue
            of = asking((rows, columns), (columns,), (columns,), dtype=dtype)
            yield from _both("layer norm", partial(_layer_norm, columns), of)
            if rows in (512, 32768):
                two = asking((rows, columns), (columns,), dtype=dtype)
                yield from _both("rms norm", partial(_rms_norm, columns), two)

    for rows, columns in drawn_rows("norms", most, 60):
        of = asking((rows, columns), (columns,), (columns,), dtype=dtype)
        yield from _both("layer norm", partial(_layer_norm, columns), of)
        two = asking((rows, columns), (columns,), dtype=dtype)
        yield from _both("rms norm", partial(_rms_norm, columns), two)


def _layer_norm(columns: int, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
    return functional.layer_norm(x, (columns,), w, b)


def _rms_norm(columns: int, x: torch.Tensor, w: torch.Tensor) -> Any:
    return torch._fused_rms_norm(x, [columns], w, 1e-6)


def _on_pictures(
    shape: tuple[int, int, int], layout: torch.memory_format, dtype: torch.dtype
) -> Iterator[Case]:
    n, c, side = shape
    x = (n, c, side, side)
    of = asking(x, (c,), (c,), dtype=dtype, layout=layout)
    yield from _both("batch norm", _batch_norm, of)
    if dtype == BF16:
        mixed = _with_wide_weights(x, c, layout)
        yield from _both("batch norm mixed", _batch_norm, mixed)
    yield case("batch norm evaluated", _evaluated_batch_norm, _still(x, c, dtype, layout))
    groups = next(g for g in (32, 16, 8, 4, 3, 1) if c % g == 0)
    yield from _both("group norm", lambda x, w, b: functional.group_norm(x, groups, w, b), of)
    one = asking(x, dtype=dtype, layout=layout)
    if side % 2 == 0:
        yield from _both("max pool", lambda x: functional.max_pool2d(x, 3, 2, 1), one)
        yield from _both("average pool", lambda x: functional.avg_pool2d(x, 2), one)
    yield from _both("whole average", lambda x: functional.adaptive_avg_pool2d(x, 2), one)
    if n * c * side * side <= 2**24:
        nearest = lambda x: functional.interpolate(x, scale_factor=2.0)  # noqa: E731
        yield from _both("nearest", nearest, one)
        smooth = lambda x: functional.interpolate(x, scale_factor=2.0, mode="bilinear")  # noqa: E731
        yield from _both("bilinear", smooth, one)


def _batch_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
    return functional.batch_norm(x, None, None, w, b, training=True)


def _evaluated_batch_norm(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, mean: torch.Tensor, spread: torch.Tensor
) -> Any:
    return functional.batch_norm(x, mean, spread, w, b)


def _still(
    shape: tuple[int, ...], channels: int, dtype: torch.dtype, layout: torch.memory_format
) -> Operands:
    def operands(device: Device) -> tuple[Any, ...]:
        x = device.normal(*shape, dtype=dtype).contiguous(memory_format=layout)
        w, b, mean, spread = (device.normal(channels, dtype=dtype).abs() for _ in range(4))
        return x, w, b, mean, spread

    return operands


def _with_wide_weights(
    shape: tuple[int, ...], channels: int, layout: torch.memory_format
) -> Operands:
    """As autocast runs a batch norm: a narrow input, weights in fp32."""

    def operands(device: Device) -> tuple[Any, ...]:
        x = device.normal(*shape).contiguous(memory_format=layout)
        made = (x, *(device.normal(channels, dtype=FP32) for _ in "wb"))
        return tuple(t.requires_grad_() for t in made)

    return operands


# ── convolutions ─────────────────────────────────────────────────────────────────────────────────


class Window(NamedTuple):
    """A square convolution over square pictures."""

    batch: int
    inputs: int  # channels
    outputs: int
    side: int
    width: int
    stride: int = 1
    groups: int = 1
    transposed: bool = False
    dilation: int = 1
    dims: int = 2  # of a picture; 1: a sound or a text


def windows(*, on_cpu: bool) -> list[Window]:
    """Layers of known networks, narrower on a CPU."""
    if on_cpu:
        found = [Window(b, c, c, s, 3) for b in (2, 8) for s, c in ((14, 16), (28, 8), (7, 32))]
        return [*found, *(w._replace(width=1, outputs=2 * w.outputs) for w in found),
                Window(2, 3, 16, 56, 7, 2), Window(2, 16, 16, 14, 3, 1, 16)]  # fmt: skip
    found = []
    for batch in (1, 8, 32, 128):
        for side, c in ((56, 64), (28, 128), (14, 256), (7, 512)):  # bottleneck networks
            found += [
                Window(batch, c, c, side, 3),
                Window(batch, c, 4 * c, side, 1),
                Window(batch, 4 * c, c, side, 1),
                Window(batch, c, c, 2 * side, 3, 2),
                Window(batch, 2 * c, 4 * c, 2 * side, 1, 2),
            ]
        found += [Window(batch, 3, 64, 224, 7, 2), Window(batch, 3, 32, 224, 3, 2)]
        found += [Window(batch, 3, 768, 224, 16, 16), Window(batch, 3, 96, 224, 4, 4)]
    for c, side in ((320, 64), (640, 32), (1280, 16), (1280, 8)):  # a diffusion UNet
        found += [Window(2, c, c, side, 3), Window(8, c, c, side, 3), Window(4, 2 * c, c, side, 3),
                  Window(4, c, c, side, 1)]  # fmt: skip
    found += [Window(4, 4, 320, 64, 3), Window(4, 320, 4, 64, 3), Window(16, 64, 21, 128, 1)]
    for c, side in ((16, 112), (24, 56), (40, 28), (112, 14), (184, 14)):  # odd, narrow channels
        found += [
            Window(64, c, 6 * c, side, 1),
            Window(64, 6 * c, c, side, 1),
            Window(64, c, 20, side, 3),
        ]
    for c, side, width, stride in (  # one filter a channel
        (32, 112, 3, 1), (96, 112, 3, 2), (144, 56, 3, 1), (144, 56, 5, 2), (240, 28, 5, 1),
        (480, 14, 3, 1), (672, 14, 5, 1), (1152, 7, 5, 1), (960, 7, 3, 1), (96, 56, 7, 1),
        (192, 28, 7, 1), (384, 14, 7, 1), (768, 7, 7, 1),
    ):  # fmt: skip
        found += [Window(b, c, c, side, width, stride, c) for b in (8, 64)]
    found += [Window(32, c, c, s, 3, 1, 32) for c, s in ((128, 56), (256, 28), (512, 14))]  # groups
    for c, side in ((512, 4), (256, 8), (128, 16), (64, 32)):  # transposed
        found += [Window(b, c, c // 2, side, 4, 2, 1, True) for b in (16, 128)]
    found += [Window(64, 100, 512, 4, 4, 1, 1, True), Window(16, 512, 256, 32, 2, 2, 1, True)]
    return [*found, *_drawn_windows(160), *_rarer_windows(420), *_over_time(120)]


def _drawn_windows(count: int) -> list[Window]:
    """Others between those of known networks; one in four has a filter for each channel."""
    draw = random.Random("windows")
    found: list[Window] = []
    channels = (16, 24, 32, 40, 48, 64, 80, 96, 112, 128, 160, 192, 240, 256, 320, 384, 480, 512,
                640, 768, 960, 1024, 1280, 2048)  # fmt: skip
    while len(found) < count:
        ins, outs = draw.choice(channels), draw.choice(channels)
        side = draw.choice((4, 7, 8, 12, 14, 16, 24, 28, 32, 48, 56, 64, 96, 112, 128))
        width, stride = draw.choice((1, 1, 3, 3, 3, 3, 5, 7)), draw.choice((1, 1, 1, 2))
        batch = draw.choice((1, 2, 4, 8, 16, 32, 64, 128, 256))
        alone = draw.random() < 0.25
        groups, outs = (ins, ins) if alone else (1, outs)
        flop = 2 * batch * (side // stride) ** 2 * (1 if alone else ins) * outs * width**2
        if flop <= 2**41 and batch * max(ins, outs) * side**2 <= 2**27 and (width > 1 or not alone):
            found.append(Window(batch, ins, outs, side, width, stride, groups))
    return found


def _rarer_windows(count: int) -> list[Window]:
    """Large pictures, first and last layers, groups, transposed and dilated windows."""
    draw = random.Random("rarer windows")
    found: list[Window] = []
    channels = (16, 24, 32, 48, 64, 64, 96, 128, 128, 192, 256, 256, 384, 512, 512, 768, 1024)
    while len(found) < count:
        ins, outs = draw.choice(channels), draw.choice(channels)
        side = draw.choice((2, 4, 7, 8, 14, 16, 28, 32, 56, 64, 96, 112, 128, 192, 256, 384, 512))
        batch = draw.choice((1, 2, 4, 8, 8, 16, 32, 64, 64, 128, 256))
        w = Window(batch, ins, outs, side, draw.choice((1, 3, 3, 3)), draw.choice((1, 1, 1, 2)))
        what = draw.choice(("plain", "plain", "first", "last", "groups", "transposed", "dilated"))
        if what == "first":
            w = w._replace(inputs=draw.choice((1, 3, 3, 3, 4, 6)), width=draw.choice((3, 4, 5, 7)))
        elif what == "last":
            w = w._replace(outputs=draw.choice((1, 2, 3, 4, 10, 21, 150)))
        elif what == "groups":
            w = w._replace(outputs=ins, groups=draw.choice((2, 4, 8, 16)), width=3)
        elif what == "transposed":
            width, stride = draw.choice(((2, 2), (4, 2), (4, 2), (3, 2), (4, 1)))
            w = w._replace(width=width, stride=stride, transposed=True)
        elif what == "dilated":
            w = w._replace(width=3, stride=1, dilation=draw.choice((2, 4, 6, 12)))
        if _is_sound(w):
            found.append(w)
    return found


def _over_time(count: int) -> list[Window]:
    """Convolutions of one dimension: audio, text."""
    named = [
        (16, 80, 512, 3000, 3, 1, 1), (16, 512, 512, 3000, 3, 2, 1), (8, 512, 512, 32000, 3, 2, 1),
        (8, 1, 512, 160000, 10, 5, 1), (16, 768, 768, 499, 128, 1, 16),
        (16, 64, 128, 16000, 2, 1, 1),
        (16, 256, 256, 1000, 31, 1, 256), (8, 4096, 4096, 2048, 4, 1, 4096),
    ]  # fmt: skip
    found = [Window(*each, dims=1) for each in named]
    draw = random.Random("over time")
    channels = (16, 32, 64, 80, 128, 192, 256, 384, 512, 512, 768, 768, 1024, 1536, 2048)
    while len(found) < count:
        ins, outs = draw.choice(channels), draw.choice(channels)
        length = round(2 ** draw.uniform(5.0, 17.0))
        batch = draw.choice((1, 2, 4, 8, 16, 32, 64))
        width, stride = draw.choice((1, 2, 3, 3, 5, 7, 9, 15, 31)), draw.choice((1, 1, 1, 2))
        w = Window(batch, ins, outs, length, width, stride, dims=1)
        what = draw.choice(("plain", "plain", "first", "alone", "groups", "dilated"))
        if what == "first":
            w = w._replace(inputs=1, stride=draw.choice((1, 2, 5)))
        elif what == "alone":
            w = w._replace(outputs=ins, groups=ins, stride=1, width=draw.choice((3, 4, 7, 15, 31)))
        elif what == "groups":
            wide = draw.choice((3, 15, 64, 128))
            w = w._replace(outputs=ins, groups=draw.choice((2, 4, 8, 16)), width=wide, stride=1)
        elif what == "dilated":
            w = w._replace(width=draw.choice((2, 3)), stride=1, dilation=2 ** draw.randint(1, 9))
        if _is_sound(w) and w.width * w.dilation < length:
            found.append(w)
    return found


def _is_sound(w: Window) -> bool:
    """Not so large that one of its kernels takes longer than a tenth of a second."""
    places = w.batch * w.side**w.dims
    flop = 2 * places / w.stride**w.dims * w.inputs / w.groups * w.outputs * w.width**w.dims
    if w.transposed:
        flop *= w.stride ** (2 * w.dims)
    return flop <= 2**41 and places * max(w.inputs, w.outputs) <= 2**27


def convolution_cases(*, on_cpu: bool) -> Iterator[Case]:
    """Each window forward, and both of its gradients, in both layouts."""
    for w in windows(on_cpu=on_cpu):
        # Programs in fp32 run with rather few pictures at once.
        for dtype in (FP32,) if on_cpu else (BF16, FP32) if w.batch in (8, 64) else (BF16,):
            yield from window_cases(w, dtype)


def window_cases(w: Window, dtype: torch.dtype) -> Iterator[Case]:
    """A window forward, and both of its gradients."""
    for layout in (LAST, PLAIN) if w.dims == 2 else (PLAIN,):
        of = _window_operands(w, dtype, layout)
        yield case("convolution", partial(_convolve, w), of)
        yield _gradient(w, 0, of)
        yield _gradient(w, 1, of)


def _window_operands(w: Window, dtype: torch.dtype, layout: torch.memory_format) -> Operands:
    def operands(device: Device) -> tuple[Any, ...]:
        x = device.normal(w.batch, w.inputs, *[w.side] * w.dims, dtype=dtype)
        sides = (
            (w.inputs, w.outputs // w.groups) if w.transposed else (w.outputs, w.inputs // w.groups)
        )
        weight = device.normal(*sides, *[w.width] * w.dims, dtype=dtype)
        return tuple(t.contiguous(memory_format=layout) for t in (x, weight))

    return operands


def _arguments(w: Window) -> tuple[Any, ...]:
    """Stride, padding, dilation, transposed, padding of the output, groups."""
    same = w.dilation * (w.width - 1) // 2 if w.width != w.stride else 0
    each = [[n] * w.dims for n in (w.stride, same, w.dilation, 0)]
    return (*each[:3], w.transposed, each[3], w.groups)


def _convolve(w: Window, x: torch.Tensor, weight: torch.Tensor) -> Any:
    return aten.convolution(x, weight, None, *_arguments(w))


def _gradient(w: Window, which: int, of: Operands) -> Case:
    """One gradient: by the input or by the weights."""
    wanted = [which == 0, which == 1, False]

    def make(device: Device) -> Callable[[], Any]:
        x, weight = of(device)
        out = _convolve(w, x, weight)
        grad = torch.empty_like(out).copy_(device.normal(*out.shape, dtype=out.dtype))
        arguments = (*_arguments(w), wanted)
        return lambda: aten.convolution_backward(grad, x, weight, None, *arguments)

    return Case(f"convolution {'input' if which == 0 else 'weight'}", make)


# ── recurrent layers ─────────────────────────────────────────────────────────────────────────────


def _recurrent() -> Iterator[Case]:
    """Layers as wide as their input, so that one is like the next."""
    shapes = [
        (35, 20, 650, 2), (128, 32, 512, 1), (256, 64, 1024, 2), (64, 128, 256, 2),
        (512, 16, 512, 3), (100, 64, 1500, 2),
        *((steps, batch, hidden, 1) for steps in (24, 96) for batch in (4, 16, 32, 64, 128, 256)
          for hidden in (64, 128, 256, 384, 512, 768, 1024, 2048)),
    ]  # fmt: skip
    for kind in (torch.nn.LSTM, torch.nn.GRU):
        for shape in shapes:
            for dtype in (BF16, FP32):
                yield from _both("recurrent", *_layer_over_time(kind, shape, dtype))


def _layer_over_time(
    kind: Any, shape: tuple[int, int, int, int], dtype: torch.dtype
) -> tuple[Callable[..., Any], Operands]:
    steps, batch, hidden, layers = shape

    def operands(device: Device) -> tuple[Any, ...]:
        layer = kind(hidden, hidden, layers, device=device.at, dtype=dtype)
        x = device.normal(steps, batch, hidden, dtype=dtype).requires_grad_()
        state = device.normal(layers, batch, hidden, dtype=dtype)
        return layer, x, (state, state) if kind is torch.nn.LSTM else state

    return lambda layer, x, state: layer(x, state)[0], operands
