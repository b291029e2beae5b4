"""Shapes of what onnxruntime's own ops make (docs/ContribOperators.md of onnxruntime).

Also of ops that onnxruntime knew in opsets older than those in which ONNX took them over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from trueflops.interop.onnx.nodes import Shape, Value

Made = Sequence[tuple[int, Shape]]
Inputs = Sequence[Value | None]
Rule = Callable[[Mapping[str, Any], Inputs], Made]
_FLOAT, _INT32 = 1, 6


def _at(inputs: Inputs, place: int) -> Value:
    found = _maybe(inputs, place)
    if found is None:
        raise KeyError(place)
    return found


def _maybe(inputs: Inputs, place: int) -> Value | None:
    return inputs[place] if place < len(inputs) else None


def _like_first(attributes: Mapping[str, Any], inputs: Inputs) -> Made:
    x = _at(inputs, 0)
    return [(x.kind, x.shape)]


def _skip_norm(attributes: Mapping[str, Any], inputs: Inputs) -> Made:
    """Result, mean, deviation, and the sum that was normalised."""
    x = _at(inputs, 0)
    one = (*x.shape[:-1], 1)
    return [(x.kind, x.shape), (_FLOAT, one), (_FLOAT, one), (x.kind, x.shape)]


def _embedded(attributes: Mapping[str, Any], inputs: Inputs) -> Made:
    ids, table = _at(inputs, 0), _at(inputs, 2)
    shape = (*ids.shape, table.shape[1])
    return [(table.kind, shape), (_INT32, ids.shape[:1]), (table.kind, shape)]


def broadcast(*shapes: Shape) -> Shape:
    """As numpy does."""
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    found = []
    for sizes in zip(*padded, strict=True):
        wide = {n for n in sizes if n != 1}
        if len(wide) > 1:
            raise ValueError("shapes that do not go together")
        found.append(wide.pop() if wide else 1)
    return tuple(found)


def product_shape(a: Shape, b: Shape) -> Shape:
    """Of MatMul."""
    left, right = a if len(a) > 1 else (1, *a), b if len(b) > 1 else (*b, 1)
    if left[-1] != right[-2]:
        raise ValueError("inner sizes differ")
    rows = left[-2:-1] if len(a) > 1 else ()
    columns = right[-1:] if len(b) > 1 else ()
    return (*broadcast(left[:-2], right[:-2]), *rows, *columns)


def _turned(shape: Shape, flag: object) -> Shape:
    return (*shape[:-2], shape[-1], shape[-2]) if flag and len(shape) > 1 else shape


def _fused_product(attributes: Mapping[str, Any], inputs: Inputs) -> Made:
    a, b = _at(inputs, 0), _at(inputs, 1)
    left = _turned(a.shape, attributes.get("transA", 0))
    right = _turned(b.shape, attributes.get("transB", 0))
    return [(a.kind, product_shape(left, right))]


def _narrow_product(attributes: Mapping[str, Any], inputs: Inputs) -> Made:
    a = _at(inputs, 0)
    return [(a.kind, (*a.shape[:-1], int(attributes["N"])))]


def _scaled_product(scale_at: int) -> Rule:
    """An integer product whose result is scaled back to the type of its scale."""

    def rule(attributes: Mapping[str, Any], inputs: Inputs) -> Made:
        a, b = _at(inputs, 0), _at(inputs, 1)
        return [(_at(inputs, scale_at).kind, product_shape(a.shape, b.shape))]

    return rule


def _requantised_product(attributes: Mapping[str, Any], inputs: Inputs) -> Made:
    """QGemm: bytes where a zero of the result is given, else numbers of the scale's type."""
    left = _turned(_at(inputs, 0).shape, attributes.get("transA", 0))
    right = _turned(_at(inputs, 3).shape, attributes.get("transB", 0))
    of = _maybe(inputs, 8) or _at(inputs, 1)
    return [(of.kind, product_shape(left, right))]


def _joined(attributes: Mapping[str, Any], inputs: Inputs) -> Made:
    """QLinearConcat: scale and zero of the result, then three inputs for every part."""
    parts = [_at(inputs, i) for i in range(2, len(inputs), 3)]
    axis = int(attributes["axis"]) % len(parts[0].shape)
    shape = parts[0].shape
    whole = sum(part.shape[axis] for part in parts)
    return [(parts[0].kind, (*shape[:axis], whole, *shape[axis + 1 :]))]


def _pooled(attributes: Mapping[str, Any], inputs: Inputs) -> Made:
    x = _at(inputs, 0)
    if attributes.get("channels_last", 0):
        return [(x.kind, (x.shape[0], *(1,) * (len(x.shape) - 2), x.shape[-1]))]
    return [(x.kind, (*x.shape[:2], *(1,) * (len(x.shape) - 2)))]


def _typed_by(place: int) -> Rule:
    """As large as the first input, of the type of another one."""

    def rule(attributes: Mapping[str, Any], inputs: Inputs) -> Made:
        return [(_at(inputs, place).kind, _at(inputs, 0).shape)]

    return rule


def _window(attributes: Mapping[str, Any], inputs: Inputs) -> Made:
    """A convolution with its activation."""
    x, w = _at(inputs, 0), _at(inputs, 1)
    places = len(x.shape) - 2
    steps = attributes.get("strides") or [1] * places
    gaps = attributes.get("dilations") or [1] * places
    pads = attributes.get("pads") or [0] * 2 * places
    same = bytes(attributes.get("auto_pad", b"NOTSET")).startswith(b"SAME")
    sizes = []
    for i in range(places):
        reach = gaps[i] * (w.shape[i + 2] - 1) + 1
        around = pads[i] + pads[places + i]
        free = (x.shape[i + 2] + around - reach) // steps[i] + 1
        sizes.append(-(-x.shape[i + 2] // steps[i]) if same else free)
    return [(x.kind, (x.shape[0], w.shape[0], *sizes))]


def _projected_attention(scale_at: int | None) -> Rule:
    """Attention: projects its input to queries, keys and values itself."""

    def rule(attributes: Mapping[str, Any], inputs: Inputs) -> Made:
        x, w = _at(inputs, 0), _at(inputs, 1)
        kind = x.kind if scale_at is None else _at(inputs, scale_at).kind
        heads = int(attributes["num_heads"])
        sizes = attributes.get("qkv_hidden_sizes") or [w.shape[1] // 3] * 3
        past = _maybe(inputs, 8 if scale_at is not None else 4)
        before = past.shape[3] if past is not None else 0
        batch, length = x.shape[:2]
        present = (2, batch, heads, before + length, int(sizes[0]) // heads)
        return [(kind, (batch, length, int(sizes[2]))), (kind, present)]

    return rule


def _multi_head(attributes: Mapping[str, Any], inputs: Inputs) -> Made:
    q, k, v = _at(inputs, 0), _maybe(inputs, 1), _maybe(inputs, 2)
    heads = int(attributes["num_heads"])
    batch, length = q.shape[:2]
    if len(q.shape) == 5:  # batch × length × heads × 3 × width, packed
        width = q.shape[4]
        return [(q.kind, (batch, length, heads * width)),
                *[(q.kind, (batch, heads, length, width))] * 2]  # fmt: skip
    width = q.shape[2] // heads
    if v is None:  # keys and values are packed: batch × keys × heads × 2 × width
        wide, keys = width, k.shape[1] if k is not None else length
    elif len(v.shape) == 4:
        wide, keys = v.shape[3], v.shape[2]
    else:
        wide, keys = v.shape[2] // heads, v.shape[1]
    past = _maybe(inputs, 6)
    whole = keys + (past.shape[2] if past is not None else 0)
    return [
        (q.kind, (batch, length, heads * wide)),
        (q.kind, (batch, heads, whole, width)),
        (q.kind, (batch, heads, whole, wide)),
    ]


def _grouped_query(attributes: Mapping[str, Any], inputs: Inputs) -> Made:
    q, k, past = _at(inputs, 0), _maybe(inputs, 1), _maybe(inputs, 3)
    heads, kv_heads = int(attributes["num_heads"]), int(attributes["kv_num_heads"])
    batch, length, hidden = q.shape
    width = hidden // heads if k is not None else hidden // (heads + 2 * kv_heads)
    whole = cached(past, length, _maybe(inputs, 6))
    present = (batch, kv_heads, whole, width)
    kind = past.kind if past is not None else q.kind
    return [(q.kind, (batch, length, heads * width)), (kind, present), (kind, present)]


def cached(past: Value | None, length: int, total: Value | None) -> int:
    """Keys behind a step: as many as it is told, or those before it and its own."""
    if total is not None and total.data is not None:
        return int(total.data.reshape(-1)[0])
    return length + (past.shape[2] if past is not None else 0)


def _split_gelu(attributes: Mapping[str, Any], inputs: Inputs) -> Made:
    x = _at(inputs, 0)
    return [(x.kind, (*x.shape[:-1], x.shape[-1] // 2))]


def _narrow_rows(attributes: Mapping[str, Any], inputs: Inputs) -> Made:
    """GatherBlockQuantized: rows of a narrow table, widened."""
    table, index, scale = (_at(inputs, i) for i in range(3))
    axis = int(attributes.get("gather_axis", 0)) % len(table.shape)
    bits = int(attributes.get("bits", 4))
    packed = 8 // bits if table.kind == 2 and bits < 8 else 1
    sizes = (*table.shape[:-1], table.shape[-1] * packed)
    return [(scale.kind, (*sizes[:axis], *index.shape, *sizes[axis + 1 :]))]


def _broadcast(*places: int) -> Rule:
    def rule(attributes: Mapping[str, Any], inputs: Inputs) -> Made:
        x = _at(inputs, 0)
        return [(x.kind, broadcast(*(_at(inputs, i).shape for i in places)))]

    return rule


CONTRIB: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(
        ("BiasGelu", "FastGelu", "QuickGelu", "Gelu", "BiasAdd", "RotaryEmbedding", "GroupNorm",
         "QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax", "BiasSoftmax",
         "SkipGroupNorm", "MoE", "QMoE"), _like_first
    ),
    **dict.fromkeys(("SimplifiedLayerNormalization", "LayerNormalization"), _skip_norm),
    **dict.fromkeys(
        ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), _skip_norm
    ),
    "EmbedLayerNormalization": _embedded,
    **dict.fromkeys(
        ("FusedMatMul", "TransposeMatMul", "FusedGemm", "GemmFastGelu"), _fused_product
    ),
    "QGemm": _requantised_product,
    "QLinearConcat": _joined,
    "QLinearGlobalAveragePool": _pooled,
    **dict.fromkeys(("MatMulNBits", "MatMulBnb4"), _narrow_product),
    "DynamicQuantizeMatMul": _scaled_product(2),
    "MatMulIntegerToFloat": _scaled_product(2),
    "QuantizeLinear": _typed_by(2),
    "DequantizeLinear": _typed_by(1),
    **dict.fromkeys(("QLinearAdd", "QLinearMul"), _broadcast(0, 3)),
    "FusedConv": _window,
    "Attention": _projected_attention(None),
    "QAttention": _projected_attention(3),
    "MultiHeadAttention": _multi_head,
    "GroupQueryAttention": _grouped_query,
    "BiasSplitGelu": _split_gelu,
    "GatherBlockQuantized": _narrow_rows,
}  # fmt: skip
