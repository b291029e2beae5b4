"""Ops as plain PyTorch code writes them: one eager kernel for every function that is called.

A hand-written kernel norms a row in one pass; Hugging Face's `LlamaRMSNorm` is eight functions on
fp32 copies, its rotation five, its loss a cast, a log-softmax and a pick, and its projections are
products of their own (transformers/models/llama/modeling_llama.py, loss/loss_utils.py). Their
gradients follow from those of the functions, as autograd's do. Run before differentiating.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from trueflops.graph.functions import call, half, named, rows_of
from trueflops.graph.ir import Graph, Node, Op, Tensor
from trueflops.graph.rules import STATISTIC_BITS
from trueflops.graph.shapes import products_of


def write_out(graph: Graph, *, compiled: bool) -> Graph:
    """Every op that a program writes in more than one call, or in a call of its own class."""
    nodes: list[Node] = []
    table = {**_WRITTEN, "attention": _masked} if compiled else _WRITTEN
    for node in graph.forward:
        write = table.get(node.kind) if isinstance(node, Op) else None
        nodes += write(node) if write and isinstance(node, Op) else [node]
    return graph.having(forward=tuple(nodes))


def _products(op: Op) -> list[Op]:
    """A product for each weight; an input that several read gets the sum of their gradients."""
    pairs = products_of(op)
    if len(pairs) == 1:
        return [op]
    return [
        replace(op, name=weights[0].name, outputs=made, weights=weights) for made, weights in pairs
    ]


def _norm(op: Op) -> list[Op]:
    """x·rsqrt(mean(x²) + ε) in fp32, then the gain; nn.LayerNorm is one kernel."""
    x, y = op.inputs[0], op.outputs[0]
    if any(weight.name.endswith(".bias") for weight in op.weights):
        return [_as(op, "norm", "layer_norm")]
    wide = named(x, f"{op.name}.wide", STATISTIC_BITS)
    squared = named(wide, "squared")
    mean, shifted, root = (
        Tensor(f"{op.name}.{name}", rows_of(x), STATISTIC_BITS)
        for name in ("mean", "shifted", "root")
    )
    scaled = named(wide, "scaled")
    narrow = named(x, f"{op.name}.scaled") if op.weights else y
    written = [
        call(f"{op.name}.widen", "widen", (x,), (wide,), function="cast", like=op),
        call(f"{op.name}.square", "vector", (wide,), (squared,), function="square", like=op),
        call(f"{op.name}.mean", "reduce_rows", (squared,), (mean,), function="mean", like=op),
        call(f"{op.name}.shift", "vector", (mean,), (shifted,), function="add", like=op),
        call(f"{op.name}.root", "vector", (shifted,), (root,), function="inverse_root", like=op),
        call(
            f"{op.name}.scale", "strided", (wide, root), (scaled,), function="scale_rows", like=op
        ),
        call(f"{op.name}.narrow", "vector", (scaled,), (narrow,), function="cast", like=op),
    ]
    if op.weights:
        weights, gain = op.weights, f"{op.name}.gain"
        written.append(
            call(gain, "strided", (narrow,), (y,), function="gain", weights=weights, like=op)
        )
    return written


def _rotation(op: Op) -> list[Op]:
    """x·cos + rotate_half(x)·sin of queries and of keys."""
    if len(op.inputs) != len(op.outputs):  # latents are joined as they are rotated
        return [op]
    written: list[Op] = []
    for x, y in zip(op.inputs, op.outputs, strict=True):
        name = f"{op.name}.{x.name}"
        straight, turned, sined = named(y, "by_cos"), named(y, "turned"), named(y, "by_sin")
        negated = half(named(y, "negated"))
        written += [
            call(f"{name}.cos", "strided", (x,), (straight,), function="by_cosine", like=op),
            call(f"{name}.negate", "strided", (half(x),), (negated,), like=op),
            call(f"{name}.join", "cat", (half(x), negated), (turned,), function="rotate_half",
                 like=op),
            call(f"{name}.sin", "strided", (turned,), (sined,), function="by_sine", like=op),
            call(f"{name}.add", "strided", (straight, sined), (y,), function="add", like=op),
        ]  # fmt: skip
    return written


def _loss(op: Op) -> list[Op]:
    """Logits are widened, turned into logarithms of probabilities, and one of each row is picked.

    A compiler's fused loss stays one op.
    """
    logits, (loss, softmax) = op.inputs[0], op.outputs
    wide = named(logits, "wide", STATISTIC_BITS)
    picked = Tensor(softmax.name, loss.dims, softmax.bits, "index")
    return [
        call(f"{op.name}.widen", "widen", (logits,), (wide,), function="cast", like=op),
        call(f"{op.name}.log_softmax", "softmax", (wide,), (softmax,), function="log_softmax",
             like=op),
        call(f"{op.name}.pick", "gather", (picked,), (loss,), like=op),
    ]  # fmt: skip


def _lookup(op: Op) -> list[Op]:
    written = call(
        op.name, "gather", op.inputs, op.outputs, function="lookup", weights=op.weights, like=op
    )
    return [replace(written, facts={**written.facts, **op.facts})]


def _masked(op: Op) -> list[Op]:
    """Attention under torch.compile: transformers then cannot tell that its mask is only causal
    (masking_utils.py, `_ignore_causal_mask_sdpa`), hands it over as a tensor, so that no key is
    skipped, and repeats keys and values for every head (sdpa_attention.py, `use_gqa_in_sdpa`).
    """
    q, k, v = op.inputs
    heads = dict(q.dims)["heads"]
    repeated = []
    copies: list[Op] = []
    for x in (k, v):
        dims = tuple((name, heads if name == "kv_heads" else size) for name, size in x.dims)
        wide = Tensor(f"{x.name}.repeated", dims, x.bits)
        name = f"{op.name}.{x.name}.repeat"
        copies.append(call(name, "vector", (x,), (wide,), function="repeat", like=op))
        repeated.append(wide)
    facts = {**op.facts, "seen": op.facts["keys"]}
    return [*copies, replace(op, inputs=(q, *repeated), facts=facts)]


def _activation(op: Op) -> list[Op]:
    return [_as(op, "vector", "relu") if op.form == "relu" else _as(op, "math", "silu")]


def _as(op: Op, form: str, function: str) -> Op:
    """The same op as one eager kernel."""
    return call(
        op.name, form, op.inputs, op.outputs, function=function, weights=op.weights, like=op
    )


_WRITTEN: Final[dict[str, Callable[[Op], list[Op]]]] = {
    "matmul": _products,
    "norm": _norm,
    "rope": _rotation,
    "activation": _activation,
    "multiply": lambda op: [_as(op, "vector", "multiply")],
    "add": lambda op: [_as(op, "vector", "add")] if len(op.inputs) > 1 else [op],
    "embedding": _lookup,
    "cross_entropy": _loss,
}
