"""Convolutions, as the implicit products that a library runs.

    rows = batch · places,  columns = channels out / groups,  inner = channels in / groups · window
A transposed convolution is the input gradient of one that goes the other way, and the reverse.
Where each channel has a filter of its own there is nothing for a matrix engine to do.
"""

from __future__ import annotations

from math import prod
from typing import Final

from trueflops.capture.lower.kernels import flags, kernel, whole_numbers
from trueflops.capture.lower.products import product_dtype, sized
from trueflops.graph.ir import Op
from trueflops.graph.kinds import Kind, Role
from trueflops.graph.variants import EagerKernel, ProductKernel
from trueflops.records.recording import Call, RecordedTensor

_HALVES: Final = ("float16", "bfloat16")


def convolution(call: Call) -> list[Op]:
    """The product, and torch's own kernel that adds the bias to it."""
    x, weight = call.inputs[:2]
    y = call.outputs[0]
    kind = Kind.DGRAD if _transposed(call) else Kind.MATMUL
    ops = _windows(call, x, weight, y, kind, "convolution")
    if len(call.inputs) > 2:
        add = call._replace(inputs=(y, call.inputs[2]), outputs=(y,))
        ops.append(kernel(add, Kind.POINTWISE, EagerKernel.STRIDED, y.elements))
    return ops


def convolution_backward(call: Call) -> list[Op]:
    """The gradients that were asked for, each a product as large as the forward."""
    grad, x, weight = call.inputs[:3]
    ops: list[Op] = []
    for wanted, made in zip(_wanted(call, x, weight), call.outputs, strict=True):
        if wanted == "input":
            kind = Kind.MATMUL if _transposed(call) else Kind.DGRAD
            ops += _windows(call, x, weight, grad, kind, "convolution.input")
        elif wanted == "weight":
            ops += _windows(call, x, weight, grad, Kind.WGRAD, "convolution.weight")
        else:
            channels_last = grad.strides[1] == 1
            sums = call._replace(inputs=(grad,), outputs=(made,))
            variant = EagerKernel.REDUCE_COLUMNS if channels_last else EagerKernel.REDUCE_ROWS
            ops.append(kernel(sums, Kind.REDUCTION, variant))
    return ops


def _wanted(call: Call, x: RecordedTensor, weight: RecordedTensor) -> list[str]:
    """Which gradients its results are: the last list of its arguments says so."""
    names = ("input", "weight", "bias")
    masks = [n for n in call.numbers if isinstance(n, (list, tuple)) and list(n) and
             all(isinstance(each, bool) for each in n)]  # fmt: skip
    if masks:
        return [name for name, asked in zip(names, masks[-1], strict=False) if asked]
    shapes = {weight.shape: "weight", x.shape: "input"}
    return [shapes.get(made.shape, "bias") for made in call.outputs]


def _transposed(call: Call) -> bool:
    return any(flags(call)[:1])


def _groups(call: Call, x: RecordedTensor, weight: RecordedTensor) -> int:
    given = whole_numbers(call)
    return given[-1] if given else max(1, round(x.shape[1] / weight.shape[1]))


def _windows(
    call: Call, x: RecordedTensor, weight: RecordedTensor, y: RecordedTensor, kind: Kind, name: str
) -> list[Op]:
    """One of the three products between an input, the windows' weights and an output."""
    groups = _groups(call, x, weight)
    if weight.shape[1] == 1 and groups > 1:
        return [_channelwise(call, x, weight, y, kind)]
    wide, narrow = (y, x) if _transposed(call) else (x, y)  # what has windows, what has one place
    many = (("batch", float(groups)),) if groups > 1 else ()
    rows = ("rows", float(narrow.shape[0] * prod(narrow.shape[2:])))
    columns, inner = ("columns", weight.shape[0] / groups), ("inner", float(prod(weight.shape[1:])))
    a = sized(wide, (*many, rows, inner))
    w = sized(weight, (*many, columns, inner), Role.WEIGHT)
    b = sized(narrow, (*many, rows, columns))
    dtype = product_dtype(call, weight)
    forwards = kind is Kind.MATMUL
    variant = ProductKernel.CONVOLUTION if forwards else ProductKernel.CONVOLUTION_BACKWARD
    forward = Op(
        name, Kind.MATMUL, (a,), (b,), weights=(w,), dtype=dtype, part=call.module, variant=variant
    )
    if kind is Kind.MATMUL:
        made = forward
    elif kind is Kind.DGRAD:
        made = Op(
            name,
            kind,
            (b,),
            (a,),
            weights=(w,),
            dtype=dtype,
            part=call.module,
            of=forward,
            variant=variant,
        )
    else:
        made = Op(
            name, kind, (a, b), (w,), dtype=dtype, part=call.module, of=forward, variant=variant
        )
    return [made, *_turned(call, x, y)]


def _turned(call: Call, *arrays: RecordedTensor) -> list[Op]:
    """Matrix engines want channels last: cuDNN turns what lies otherwise, there or back."""
    turned = [
        a for a in arrays
        if a.dtype in _HALVES and len(a.shape) > 2 and a.strides[1] != 1 and a.shape[1] > 1
        and prod(a.shape[2:]) > 1
    ]  # fmt: skip
    copies = [(call._replace(inputs=(a,), outputs=(a,)), a.elements) for a in turned]
    return [kernel(copy, Kind.POINTWISE, EagerKernel.STRIDED, n) for copy, n in copies]


def _channelwise(
    call: Call, x: RecordedTensor, weight: RecordedTensor, y: RecordedTensor, kind: Kind
) -> Op:
    """Depthwise: each result looks at a window of one channel, a row of it at a time."""
    way = Kind.DGRAD if "backward" in call.op else Kind.MATMUL
    way = Kind.WGRAD if kind is Kind.WGRAD else way
    read, made = {
        Kind.MATMUL: ((x, weight), y),
        Kind.DGRAD: ((y, weight), x),
        Kind.WGRAD: ((x, y), weight),
    }[way]
    narrow = x if _transposed(call) else y
    window = prod(weight.shape[2:])
    indexed = narrow.elements * prod(weight.shape[2:-1])
    done = call._replace(inputs=read, outputs=(made,))
    flop = 2.0 * narrow.elements * window / made.elements
    return kernel(done, Kind.MOVEMENT, EagerKernel.STRIDED, indexed, flop_per_element=flop)
