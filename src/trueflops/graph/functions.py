"""PyTorch functions as eager kernels: what each keeps for its backward, and the kernels of that.

A program written in plain PyTorch launches a kernel for every function it calls, and autograd one
or more for each of these again. An op of kind pointwise, reduction or movement names its function;
its variant is the class of kernel by which the clock prices it. What is kept and launched follows
torch's `derivatives.yaml` and traces of Hugging Face's Llama.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from trueflops.graph.alignment import alignment
from trueflops.graph.formulas import computed
from trueflops.graph.ir import Dims, Op, Tensor
from trueflops.graph.kinds import Function, Kind, Role
from trueflops.graph.variants import INDEXED, EagerKernel
from trueflops.sizes import Size
from trueflops.units import BITS_PER_BYTE

_VECTOR, _WIDEN = EagerKernel.VECTOR, EagerKernel.WIDEN
MOVING: Final = (
    EagerKernel.CAT, EagerKernel.GATHER, EagerKernel.TABLE_GRADIENT, EagerKernel.LOSS,
)  # fmt: skip
_BY_ROWS: Final = (
    EagerKernel.SOFTMAX, EagerKernel.SOFTMAX_BACKWARD, EagerKernel.LOG_SOFTMAX_BACKWARD,
    EagerKernel.NORM,
    EagerKernel.NORM_BACKWARD, EagerKernel.GATHER, EagerKernel.TABLE_GRADIENT,
)  # fmt: skip
POINTWISE: Final = (
    EagerKernel.VECTOR, EagerKernel.MATH, EagerKernel.WIDEN, EagerKernel.STRIDED, EagerKernel.FILL,
    EagerKernel.RANDOM, EagerKernel.GELU,
)  # fmt: skip


class Derivative(NamedTuple):
    """How one function is differentiated."""

    keeps: Callable[[Op], tuple[Tensor, ...]]
    backward: Callable[[Op], tuple[Op, ...]]


def call(
    name: str,
    kernel: EagerKernel,
    inputs: tuple[Tensor, ...],
    outputs: tuple[Tensor, ...],
    *,
    function: Function | None = None,
    weights: tuple[Tensor, ...] = (),
    like: Op,
    indexed: Size | None = None,
) -> Op:
    """One eager kernel; `like` is the op it is a part of, or the one that it differentiates."""
    kind = Kind.REDUCTION
    if kernel in POINTWISE:
        kind = Kind.POINTWISE
    elif kernel in MOVING:
        kind = Kind.MOVEMENT
    facts: dict[str, Size] = {}
    if kernel in INDEXED:
        facts["indexed"] = outputs[0].elements if indexed is None else indexed
    facts |= _pieces(kernel, inputs, outputs)
    return Op(
        name, kind, inputs, outputs, weights=weights, dtype=like.dtype, part=like.part, facts=facts,
        function=function, variant=kernel,
    )  # fmt: skip


def _pieces(
    kernel: EagerKernel, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]
) -> dict[str, Size]:
    """Into what a kernel's work falls, as capture/lower/ says it of a recorded call."""
    if kernel in (EagerKernel.REDUCE_ROWS, EagerKernel.REDUCE_COLUMNS):
        made = outputs[0].elements
        return {"run": inputs[0].elements / made, "pieces": made}
    if kernel in _BY_ROWS:
        whole = outputs[0] if kernel is EagerKernel.GATHER else inputs[0]
        row = whole.dims[-1][1]
        found: dict[str, Size] = {"run": row, "pieces": whole.elements / row}
        if kernel in (EagerKernel.SOFTMAX, EagerKernel.LOG_SOFTMAX_BACKWARD):
            found["loads"] = computed(alignment, row, whole.bits / BITS_PER_BYTE)
        return found
    if kernel is EagerKernel.CAT:
        return {"pieces": float(len(inputs))}
    return {}


def named(like: Tensor, suffix: str, bits: float | None = None) -> Tensor:
    """A new tensor of the same shape."""
    return Tensor(f"{like.name}.{suffix}", like.dims, like.bits if bits is None else bits)


def rows_of(x: Tensor) -> Dims:
    """One element for each row."""
    return x.dims[:-1]


def _back(op: Op, suffix: str, kernel: EagerKernel, *tensors: Tensor, made: Tensor) -> Op:
    return call(f"{op.name}.{suffix}", kernel, tensors, (made,), like=op)


def _nothing(op: Op) -> tuple[Tensor, ...]:
    return ()


def _inputs(op: Op) -> tuple[Tensor, ...]:
    return op.inputs


# ── elementwise ──────────────────────────────────────────────────────────────────────────────────


def _passed_on(op: Op) -> tuple[Op, ...]:
    return ()


def _cast_backward(op: Op) -> tuple[Op, ...]:
    x, y = op.inputs[0].gradient(), op.outputs[0].gradient()
    return (_back(op, "cast", _WIDEN if x.bits > y.bits else _VECTOR, y, made=x),)


def _square_backward(op: Op) -> tuple[Op, ...]:
    """Dx = dy · 2·x¹, as autograd writes it: a power, a product with a number, a product."""
    x, dy = op.inputs[0], op.outputs[0].gradient()
    power, twice = named(dy, "power"), named(dy, "twice")
    return (
        _back(op, "power", EagerKernel.VECTOR, x, made=power),
        _back(op, "twice", EagerKernel.VECTOR, power, made=twice),
        _back(op, "chain", EagerKernel.VECTOR, dy, twice, made=x.gradient()),
    )


def _multiply_backward(op: Op) -> tuple[Op, ...]:
    (a, b), dy = op.inputs, op.outputs[0].gradient()
    return (
        _back(op, "first", EagerKernel.VECTOR, dy, b, made=a.gradient()),
        _back(op, "second", EagerKernel.VECTOR, dy, a, made=b.gradient()),
    )


def _scale_backward(op: Op) -> tuple[Op, ...]:
    dx, dy = op.inputs[0].gradient(), op.outputs[0].gradient()
    return (_back(op, "scale", EagerKernel.VECTOR, dy, made=dx),)


def _activation_backward(op: Op) -> tuple[Op, ...]:
    by_result = op.function in (Function.RELU, Function.TANH)
    kept = op.outputs[0] if by_result else op.inputs[0]
    dy = op.outputs[0].gradient()
    kernel = EagerKernel.VECTOR if by_result else EagerKernel.GELU
    return (_back(op, "slope", kernel, dy, kept, made=op.inputs[0].gradient()),)


# ── rows: norms written by hand ──────────────────────────────────────────────────────────────────


def _mean_backward(op: Op) -> tuple[Op, ...]:
    """Every element of a row gets its share of the row's gradient."""
    return (
        _back(
            op,
            "spread",
            EagerKernel.STRIDED,
            op.outputs[0].gradient(),
            made=op.inputs[0].gradient(),
        ),
    )


def _inverse_root_backward(op: Op) -> tuple[Op, ...]:
    """Dx = −½ · dy · y³, three kernels of a number a row."""
    y, dx = op.outputs[0], op.inputs[0].gradient()
    dy = y.gradient()
    cube, chained = named(dy, "cube"), named(dy, "chained")
    return (
        _back(op, "cube", EagerKernel.VECTOR, y, made=cube),
        _back(op, "half", EagerKernel.VECTOR, dy, made=chained),
        _back(op, "chain", EagerKernel.VECTOR, chained, cube, made=dx),
    )


def _scale_rows_backward(op: Op) -> tuple[Op, ...]:
    """Y = x · r with one r a row: dx is broadcast, dr is summed over the row."""
    (x, r), dy = op.inputs, op.outputs[0].gradient()
    product = named(dy, "by_x")
    return (
        _back(op, "by_x", EagerKernel.VECTOR, dy, x, made=product),
        _back(op, "by_rows", EagerKernel.STRIDED, dy, r, made=x.gradient()),
        _back(op, "sum_rows", EagerKernel.REDUCE_ROWS, product, made=r.gradient()),
    )


def _gain_backward(op: Op) -> tuple[Op, ...]:
    """Y = w · x with one w a column: dw is summed over the rows."""
    x, dy, weight = op.inputs[0], op.outputs[0].gradient(), op.weights[0]
    product = named(dy, "by_x")
    return (
        _back(op, "by_gain", EagerKernel.STRIDED, dy, made=x.gradient()),
        _back(op, "by_x", EagerKernel.VECTOR, dy, x, made=product),
        _back(op, "sum_columns", EagerKernel.REDUCE_COLUMNS, product, made=weight.gradient()),
    )


def _layer_norm_backward(op: Op) -> tuple[Op, ...]:
    x, dy = op.inputs[0], op.outputs[0].gradient()
    return (_back(op, "gradient", EagerKernel.NORM_BACKWARD, dy, x, made=x.gradient()),)


# ── rotation: x·cos + rotate_half(x)·sin ─────────────────────────────────────────────────────────


def half(x: Tensor) -> Tensor:
    """Half of each head: a view of the same tensor, whose gradient is that of the whole."""
    return Tensor(x.name, (*x.dims, ("half", 0.5)), x.bits, Role.INDEX)


def _rotate_half_backward(op: Op) -> tuple[Op, ...]:
    """rotate_half is two slices, a negation and a cat; a slice's gradient is zeros and a copy."""
    x, dy = op.inputs[0].gradient(), op.outputs[0].gradient()
    negated, upper, lower = half(named(dy, "negated")), named(dy, "upper"), named(dy, "lower")
    return (
        call(f"{op.name}.negate", EagerKernel.STRIDED, (half(dy),), (negated,), like=op),
        call(f"{op.name}.upper_zeros", EagerKernel.FILL, (), (upper,), like=op),
        call(f"{op.name}.upper", EagerKernel.STRIDED, (negated,), (half(upper),), like=op),
        call(f"{op.name}.lower_zeros", EagerKernel.FILL, (), (lower,), like=op),
        call(f"{op.name}.lower", EagerKernel.STRIDED, (half(dy),), (half(lower),), like=op),
        _back(op, "halves", EagerKernel.VECTOR, upper, lower, made=named(x, "halves")),
    )


def _by_sine_backward(op: Op) -> tuple[Op, ...]:
    dx, dy = op.inputs[0].gradient(), op.outputs[0].gradient()
    return (_back(op, "by_sine", EagerKernel.STRIDED, dy, made=dx),)


def _by_cosine_backward(op: Op) -> tuple[Op, ...]:
    """Added to what came through the halves, and laid out as the product before reads it."""
    dx, dy = op.inputs[0].gradient(), op.outputs[0].gradient()
    straight, both = named(dx, "straight"), named(dx, "both")
    return (
        _back(op, "by_cosine", EagerKernel.STRIDED, dy, made=straight),
        _back(op, "both", EagerKernel.STRIDED, straight, named(dx, "halves"), made=both),
        _back(op, "lay_out", EagerKernel.STRIDED, both, made=dx),
    )


def _repeat_backward(op: Op) -> tuple[Op, ...]:
    """The copies of one head's keys add up their gradients."""
    dx, dy = op.inputs[0].gradient(), op.outputs[0].gradient()
    return (_back(op, "sum_copies", EagerKernel.REDUCE_ROWS, dy, made=dx),)


# ── look-ups and the loss ────────────────────────────────────────────────────────────────────────


def _lookup_backward(op: Op) -> tuple[Op, ...]:
    """Rows are added up into the table's gradient; then that of a head that shares it."""
    rows, table = op.outputs[0].gradient(), op.weights[0].gradient()
    reads = (rows, op.inputs[0])
    made = call(
        f"{op.name}.rows", EagerKernel.TABLE_GRADIENT, reads, (table,), like=op,
        indexed=rows.elements,
    )  # fmt: skip
    if not op.facts["tied"]:
        return (made,)
    return made, _back(op, "both", EagerKernel.VECTOR, table, named(table, "head"), made=table)


def _softmax_backward(op: Op) -> tuple[Op, ...]:
    y, dx = op.outputs[0], op.inputs[0].gradient()
    return (_back(op, "gradient", EagerKernel.SOFTMAX_BACKWARD, y.gradient(), y, made=dx),)


def _log_softmax_backward(op: Op) -> tuple[Op, ...]:
    """What was picked of each row has a gradient, and all else zeros."""
    y, dx = op.outputs[0], op.inputs[0].gradient()
    dy = y.gradient()
    row = Tensor(dy.name, (*rows_of(dy), ("one", 1.0)), dy.bits)
    return (
        call(f"{op.name}.zeros", EagerKernel.FILL, (), (dy,), like=op),
        call(f"{op.name}.put", EagerKernel.GATHER, (row,), (row,), like=op),
        _back(op, "gradient", EagerKernel.LOG_SOFTMAX_BACKWARD, dy, y, made=dx),
    )


DERIVATIVES: Final[dict[Function | None, Derivative]] = {
    None: Derivative(_nothing, _passed_on),
    Function.ADD: Derivative(_nothing, _passed_on),
    Function.CAST: Derivative(_nothing, _cast_backward),
    Function.SQUARE: Derivative(_inputs, _square_backward),
    Function.MULTIPLY: Derivative(_inputs, _multiply_backward),
    Function.SCALE: Derivative(_nothing, _scale_backward),
    Function.SILU: Derivative(_inputs, _activation_backward),
    Function.RELU: Derivative(lambda op: op.outputs, _activation_backward),
    Function.TANH: Derivative(lambda op: op.outputs, _activation_backward),
    Function.MEAN: Derivative(_nothing, _mean_backward),
    Function.INVERSE_ROOT: Derivative(lambda op: op.outputs, _inverse_root_backward),
    Function.SCALE_ROWS: Derivative(_inputs, _scale_rows_backward),
    Function.GAIN: Derivative(_inputs, _gain_backward),
    Function.LAYER_NORM: Derivative(_inputs, _layer_norm_backward),
    Function.ROTATE_HALF: Derivative(_nothing, _rotate_half_backward),
    Function.BY_SINE: Derivative(_nothing, _by_sine_backward),
    Function.BY_COSINE: Derivative(_nothing, _by_cosine_backward),
    Function.REPEAT: Derivative(_nothing, _repeat_backward),
    Function.LOOKUP: Derivative(_inputs, _lookup_backward),
    Function.SOFTMAX: Derivative(lambda op: op.outputs, _softmax_backward),
    Function.LOG_SOFTMAX: Derivative(lambda op: op.outputs, _log_softmax_backward),
}
