"""Products, convolutions and recurrent layers of a graph, plain and narrow."""

from __future__ import annotations

from math import prod
from typing import Final

from trueflops.interop.onnx.contrib import broadcast
from trueflops.interop.onnx.nodes import (
    AtenCall,
    BadNode,
    Node,
    transposed,
    viewed,
)
from trueflops.records.call_text import plain_strides
from trueflops.records.recording import RecordedTensor

FOUR_BITS: Final = ("int4", "fp4")
_GATES: Final = {"LSTM": 4, "GRU": 3, "RNN": 1}
_MODES: Final = {"RNN": 0, "LSTM": 2, "GRU": 3}  # cuDNN's numbers


def matmul(node: Node) -> list[AtenCall]:
    """MatMul and FusedMatMul, whose operands may be turned."""
    a, b = node.need(0), node.need(1)
    return _multiply(
        node, _turned(a, node.whole("transA")), _turned(b, node.whole("transB")), node.made
    )


def _turned(array: RecordedTensor, flag: int) -> RecordedTensor:
    if not flag or len(array.shape) < 2:
        return array
    order = (*range(len(array.shape) - 2), len(array.shape) - 1, len(array.shape) - 2)
    return array._replace(
        shape=tuple(array.shape[i] for i in order), strides=tuple(array.strides[i] for i in order)
    )


def _multiply(
    node: Node, a: RecordedTensor, b: RecordedTensor, y: RecordedTensor
) -> list[AtenCall]:
    """One product where the right operand is a matrix, else one for each of a batch."""
    a, b = _eight(a), _eight(b)
    if len(a.shape) < 2:
        a = viewed(a, (1, *a.shape))
    if len(b.shape) < 2:
        b = viewed(b, (*b.shape, 1))
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    if b.shape[-2] != k:
        raise BadNode
    many = prod(b.shape[:-2])
    if many == 1:
        rows = prod(a.shape[:-1])
        left = a if len(a.shape) == 2 else viewed(a, (rows, k))
        right = b._replace(shape=(k, n), strides=b.strides[-2:])
        if b.dtype in FOUR_BITS:
            return [AtenCall("_weight_int4pack_mm", (left, right), (viewed(y, (rows, n)),))]
        name = "_int_mm" if b.dtype == "int8" else "mm"
        return [AtenCall(name, (left, right), (viewed(y, (rows, n)),))]
    batch = prod(broadcast(a.shape[:-2], b.shape[:-2]))
    left, right = _batched(a, batch), _batched(b, batch)
    return [AtenCall("bmm", (left, right), (viewed(y, (batch, m, n)),))]


def _batched(array: RecordedTensor, batch: int) -> RecordedTensor:
    """Its matrices as one list; one matrix for all of them is stored once."""
    own = prod(array.shape[:-2])
    rows, columns = array.shape[-2:]
    step = rows * columns if own > 1 else 0
    return array._replace(
        shape=(batch, rows, columns), strides=(step, array.strides[-2], array.strides[-1])
    )


def _eight(array: RecordedTensor) -> RecordedTensor:
    """Matrix engines multiply signed and unsigned bytes alike."""
    return array._replace(dtype="int8") if array.dtype == "uint8" else array


def gemm(node: Node) -> list[AtenCall]:
    """Gemm and FusedGemm: what is added comes last."""
    a, b, bias = node.need(0), node.need(1), node.operand(2)
    a = transposed(a) if node.whole("transA") else a
    b = transposed(b) if node.whole("transB") else b
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[0]:
        raise BadNode
    a, b = _eight(a), _eight(b)
    if bias is None:
        return [AtenCall("_int_mm" if b.dtype == "int8" else "mm", (a, b), (node.made,))]
    return [AtenCall("addmm", (bias, a, b), (node.made,))]


def einsum(node: Node) -> list[AtenCall]:
    """Two operands: letters of both and of the result are a batch, of both alone are summed."""
    text = bytes(node.attributes.get("equation", b"")).decode(errors="replace").replace(" ", "")
    sides, arrow, made = text.partition("->")
    words = sides.split(",")
    if not arrow or len(words) != 2 or len(node.given) != 2 or "." in text:
        return []
    size: dict[str, int] = {}
    for word, array in zip(words, node.given, strict=True):
        if len(word) != len(array.shape):
            raise BadNode
        size |= dict(zip(word, array.shape, strict=True))
    left, right = (set(word) for word in words)

    def span(letters: set[str]) -> int:
        return prod(size[letter] for letter in letters)

    many, inner = span(left & right & set(made)), span((left & right) - set(made))
    m, n = span((left - right) & set(made)), span((right - left) & set(made))
    a, b = node.given
    if (left ^ right) - set(made) or many * m * inner != a.elements:
        return []
    shapes = ((many, m, inner), (many, inner, n), (many, m, n))
    x, w, y = (viewed(t, s) for t, s in zip((_eight(a), _eight(b), node.made), shapes, strict=True))
    if many > 1:
        return [AtenCall("bmm", (x, w), (y,))]
    flat = [viewed(t, t.shape[1:]) for t in (x, w, y)]
    return [AtenCall("mm", flat[:2], flat[2:])]


# ── narrow ───────────────────────────────────────────────────────────────────────────────────────


def stored_narrow(node: Node) -> list[AtenCall]:
    """MatMulNBits: weights of a few bits with scales by block, widened as they are read."""
    a, packed = node.need(0), node.need(1)
    n, bits = node.whole("N"), node.whole("bits", 4)
    rows = prod(a.shape[:-1])
    x, y = viewed(a, (rows, a.shape[-1])), viewed(node.made, (rows, n))
    scales = [s for s in (node.operand(2), node.operand(3)) if s is not None]
    name = "_weight_int8pack_mm" if bits > 4 else "_weight_int4pack_mm"
    calls = [AtenCall(name, (x, packed, *scales), (y,))]
    bias = node.operand(5)
    return [*calls, AtenCall("add_", (y, bias), (y,))] if bias is not None else calls


def integer_matmul(node: Node) -> list[AtenCall]:
    """MatMulInteger, MatMulIntegerToFloat: bytes in, sums out."""
    return _multiply(node, node.need(0), node.need(1), node.made)


def requantised_matmul(node: Node) -> list[AtenCall]:
    """QLinearMatMul: a, its scale and zero, b, …: bytes in and out."""
    return _multiply(node, node.need(0), node.need(3), node.made)


def requantised_gemm(node: Node) -> list[AtenCall]:
    """QGemm: a, its scale and zero, b, …; what is added is part of the scaling."""
    a = _turned(node.need(0), node.whole("transA"))
    return _multiply(node, a, _turned(node.need(3), node.whole("transB")), node.made)


def quantising_matmul(node: Node) -> list[AtenCall]:
    """DynamicQuantizeMatMul: finds the range of its input, narrows it, multiplies."""
    a = node.need(0)
    narrow = node.new(a.shape, "int8")
    return [*narrowing(node, a, narrow), *_multiply(node, narrow, node.need(1), node.made)]


def narrowing(node: Node, wide: RecordedTensor, narrow: RecordedTensor) -> list[AtenCall]:
    """The range of all elements first, then each of them."""
    ends = node.new((2,), wide.dtype)
    return [
        AtenCall("aminmax", (wide,), (ends,)),
        AtenCall("quantize_per_tensor", (wide, ends), (narrow,)),
    ]


# ── windows ──────────────────────────────────────────────────────────────────────────────────────


def convolution(node: Node) -> list[AtenCall]:
    """Conv and ConvTranspose."""
    return _convolve(node, node.need(0), node.need(1), node.operand(2))


def fused_convolution(node: Node) -> list[AtenCall]:
    """FusedConv: bias and activation are part of cuDNN's kernel."""
    return _convolve(node, node.need(0), node.need(1), None)


def integer_convolution(node: Node) -> list[AtenCall]:
    """ConvInteger."""
    return _convolve(node, node.need(0), node.need(1), None)


def requantised_convolution(node: Node) -> list[AtenCall]:
    """QLinearConv: x, its scale and zero, w, …; the bias is part of the scaling."""
    return _convolve(node, node.need(0), node.need(3), None)


def _convolve(
    node: Node, x: RecordedTensor, w: RecordedTensor, bias: RecordedTensor | None
) -> list[AtenCall]:
    places = len(x.shape) - 2
    if places < 1 or len(w.shape) != len(x.shape):
        raise BadNode
    steps = node.wholes("strides") or [1] * places
    pads = node.wholes("pads")[:places] or [0] * places
    gaps = node.wholes("dilations") or [1] * places
    other_way = node.op == "ConvTranspose"
    extra = node.wholes("output_padding") or [0] * places
    groups = max(node.whole("group", 1), 1)
    given = (_eight(x), _eight(w)) if bias is None else (_eight(x), _eight(w), bias)
    numbers = (steps, pads, gaps, other_way, extra, groups)
    return [AtenCall("convolution", given, (node.made,), numbers)]


# ── recurrent layers ─────────────────────────────────────────────────────────────────────────────


def recurrent(node: Node) -> list[AtenCall]:
    """LSTM, GRU and RNN: one layer in one or two directions, by cuDNN."""
    x, w, r = node.need(0), node.need(1), node.need(2)
    hidden = node.whole("hidden_size", r.shape[-1])
    ways, gates = w.shape[0], _GATES[node.op] * hidden
    if len(x.shape) != 3 or w.shape[1:] != (gates, x.shape[2]) or r.shape[1:] != (gates, hidden):
        raise BadNode
    each = [whole._replace(shape=whole.shape[1:], strides=plain_strides(whole.shape[1:]))
            for whole in (w, r)]  # fmt: skip
    weights = each * ways
    layout = bool(node.whole("layout"))
    numbers = (2, _MODES[node.op], hidden, 0, 1, layout, False, ways == 2)
    return [AtenCall("_cudnn_rnn", (x, *weights), node.results, numbers)]
