"""Which calls of ATen a node is: a table of rules, and those that need few words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Final

from trueflops.interop.onnx import attention as attends
from trueflops.interop.onnx import products
from trueflops.interop.onnx.nodes import AtenCall, Node, viewed
from trueflops.records.call_text import plain_strides

Rule = Callable[[Node], list[AtenCall]]
"""The calls that a node is; none where the rule does not know."""
VIEWS: Final = frozenset(
    ("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Dropout", "Optional")
)
"""Nodes that launch nothing: their result is their input, in another shape."""
_POINTWISE: Final = {
    "Abs": "abs", "Acos": "acos", "Add": "add", "And": "logical_and", "Asin": "asin",
    "Atan": "atan", "BiasAdd": "add", "BiasGelu": "gelu", "BitShift": "bitwise_left_shift",
    "BitwiseAnd": "bitwise_and", "BitwiseNot": "bitwise_not", "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor", "Ceil": "ceil", "Celu": "celu", "Clip": "clamp", "Cos": "cos",
    "Cosh": "cosh", "Div": "div", "Elu": "elu", "Equal": "eq", "Erf": "erf", "Exp": "exp",
    "FastGelu": "gelu", "Floor": "floor", "Gelu": "gelu", "Greater": "gt", "GreaterOrEqual": "ge",
    "HardSigmoid": "hardsigmoid", "HardSwish": "hardswish", "IsInf": "isinf", "IsNaN": "isnan",
    "LeakyRelu": "leaky_relu", "Less": "lt", "LessOrEqual": "le", "Log": "log", "Max": "maximum",
    "Mean": "add", "Min": "minimum", "Mish": "mish", "Mod": "remainder", "Mul": "mul", "Neg": "neg",
    "Not": "logical_not", "Or": "logical_or", "PRelu": "prelu", "Pow": "pow",
    "QLinearAdd": "add", "QLinearLeakyRelu": "leaky_relu", "QLinearMul": "mul",
    "QLinearSigmoid": "sigmoid", "QuickGelu": "silu", "Reciprocal": "reciprocal", "Relu": "relu",
    "Round": "round", "Selu": "elu", "Shrink": "hardshrink", "Sigmoid": "sigmoid", "Sign": "sgn",
    "Sin": "sin", "Sinh": "sinh", "Softplus": "softplus", "Softsign": "div", "Sqrt": "sqrt",
    "Sub": "sub", "Sum": "add", "Swish": "silu", "Tan": "tan", "Tanh": "tanh",
    "ThresholdedRelu": "threshold", "Trilu": "tril", "Where": "where", "Xor": "logical_xor",
    "BiasSplitGelu": "gelu", "QuantizeLinear": "quantize_per_tensor",
    "DequantizeLinear": "dequantize", "DepthToSpace": "pixel_shuffle",
    "SpaceToDepth": "pixel_unshuffle", "ReverseSequence": "flip", "Col2Im": "col2im",
    "GridSample": "grid_sampler_2d", "LRN": "mul", "OneHot": "eq", "EyeLike": "eye",
    "Atanh": "atanh", "Acosh": "acosh", "Asinh": "asinh",
}  # fmt: skip
_REDUCES: Final = {
    "ReduceSum": "sum.dim_IntList", "ReduceMean": "mean.dim", "ReduceMax": "amax",
    "ReduceMin": "amin", "ReduceProd": "prod.dim_int", "ReduceL1": "linalg_vector_norm",
    "ReduceL2": "linalg_vector_norm", "ReduceSumSquare": "linalg_vector_norm",
    "ReduceLogSumExp": "logsumexp", "ReduceLogSum": "logsumexp",
}  # fmt: skip
_POOLS: Final = {
    "MaxPool": "max_pool{}d_with_indices", "AveragePool": "avg_pool{}d", "LpPool": "avg_pool{}d",
}  # fmt: skip


def _pointwise(node: Node) -> list[AtenCall]:
    """One kernel over the elements of the result; scales and zeros of a number are nothing."""
    return [AtenCall(_POINTWISE[node.op], node.given, node.results)]


def _cast(node: Node) -> list[AtenCall]:
    return [AtenCall("_to_copy", (node.need(0),), (node.made,))]


def _range_first(node: Node) -> list[AtenCall]:
    """DynamicQuantizeLinear."""
    return products.narrowing(node, node.need(0), node.made)


# ── moving ───────────────────────────────────────────────────────────────────────────────────────


def _transpose(node: Node) -> list[AtenCall]:
    """A copy that reads in another order: onnxruntime knows no strides."""
    x = node.need(0)
    order = node.wholes("perm") or list(range(len(x.shape)))[::-1]
    read = x._replace(
        shape=tuple(x.shape[i] for i in order), strides=tuple(x.strides[i] for i in order)
    )
    return [AtenCall("clone", (read,), (node.made,))]


def _copy_of_part(node: Node) -> list[AtenCall]:
    """Slice: what is kept is read, wherever it lies."""
    x, y = node.need(0), node.made
    return [AtenCall("clone", (x._replace(shape=y.shape),), (y,))]


def _expand(node: Node) -> list[AtenCall]:
    """Expand: what is repeated is stored once."""
    x, y = node.need(0), node.made
    padded = (1,) * (len(y.shape) - len(x.shape)) + x.shape
    steps = plain_strides(padded)
    strides = tuple(0 if n == 1 else s for n, s in zip(padded, steps, strict=True))
    return [AtenCall("clone", (x._replace(shape=y.shape, strides=strides),), (y,))]


def _repeat(node: Node) -> list[AtenCall]:
    return [AtenCall("repeat", (node.need(0),), (node.made,))]


def _split(node: Node) -> list[AtenCall]:
    """One kernel writes all parts."""
    return [AtenCall("split_with_sizes_copy", (node.need(0),), node.results)]


def _pad(node: Node) -> list[AtenCall]:
    return [AtenCall("constant_pad_nd", (node.need(0),), (node.made,))]


def _concat(node: Node) -> list[AtenCall]:
    return [AtenCall("cat", node.given, (node.made,))]


def _gather(node: Node) -> list[AtenCall]:
    table, index = node.need(0), node.need(1)
    rows = len(table.shape) == 2 and node.whole("axis") == 0
    return [AtenCall("embedding" if rows else "index_select", (table, index), (node.made,))]


def _narrow_rows(node: Node) -> list[AtenCall]:
    """GatherBlockQuantized: few rows are read narrow and written wide."""
    table, index = node.need(0), node.need(1)
    share = max(index.elements, 1)
    rows = viewed(table, (share, max(table.elements // max(table.shape[0], 1), 1)))
    return [AtenCall("onnx.gather_block_quantized", (rows, index), (node.made,))]


def _look_up(op: str) -> Rule:
    return lambda node: [AtenCall(op, (node.need(0), node.need(1)), (node.made,))]


def _put(op: str) -> Rule:
    def rule(node: Node) -> list[AtenCall]:
        table, index, values = (node.need(i) for i in range(3))
        return [AtenCall(op, (table, index, values), (node.made,))]

    return rule


def _fill(node: Node) -> list[AtenCall]:
    """ConstantOfShape, Range, random numbers: nothing is read."""
    name = "rand" if "Random" in node.op or node.op == "Bernoulli" else "full"
    return [AtenCall(name, (), node.results)]


def _sorted(op: str) -> Rule:
    return lambda node: [AtenCall(op, (node.need(0),), node.results)]


def _resize(node: Node) -> list[AtenCall]:
    nearest = bytes(node.attributes.get("mode", b"nearest")) == b"nearest"
    name = "upsample_nearest2d" if nearest else "upsample_bilinear2d"
    return [AtenCall(name, (node.need(0),), (node.made,))]


# ── norms and reductions ─────────────────────────────────────────────────────────────────────────


def _norm(node: Node) -> list[AtenCall]:
    """Layer and RMS norms, with what is added before: one kernel reads all of it."""
    name = "_fused_rms_norm" if "Simplified" in node.op or "RMS" in node.op else "native_layer_norm"
    results = [node.made, *(a for a in node.outputs[3:4] if a is not None)]  # statistics stay here
    return [AtenCall(name, node.given, results)]


def _batch_norm(node: Node) -> list[AtenCall]:
    training = bool(node.whole("training_mode"))
    return [AtenCall("native_batch_norm", node.given, node.results, (training,))]


def _group_norm(node: Node) -> list[AtenCall]:
    return [AtenCall("native_group_norm", node.given, (node.made,))]


def _embedded_norm(node: Node) -> list[AtenCall]:
    """EmbedLayerNormalization: rows of three tables, added and normalised."""
    made = node.made
    tables = [t for t in (node.operand(2), node.operand(3), node.operand(4)) if t is not None]
    rows = [t._replace(shape=made.shape, strides=made.strides) for t in tables]
    rest = [a for a in (node.operand(0), node.operand(5), node.operand(6)) if a is not None]
    return [AtenCall("native_layer_norm", (*rows, *rest), (made,))]


def _reduce(node: Node) -> list[AtenCall]:
    x = node.need(0)
    given = node.numbers(1)
    axes = [int(n) for n in given] if given else node.wholes("axes")
    dims = axes or list(range(len(x.shape)))
    return [
        AtenCall(_REDUCES[node.op], (x,), (node.made,), (dims, bool(node.whole("keepdims", 1))))
    ]


def _global_pool(node: Node) -> list[AtenCall]:
    x = node.need(0)
    name = "amax" if "Max" in node.op else "mean.dim"
    return [AtenCall(name, (x,), (node.made,), (list(range(2, len(x.shape))), True))]


def _best(op: str) -> Rule:
    return lambda node: [AtenCall(op, (node.need(0),), (node.made,), (node.whole("axis"),))]


def _softmax(node: Node) -> list[AtenCall]:
    name = "_log_softmax" if "Log" in node.op else "_softmax"
    return [AtenCall(name, (node.need(0),), (node.made,), (node.whole("axis", -1), False))]


def _scan(node: Node) -> list[AtenCall]:
    return [AtenCall("cumsum", (node.need(0),), (node.made,))]


def _pool(node: Node) -> list[AtenCall]:
    x = node.need(0)
    name = _POOLS[node.op].format(len(x.shape) - 2)
    numbers = (node.wholes("kernel_shape"), node.wholes("strides"), node.wholes("pads"))
    return [AtenCall(name, (x,), node.results, numbers)]


def _rotary(node: Node) -> list[AtenCall]:
    """Each element with its neighbour, by rows of two small tables."""
    x = node.need(0)
    width = x.shape[-1] // 2 if len(x.shape) == 4 else node.whole("rotary_embedding_dim", 128) // 2
    rows = prod(x.shape[:2]) if len(x.shape) == 3 else x.shape[0] * x.shape[2]
    tables = [t._replace(shape=(rows, max(width, 1)), strides=(0, 1))
              for t in node.given if t is not x and len(t.shape) >= 2][-2:]  # fmt: skip
    return [AtenCall("onnx.rotary", (x, *tables), (node.made,))]


def _experts(node: Node) -> list[AtenCall]:
    """MoE: rows go to `k` experts each; two products in groups with an activation between.

    QMoE packs its weights in ways of its own: no rule.
    """
    x, first, second = node.need(0), node.need(2), node.need(5 if node.op == "QMoE" else 4)
    if node.op == "QMoE" or len(first.shape) != 3:
        return []
    hidden = x.shape[-1]
    rows = prod(x.shape[:-1]) * node.whole("k", 1)
    wide = max(first.elements // first.shape[0] // hidden, 1)
    inner = max(second.elements // second.shape[0] // hidden, 1)
    fed, act = node.new((rows, hidden), x.dtype), node.new((rows, inner), x.dtype)
    up, down = node.new((rows, wide), x.dtype), node.new((rows, hidden), x.dtype)
    w1 = viewed(first, (first.shape[0], hidden, wide))
    w2 = viewed(second, (second.shape[0], inner, hidden))
    return [
        AtenCall("index_select", (x, node.need(1)._replace(dtype="int64")), (fed,)),
        AtenCall("_grouped_mm", (fed, w1), (up,)),
        AtenCall("silu", (up,), (act,)),
        AtenCall("_grouped_mm", (act, w2), (down,)),
        AtenCall("index_add_", (node.made, down), (node.made,)),
    ]


RULES: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(_POINTWISE, _pointwise),
    **dict.fromkeys(("Cast", "CastLike"), _cast),
    "DynamicQuantizeLinear": _range_first,
    **dict.fromkeys(("MatMul", "FusedMatMul", "TransposeMatMul"), products.matmul),
    **dict.fromkeys(("Gemm", "FusedGemm", "GemmFastGelu"), products.gemm),
    "Einsum": products.einsum,
    **dict.fromkeys(("MatMulNBits", "MatMulBnb4"), products.stored_narrow),
    **dict.fromkeys(("MatMulInteger", "MatMulIntegerToFloat"), products.integer_matmul),
    "QLinearMatMul": products.requantised_matmul,
    "QGemm": products.requantised_gemm,
    "DynamicQuantizeMatMul": products.quantising_matmul,
    **dict.fromkeys(("Conv", "ConvTranspose"), products.convolution),
    "FusedConv": products.fused_convolution,
    "ConvInteger": products.integer_convolution,
    "QLinearConv": products.requantised_convolution,
    **dict.fromkeys(("LSTM", "GRU", "RNN"), products.recurrent),
    "Attention": attends.attention,
    "QAttention": attends.quantised_attention,
    "MultiHeadAttention": attends.multi_head,
    "GroupQueryAttention": attends.grouped_query,
    "Transpose": _transpose, "Slice": _copy_of_part, "Expand": _expand, "Tile": _repeat,
    "Split": _split, "Pad": _pad, "Concat": _concat, "QLinearConcat": _concat, "Gather": _gather,
    "CenterCropPad": _pad, "Resize": _resize, "Upsample": _resize,
    "GatherElements": _look_up("gather"), "GatherND": _look_up("index"),
    "GatherBlockQuantized": _narrow_rows,
    "ScatterND": _put("index_put"), "ScatterElements": _put("scatter"), "Scatter": _put("scatter"),
    **dict.fromkeys(
        ("ConstantOfShape", "Range", "RandomNormal", "RandomUniform", "RandomNormalLike",
         "RandomUniformLike", "Bernoulli"), _fill
    ),
    "TopK": _sorted("topk"), "NonZero": _sorted("nonzero"), "Unique": _sorted("sort"),
    **dict.fromkeys(
        ("LayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization",
         "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), _norm
    ),
    "BatchNormalization": _batch_norm,
    **dict.fromkeys(
        ("InstanceNormalization", "GroupNormalization", "GroupNorm", "SkipGroupNorm"), _group_norm
    ),
    "EmbedLayerNormalization": _embedded_norm,
    **dict.fromkeys(_REDUCES, _reduce),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool", "QLinearGlobalAveragePool"),
                    _global_pool),
    "ArgMax": _best("argmax"), "ArgMin": _best("argmin"),
    **dict.fromkeys(("Softmax", "LogSoftmax", "QLinearSoftmax", "BiasSoftmax"), _softmax),
    "CumSum": _scan,
    **dict.fromkeys(_POOLS, _pool),
    "RotaryEmbedding": _rotary,
    **dict.fromkeys(("MoE", "QMoE"), _experts),
}  # fmt: skip
