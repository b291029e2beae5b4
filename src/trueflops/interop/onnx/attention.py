"""Fused attention of a graph: ONNX's own (opset 23) and onnxruntime's."""

from __future__ import annotations

from typing import Final

from trueflops.interop.onnx.nodes import AtenCall, BadNode, Node, viewed
from trueflops.records.recording import RecordedTensor

_HALVES: Final = ("float16", "bfloat16")


def attention(node: Node) -> list[AtenCall]:
    """Two ops of one name: onnxruntime's projects its input itself, ONNX's does not."""
    return _projected(node) if node.contrib else _standard(node)


def quantised_attention(node: Node) -> list[AtenCall]:
    """QAttention: the projection multiplies bytes."""
    return _projected(node)


def _heads(array: RecordedTensor, heads: int) -> RecordedTensor:
    """Batch × length × (heads · width), read as batch × heads × length × width."""
    if len(array.shape) == 4:
        return array
    batch, length, hidden = array.shape
    if heads < 1 or hidden % heads:
        raise BadNode
    width = hidden // heads
    return array._replace(
        shape=(batch, heads, length, width), strides=(length * hidden, width, hidden, 1)
    )


def _attend(
    node: Node,
    q: RecordedTensor,
    k: RecordedTensor,
    v: RecordedTensor,
    made: RecordedTensor,
    *,
    causal: bool,
    mask: RecordedTensor | None = None,
) -> AtenCall:
    """Flash kernels for halves without a mask, else the memory-efficient one."""
    rest = () if mask is None else (mask,)
    out = _heads(made, q.shape[1])
    numbers: tuple[object, ...]
    if q.dtype in _HALVES and mask is None:
        name, numbers = "_scaled_dot_product_flash_attention", (0.0, causal, False)
    else:
        name, numbers = "_scaled_dot_product_efficient_attention", (False, 0.0, causal)
    return AtenCall(name, (q, k, v, *rest), (out,), numbers)


def _standard(node: Node) -> list[AtenCall]:
    q, k, v = (node.need(i) for i in range(3))
    heads = node.whole("q_num_heads") or q.shape[1]
    kv_heads = node.whole("kv_num_heads") or k.shape[1]
    q, k, v = _heads(q, heads), _heads(k, kv_heads), _heads(v, kv_heads)
    calls, k, v = _with_past(node, k, v, 4, 1)
    causal = bool(node.whole("is_causal"))
    return [*calls, _attend(node, q, k, v, node.made, causal=causal, mask=node.operand(3))]


def _with_past(
    node: Node, k: RecordedTensor, v: RecordedTensor, past_at: int, present_at: int
) -> tuple[list[AtenCall], RecordedTensor, RecordedTensor]:
    """Keys and values behind those of earlier steps, written out anew."""
    calls: list[AtenCall] = []
    joined = []
    for i, new in enumerate((k, v)):
        past = node.operand(past_at + i)
        present = node.outputs[present_at + i] if len(node.outputs) > present_at + i else None
        if past is None:
            joined.append(new)
            continue
        length = past.shape[2] + new.shape[2]
        whole = present or node.new((*new.shape[:2], length, new.shape[3]), new.dtype)
        calls.append(AtenCall("cat", (past, new), (whole,)))
        joined.append(whole)
    return calls, joined[0], joined[1]


def _projected(node: Node) -> list[AtenCall]:
    """Attention and QAttention: one product for queries, keys and values, then they attend."""
    x, w = node.need(0), node.need(1)
    bias = node.operand(2)
    heads = node.whole("num_heads")
    sizes = node.wholes("qkv_hidden_sizes") or [w.shape[1] // 3] * 3
    batch, length, hidden = x.shape
    dtype = node.made.dtype
    whole = node.new((batch * length, sum(sizes)), dtype)
    flat = viewed(x, (batch * length, hidden))
    narrow = x.dtype in ("int8", "uint8")
    if narrow:
        flat, w = flat._replace(dtype="int8"), w._replace(dtype="int8")
    if bias is not None and not narrow:
        project = AtenCall("addmm", (bias, flat, w), (whole,))
    else:
        project = AtenCall("_int_mm" if narrow else "mm", (flat, w), (whole,))
    row = sum(sizes)
    q, k, v = (
        whole._replace(
            shape=(batch, heads, length, size // heads),
            strides=(length * row, size // heads, row, 1),
        )
        for size in sizes
    )
    calls = [project]
    past_at = 8 if narrow else 4
    past = node.operand(past_at)
    if past is not None:
        before = past.shape[3]
        present = node.outputs[1] if len(node.outputs) > 1 else None
        both = (2, batch, heads, before + length, sizes[0] // heads)
        present = present or node.new(both, dtype)
        calls.append(AtenCall("cat", (past, k, v), (present,)))
        k, v = (viewed(present, both[1:]) for _ in range(2))
    causal = bool(node.whole("unidirectional"))
    mask = None if narrow else node.operand(5)
    return [*calls, _attend(node, q, k, v, node.made, causal=causal, mask=mask)]


def multi_head(node: Node) -> list[AtenCall]:
    """MultiHeadAttention: its inputs are projected already, perhaps packed."""
    q, k, v, bias = (node.operand(i) for i in range(4))
    heads = node.whole("num_heads")
    if q is None:
        raise BadNode
    calls: list[AtenCall] = []
    if bias is not None:
        calls.append(AtenCall("add_", (q, bias), (q,)))
    if len(q.shape) == 5:
        batch, length, _, _, width = q.shape
        step = (length * heads * 3 * width, 3 * width, heads * 3 * width, 1)
        q = k = v = q._replace(shape=(batch, heads, length, width), strides=step)
    elif k is not None and len(k.shape) == 5:
        batch, length, _, _, width = k.shape
        step = (length * heads * 2 * width, 2 * width, heads * 2 * width, 1)
        k = v = k._replace(shape=(batch, heads, length, width), strides=step)
    if k is None or v is None:
        raise BadNode
    q, k, v = _heads(q, heads), _heads(k, heads), _heads(v, heads)
    joined, k, v = _with_past(node, k, v, 6, 1)
    causal = bool(node.whole("unidirectional"))
    mask = node.operand(5)
    return [*calls, *joined, _attend(node, q, k, v, node.made, causal=causal, mask=mask)]


def grouped_query(node: Node) -> list[AtenCall]:
    """GroupQueryAttention: rotates, appends to the cache, attends, causal."""
    q, k, v = node.need(0), node.operand(1), node.operand(2)
    heads, kv_heads = node.whole("num_heads"), node.whole("kv_num_heads")
    batch, length, hidden = q.shape
    packed = k is None or v is None
    width = hidden // (heads + 2 * kv_heads) if packed else hidden // heads
    row = hidden if packed else heads * width
    queries = q._replace(shape=(batch, heads, length, width), strides=(length * row, width, row, 1))
    if k is None or v is None:
        k = v = q._replace(
            shape=(batch, kv_heads, length, width), strides=(length * row, width, row, 1)
        )
    else:
        k, v = _heads(k, kv_heads), _heads(v, kv_heads)
    calls = []
    if node.whole("do_rotary"):
        calls.append(AtenCall("onnx.rotary", (queries, k), (queries, k)))
    past = node.operand(3)
    data = node.data[6] if len(node.data) > 6 else None
    if past is not None:
        whole = length + past.shape[2] if data is None else int(data.reshape(-1)[0])
        present = node.outputs[1] if len(node.outputs) > 1 else None
        both = (batch, kv_heads, max(whole, length), width)
        cache = present or node.new(both, past.dtype)
        # The new keys and values are put behind the old ones, in a buffer that stays.
        calls.append(AtenCall("index_copy_", (cache, k), (cache,)))
        k = v = viewed(cache, both)
    causal = bool(node.whole("causal", 1)) and length > 1
    return [*calls, _attend(node, queries, k, v, node.made, causal=causal)]
