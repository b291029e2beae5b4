"""Calls that run on a matrix engine, as ops of the IR: products and attention."""

from __future__ import annotations

from typing import Final

from trueflops.capture.lower.kernels import base_name, flags
from trueflops.dtypes import of_torch
from trueflops.graph.alignment import FULL, alignment
from trueflops.graph.formats import FORMATS
from trueflops.graph.ir import Dims, Op, Tensor
from trueflops.graph.kinds import Kind, Role
from trueflops.graph.rules import STATISTIC_BITS
from trueflops.graph.variants import AttentionKernel
from trueflops.records.recording import Call, RecordedTensor
from trueflops.sizes import Size
from trueflops.units import BITS_PER_BYTE

_KERNELS: Final = {
    "flash": AttentionKernel.FA2,
    "cudnn": AttentionKernel.CUDNN,
    "efficient": AttentionKernel.EFFICIENT,
    "flex": AttentionKernel.TRITON,
}


def product_dtype(call: Call, array: RecordedTensor) -> str:
    """The dtype that a product computes in."""
    if array.dtype == "float32" and call.tf32:
        return "tf32"
    return of_torch(array.dtype).product


def sized(array: RecordedTensor, dims: Dims, role: Role = Role.ACTIVATION) -> Tensor:
    """An array as an operand with these dimensions, as many bytes as really lie in memory.

    A convolution's windows overlap, and a broadcast operand is stored once.
    """
    made = Tensor(f"s{array.storage}", dims, array.bits, role=role)
    if made.elements == float(array.distinct):
        return made
    return Tensor(made.name, dims, array.bits * array.distinct / float(made.elements), role=role)


# ── products ─────────────────────────────────────────────────────────────────────────────────────


def plain_product(call: Call) -> list[Op]:
    """Mm, addmm and mv: [m,k]·[k,n], a bias added on the way out."""
    a, b, bias = _operands(call, 2)
    columns = b.shape[1] if len(b.shape) > 1 else 1
    return [_product(call, 1, a.shape[0], columns, a.shape[1], a, b, bias)]


def batched_product(call: Call) -> list[Op]:
    """Bmm and baddbmm."""
    a, b, bias = _operands(call, 3)
    return [_product(call, a.shape[0], a.shape[1], b.shape[2], a.shape[2], a, b, bias)]


def narrow_product(call: Call) -> list[Op]:
    """Weights of 4 or 8 bits, widened as they are read: [m,k]·[packed], then their scales."""
    a, packed, *scales = call.inputs
    rows, k = a.shape
    columns, inner = ("columns", float(call.outputs[0].shape[1])), ("inner", float(k))
    stored = sum(array.bytes for array in (packed, *scales)) * BITS_PER_BYTE
    bits = stored / (columns[1] * k)
    weight = Tensor(f"s{packed.storage}", (columns, inner), bits, role=Role.WEIGHT)
    x, y = sized(a, (("rows", float(rows)), inner)), call.outputs[0]
    made = sized(y, (("rows", float(rows)), columns))
    return [
        Op(base_name(call.op), Kind.MATMUL, (x,), (made,), weights=(weight,),
           dtype=product_dtype(call, a), part=call.module,
           variant=FORMATS["int4" if "int4" in call.op else "w8a16"])
    ]  # fmt: skip


def grouped_product(call: Call) -> list[Op]:
    """Rows of many experts side by side; how they are dealt is not known: evenly.

    A 2-dimensional operand holds all groups, a 3-dimensional one a matrix for each.
    """
    a, b = call.inputs[:2]
    made = call.outputs[0]
    groups = next((x.shape[0] for x in (a, b, made) if len(x.shape) == 3), 1)
    m, n, k = float(made.shape[-2]), float(made.shape[-1]), float(a.shape[-1])
    if len(made.shape) == 3 and len(a.shape) == 2:
        k /= groups  # gradients of weights: each group sums over rows of its own
    elif len(a.shape) == 2:
        m /= groups
    elif len(b.shape) == 2:
        n /= groups
    return [_product(call, groups, m, n, k, a, b, None)]


def _operands(
    call: Call, rank: int
) -> tuple[RecordedTensor, RecordedTensor, RecordedTensor | None]:
    """The two that are multiplied; in front of them may stand what is added."""
    adds = "add" in call.op.split(".")[1] and len(call.inputs) > 2
    left, right = call.inputs[1:3] if adds else call.inputs[:2]
    if len(left.shape) != rank:
        raise ValueError(f"{call.op} of {len(left.shape)} dimensions")
    return left, right, call.inputs[0] if adds else None


def _product(
    call: Call,
    batch: int,
    m: float,
    n: float,
    k: float,
    a: RecordedTensor,
    b: RecordedTensor,
    bias: RecordedTensor | None,
) -> Op:
    many = (("batch", float(batch)),) if batch > 1 else ()
    rows, columns, inner = ("rows", float(m)), ("columns", float(n)), ("inner", float(k))
    x = sized(a, (*many, rows, inner))
    weights = [sized(b, (*many, columns, inner), Role.WEIGHT)]
    if bias is not None:
        added = Tensor(f"s{bias.storage}.bias", (("added", float(bias.distinct)),), bias.bits)
        weights.append(added)
    y = sized(call.outputs[0], (*many, rows, columns))
    dtype = product_dtype(call, a)
    name = call.op.split(".")[1]
    facts: dict[str, Size] = {
        "loads": min(row_alignment(a), row_alignment(b)),
        "stores": row_alignment(call.outputs[0]),
    }
    return Op(name, Kind.MATMUL, (x,), (y,), weights=tuple(weights), dtype=dtype, part=call.module,
              facts=facts)  # fmt: skip


def row_alignment(array: RecordedTensor) -> float:
    """Bytes at whose multiples every row of a matrix starts, up to those of the widest load."""
    rows, columns = array.shape[-2:] if len(array.shape) > 1 else (1, *array.shape[-1:])
    steps = array.strides[-2:] if len(array.strides) > 1 else (1, *array.strides[-1:])
    lying = [step for size, step in zip((rows, columns), steps, strict=True) if size > 1]
    leading = [step for step in lying if step != 1]
    batches = [s for n, s in zip(array.shape[:-2], array.strides[:-2], strict=True) if n > 1]
    return min(
        (
            float(alignment(n, array.bits / BITS_PER_BYTE))
            for n in (*leading, *batches, array.offset)
        ),
        default=FULL,
    )


# ── attention ────────────────────────────────────────────────────────────────────────────────────


def attention(call: Call) -> list[Op]:
    """One fused kernel: queries, keys and values in, their mixture out."""
    q, k, v = call.inputs[:3]
    if not q.elements:
        return []
    said = flags(call)
    # cuDNN's and the memory-efficient kernel are first asked whether to keep the log-sum-exp.
    asked = said[1:] if "cudnn" in call.op or "efficient" in call.op else said
    return [_attend(call, q, k, v, call.outputs[0], _seen(call, q, k, causal=any(asked[:1])))]


def attention_backward(call: Call) -> list[Op]:
    """grad_out, query, key, value, out, …"""
    grad, q, k, v = call.inputs[:4]
    if not q.elements:
        return []
    forward = _attend(call, q, k, v, grad, _seen(call, q, k, causal=any(flags(call)[:1])))
    reads = (*forward.inputs, *forward.outputs, forward.outputs[0].gradient())
    writes = tuple(t.gradient() for t in forward.inputs)
    return [
        Op("attention", Kind.ATTENTION_BACKWARD, reads, writes, dtype=forward.dtype,
           part=call.module, facts=forward.facts, of=forward, variant=forward.variant)
    ]  # fmt: skip


def _seen(call: Call, q: RecordedTensor, k: RecordedTensor, *, causal: bool) -> float:
    """Keys that a query looks at, on average."""
    if "flex" in call.op:  # it says so itself
        return next(n for n in call.numbers if isinstance(n, float))
    queries, keys = float(q.shape[2]), float(k.shape[2])
    if not causal:
        return keys
    # Aligned to the upper left, as torch does: a query sees itself and all before it.
    within = min(queries, keys)
    return ((within + 1.0) / 2.0 * within + keys * (queries - within)) / queries


def _attend(
    call: Call,
    q: RecordedTensor,
    k: RecordedTensor,
    v: RecordedTensor,
    out: RecordedTensor,
    seen: float,
) -> Op:
    batch, heads, queries, width = (float(n) for n in q.shape)
    kv_heads, keys, value = float(k.shape[1]), float(k.shape[2]), float(v.shape[3])
    tokens, stretch = (("batch", batch), ("seq", queries)), (("batch", batch), ("keys", keys))
    tq = Tensor(_name(q), (*tokens, ("heads", heads), ("head_dim", width)), q.bits)
    tk = Tensor(_name(k), (*stretch, ("kv_heads", kv_heads), ("head_dim", width)), k.bits)
    tv = Tensor(_name(v), (*stretch, ("kv_heads", kv_heads), ("value_dim", value)), v.bits)
    made = Tensor(_name(out), (*tokens, ("heads", heads), ("value_dim", value)), out.bits)
    rows = (*tokens, ("heads", heads))
    normaliser = Tensor(f"{_name(out)}.logsumexp", rows, STATISTIC_BITS, role=Role.INDEX)
    kernel = next((ours for word, ours in _KERNELS.items() if word in call.op), None)
    if kernel is AttentionKernel.CUDNN and _is_masked(call, int(keys)):
        kernel = AttentionKernel.CUDNN_MASKED
    if kernel is AttentionKernel.EFFICIENT and q.dtype == "float32":
        kernel = AttentionKernel.EFFICIENT_SINGLE
    return Op(
        "attention", Kind.ATTENTION, (tq, tk, tv), (made, normaliser),
        dtype=product_dtype(call, q), part=call.module,
        facts={"keys": keys, "seen": seen, "drawn": _drawn(call)}, variant=kernel,
    )  # fmt: skip


def _drawn(call: Call) -> float:
    """Random numbers for each pair of a query and a key: one, with dropout."""
    if "flex" in call.op:
        return 0.0
    share = next((n for n in call.numbers if isinstance(n, float)), 0.0)
    return float(share > 0.0)


def _is_masked(call: Call, keys: int) -> bool:
    """Whether cuDNN's kernel reads a bias, be it the same one for every query."""
    beside = call.inputs[6 if "backward" in call.op else 3 :]
    return any(len(a.shape) > 1 and a.shape[-1] == keys for a in beside)


def _name(array: RecordedTensor) -> str:
    return f"s{array.storage}"
