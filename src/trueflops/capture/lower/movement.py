"""Kernels that move elements to other places: look-ups, scatters, joins, sorts."""

from __future__ import annotations

from typing import Final

from trueflops.capture.lower.kernels import base_name, flags, kernel
from trueflops.capture.lower.pointwise import fill, pointwise
from trueflops.graph.ir import Op
from trueflops.graph.kinds import Kind
from trueflops.graph.variants import EagerKernel
from trueflops.records.recording import Call, RecordedTensor

_INDICES: Final = ("int64", "int32", "bool", "uint8")
_DIGIT_BITS: Final = 8  # that a radix sort looks at in one pass
_IN_ONE_BLOCK: Final = 4096  # elements of a row that torch sorts in shared memory


def cat(call: Call) -> list[Op]:
    """Pieces side by side; in front of what is written, an out= is not read."""
    return [kernel(call, Kind.MOVEMENT, EagerKernel.CAT, sum(a.elements for a in call.outputs))]


def gather(call: Call) -> list[Op]:
    """Rows or elements picked from a table: as much is read as is written."""
    made = call.outputs[0]
    index = tuple(a for a in call.inputs[1:] if a.dtype in _INDICES)
    picked = call.inputs[0]._replace(shape=made.shape, strides=made.strides)
    return [
        kernel(
            call._replace(inputs=(picked, *index)), Kind.MOVEMENT, EagerKernel.GATHER, made.elements
        )
    ]


def scatter(call: Call) -> list[Op]:
    """Elements of a source put or added into a table, which is copied first unless in place."""
    table, given = call.inputs[0], call.inputs[1:]
    index = [a for a in given if a.dtype in _INDICES]
    if any(a.dtype in ("bool", "uint8") for a in index):  # a mask with one value fills
        return pointwise(call)
    values = [a for a in given if a not in index]
    widest = max((*values, *index), key=lambda a: a.elements, default=table)
    source = widest._replace(dtype=table.dtype)
    moved = call._replace(inputs=(*index[:1], source), outputs=(source,))
    ops = [kernel(moved, Kind.MOVEMENT, EagerKernel.SCATTER, source.elements)]
    in_place = call.op.split(".")[1].endswith("_")
    if not in_place:
        whole = call._replace(inputs=(table,), outputs=(table,))
        ops.insert(0, kernel(whole, Kind.POINTWISE, EagerKernel.COPY))
    if "index_put" in call.op and any(flags(call)):  # to add, equal indices are brought together
        ops[-1:-1] = _passes(call, index[0], index[0])
    return ops


def embedding_backward(call: Call) -> list[Op]:
    """Fill the table's gradient, then add the rows up, sorted by their index."""
    made, (grad, index) = call.outputs[0], call.inputs[:2]
    add = call._replace(inputs=(grad, index), outputs=(grad,))
    return [
        *fill(call),
        kernel(add, Kind.MOVEMENT, EagerKernel.SCATTER, grad.elements, table=float(made.elements)),
    ]


def loss(call: Call) -> list[Op]:
    """nll_loss looks one element of each row up; its backward first fills the whole gradient."""
    made = call.outputs[0]
    if "backward" not in call.op:
        picked = call.inputs[1]._replace(dtype=call.inputs[0].dtype)
        return [
            kernel(
                call._replace(inputs=(picked, call.inputs[1])), Kind.MOVEMENT, EagerKernel.GATHER
            )
        ]
    target = call.inputs[2]
    put = call._replace(inputs=(target,), outputs=(target._replace(dtype=made.dtype),))
    return [
        kernel(call._replace(inputs=(), outputs=(made,)), Kind.POINTWISE, EagerKernel.FILL),
        kernel(put, Kind.MOVEMENT, EagerKernel.GATHER),
    ]


def averaged_loss(call: Call) -> list[Op]:
    """A kernel makes the loss of every element; a second one averages them."""
    if call.outputs[0].elements > 1:
        return pointwise(call)
    source = call.inputs[0]
    whole = call._replace(outputs=(source,))
    return [
        *pointwise(whole),
        kernel(call._replace(inputs=(source,)), Kind.REDUCTION, EagerKernel.REDUCE_ROWS),
    ]


def shuffle(call: Call) -> list[Op]:
    """Every element goes to a place of its own."""
    return [kernel(call, Kind.POINTWISE, EagerKernel.STRIDED, call.outputs[0].elements)]


def slice_backward(call: Call) -> list[Op]:
    """Zeros of the whole, then a copy of the part."""
    part = call.inputs[0]
    inner = part._replace(storage=call.outputs[0].storage)
    put = call._replace(inputs=(part,), outputs=(inner,))
    return [*fill(call), kernel(put, Kind.POINTWISE, EagerKernel.STRIDED, part.elements)]


def pad(call: Call) -> list[Op]:
    """A constant everywhere, then a copy of what it goes around; a cut is the copy alone."""
    source, made = call.inputs[0], call.outputs[0]
    if made.elements > source.elements:
        return slice_backward(call)
    part = source._replace(shape=made.shape)
    return [
        kernel(call._replace(inputs=(part,)), Kind.POINTWISE, EagerKernel.STRIDED, made.elements)
    ]


def sort(call: Call) -> list[Op]:
    """Short rows are sorted by one block each, long ones digit by digit: values and places."""
    source = call.inputs[0]
    row = source.shape[-1] if source.shape else 1
    if row <= _IN_ONE_BLOCK or base_name(call.op) in ("topk", "kthvalue", "median", "mode"):
        return [
            kernel(
                call._replace(inputs=(source,)), Kind.MOVEMENT, EagerKernel.SCATTER, source.elements
            )
        ]
    return _passes(call, source, source._replace(dtype="int64"))


def _passes(call: Call, keys: RecordedTensor, places: RecordedTensor) -> list[Op]:
    one = call._replace(inputs=(keys, places), outputs=(keys, places))
    count = int(keys.bits) // _DIGIT_BITS
    return [kernel(one, Kind.MOVEMENT, EagerKernel.SCATTER, keys.elements) for _ in range(count)]
