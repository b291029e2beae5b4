"""What an op of a trace made of its arguments: a trace tells what went in, never what came out.

One rule a family, in FAMILIES; each gives the arguments that matter and the results. A rule that
lacks an argument, or is given shapes that do not go together, gives nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from trueflops.capture.lower.pointwise import MAKES_MASKS
from trueflops.dtypes import of_torch
from trueflops.interop.kineto.arguments import LARGEST, Arguments, Made, new_array
from trueflops.interop.kineto.lists import element_bits, listed_work
from trueflops.records.recording import RecordedTensor

Family = Callable[[Arguments], Made | None]
_OF_BITS: Final = {8: "uint8", 16: "bfloat16", 32: "float32", 64: "int64"}  # any of that width


def _product(g: Arguments) -> Made | None:
    """mm(a, b), addmm(bias, a, b): an out= given behind them is left out."""
    wanted = g.need(0, 1, 2) if g.op.bare.startswith("add") else g.need(0, 1)
    a, b = wanted[-2:]
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[0]:
        return None
    dtype = "bfloat16" if "scaled" in g.op.bare else a.dtype
    return Made(wanted, [new_array((a.shape[0], b.shape[1]), dtype)])


def _batched(g: Arguments) -> Made | None:
    wanted = g.need(0, 1, 2) if g.op.bare == "baddbmm" else g.need(0, 1)
    a, b = wanted[-2:]
    if len(a.shape) != 3 or len(b.shape) != 3 or a.shape[::2] != (b.shape[0], b.shape[1]):
        return None
    return Made(wanted, [new_array((a.shape[0], a.shape[1], b.shape[2]), a.dtype)])


def _attention(causal_at: int, swapped: bool = False) -> Family:
    """q, k, v, … ; `swapped` where heads come after the sequence, as in flash-attn's own ops."""

    def family(g: Arguments) -> Made | None:
        back = "backward" in g.op.bare
        wanted = g.need(0, 1, 2, 3) if back else g.need(0, 1, 2)
        if any(len(a.shape) != 4 for a in wanted):
            return None
        if swapped:
            wanted = [a._replace(shape=tuple(a.shape[i] for i in (0, 2, 1, 3)),
                                 strides=tuple(a.strides[i] for i in (0, 2, 1, 3)))
                      for a in wanted]  # fmt: skip
        q, k, v = wanted[-3:]
        made = [q, k, v] if back else [new_array((*q.shape[:3], v.shape[3]), q.dtype)]
        kind = "cudnn" if "cudnn" in g.op.bare else "efficient" if "effi" in g.op.bare else "flash"
        name = f"_scaled_dot_product_{kind}_attention{'_backward' if back else ''}"
        # As in the schema, but for the log-sum-exp: kept or not, the work is the same.
        kept = () if back or kind == "flash" else (False,)
        return Made(wanted, made, (*kept, 0.0, g.value(causal_at) is True, False), name)

    return family


def _convolution(stride_at: int, padding_at: int, dilation_at: int) -> Family:
    def family(g: Arguments) -> Made | None:
        x, weight = g.need(0, 1)
        steps, pads, gaps = (g.value(i) for i in (stride_at, padding_at, dilation_at))
        places = len(x.shape) - 2
        if places < 1 or len(weight.shape) != len(x.shape) or "transpose" in g.op.bare:
            return None
        if g.op.bare in ("convolution", "_convolution") and g.value(6) is True:  # transposed
            return None
        sizes = []
        for i in range(places):
            step, pad, gap = (_each(v, i, d) for v, d in ((steps, 1), (pads, 0), (gaps, 1)))
            reach = gap * (weight.shape[i + 2] - 1) + 1
            sizes.append((x.shape[i + 2] + 2 * pad - reach) // max(step, 1) + 1)
        if min(sizes) < 1:
            return None
        return Made([x, weight], [new_array((x.shape[0], weight.shape[0], *sizes), x.dtype)],
                    name="convolution")  # fmt: skip

    return family


def _each(value: Any, place: int, default: int) -> int:
    """One of a list of sizes, where a list of one stands for all."""
    sizes = value if isinstance(value, list) and value else [default]
    found = sizes[min(place, len(sizes) - 1)]
    return found if isinstance(found, int) else default


def _convolution_backward(g: Arguments) -> Made | None:
    grad, x, weight = g.need(0, 1, 2)
    mask = g.value(10) if isinstance(g.value(10), list) else [True, True, False]
    made = [a for a, asked in zip((x, weight), mask, strict=False) if asked]
    return Made([grad, x, weight], made)


def pointwise(g: Arguments) -> Made | None:
    """A broadcast over all tensors; in place, the first one."""
    inputs = g.arrays()
    if not inputs:
        return None
    if g.op.in_place:
        return Made(inputs, inputs[:1])
    shape = _broadcast([a.shape for a in inputs])
    if shape is None:
        return None
    decisive = [a for a in inputs if a.shape] or inputs  # a number takes the tensors' type
    dtype = "bool" if g.op.bare in MAKES_MASKS else max((a.dtype for a in decisive), key=_width)
    like = next((a for a in inputs if a.shape == shape and a.dense), None)
    made = like._replace(storage=0, dtype=dtype) if like else new_array(shape, dtype)
    return Made(inputs, [made])


def _broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """Sizes of 1 stretch; others must agree."""
    longest = max(len(s) for s in shapes)
    found = []
    for place in range(1, longest + 1):
        sizes = {s[-place] for s in shapes if len(s) >= place} - {1}
        if len(sizes) > 1:
            return None
        found.append(sizes.pop() if sizes else 1)
    return tuple(reversed(found))


def _width(dtype: str) -> tuple[bool, int]:
    """Floats win over integers, wide ones over narrow ones."""
    return "float" in dtype or "complex" in dtype, of_torch(dtype).bits


def _like_first(g: Arguments) -> Made | None:
    (first,) = g.need(0)
    return Made(g.arrays(), [first._replace(storage=0)])


def _softmax(g: Arguments) -> Made | None:
    (first,) = g.need(0)
    wider = "backward" not in g.op.bare and g.value(2) is True  # half to float
    made = new_array(first.shape, "float32" if wider else first.dtype)
    return Made(g.need(0, 1) if "backward" in g.op.bare else [first], [made])


def _written(g: Arguments) -> Made | None:
    """fill_, zero_, normal_ …: nothing is read."""
    (first,) = g.need(0)
    return Made([first], [first])


def _copy(g: Arguments) -> Made | None:
    made, source = g.need(0, 1)
    return Made([made, source], [made])


def _reduction(g: Arguments) -> Made | None:
    (source,) = g.need(0)
    asked = g.value(2 if g.op.bare in ("linalg_vector_norm", "norm") else 1)
    dims = [asked] if isinstance(asked, int) and not isinstance(asked, bool) else asked
    rank = len(source.shape)
    if not isinstance(dims, list) or not dims or any(
        not isinstance(d, int) or not -rank <= d < rank for d in dims
    ):  # fmt: skip
        dims = list(range(rank))
    gone = {d % rank for d in dims} if rank else set()
    kept = [n for i, n in enumerate(source.shape) if i not in gone]
    dtype = {"argmax": "int64", "argmin": "int64", "any": "bool", "all": "bool"}.get(
        g.op.bare, source.dtype
    )
    return Made([source], [new_array(kept, dtype)])


def _norm_backward(g: Arguments) -> Made | None:
    """grad, input, …: the gradient of the input; those of weights are small."""
    grad, x = g.need(0, 1)
    return Made(g.arrays(), [max((x, grad), key=lambda a: a.elements)._replace(storage=0)])


def _loss(g: Arguments) -> Made | None:
    if "backward" in g.op.bare:
        grad, x, target = g.need(0, 1, 2)
        return Made([grad, x, target], [new_array(x.shape, x.dtype)])
    x, target = g.need(0, 1)
    return Made([x, target], [new_array((), x.dtype)])


def _cat(g: Arguments) -> Made | None:
    bits = element_bits(g.op.kernels)
    pieces = g.many(0, _OF_BITS.get(bits, "bfloat16"))
    axis = g.value(1)
    if not pieces or not isinstance(axis, int) or len({len(a.shape) for a in pieces}) > 1:
        return None
    shape = list(pieces[0].shape)
    if not -len(shape) <= axis < len(shape):
        return None
    shape[axis] = sum(a.shape[axis] for a in pieces)
    return Made(pieces, [new_array(shape, pieces[0].dtype)])


def _lookup(g: Arguments) -> Made | None:
    """Rows or elements that an index picks."""
    if g.op.bare == "embedding":
        table, index = g.need(0, 1)
        return Made([table, index], [new_array((*index.shape, *table.shape[1:]), table.dtype)])
    table, index = g.need(0, 2)
    if g.op.bare == "gather":
        return Made([table, index], [new_array(index.shape, table.dtype)])
    axis, shape = g.value(1), list(table.shape)
    if not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
        return None
    shape[axis] = index.elements
    return Made([table, index], [new_array(shape, table.dtype)])


def _unknowable(g: Arguments) -> Made | None:
    """Results whose size depends on what a trace does not tell: the shapes of indices, values."""
    return None


def _scatter(g: Arguments) -> Made | None:
    inputs = [*g.need(0), *g.many(1, "int64"), *g.arrays()[1:]]
    return Made(inputs, inputs[:1]) if len(inputs) > 1 else None


def _table_gradient(g: Arguments) -> Made | None:
    grad, index = g.need(0, 1)
    rows = g.value(2)
    if not isinstance(rows, int) or not 0 < rows <= LARGEST or not grad.shape:
        return None
    return Made([grad, index], [new_array((rows, grad.shape[-1]), grad.dtype)])


def _dropout(g: Arguments) -> Made | None:
    (x,) = g.need(0)
    return Made([x], [x._replace(storage=0), new_array(x.shape, "bool")])


def list_of_tensors(g: Arguments) -> Made | None:
    """Foreach and fused optimizers: by their shapes, or by the blocks of their kernels."""
    work = listed_work(g.op.kernels)
    if work is None:
        return None
    lists = [many for i in range(len(g)) if (many := g.many(i, work.dtype))]
    if not lists or g.op.bare.startswith("_fused_"):  # shapes of lists beyond 30 are not written
        return _by_blocks(g, work.elements, work.reads, work.dtype)
    if g.op.bare == "_foreach_copy" and len(lists) > 1:
        return Made(lists[1], lists[0])
    return Made([a for many in lists for a in many], lists[0])


def _by_blocks(g: Arguments, elements: int, reads: int, dtype: str) -> Made:
    arrays = [RecordedTensor(i + 1, (elements,), (1,), dtype) for i in range(max(reads, 1))]
    if g.op.bare.startswith("_fused_"):
        return Made([*arrays, new_array((1,), "float32")], arrays[:1])
    return Made(arrays, arrays[:1])


def everything(g: Arguments) -> Made | None:
    """A compiled kernel: what it reads comes first, what it writes last (inductor's order)."""
    arrays = [a for a in g.arrays() if a.shape]
    return Made(arrays[:-1] or arrays, arrays[-1:]) if arrays else None


FAMILIES: Final[dict[str, Family]] = {
    **dict.fromkeys(("mm", "addmm", "_addmm_activation", "_scaled_mm", "_int_mm"), _product),
    **dict.fromkeys(("bmm", "baddbmm"), _batched),
    **dict.fromkeys(("convolution", "_convolution"), _convolution(3, 4, 5)),
    **dict.fromkeys(("cudnn_convolution", "miopen_convolution"), _convolution(3, 2, 4)),
    "convolution_backward": _convolution_backward,
    # where each schema has is_causal
    "_scaled_dot_product_flash_attention": _attention(4),
    "_scaled_dot_product_efficient_attention": _attention(6),
    "_scaled_dot_product_cudnn_attention": _attention(6),
    "_scaled_dot_product_flash_attention_backward": _attention(11),
    "_scaled_dot_product_efficient_attention_backward": _attention(11),
    "_scaled_dot_product_cudnn_attention_backward": _attention(14),
    "_flash_attn_forward": _attention(5, swapped=True),
    "_flash_attn_backward": _attention(11, swapped=True),
    "copy": _copy,
    **dict.fromkeys(("fill", "zero", "normal", "uniform", "bernoulli", "random", "exponential"),
                    _written),
    **dict.fromkeys(
        ("sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "any", "all", "norm",
         "var", "var_mean", "std", "prod", "logsumexp", "linalg_vector_norm", "nansum"),
        _reduction,
    ),
    **dict.fromkeys(("_softmax", "_log_softmax", "_softmax_backward_data",
                     "_log_softmax_backward_data"), _softmax),
    **dict.fromkeys(
        ("native_layer_norm", "_fused_rms_norm", "native_group_norm", "native_batch_norm",
         "cudnn_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update"), _like_first
    ),
    **dict.fromkeys(
        ("native_layer_norm_backward", "_fused_rms_norm_backward", "native_group_norm_backward",
         "native_batch_norm_backward", "cudnn_batch_norm_backward", "batch_norm_backward"),
        _norm_backward,
    ),
    **dict.fromkeys(("nll_loss_forward", "nll_loss_backward", "nll_loss2d_forward",
                     "nll_loss2d_backward"), _loss),
    "cat": _cat,
    **dict.fromkeys(("embedding", "index_select", "gather"), _lookup),
    **dict.fromkeys(("index", "repeat_interleave", "masked_select"), _unknowable),
    **dict.fromkeys(("index_put", "_index_put_impl", "scatter", "scatter_add", "index_add",
                     "index_copy", "scatter_reduce", "index_fill"), _scatter),
    "embedding_dense_backward": _table_gradient,
    "native_dropout": _dropout,
    **dict.fromkeys(("tril", "triu", "roll", "flip"), _like_first),
}  # fmt: skip

OWNERS: Final = {name for name in FAMILIES if name.startswith(("_scaled_dot", "nll_loss"))} | {
    "embedding_dense_backward",
    "index_put",
    "native_dropout",
}
"""Ops whose rule covers what the ops inside them launch: a fill, a sort, the kernel itself."""
