"""Convolutions of picture models, forward and both gradients.

A row is the product that a convolution is: rows are places, columns channels out, the summed
dimension channels in times the window. A library runs it less well than a plain product, most of
all on a CPU, so that convolutions have curves of their own.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import torch
from torch.nn import functional

from trueflops.measure.attention import usual_dtype
from trueflops.measure.device import Device
from trueflops.measure.job import Job
from trueflops.measure.timing import time_launch
from trueflops.records.measured import Row


class Window(NamedTuple):
    """A square convolution over square pictures."""

    batch: int
    inputs: int  # channels
    outputs: int
    side: int
    width: int
    stride: int = 1

    @property
    def places(self) -> int:
        """At which the window stands."""
        return self.batch * (self.side // self.stride) ** 2


_PLACES: Final = ((56, 64), (28, 128), (14, 256), (7, 512))  # side and channels, as in a ResNet


def windows(*, on_cpu: bool) -> list[Window]:
    """The layers of bottleneck networks, narrower on a CPU, in random order."""
    batches, narrow = ((2, 8), 4) if on_cpu else ((32, 128), 1)
    found = []
    for batch in batches:
        for side, channels in _PLACES:
            c = channels // narrow
            found += [
                Window(batch, c, c, side, 3),
                Window(batch, c, 4 * c, side, 1),
                Window(batch, 4 * c, c, side, 1),
                Window(batch, c, c, 2 * side, 3, 2),
            ]
        found.append(Window(batch, 3, 64 // narrow, 224 // narrow, 7, 2))
    random.Random("windows").shuffle(found)
    return found


def convolution_jobs(device: Device) -> Iterator[Job]:
    """Each window both ways."""
    for window in windows(on_cpu=device.is_cpu):
        for way in ("forward", "backward"):
            yield _job(device, window, way)


def _job(device: Device, w: Window, way: str) -> Job:
    dtype = usual_dtype(device)
    inner = w.inputs * w.width**2
    # The gradients are two products as large as the forward's; a row is one of them.
    cells: Row = {
        "dtype": "fp32" if dtype == torch.float32 else "bf16", "m": w.places, "n": w.outputs,
        "k": inner, "input_bytes": w.batch * w.inputs * w.side**2 * dtype.itemsize, "copies": 1,
        "cast": 0, "window": f"convolution{'_backward' if way == 'backward' else ''}",
    }  # fmt: skip

    def measure() -> dict[str, float]:
        layout: Any = torch.contiguous_format if device.is_cpu else torch.channels_last
        x = device.normal(w.batch, w.inputs, w.side, w.side, dtype=dtype)
        weight = device.normal(w.outputs, w.inputs, w.width, w.width, dtype=dtype)
        x, weight = (t.contiguous(memory_format=layout) for t in (x, weight))

        def forward() -> torch.Tensor:
            return functional.conv2d(x, weight, stride=w.stride, padding=w.width // 2)

        if way == "forward":
            return time_launch(device, lambda _: forward()).cells()
        x.requires_grad_()
        weight.requires_grad_()
        out = forward()
        grad = device.normal(*out.shape, dtype=dtype).contiguous(memory_format=layout)
        both = time_launch(
            device, lambda _: torch.autograd.grad(out, (x, weight), grad, retain_graph=True)
        ).cells()
        return {name: value / 2 if name.endswith("_us") else value for name, value in both.items()}

    return Job("convolution", cells, measure)
