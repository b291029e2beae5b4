"""Kernels over the elements of a result, and reductions: how operands lie decides how fast."""

from __future__ import annotations

from math import prod
from typing import Final

from trueflops.capture.lower.kernels import base_name, by_rows, kernel, laid_out, whole_numbers
from trueflops.graph.alignment import alignment
from trueflops.graph.ir import Op
from trueflops.graph.kinds import Kind
from trueflops.graph.variants import EagerKernel
from trueflops.records.recording import Call, RecordedTensor
from trueflops.units import BITS_PER_BYTE

_TAKES_MASKS: Final = {
    "where", "masked_fill", "native_dropout", "native_dropout_backward", "bitwise_and",
    "bitwise_or", "bitwise_not", "index_put", "_index_put_impl",
}  # fmt: skip
MAKES_MASKS: Final = {
    "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "isin", "logical_and",
    "logical_or", "logical_not", "logical_xor",
}  # fmt: skip
"""Ops whose result is bool, whatever they read."""
_COMPUTES: Final = {
    "silu", "sigmoid", "sigmoid_backward", "tanh", "tanh_backward", "exp", "expm1", "log", "log2",
    "sin", "cos", "elu", "elu_backward", "logit",
}  # fmt: skip
"""Ops with an exponential or the like for each element."""
_COMPUTES_MORE: Final = {
    **dict.fromkeys(("silu_backward", "gelu", "gelu_backward", "erf"), EagerKernel.GELU),
    **dict.fromkeys(
        ("log1p", "tan", "softplus", "softplus_backward", "mish", "mish_backward", "atan2",
         "erfinv", "lgamma", "digamma"), EagerKernel.HARD_MATH
    ),
}  # fmt: skip
"""Ops with a longer series, or several of them."""
_MASKED: Final = {"masked_fill", "where"}


def pointwise(call: Call) -> list[Op]:
    """One kernel over the elements of its result, or of its largest operand."""
    operands = [a for a in (*call.inputs, *call.outputs) if a.elements > 1]
    if not operands:
        return [kernel(call, Kind.POINTWISE, EagerKernel.VECTOR)]
    largest = max(operands, key=lambda a: a.elements)
    if not alike(operands, largest):
        return [kernel(call, Kind.POINTWISE, EagerKernel.STRIDED, largest.elements)]
    name = base_name(call.op)
    if name in _MASKED:
        return [kernel(call, Kind.POINTWISE, EagerKernel.MASKED, largest.elements)]
    types = {a.bits for a in operands if not (a.dtype == "bool" and _has_masks(call))}
    if len(types) > 1:  # of mixed types, each element is converted as it is loaded
        widens = call.outputs and call.outputs[0].bits > min(types)
        if widens or len(operands) > 2:
            return [kernel(call, Kind.POINTWISE, EagerKernel.WIDEN, largest.elements)]
    if name in _COMPUTES:
        return [kernel(call, Kind.POINTWISE, EagerKernel.MATH, largest.elements)]
    if name in _COMPUTES_MORE:
        return [kernel(call, Kind.POINTWISE, _COMPUTES_MORE[name], largest.elements)]
    return [kernel(call, Kind.POINTWISE, EagerKernel.VECTOR)]


def _has_masks(call: Call) -> bool:
    """Kernels that are made for a bool among other types convert nothing."""
    return base_name(call.op) in _TAKES_MASKS | MAKES_MASKS


def alike(operands: list[RecordedTensor], largest: RecordedTensor) -> bool:
    """Whether all operands lie in memory in one and the same order."""
    return all(
        a.shape == largest.shape and _order(a) == _order(largest) and a.dense for a in operands
    )


def _order(array: RecordedTensor) -> tuple[int, ...]:
    return tuple(s for n, s in zip(array.shape, array.strides, strict=True) if n > 1)


def copy(call: Call) -> list[Op]:
    """copy_ into a view reads its source alone."""
    if base_name(call.op) == "copy" and len(call.inputs) > 1:
        call = call._replace(inputs=call.inputs[1:2], outputs=call.inputs[:1])
    if not call.inputs or call.inputs[0].device != call.outputs[0].device:
        return [kernel(call, Kind.HOST_COPY)]
    source, made = call.inputs[0], call.outputs[0]
    if source.dtype == made.dtype and alike([source, made], made):
        return [kernel(call, Kind.POINTWISE, EagerKernel.COPY)]
    whole = source.dense and made.dense and source.shape == made.shape
    if whole and source.elements > 1 and _order(source) != _order(made):
        run = float(_common_run(source, made))
        return [kernel(call, Kind.POINTWISE, EagerKernel.TURNED, source.elements, run=run)]
    return pointwise(call)


def _common_run(a: RecordedTensor, b: RecordedTensor) -> int:
    """Elements that lie next to each other in both."""
    run = 1
    for _ in a.shape:
        steps = zip(a.shape, a.strides, b.strides, strict=True)
        size = next((n for n, s, t in steps if n > 1 and s == t == run), 1)
        if size == 1:
            break
        run *= size
    return run


def read_back(call: Call) -> list[Op]:
    """A number that the host asks for."""
    return [kernel(call._replace(outputs=call.inputs), Kind.HOST_COPY)]


def fill(call: Call) -> list[Op]:
    """Nothing is read."""
    made = call.outputs or call.inputs[:1]
    return [kernel(call._replace(inputs=(), outputs=made), Kind.POINTWISE, EagerKernel.FILL)]


def random(call: Call) -> list[Op]:
    """Numbers are drawn one by one; dropout reads what it lets through."""
    made = call.outputs or call.inputs[:1]
    reads = call.inputs[:1] if base_name(call.op) == "native_dropout" else ()
    drawn = call._replace(inputs=reads, outputs=made)
    return [kernel(drawn, Kind.POINTWISE, EagerKernel.RANDOM, made[0].elements)]


def by_bytes(call: Call) -> list[Op]:
    """Somebody's own op, or one with an algorithm of its own: each byte moves once."""
    return [kernel(call, Kind.MOVEMENT, EagerKernel.VECTOR)]


# ── reductions ───────────────────────────────────────────────────────────────────────────────────


def reduction(call: Call) -> list[Op]:
    """Where neighbours are summed a block sums a row; else each thread sums a column."""
    if not call.inputs or not call.outputs:
        return []
    source, made = call.inputs[0], call.outputs[0]
    if made.elements >= source.elements:
        return pointwise(call)
    summed = source.elements // max(made.elements, 1)
    more: dict[str, float] = {"run": float(summed), "pieces": float(made.elements)}
    variant = EagerKernel.REDUCE_COLUMNS
    if _sums_neighbours(call, source, made):
        run = _summed_run(call, source)
        variant = EagerKernel.REDUCE_ROWS if run in (None, summed) else EagerKernel.REDUCE_PLACES
        if variant is EagerKernel.REDUCE_PLACES:
            more["run"] = float(run or 1)
        elif base_name(call.op) in ("argmax", "argmin"):
            variant = EagerKernel.ARGUMENT
    return [kernel(call._replace(inputs=(source,)), Kind.REDUCTION, variant, **more)]


def _summed_run(call: Call, source: RecordedTensor) -> int | None:
    """Summed elements that lie next to each other; None where all are summed."""
    gone = _dims(call)
    if gone is None:
        return None
    rank, run = len(source.shape), 1
    order = sorted(range(rank), key=lambda i: source.strides[i])
    for i in order:
        if source.shape[i] == 1:
            continue
        if i not in {d % rank for d in gone}:
            break
        run *= source.shape[i]
    return run


def _sums_neighbours(call: Call, source: RecordedTensor, made: RecordedTensor) -> bool:
    """Whether the dimension whose elements lie next to each other goes."""
    if made.elements == 1:
        return True
    rank, gone = len(source.shape), _dims(call)
    if gone is None:  # what is left are the leading dimensions
        left = [n for n in made.shape if n != 1]
        return prod(left) == prod(source.shape[:-1])
    moving = [i for i in range(rank) if source.shape[i] > 1]
    closest = min(moving, key=lambda i: source.strides[i], default=rank - 1)
    return closest in {d % rank for d in gone}


def _dims(call: Call) -> list[int] | None:
    """The dimensions that are summed, as the call names them."""
    for number in call.numbers:
        if isinstance(number, (list, tuple)) and number:
            return [n for n in number if isinstance(n, int)]
    if ".dim" in call.op or base_name(call.op) in ("argmax", "argmin"):
        return whole_numbers(call)[:1] or None
    return None


def scan(call: Call) -> list[Op]:
    """Running sums: what is read is written again, a row at a time."""
    source = call.inputs[0]
    dim = (whole_numbers(call) or [-1])[0]
    row = source.shape[dim] if source.shape else 1
    moved = call._replace(inputs=(source,))
    return [kernel(moved, Kind.REDUCTION, EagerKernel.SCAN, **by_rows(source, row))]


def softmax(call: Call) -> list[Op]:
    """One pass over rows that fit a block's registers; a row may lie apart."""
    back = "backward" in call.op
    inputs = call.inputs[:2] if back else call.inputs[:1]
    source = inputs[0]
    dim = (whole_numbers(call) or [-1])[0]
    row = source.shape[dim] if source.shape else 1
    variant = EagerKernel.SOFTMAX
    if back:
        log = "log_softmax" in call.op
        variant = EagerKernel.LOG_SOFTMAX_BACKWARD if log else EagerKernel.SOFTMAX_BACKWARD
    if source.shape and source.strides[dim] != 1 and row > 1:
        if back:  # each thread walks down a column: by its elements
            return [
                kernel(
                    call._replace(inputs=inputs),
                    Kind.REDUCTION,
                    EagerKernel.STRIDED,
                    source.elements,
                )
            ]
        variant = EagerKernel.SOFTMAX_COLUMNS
    moved = call._replace(inputs=inputs)
    loads = float(alignment(row, source.bits / BITS_PER_BYTE))
    made = kernel(moved, Kind.REDUCTION, variant, **by_rows(source, row), loads=loads)
    return [*laid_out(call, inputs), made]
