"""PyTorch functions as eager kernels: what each keeps for its backward, and the kernels of that.

A program written in plain PyTorch launches a kernel for every function it calls, and autograd one
or more for each of these again. An op of kind pointwise, reduction or movement names its function;
its `form` is the class of kernel by which the clock prices it. What is kept and launched is that of
torch's `derivatives.yaml` and of traces of Hugging Face's Llama.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from trueflops.graph.ir import Dims, Op, Tensor
from trueflops.sizes import Size

ELEMENTWISE: Final = ("vector", "math", "widen", "strided", "cat", "fill", "random")
MOVING: Final = ("gather", "scatter")
INDEXED: Final = ("math", "widen", "strided", "cat", "gather", "scatter", "random")
"""Classes whose elements are looked up, or computed, one by one."""


class Function(NamedTuple):
    """How one function is differentiated."""

    keeps: Callable[[Op], tuple[Tensor, ...]]
    backward: Callable[[Op], tuple[Op, ...]]


def call(
    name: str,
    form: str,
    inputs: tuple[Tensor, ...],
    outputs: tuple[Tensor, ...],
    *,
    function: str = "",
    weights: tuple[Tensor, ...] = (),
    like: Op,
    indexed: Size | None = None,
) -> Op:
    """One eager kernel; `like` is the op it is a part of, or the one that it differentiates."""
    kind = "pointwise" if form in ELEMENTWISE else "movement" if form in MOVING else "reduction"
    if form == "cat":
        kind = "movement"
    facts: dict[str, Size] = {}
    if form in INDEXED:
        facts["indexed"] = outputs[0].elements if indexed is None else indexed
    return Op(
        name, kind, inputs, outputs, weights, like.dtype, like.part, facts,
        form=form, function=function,
    )  # fmt: skip


def named(like: Tensor, suffix: str, bits: float | None = None) -> Tensor:
    """A new tensor of the same shape."""
    return Tensor(f"{like.name}.{suffix}", like.dims, like.bits if bits is None else bits)


def rows_of(x: Tensor) -> Dims:
    """One element for each row."""
    return x.dims[:-1]


def _back(op: Op, suffix: str, form: str, *tensors: Tensor, made: Tensor) -> Op:
    return call(f"{op.name}.{suffix}", form, tensors, (made,), like=op)


def _nothing(op: Op) -> tuple[Tensor, ...]:
    return ()


def _inputs(op: Op) -> tuple[Tensor, ...]:
    return op.inputs


# ── elementwise ──────────────────────────────────────────────────────────────────────────────────


def _passed_on(op: Op) -> tuple[Op, ...]:
    return ()


def _cast_backward(op: Op) -> tuple[Op, ...]:
    x, y = op.inputs[0].gradient(), op.outputs[0].gradient()
    return (_back(op, "cast", "widen" if x.bits > y.bits else "vector", y, made=x),)


def _square_backward(op: Op) -> tuple[Op, ...]:
    """Dx = dy · 2·x¹, as autograd writes it: a power, a product with a number, a product."""
    x, dy = op.inputs[0], op.outputs[0].gradient()
    power, twice = named(dy, "power"), named(dy, "twice")
    return (
        _back(op, "power", "vector", x, made=power),
        _back(op, "twice", "vector", power, made=twice),
        _back(op, "chain", "vector", dy, twice, made=x.gradient()),
    )


def _multiply_backward(op: Op) -> tuple[Op, ...]:
    (a, b), dy = op.inputs, op.outputs[0].gradient()
    return (
        _back(op, "first", "vector", dy, b, made=a.gradient()),
        _back(op, "second", "vector", dy, a, made=b.gradient()),
    )


def _activation_backward(op: Op) -> tuple[Op, ...]:
    kept = op.outputs[0] if op.function == "relu" else op.inputs[0]
    dy = op.outputs[0].gradient()
    return (_back(op, "slope", op.form, dy, kept, made=op.inputs[0].gradient()),)


# ── rows: norms written by hand ──────────────────────────────────────────────────────────────────


def _mean_backward(op: Op) -> tuple[Op, ...]:
    """Every element of a row gets its share of the row's gradient."""
    return (_back(op, "spread", "strided", op.outputs[0].gradient(), made=op.inputs[0].gradient()),)


def _inverse_root_backward(op: Op) -> tuple[Op, ...]:
    """Dx = −½ · dy · y³, three kernels of a number a row."""
    y, dx = op.outputs[0], op.inputs[0].gradient()
    dy = y.gradient()
    cube, chained = named(dy, "cube"), named(dy, "chained")
    return (
        _back(op, "cube", "vector", y, made=cube),
        _back(op, "half", "vector", dy, made=chained),
        _back(op, "chain", "vector", chained, cube, made=dx),
    )


def _scale_rows_backward(op: Op) -> tuple[Op, ...]:
    """Y = x · r with one r a row: dx is broadcast, dr is summed over the row."""
    (x, r), dy = op.inputs, op.outputs[0].gradient()
    product = named(dy, "by_x")
    return (
        _back(op, "by_x", "vector", dy, x, made=product),
        _back(op, "by_rows", "strided", dy, r, made=x.gradient()),
        _back(op, "sum_rows", "reduce_rows", product, made=r.gradient()),
    )


def _gain_backward(op: Op) -> tuple[Op, ...]:
    """Y = w · x with one w a column: dw is summed over the rows."""
    x, dy, weight = op.inputs[0], op.outputs[0].gradient(), op.weights[0]
    product = named(dy, "by_x")
    return (
        _back(op, "by_gain", "strided", dy, made=x.gradient()),
        _back(op, "by_x", "vector", dy, x, made=product),
        _back(op, "sum_columns", "reduce_columns", product, made=weight.gradient()),
    )


def _layer_norm_backward(op: Op) -> tuple[Op, ...]:
    x, dy = op.inputs[0], op.outputs[0].gradient()
    return (_back(op, "gradient", "norm_backward", dy, x, made=x.gradient()),)


# ── rotation: x·cos + rotate_half(x)·sin ─────────────────────────────────────────────────────────


def half(x: Tensor) -> Tensor:
    """Half of each head: a view of the same tensor, whose gradient is that of the whole."""
    return Tensor(x.name, (*x.dims, ("half", 0.5)), x.bits, "index")


def _rotate_half_backward(op: Op) -> tuple[Op, ...]:
    """rotate_half is two slices, a negation and a cat; a slice's gradient is zeros and a copy."""
    x, dy = op.inputs[0].gradient(), op.outputs[0].gradient()
    negated, upper, lower = half(named(dy, "negated")), named(dy, "upper"), named(dy, "lower")
    return (
        call(f"{op.name}.negate", "strided", (half(dy),), (negated,), like=op),
        call(f"{op.name}.upper_zeros", "fill", (), (upper,), like=op),
        call(f"{op.name}.upper", "strided", (negated,), (half(upper),), like=op),
        call(f"{op.name}.lower_zeros", "fill", (), (lower,), like=op),
        call(f"{op.name}.lower", "strided", (half(dy),), (half(lower),), like=op),
        _back(op, "halves", "vector", upper, lower, made=named(x, "halves")),
    )


def _by_sine_backward(op: Op) -> tuple[Op, ...]:
    dx, dy = op.inputs[0].gradient(), op.outputs[0].gradient()
    return (_back(op, "by_sine", "strided", dy, made=dx),)


def _by_cosine_backward(op: Op) -> tuple[Op, ...]:
    """Added to what came through the halves, and laid out as the product before reads it."""
    dx, dy = op.inputs[0].gradient(), op.outputs[0].gradient()
    straight, both = named(dx, "straight"), named(dx, "both")
    return (
        _back(op, "by_cosine", "strided", dy, made=straight),
        _back(op, "both", "strided", straight, named(dx, "halves"), made=both),
        _back(op, "lay_out", "strided", both, made=dx),
    )


def _repeat_backward(op: Op) -> tuple[Op, ...]:
    """The copies of one head's keys add up their gradients."""
    dx, dy = op.inputs[0].gradient(), op.outputs[0].gradient()
    return (_back(op, "sum_copies", "reduce_rows", dy, made=dx),)


# ── look-ups and the loss ────────────────────────────────────────────────────────────────────────


def _lookup_backward(op: Op) -> tuple[Op, ...]:
    """The table's gradient is zeros, to which rows are added; and that of a head that shares it."""
    rows, table = op.outputs[0].gradient(), op.weights[0].gradient()
    inside = Tensor(table.name, rows.dims, rows.bits, "index")
    made = (
        call(f"{op.name}.zeros", "fill", (), (table,), like=op),
        call(f"{op.name}.add_rows", "scatter", (rows, op.inputs[0]), (inside,), like=op),
    )
    if not op.facts["tied"]:
        return made
    return (*made, _back(op, "both", "vector", table, named(table, "head"), made=table))


def _log_softmax_backward(op: Op) -> tuple[Op, ...]:
    """What was picked of each row has a gradient, and all else zeros."""
    y, dx = op.outputs[0], op.inputs[0].gradient()
    dy = y.gradient()
    row = Tensor(dy.name, rows_of(dy), dy.bits)
    return (
        call(f"{op.name}.zeros", "fill", (), (dy,), like=op),
        call(f"{op.name}.put", "gather", (row,), (row,), like=op),
        _back(op, "gradient", "softmax_backward", dy, y, made=dx),
    )


FUNCTIONS: Final[dict[str, Function]] = {
    "": Function(_nothing, _passed_on),
    "add": Function(_nothing, _passed_on),
    "cast": Function(_nothing, _cast_backward),
    "square": Function(_inputs, _square_backward),
    "multiply": Function(_inputs, _multiply_backward),
    "silu": Function(_inputs, _activation_backward),
    "relu": Function(lambda op: op.outputs, _activation_backward),
    "mean": Function(_nothing, _mean_backward),
    "inverse_root": Function(lambda op: op.outputs, _inverse_root_backward),
    "scale_rows": Function(_inputs, _scale_rows_backward),
    "gain": Function(_inputs, _gain_backward),
    "layer_norm": Function(_inputs, _layer_norm_backward),
    "rotate_half": Function(_nothing, _rotate_half_backward),
    "by_sine": Function(_nothing, _by_sine_backward),
    "by_cosine": Function(_nothing, _by_cosine_backward),
    "repeat": Function(_nothing, _repeat_backward),
    "lookup": Function(_inputs, _lookup_backward),
    "log_softmax": Function(lambda op: op.outputs, _log_softmax_backward),
}
