"""From calls of ATen ops to ops of the IR: what each launches, and with which kind of kernel.

One entry a family in `_FAMILIES`; what none of them claims is a pointwise kernel if it is torch's
own, and is priced by its bytes if it is somebody else's. Kernel kinds are those of torch's own
eager kernels (clock/eager.py): `vector` where all operands lie alike, `strided` where each element
is looked up by its own offsets, `widen` where a cast makes numbers larger.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final

from trueflops.capture.products import (
    attention,
    attention_backward,
    batched_product,
    convolution,
    convolution_backward,
    plain_product,
)
from trueflops.capture.recording import HOST, Array, Call
from trueflops.graph.ir import Op, Tensor
from trueflops.sizes import Size

CHUNK: Final = 65536 * 320
"""Elements that one launch of torch's foreach kernels walks over (MultiTensorApply.cuh)."""


def lower(call: Call) -> list[Op]:
    """The kernels that a call launches; none where it only looks or stays on the host."""
    if not any(a.device != HOST for a in (*call.outputs, *call.inputs)) and not _all_host(call):
        return []
    name = base_name(call.op)
    family = _FAMILIES.get(name)
    if family is None:
        if name.startswith("_foreach_"):
            family = _foreach
        elif name.startswith("_fused_"):
            family = _fused_optimizer
        else:
            family = _pointwise
    return family(call)


def base_name(op: str) -> str:
    """`aten.mul_.Tensor` -> `mul`: in place or not, a kernel is the same."""
    name = op.split(".")[1]
    return name if name.startswith("__") else name.rstrip("_")


def _all_host(call: Call) -> bool:
    return all(a.device == HOST for a in (*call.inputs, *call.outputs))


def tensor(array: Array, elements: int | None = None) -> Tensor:
    """An array as a tensor of the IR, named by its storage."""
    count = float(array.distinct if elements is None else elements)
    return Tensor(f"s{array.storage}", (("elements", count),), array.bits)


def _op(call: Call, kind: str, form: str, walked: int = 0, **more: Size) -> Op:
    """A memory-bound kernel; `walked` elements are looked up one by one."""
    facts: dict[str, Size] = {"walked": float(walked), **more}
    return Op(
        base_name(call.op),
        kind,
        tuple(tensor(a) for a in call.inputs),
        tuple(tensor(a) for a in call.outputs),
        part=call.module,
        facts=facts,
        form=form,
    )


# ── pointwise ────────────────────────────────────────────────────────────────────────────────────


def _pointwise(call: Call) -> list[Op]:
    """One kernel over the elements of its result."""
    operands = [a for a in (*call.inputs, *call.outputs) if a.elements > 1]
    if not operands:
        return [_op(call, "pointwise", "vector")]
    largest = max(operands, key=lambda a: a.elements)
    if not _alike(operands, largest):
        return [_op(call, "pointwise", "strided", largest.elements)]
    types = {a.bits for a in operands}
    if len(types) > 1:  # of mixed types, each element is converted as it is loaded
        widens = call.outputs and call.outputs[0].bits > min(types)
        if widens or len(operands) > 2:
            return [_op(call, "pointwise", "widen", largest.elements)]
    return [_op(call, "pointwise", "vector")]


def _alike(operands: list[Array], largest: Array) -> bool:
    """Whether all operands lie in memory in one and the same order."""
    return all(
        a.shape == largest.shape and _order(a) == _order(largest) and a.dense for a in operands
    )


def _order(array: Array) -> tuple[int, ...]:
    return tuple(s for n, s in zip(array.shape, array.strides, strict=True) if n > 1)


def _copy(call: Call) -> list[Op]:
    """copy_ into a view reads its source alone."""
    if base_name(call.op) == "copy" and len(call.inputs) > 1:
        call = call._replace(inputs=call.inputs[1:2], outputs=call.inputs[:1])
    if not call.inputs or call.inputs[0].device != call.outputs[0].device:
        return [_op(call, "host_copy", "host")]
    source, made = call.inputs[0], call.outputs[0]
    if source.dtype == made.dtype and _alike([source, made], made):
        return [_op(call, "pointwise", "copy")]
    return _pointwise(call)


def _fill(call: Call) -> list[Op]:
    return [_op(call._replace(inputs=()), "pointwise", "fill")]


def _random(call: Call) -> list[Op]:
    made = call.outputs[0]
    return [_op(call._replace(inputs=()), "pointwise", "random", made.elements)]


# ── reductions ───────────────────────────────────────────────────────────────────────────────────


def _reduction(call: Call) -> list[Op]:
    """Along the last dimension a row is summed by one block; along others, columns are."""
    if not call.inputs:
        return []
    source, made = call.inputs[0], call.outputs[0]
    if made.elements == source.elements:
        return _pointwise(call)
    along_rows = _keeps_leading(source.shape, made.shape)
    form = "reduce_rows" if along_rows else "reduce_columns"
    return [_op(call._replace(inputs=(source,)), "reduction", form)]


def _keeps_leading(source: tuple[int, ...], made: tuple[int, ...]) -> bool:
    """Whether what is left are leading dimensions (the last one was summed)."""
    left = [n for n in made if n != 1]
    return prod(left) == prod(source[: len(source) - 1]) if left else True


def _softmax(call: Call) -> list[Op]:
    back = "backward" in call.op
    inputs = call.inputs[:2] if back else call.inputs[:1]
    form = "softmax_backward" if back else "softmax"
    return [_op(call._replace(inputs=inputs), "reduction", form)]


def _norm(call: Call) -> list[Op]:
    back = "backward" in call.op
    form = "norm_backward" if back else "norm"
    return [_op(call, "reduction", form)]


def _loss(call: Call) -> list[Op]:
    """nll_loss looks one element of each row up; its backward first fills the whole gradient."""
    made = call.outputs[0]
    if "backward" not in call.op:
        picked = call.inputs[1]._replace(dtype=call.inputs[0].dtype)
        return [_op(call._replace(inputs=(picked, call.inputs[1])), "movement", "gather")]
    fill = _op(call._replace(inputs=(), outputs=(made,)), "pointwise", "fill")
    target = call.inputs[2]
    return [fill, _op(call._replace(inputs=(target,), outputs=(target,)), "movement", "gather")]


# ── movement ─────────────────────────────────────────────────────────────────────────────────────


def _cat(call: Call) -> list[Op]:
    return [_op(call, "movement", "cat", call.outputs[0].elements)]


def _gather(call: Call) -> list[Op]:
    """Rows or elements picked from a table: as much is read as is written."""
    made = call.outputs[0]
    index = tuple(a for a in call.inputs if a.dtype in ("int64", "int32", "bool"))
    picked = call.inputs[0]._replace(shape=made.shape, strides=made.strides)
    return [_op(call._replace(inputs=(picked, *index)), "movement", "gather", made.elements)]


def _scatter(call: Call) -> list[Op]:
    source = max(call.inputs[1:], key=lambda a: a.elements, default=call.inputs[0])
    return [_op(call._replace(outputs=(source,)), "movement", "scatter", source.elements)]


def _embedding_backward(call: Call) -> list[Op]:
    """Fill the table's gradient, then add the rows up, sorted by their index."""
    made, (grad, index) = call.outputs[0], call.inputs[:2]
    fill = _op(call._replace(inputs=()), "pointwise", "fill")
    add = call._replace(inputs=(grad, index), outputs=(grad,))
    return [fill, _op(add, "movement", "scatter", grad.elements, table=float(made.elements))]


def _slice_backward(call: Call) -> list[Op]:
    """Zeros of the whole, then a copy of the part."""
    part = call.inputs[0]
    inner = part._replace(storage=call.outputs[0].storage)
    copy = call._replace(inputs=(part,), outputs=(inner,))
    return [
        _op(call._replace(inputs=()), "pointwise", "fill"),
        _op(copy, "pointwise", "strided", part.elements),
    ]


# ── lists of tensors ─────────────────────────────────────────────────────────────────────────────


def _foreach(call: Call) -> list[Op]:
    """One kernel walks over a list of tensors, a few megabytes to a launch."""
    elements = max(sum(a.elements for a in call.inputs), 1)
    lists = max(1, round(len(call.inputs) / max(_list_length(call), 1)))
    launches = max(1, -(-elements // (lists * CHUNK)))
    made = call.outputs or call.inputs[: _list_length(call)]
    if base_name(call.op) == "_foreach_norm":
        made = ()
    return [_op(call._replace(outputs=tuple(made)), "pointwise", "foreach", launches=launches)]


def _list_length(call: Call) -> int:
    """How many tensors each of its lists holds: those before the first shape comes again."""
    if call.outputs:
        return len(call.outputs)
    shapes = [a.shape for a in call.inputs]
    count = len(shapes)
    for lists in (4, 3, 2):
        each = count // lists
        if count % lists == 0 and shapes[:each] * lists == shapes:
            return each
    return count


def _fused_optimizer(call: Call) -> list[Op]:
    """One pass over weights, gradients and both moments; all but the gradients are written."""
    arrays = [a for a in call.inputs if a.elements > 1 or a.device != HOST]
    count = len(arrays) // 5 or 1
    moved = arrays[: 4 * count]
    written = (*moved[:count], *moved[2 * count : 4 * count])
    done = call._replace(inputs=tuple(moved), outputs=tuple(written))
    launches = max(1, -(-sum(a.elements for a in moved[:count]) // CHUNK))
    return [_op(done, "pointwise", "fused_optimizer", launches=launches)]


def _nothing(call: Call) -> list[Op]:
    return []


_Family = Callable[[Call], list[Op]]
_FAMILIES: Final[dict[str, _Family]] = {
    **dict.fromkeys(("mm", "addmm", "_scaled_mm", "mv", "addmv", "dot"), plain_product),
    **dict.fromkeys(("bmm", "baddbmm"), batched_product),
    **dict.fromkeys(("convolution", "_convolution", "cudnn_convolution"), convolution),
    "convolution_backward": convolution_backward,
    **dict.fromkeys(
        (
            "_scaled_dot_product_flash_attention", "_scaled_dot_product_cudnn_attention",
            "_scaled_dot_product_efficient_attention",
            "_scaled_dot_product_flash_attention_for_cpu",
        ),
        attention,
    ),
    **dict.fromkeys(
        (
            "_scaled_dot_product_flash_attention_backward",
            "_scaled_dot_product_cudnn_attention_backward",
            "_scaled_dot_product_efficient_attention_backward",
            "_scaled_dot_product_flash_attention_for_cpu_backward",
        ),
        attention_backward,
    ),
    **dict.fromkeys(("copy", "_to_copy", "clone", "contiguous"), _copy),
    **dict.fromkeys(
        ("fill", "zero", "zeros", "ones", "full", "zeros_like", "ones_like", "full_like",
         "new_zeros", "new_ones", "new_full", "arange", "scalar_tensor"), _fill
    ),
    **dict.fromkeys(
        ("randn", "rand", "randint", "normal", "uniform", "bernoulli", "rand_like",
         "randn_like", "random", "exponential"), _random
    ),
    **dict.fromkeys(
        ("sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "any", "all", "norm",
         "var", "var_mean", "std", "prod", "logsumexp", "linalg_vector_norm", "nansum"),
        _reduction,
    ),
    **dict.fromkeys(
        ("_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data",
         "_safe_softmax"), _softmax
    ),
    **dict.fromkeys(
        ("native_layer_norm", "native_layer_norm_backward", "_fused_rms_norm",
         "_fused_rms_norm_backward", "native_group_norm", "native_group_norm_backward",
         "native_batch_norm", "native_batch_norm_backward", "_native_batch_norm_legit",
         "cudnn_batch_norm", "cudnn_batch_norm_backward", "_native_batch_norm_legit_functional",
         "batch_norm_backward", "_batch_norm_with_update"), _norm
    ),
    **dict.fromkeys(("nll_loss_forward", "nll_loss_backward", "nll_loss2d_forward",
                     "nll_loss2d_backward"), _loss),
    "cat": _cat, "stack": _cat,
    **dict.fromkeys(
        ("index", "gather", "index_select", "embedding", "take", "_index"), _gather
    ),
    **dict.fromkeys(
        ("index_put", "scatter", "scatter_add", "index_add", "index_copy", "_index_put_impl",
         "scatter_reduce", "index_fill"), _scatter
    ),
    "embedding_dense_backward": _embedding_backward,
    **dict.fromkeys(("slice_backward", "select_backward", "unfold_backward"), _slice_backward),
    **dict.fromkeys(("record_stream", "is_same_size", "_assert_async"), _nothing),
}  # fmt: skip
