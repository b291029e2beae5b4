"""Convolutions, as the implicit products that a library runs.

    rows = batch · places,  columns = channels out / groups,  inner = channels in / groups · window
A transposed convolution is the input gradient of one that goes the other way, and the reverse.
Where each channel has a filter of its own there is nothing for a matrix engine to do.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Final

from trueflops.capture.lower.kernels import channels_last, flags, kernel, whole_numbers
from trueflops.capture.lower.products import product_dtype, sized
from trueflops.graph.alignment import alignment
from trueflops.graph.ir import Op
from trueflops.graph.kinds import Kind, Role
from trueflops.graph.variants import EagerKernel, ProductKernel
from trueflops.records.recording import Call, RecordedTensor
from trueflops.sizes import Size
from trueflops.units import BITS_PER_BYTE

_WAYS: Final = {
    Kind.MATMUL: ProductKernel.CONVOLUTION,
    Kind.DGRAD: ProductKernel.CONVOLUTION_INPUT,
    Kind.WGRAD: ProductKernel.CONVOLUTION_WEIGHT,
}
_ALONE: Final = {
    Kind.MATMUL: EagerKernel.DEPTHWISE,
    Kind.DGRAD: EagerKernel.DEPTHWISE_INPUT,
    Kind.WGRAD: EagerKernel.DEPTHWISE_WEIGHT,
}
_ALONE_LAST: Final = {
    Kind.MATMUL: EagerKernel.DEPTHWISE_LAST,
    Kind.DGRAD: EagerKernel.DEPTHWISE_LAST_INPUT,
    Kind.WGRAD: EagerKernel.DEPTHWISE_LAST_WEIGHT,
}


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
            ops.append(_bias_gradient(call, grad, made))
    return ops


def _bias_gradient(call: Call, grad: RecordedTensor, made: RecordedTensor) -> Op:
    """The sum of each channel over all places, which lie together or apart."""
    sums = call._replace(inputs=(grad,), outputs=(made,))
    channels, together = float(made.elements), float(prod(grad.shape[2:]))
    if channels_last(grad):
        variant, run = EagerKernel.REDUCE_COLUMNS, grad.elements / channels
    else:
        variant, run = EagerKernel.REDUCE_PLACES, together
    return kernel(sums, Kind.REDUCTION, variant, run=run, pieces=channels)


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
    ins = alignment(weight.shape[1], weight.bits / BITS_PER_BYTE)
    outs = alignment(weight.shape[0] / groups, weight.bits / BITS_PER_BYTE)
    facts: dict[str, Size] = {
        "loads": float(ins), "stores": float(outs), "window": float(prod(weight.shape[2:])),
        "turned": float(_lies_apart(x) or _lies_apart(y)), "copies": 1.0,
    }  # fmt: skip
    alike = partial(Op, name, dtype=dtype, part=call.module, variant=_WAYS[kind], facts=facts)
    forward = alike(Kind.MATMUL, (a,), (b,), weights=(w,))
    if kind is Kind.DGRAD:
        return [alike(kind, (b,), (a,), weights=(w,), of=forward)]
    if kind is Kind.WGRAD:
        return [alike(kind, (a, b), (w,), of=forward)]
    return [forward]


def _lies_apart(array: RecordedTensor) -> bool:
    """Matrix engines want channels last: a library brings together what lies otherwise."""
    places = prod(array.shape[2:])
    return not channels_last(array) and array.shape[1] > 1 and places > 1


def _channelwise(
    call: Call, x: RecordedTensor, weight: RecordedTensor, y: RecordedTensor, kind: Kind
) -> Op:
    """Depthwise: each result looks at a window of one channel.

    The gradient of a filter is a sum over all places, a block to each of its elements.
    """
    way = Kind.DGRAD if "backward" in call.op else Kind.MATMUL
    way = Kind.WGRAD if kind is Kind.WGRAD else way
    read, made = {
        Kind.MATMUL: ((x, weight), y),
        Kind.DGRAD: ((y, weight), x),
        Kind.WGRAD: ((x, y), weight),
    }[way]
    narrow = x if _transposed(call) else y
    window = prod(weight.shape[2:])
    done = call._replace(inputs=read, outputs=(made,))
    flop = 2.0 * narrow.elements * window / made.elements
    last = channels_last(x)
    run = float(x.shape[1]) if last else 1.0
    pieces = float(weight.elements) if way is Kind.WGRAD else 0.0
    variant = (_ALONE_LAST if last else _ALONE)[way]
    if variant is EagerKernel.DEPTHWISE_LAST_WEIGHT and x.dtype == "float32":
        variant = EagerKernel.DEPTHWISE_LAST_WEIGHT_SINGLE
    return kernel(
        done, Kind.MOVEMENT, variant, narrow.elements * window, flop_per_element=flop,
        run=run, pieces=pieces,
    )  # fmt: skip
