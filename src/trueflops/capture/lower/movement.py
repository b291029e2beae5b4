"""Kernels that move elements to other places: look-ups, scatters, joins, sorts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trueflops.capture.lower.kernels import base_name, by_rows, flags, kernel
from trueflops.capture.lower.pointwise import fill, pointwise
from trueflops.graph.ir import Op
from trueflops.graph.kinds import Kind
from trueflops.graph.variants import EagerKernel
from trueflops.records.recording import Call, RecordedTensor

_INDICES: Final = ("int64", "int32", "bool", "uint8")


def cat(call: Call) -> list[Op]:
    """Pieces side by side; in front of what is written, an out= is not read.

    Pieces that each lie in one stretch are copied by wide loads, others element by element.
    """
    made = call.outputs[0]
    whole = all(a.dense and a.strides == sorted_down(a) for a in call.inputs if a.elements)
    variant = EagerKernel.JOIN if whole else EagerKernel.CAT
    pieces = float(len(call.inputs))
    return [kernel(call, Kind.MOVEMENT, variant, made.elements, pieces=pieces)]


def sorted_down(array: RecordedTensor) -> tuple[int, ...]:
    """Its strides, were its dimensions in the order in which they lie."""
    return tuple(sorted(array.strides, reverse=True))


def gather(call: Call) -> list[Op]:
    """Rows or elements picked from a table: as much is read as is written."""
    made = call.outputs[0]
    index = tuple(a for a in call.inputs[1:] if a.dtype in _INDICES)
    picked = call.inputs[0]._replace(shape=made.shape, strides=made.strides)
    moved = call._replace(inputs=(picked, *index))
    rows = _picked_rows(made, index)
    return [kernel(moved, Kind.MOVEMENT, EagerKernel.GATHER, made.elements, **rows)]


def _picked_rows(made: RecordedTensor, index: Sequence[RecordedTensor]) -> dict[str, float]:
    """Rows that are picked or put whole, and how long they are."""
    rows = max((a.distinct for a in index), default=1) or 1
    return {"run": max(1.0, made.elements / rows), "pieces": float(rows)}


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
    adds = "index_put" in call.op and any(flags(call))  # equal indices are brought together
    variant = EagerKernel.SORTED_ADD if adds else EagerKernel.SCATTER
    if base_name(call.op) in ("scatter_add", "scatter_reduce", "scatter"):
        variant = EagerKernel.ATOMIC
    rows = _picked_rows(source, index)
    ops = [kernel(moved, Kind.MOVEMENT, variant, source.elements, **rows)]
    in_place = call.op.split(".")[1].endswith("_")
    if not in_place:
        whole = call._replace(inputs=(table,), outputs=(table,))
        ops.insert(0, kernel(whole, Kind.POINTWISE, EagerKernel.COPY))
    return ops


def embedding_backward(call: Call) -> list[Op]:
    """The table's gradient is filled; rows are sorted by their index and added up."""
    grad, index = call.inputs[:2]
    rows = _picked_rows(grad, (index,))
    return [kernel(call, Kind.MOVEMENT, EagerKernel.TABLE_GRADIENT, grad.elements, **rows)]


def bags_backward(call: Call) -> list[Op]:
    """The same for each row that was looked up: all of a bag get the bag's gradient."""
    grad, index = call.inputs[:2]
    each = grad._replace(shape=(index.elements, grad.shape[-1]), strides=(grad.shape[-1], 1))
    return embedding_backward(call._replace(inputs=(each, index)))


def loss(call: Call) -> list[Op]:
    """nll_loss looks one element of each row up; its backward first fills the whole gradient."""
    made = call.outputs[0]
    if "backward" not in call.op:
        picked = call.inputs[1]._replace(dtype=call.inputs[0].dtype)
        moved = call._replace(inputs=(picked, call.inputs[1]))
        variant = EagerKernel.GATHER if "2d" in call.op else EagerKernel.LOSS
        rows = {"run": 1.0, "pieces": float(picked.elements)} if "2d" in call.op else {}
        return [kernel(moved, Kind.MOVEMENT, variant, picked.elements, **rows)]
    target = call.inputs[2]
    put = call._replace(inputs=(target,), outputs=(target._replace(dtype=made.dtype),))
    return [
        kernel(call._replace(inputs=(), outputs=(made,)), Kind.POINTWISE, EagerKernel.FILL),
        kernel(put, Kind.MOVEMENT, EagerKernel.GATHER, run=1.0, pieces=float(target.elements)),
    ]


def averaged_loss(call: Call) -> list[Op]:
    """A kernel makes the loss of every element; a second one averages them."""
    if call.outputs[0].elements > 1:
        return pointwise(call)
    source = call.inputs[0]
    whole = call._replace(outputs=(source,))
    sums = call._replace(inputs=(source,))
    row = by_rows(source, source.elements)
    return [*pointwise(whole), kernel(sums, Kind.REDUCTION, EagerKernel.REDUCE_ROWS, **row)]


def shuffle(call: Call) -> list[Op]:
    """Every element goes to a place of its own: padded, rolled, flipped."""
    return [kernel(call, Kind.POINTWISE, EagerKernel.SHIFTED, call.outputs[0].elements)]


def banded(call: Call) -> list[Op]:
    """A triangle: each element's place is worked out."""
    return [kernel(call, Kind.POINTWISE, EagerKernel.MASKED, call.outputs[0].elements)]


def unfolded(call: Call) -> list[Op]:
    """Windows side by side, or summed back."""
    large = max((*call.inputs, *call.outputs), key=lambda a: a.elements)
    return [kernel(call, Kind.MOVEMENT, EagerKernel.UNFOLDED, large.elements)]


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
    """Values and their places, row by row."""
    source = call.inputs[0]
    row = source.shape[-1] if source.shape else 1
    rows = by_rows(source, row)
    top = base_name(call.op) in ("topk", "kthvalue", "median", "mode")
    moved = call._replace(inputs=(source,))
    variant = EagerKernel.TOP if top else EagerKernel.SORT
    return [kernel(moved, Kind.MOVEMENT, variant, source.elements, **rows)]


def fourier(call: Call) -> list[Op]:
    """A transform of each row: its bytes, and log(n) steps an element."""
    source = call.inputs[0]
    row = source.shape[-1] if source.shape else 1
    rows = by_rows(source, row)
    return [kernel(call, Kind.MOVEMENT, EagerKernel.FOURIER, source.elements, **rows)]


def bags(call: Call) -> list[Op]:
    """Rows of a table, looked up and summed bag by bag."""
    table, index = call.inputs[:2]
    width = table.shape[-1]
    picked = table._replace(shape=(index.elements, width), strides=(width, 1))
    moved = call._replace(inputs=(picked, *call.inputs[1:3]), outputs=call.outputs[:1])
    rows = {"run": float(width), "pieces": float(call.outputs[0].shape[0])}
    return [kernel(moved, Kind.MOVEMENT, EagerKernel.BAG, picked.elements, **rows)]
