"""Kernels over the elements of a result, and reductions: how operands lie decides how fast."""

from __future__ import annotations

from math import prod
from typing import Final

from trueflops.capture.lower.kernels import base_name, flags, kernel, whole_numbers
from trueflops.graph.ir import Op
from trueflops.graph.kinds import Kind
from trueflops.graph.variants import EagerKernel
from trueflops.records.recording import Call, RecordedTensor

_TAKES_MASKS: Final = {
    "where", "masked_fill", "native_dropout", "native_dropout_backward", "logical_not",
    "logical_and", "logical_or", "bitwise_and", "bitwise_or", "bitwise_not", "index_put",
    "_index_put_impl",
}  # fmt: skip
_COMPARES: Final = {"eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isin"}
_COMPUTES: Final = {
    "silu", "silu_backward", "gelu", "gelu_backward", "sigmoid", "sigmoid_backward", "tanh",
    "tanh_backward", "exp", "expm1", "log", "log1p", "log2", "sin", "cos", "tan", "erf", "softplus",
    "softplus_backward", "mish", "mish_backward", "elu", "elu_backward", "logit",
}  # fmt: skip
"""Ops with an exponential or the like for each element."""
_UNREAD: Final = {
    "max_pool2d_with_indices_backward": 1, "max_pool3d_with_indices_backward": 1,
    "avg_pool2d_backward": 1, "avg_pool3d_backward": 1, "_adaptive_avg_pool2d_backward": 1,
    "_adaptive_avg_pool3d_backward": 1, "reflection_pad1d_backward": 1,
    "reflection_pad2d_backward": 1, "replication_pad2d_backward": 1,
}  # fmt: skip
"""Arguments that are asked for their shape alone."""


def pointwise(call: Call) -> list[Op]:
    """One kernel over the elements of its result, or of its largest operand."""
    unread = _UNREAD.get(base_name(call.op))
    if unread is not None:
        rest = tuple(a for i, a in enumerate(call.inputs) if i != unread)
        call = call._replace(inputs=rest)
    operands = [a for a in (*call.inputs, *call.outputs) if a.elements > 1]
    if not operands:
        return [kernel(call, Kind.POINTWISE, EagerKernel.VECTOR)]
    largest = max(operands, key=lambda a: a.elements)
    if not alike(operands, largest):
        return [kernel(call, Kind.POINTWISE, EagerKernel.STRIDED, largest.elements)]
    types = {a.bits for a in operands if not (a.dtype == "bool" and _has_masks(call))}
    if len(types) > 1:  # of mixed types, each element is converted as it is loaded
        widens = call.outputs and call.outputs[0].bits > min(types)
        if widens or len(operands) > 2:
            return [kernel(call, Kind.POINTWISE, EagerKernel.WIDEN, largest.elements)]
    if base_name(call.op) in _COMPUTES:
        return [kernel(call, Kind.POINTWISE, EagerKernel.MATH, largest.elements)]
    return [kernel(call, Kind.POINTWISE, EagerKernel.VECTOR)]


def _has_masks(call: Call) -> bool:
    """Kernels that are made for a bool among other types convert nothing."""
    return base_name(call.op) in _TAKES_MASKS or base_name(call.op) in _COMPARES


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
    return pointwise(call)


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
    along_rows = _sums_neighbours(call, source, made)
    variant = EagerKernel.REDUCE_ROWS if along_rows else EagerKernel.REDUCE_COLUMNS
    return [kernel(call._replace(inputs=(source,)), Kind.REDUCTION, variant)]


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
    return [kernel(call._replace(inputs=call.inputs[:1]), Kind.REDUCTION, EagerKernel.REDUCE_ROWS)]


def softmax(call: Call) -> list[Op]:
    """One pass over rows that fit a block's registers."""
    back = "backward" in call.op
    inputs = call.inputs[:2] if back else call.inputs[:1]
    variant = EagerKernel.SOFTMAX_BACKWARD if back else EagerKernel.SOFTMAX
    return [kernel(call._replace(inputs=inputs), Kind.REDUCTION, variant)]


def norm(call: Call) -> list[Op]:
    """Layer and RMS norm: a row is summed and scaled in one kernel."""
    back = "backward" in call.op
    variant = EagerKernel.NORM_BACKWARD if back else EagerKernel.NORM
    return [kernel(call, Kind.REDUCTION, variant)]


def two_pass_norm(call: Call) -> list[Op]:
    """Batch and group norm: one kernel sums, a second reads all again and scales.

    In evaluation a batch norm knows its sums and only scales.
    """
    back = "backward" in call.op
    batch = "batch" in call.op
    read = call.inputs[:2] if back else call.inputs[:1]
    made = call.outputs[:1]
    scale = kernel(
        call._replace(inputs=read, outputs=made),
        Kind.POINTWISE,
        EagerKernel.VECTOR if batch else EagerKernel.STRIDED,
        0.0 if batch else made[0].elements,
    )
    if batch and not (flags(call) or [True])[0] and not back:
        return [scale]
    along_rows = not batch or _channels_apart(read[0])
    sums = call._replace(inputs=read, outputs=call.outputs[1:])
    return [
        kernel(
            sums,
            Kind.REDUCTION,
            EagerKernel.REDUCE_ROWS if along_rows else EagerKernel.REDUCE_COLUMNS,
        ),
        scale,
    ]


def _channels_apart(array: RecordedTensor) -> bool:
    """Whether elements of one channel lie next to each other."""
    return len(array.shape) > 2 and array.strides[1] != 1
