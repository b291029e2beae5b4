"""Ops as plain PyTorch code writes them: one eager kernel for every function that is called.

A hand-written kernel norms a row in one pass; Hugging Face's `LlamaRMSNorm` is eight functions on
fp32 copies, its rotation five, its loss a cast, a log-softmax and a pick, and its projections are
products of their own (transformers/models/llama/modeling_llama.py, loss/loss_utils.py). GPT-2's
activation is eight functions (activations.py, NewGELUActivation), and an attention that is not
fused scales, masks and narrows its scores (`eager_attention_forward` of each model). Their
gradients follow from those of the functions, as autograd's do. Run before differentiating.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from trueflops.graph.functions import call, half, named, rows_of
from trueflops.graph.ir import Graph, Node, Op, Tensor
from trueflops.graph.kinds import Function, Kind, Role
from trueflops.graph.rules import NARROW_BITS, STATISTIC_BITS
from trueflops.graph.shapes import products_of
from trueflops.graph.variants import Activation, EagerKernel

VECTOR, STRIDED, WIDEN = EagerKernel.VECTOR, EagerKernel.STRIDED, EagerKernel.WIDEN


class _Code:
    """The calls that one op is written as, in order."""

    def __init__(self, op: Op) -> None:
        self.op = op
        self.calls: list[Op] = []

    def __call__(
        self,
        name: str,
        kernel: EagerKernel,
        function: Function | None,
        inputs: tuple[Tensor, ...],
        made: Tensor,
        weights: tuple[Tensor, ...] = (),
    ) -> Tensor:
        """One more call; what it makes is returned, so that code reads like formulas."""
        full = f"{self.op.name}.{name}"
        self.calls.append(
            call(full, kernel, inputs, (made,), function=function, weights=weights, like=self.op)
        )
        return made


def write_out(
    graph: Graph, *, compiled: bool, autocast: bool = False, wide_softmax: bool = False
) -> Graph:
    """Every op that a program writes in more than one call, or in a call of its own class.

    `autocast`: powers and softmaxes are computed in fp32 (torch 2.11 on an H200: their results).
    `wide_softmax`: the model asks for that itself, as Llama's code does.
    """
    nodes: list[Node] = []
    table: dict[Kind, Callable[[Op], list[Op]]] = {
        **_WRITTEN,
        Kind.ACTIVATION: partial(_activation, wide=autocast),
        Kind.SOFTMAX: partial(_softmax, wide=autocast or wide_softmax),
    }
    if compiled:
        table[Kind.ATTENTION] = _masked
    for node in graph.forward:
        write = table.get(node.kind) if isinstance(node, Op) else None
        nodes += write(node) if write and isinstance(node, Op) else [node]
    return replace(graph, forward=tuple(nodes))


def _products(op: Op) -> list[Op]:
    """A product for each weight; an input that several read gets the sum of their gradients.

    Some families pack the projections of attention into one weight: GPT-2's `c_attn`, MPT's `Wqkv`,
    `query_key_value` of BLOOM, Falcon and GPT-NeoX.
    """
    pairs = products_of(op)
    if len(pairs) == 1 or "packed" in op.facts:
        return [op]
    return [
        op.changed(name=weights[0].name, outputs=made, weights=weights) for made, weights in pairs
    ]


def _norm(op: Op) -> list[Op]:
    """x·rsqrt(mean(x²) + ε) in fp32, then the gain; nn.LayerNorm is one kernel."""
    x, y = op.inputs[0], op.outputs[0]
    if any(weight.name.endswith(".bias") for weight in op.weights):
        return _as(op, EagerKernel.NORM, Function.LAYER_NORM)
    code = _Code(op)

    def a_row(name: str) -> Tensor:
        return Tensor(f"{op.name}.{name}", rows_of(x), STATISTIC_BITS)

    wide = x  # under autocast it is fp32 already, and what is returned is, too
    if x.bits < STATISTIC_BITS:
        to = named(x, f"{op.name}.wide", STATISTIC_BITS)
        wide = code("widen", WIDEN, Function.CAST, (x,), to)
    squared = code("square", VECTOR, Function.SQUARE, (wide,), named(wide, "squared"))
    mean = code("mean", EagerKernel.REDUCE_ROWS, Function.MEAN, (squared,), a_row("mean"))
    shifted = code("shift", VECTOR, Function.ADD, (mean,), a_row("shifted"))
    root = code("root", VECTOR, Function.INVERSE_ROOT, (shifted,), a_row("root"))
    last = y if wide is x and not op.weights else named(wide, f"{op.name}.unscaled")
    narrow = code("scale", STRIDED, Function.SCALE_ROWS, (wide, root), last)
    if wide is not x:
        to = named(x, f"{op.name}.scaled") if op.weights else y
        narrow = code("narrow", VECTOR, Function.CAST, (narrow,), to)
    if op.weights:
        code("gain", STRIDED, Function.GAIN, (narrow,), y, op.weights)
    return code.calls


def _rotation(op: Op) -> list[Op]:
    """x·cos + rotate_half(x)·sin of queries and of keys."""
    if len(op.inputs) != len(op.outputs):  # latents are joined as they are rotated
        return [op]
    code = _Code(op)
    for x, y in zip(op.inputs, op.outputs, strict=True):
        by_cos = code(f"{x.name}.cos", STRIDED, Function.BY_COSINE, (x,), named(y, "by_cos"))
        negated = code(f"{x.name}.negate", STRIDED, None, (half(x),), half(named(y, "negated")))
        both = (half(x), negated)
        turned = named(y, "turned")
        code(f"{x.name}.join", EagerKernel.CAT, Function.ROTATE_HALF, both, turned)
        by_sin = code(f"{x.name}.sin", STRIDED, Function.BY_SINE, (turned,), named(y, "by_sin"))
        code(f"{x.name}.add", STRIDED, Function.ADD, (by_cos, by_sin), y)
    return code.calls


def _loss(op: Op) -> list[Op]:
    """Logits are widened, unless the loss is as narrow as they are, turned into logarithms of
    probabilities, and one of each row is picked.

    A compiler's fused loss stays one op.
    """
    logits, (loss, softmax) = op.inputs[0], op.outputs
    code = _Code(op)
    wide = logits
    if softmax.bits > logits.bits:
        wide = code("widen", WIDEN, Function.CAST, (logits,), named(logits, "wide", STATISTIC_BITS))
    code("log_softmax", EagerKernel.SOFTMAX, Function.LOG_SOFTMAX, (wide,), softmax)
    picked = Tensor(softmax.name, loss.dims, softmax.bits, Role.INDEX)
    code("pick", EagerKernel.LOSS, None, (picked,), loss)
    return code.calls


def _lookup(op: Op) -> list[Op]:
    (written,) = _as(op, EagerKernel.GATHER, Function.LOOKUP)
    return [written.changed(facts={**written.facts, **op.facts})]


def _masked(op: Op) -> list[Op]:
    """Attention under torch.compile: transformers then cannot tell that its mask is only causal
    (masking_utils.py, `_ignore_causal_mask_sdpa`), hands it over as a tensor, so that no key is
    skipped, and repeats keys and values for every head (sdpa_attention.py, `use_gqa_in_sdpa`).
    """
    q, k, v = op.inputs
    heads, code, repeated = dict(q.dims)["heads"], _Code(op), []
    for x in (k, v):
        dims = tuple((name, heads if name == "kv_heads" else size) for name, size in x.dims)
        wide = Tensor(f"{x.name}.repeated", dims, x.bits)
        repeated.append(code(f"{x.name}.repeat", VECTOR, Function.REPEAT, (x,), wide))
    facts = {**op.facts, "seen": op.facts["keys"], "needed": op.facts["seen"]}
    return [*code.calls, op.changed(inputs=(q, *repeated), facts=facts)]


def _activation(op: Op, *, wide: bool) -> list[Op]:
    if op.variant is Activation.RELU:
        return _as(op, VECTOR, Function.RELU)
    if op.variant is Activation.NEW_GELU:
        return _new_gelu(op, wide=wide)
    return _as(op, EagerKernel.MATH, Function.SILU)


def _new_gelu(op: Op, *, wide: bool) -> list[Op]:
    """½x · (1 + tanh(√(2/π) · (x + 0.044715·x³))); autocast has the power in fp32, and what
    follows from it.
    """
    (x,), (y,), code = op.inputs, op.outputs, _Code(op)
    bits = STATISTIC_BITS if wide else x.bits

    def made(name: str) -> Tensor:
        return named(x, f"{op.name}.{name}", bits)

    lifted = code("widen", WIDEN, Function.CAST, (x,), made("wide")) if wide else x
    cube = code("cube", VECTOR, Function.SQUARE, (lifted,), made("cube"))
    small = code("small", VECTOR, Function.SCALE, (cube,), made("small"))
    inner = code("inner", VECTOR, Function.ADD, (x, small), made("inner"))
    scaled = code("scale", VECTOR, Function.SCALE, (inner,), made("scaled"))
    bent = code("tanh", EagerKernel.MATH, Function.TANH, (scaled,), made("bent"))
    shifted = code("shift", VECTOR, Function.ADD, (bent,), made("shifted"))
    halved = code("half", VECTOR, Function.SCALE, (x,), named(x, f"{op.name}.halved"))
    last = made("product") if wide else y
    code("multiply", VECTOR, Function.MULTIPLY, (halved, shifted), last)
    if wide:
        code("narrow", VECTOR, Function.CAST, (last,), y)
    return code.calls


def _scores(op: Op) -> list[Op]:
    """A product, a scale, and a mask that is added: the same for every head."""
    (scores,), code = op.outputs, _Code(op)
    raw = named(scores, "raw")
    scaled = code("scale", VECTOR, Function.SCALE, (raw,), named(scores, "scaled"))
    code("mask", STRIDED, Function.ADD, (scaled,), scores)
    return [op.changed(outputs=(raw,)), *code.calls]


def _softmax(op: Op, *, wide: bool) -> list[Op]:
    """Of the scores, in their dtype or in fp32, and then narrowed for the product with values.

    Only fp16 is widened inside of the kernel: one kernel on an H200 for softmax(dtype=float32) of
    fp16, two of bf16 (torch 2.11, as its profiler shows them).
    """
    scores, weights = op.inputs[0], op.outputs[0]
    if op.weights or scores.bits >= STATISTIC_BITS:  # with sinks: a code of its own
        return [op]
    code = _Code(op)
    made = named(weights, "wide", STATISTIC_BITS) if wide else weights
    if wide and op.dtype != "fp16":
        to = named(scores, "wide", STATISTIC_BITS)
        scores = code("widen", WIDEN, Function.CAST, (scores,), to)
    code("softmax", EagerKernel.SOFTMAX, Function.SOFTMAX, (scores,), made)
    if wide:
        code("narrow", VECTOR, Function.CAST, (made,), weights)
    return code.calls


def _add(op: Op) -> list[Op]:
    """Of two tensors; learned positions are added as they are looked up."""
    return _as(op, VECTOR, Function.ADD) if len(op.inputs) > 1 else [op]


def _cast(op: Op) -> list[Op]:
    """To another dtype, as autograd sees it; what narrows for a format's product stays as it is."""
    if op.outputs[0].bits < NARROW_BITS:
        return [op]
    wider = op.outputs[0].bits > op.inputs[0].bits
    return _as(op, WIDEN if wider else VECTOR, Function.CAST)


def _as(op: Op, kernel: EagerKernel, function: Function) -> list[Op]:
    """The same op as one eager kernel."""
    weights = op.weights
    return [
        call(op.name, kernel, op.inputs, op.outputs, function=function, weights=weights, like=op)
    ]


_WRITTEN: Final[dict[Kind, Callable[[Op], list[Op]]]] = {
    Kind.MATMUL: _products,
    Kind.NORM: _norm,
    Kind.ROPE: _rotation,
    Kind.SCORES: _scores,
    Kind.MULTIPLY: lambda op: _as(op, VECTOR, Function.MULTIPLY),
    Kind.SCALE: lambda op: _as(op, VECTOR, Function.SCALE),
    Kind.CAST: _cast,
    Kind.ADD: _add,
    Kind.EMBEDDING: _lookup,
    Kind.CROSS_ENTROPY: _loss,
}
