"""Calls that run on a matrix engine, as ops of the IR: products, convolutions, attention."""

from __future__ import annotations

from math import prod
from typing import Final

from trueflops.capture.recording import Array, Call
from trueflops.graph.ir import Op, Tensor
from trueflops.graph.rules import STATISTIC_BITS

_FORMATS: Final = {
    "bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float64": "fp64",
    "float8_e4m3fn": "fp8", "float8_e5m2": "fp8", "int8": "int8",
}  # fmt: skip
_KERNELS: Final = {"flash": "fa2", "cudnn": "cudnn", "efficient": "fa2"}


def number_format(dtype: str) -> str:
    """The catalog's name of a type of torch."""
    return _FORMATS.get(dtype, "fp32")


def plain_product(call: Call) -> list[Op]:
    """Mm and addmm: [m,k]·[k,n], a bias added on the way out."""
    matrices = [a for a in call.inputs if len(a.shape) == 2]
    if len(matrices) < 2:
        return []
    a, b = matrices[-2:] if "addmm" in call.op else matrices[:2]
    return [_product(call, 1, a.shape[0], b.shape[1], a.shape[1], a, b)]


def batched_product(call: Call) -> list[Op]:
    """Bmm and baddbmm."""
    cubes = [a for a in call.inputs if len(a.shape) == 3]
    a, b = cubes[-2:]
    return [_product(call, a.shape[0], a.shape[1], b.shape[2], a.shape[2], a, b)]


def _product(call: Call, batch: int, m: int, n: int, k: int, a: Array, b: Array) -> Op:
    dtype = number_format(a.dtype)
    many = (("batch", float(batch)),) if batch > 1 else ()
    x = Tensor(_name(a), (*many, ("rows", float(m)), ("inner", float(k))), a.bits)
    w = Tensor(_name(b), (*many, ("columns", float(n)), ("inner", float(k))), b.bits, "weight")
    bits = call.outputs[0].bits
    y = Tensor(_name(call.outputs[0]), (*many, ("rows", float(m)), ("columns", float(n))), bits)
    name = call.op.split(".")[1]
    return Op(name, "matmul", (x,), (y,), (w,), dtype=dtype, part=call.module)


def _name(array: Array) -> str:
    return f"s{array.storage}"


# ── convolution, as the implicit product that a library runs ─────────────────────────────────────


def convolution(call: Call) -> list[Op]:
    """Rows = batch · places, columns = channels out, inner = channels in · window."""
    x, weight = call.inputs[:2]
    return [_window(call, "convolution", x, weight, call.outputs[0], "matmul")]


def convolution_backward(call: Call) -> list[Op]:
    """The gradients of the input and of the weights, each a product as large as the forward."""
    grad, x, weight = call.inputs[:3]
    ops = []
    for made in call.outputs:
        if made.shape == x.shape:
            ops.append(_window(call, "convolution.input", x, weight, grad, "dgrad"))
        elif made.shape == weight.shape:
            ops.append(_window(call, "convolution.weight", x, weight, grad, "wgrad"))
    return ops


def _window(call: Call, name: str, x: Array, weight: Array, y: Array, kind: str) -> Op:
    out, per_group = weight.shape[0], prod(weight.shape[1:])
    transposed = len(y.shape) > 1 and y.shape[1] != out
    groups = max(1, round(x.shape[1] / weight.shape[1])) if not transposed else 1
    rows = float(y.shape[0] * prod((x if transposed else y).shape[2:]))
    many = (("batch", float(groups)),) if groups > 1 else ()
    columns, inner = ("columns", out / groups), ("inner", float(per_group))
    # What is read is the input, not the windows that an explicit product would copy out of it.
    a = Tensor(_name(x), (*many, ("rows", rows), inner), x.bits * x.elements / (
        groups * rows * per_group))  # fmt: skip
    w = Tensor(_name(weight), (*many, columns, inner), weight.bits, "weight")
    b = Tensor(_name(y), (*many, ("rows", rows), columns), y.bits)
    dtype = number_format(weight.dtype)
    forward = Op(name, "matmul", (a,), (b,), (w,), dtype=dtype, part=call.module)
    if kind == "matmul":
        return forward
    reads = (b,) if kind == "dgrad" else (a, b)
    writes = (a,) if kind == "dgrad" else (w,)
    weights = (w,) if kind == "dgrad" else ()
    return Op(name, kind, reads, writes, weights, dtype=dtype, part=call.module, of=forward)


# ── attention ────────────────────────────────────────────────────────────────────────────────────


def attention(call: Call) -> list[Op]:
    """One fused kernel: queries, keys and values in, their mixture out."""
    q, k, v = call.inputs[:3]
    return [_attend(call, q, k, v, call.outputs[0])]


def attention_backward(call: Call) -> list[Op]:
    """grad_out, query, key, value, out, …"""
    grad, q, k, v = call.inputs[:4]
    forward = _attend(call, q, k, v, call.inputs[4] if len(call.inputs) > 4 else grad)
    reads = (*forward.inputs, *forward.outputs, forward.outputs[0].gradient())
    writes = tuple(t.gradient() for t in forward.inputs)
    return [
        Op("attention", "attention_backward", reads, writes, dtype=forward.dtype,
           part=call.module, facts=forward.facts, of=forward, form=forward.form)
    ]  # fmt: skip


def _attend(call: Call, q: Array, k: Array, v: Array, out: Array) -> Op:
    batch, heads, queries, width = (float(n) for n in q.shape)
    kv_heads, keys, value = float(k.shape[1]), float(k.shape[2]), float(v.shape[3])
    causal = any(n is True for n in call.numbers)
    # Aligned to the upper left, as torch does: a query sees itself and all before it.
    seen = (min(queries, keys) + 1.0) / 2.0 if causal else keys
    tokens, stretch = (("batch", batch), ("seq", queries)), (("batch", batch), ("keys", keys))
    tq = Tensor(_name(q), (*tokens, ("heads", heads), ("head_dim", width)), q.bits)
    tk = Tensor(_name(k), (*stretch, ("kv_heads", kv_heads), ("head_dim", width)), k.bits)
    tv = Tensor(_name(v), (*stretch, ("kv_heads", kv_heads), ("value_dim", value)), v.bits)
    made = Tensor(_name(out), (*tokens, ("heads", heads), ("value_dim", value)), out.bits)
    rows = (*tokens, ("heads", heads))
    normaliser = Tensor(f"{_name(out)}.logsumexp", rows, STATISTIC_BITS, "index")
    kernel = next((ours for word, ours in _KERNELS.items() if word in call.op), "")
    return Op(
        "attention", "attention", (tq, tk, tv), (made, normaliser), dtype=number_format(q.dtype),
        part=call.module, facts={"keys": keys, "seen": seen}, form=kernel,
    )  # fmt: skip
