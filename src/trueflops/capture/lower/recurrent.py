"""cuDNN's recurrent layers: the input of all steps in one product, the state step after step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from trueflops.capture.lower.kernels import flags, kernel, whole_numbers
from trueflops.capture.lower.products import product_dtype
from trueflops.graph.ir import Op, Tensor
from trueflops.graph.kinds import Kind, Role
from trueflops.graph.variants import EagerKernel
from trueflops.records.recording import Call, RecordedTensor


class Layer(NamedTuple):
    """One direction of one layer: its matrices, and how often they are used."""

    steps: int
    rows: float  # of a step: the batch, on average
    gates: int  # rows of the matrices: all gates of all hidden units
    wide_in: int
    state: int
    hidden: int
    projected: int


def layers(call: Call) -> list[Op]:
    """Forward: each step is a small product and a kernel over its gates."""
    ops: list[Op] = []
    for layer in _layers(call):
        every = layer.steps * layer.rows
        step = [_product(call, layer.rows, layer.gates, layer.state), _cell(call, layer)]
        if layer.projected:
            step.append(_product(call, layer.rows, layer.projected, layer.hidden))
        ops += [_product(call, every, layer.gates, layer.wide_in), *step * layer.steps]
    return ops


def layers_backward(call: Call) -> list[Op]:
    """Backward through the steps, then the gradients of input and matrices over all of them."""
    ops: list[Op] = []
    for layer in _layers(call):
        every = layer.steps * layer.rows
        step = [_cell(call, layer), _product(call, layer.rows, layer.state, layer.gates)]
        after = [
            _product(call, every, layer.wide_in, layer.gates),
            _product(call, layer.gates, layer.wide_in, every),
            _product(call, layer.gates, layer.state, every),
        ]
        if layer.projected:
            step.append(_product(call, layer.rows, layer.hidden, layer.projected))
            after.append(_product(call, layer.projected, layer.hidden, every))
        ops += [*step * layer.steps, *after]
    return ops


def _layers(call: Call) -> Iterator[Layer]:
    """Read the layers off the arguments: weights come after the input, `each` to a direction."""
    x = call.inputs[0]
    each, _, hidden, projected, count = whole_numbers(call)[:5]
    batch_first, _, bidirectional = flags(call)[:3]
    packed = [n for n in call.numbers if isinstance(n, (list, tuple))]
    sizes = [n for n in packed[0] if isinstance(n, int)] if len(x.shape) == 2 and packed else []
    if sizes:
        steps, rows = len(sizes), sum(sizes) / len(sizes)
    else:
        steps, rows = (x.shape[1], x.shape[0]) if batch_first else x.shape[:2]
    for i in range(count * (1 + bidirectional)):
        first, second = call.inputs[1 + i * each : 3 + i * each]
        yield Layer(steps, rows, first.shape[0], first.shape[1], second.shape[1], hidden, projected)


def _product(call: Call, m: float, n: float, k: float) -> Op:
    x = call.inputs[0]
    rows, columns, inner = ("rows", float(m)), ("columns", float(n)), ("inner", float(k))
    a = Tensor("state", (rows, inner), x.bits)
    w = Tensor("matrix", (columns, inner), x.bits, role=Role.WEIGHT)
    y = Tensor("gates", (rows, columns), x.bits)
    dtype = product_dtype(call, x)
    return Op("recurrent", Kind.MATMUL, (a,), (y,), weights=(w,), dtype=dtype, part=call.module)


def _cell(call: Call, layer: Layer) -> Op:
    """All gates in, a state of each hidden unit out."""
    gates = RecordedTensor(0, (round(layer.rows * layer.gates),), (1,), call.inputs[0].dtype)
    state = gates._replace(shape=(round(layer.rows * layer.hidden),))
    return kernel(
        call._replace(inputs=(gates, state), outputs=(state, state)),
        Kind.POINTWISE,
        EagerKernel.VECTOR,
    )
