"""One entry per kind of op: the work it does, what its backward needs, and what that backward is.

Work is derived from the tensors, so a sharded op is measured by the same lines as a whole one.
Matmuls count 2·m·n·k flop; attention counts only the keys that a query may see.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from trueflops.graph.functions import DERIVATIVES
from trueflops.graph.ir import Op, Tensor
from trueflops.graph.kinds import LAID_OUT_ATTENTION, Kind, Role
from trueflops.graph.shapes import (
    AttentionShape,
    ExpertShape,
    MatmulShape,
    attention_shape,
    expert_shape,
    laid_out_shape,
    matmul_shape,
    touched_experts,
)
from trueflops.graph.variants import Activation
from trueflops.sizes import Size
from trueflops.units import BITS_PER_BYTE

NARROW_BITS: Final = 16.0  # below this, gradients and residuals stay wider than the product
INDEX_BITS: Final = 64.0  # torch's default integer
STATISTIC_BITS: Final = 32.0  # log-sum-exp and router probabilities stay in fp32
_ADD, _STREAM = Kind.ADD, Kind.STREAM  # bound once: see graph/kinds.py
_ACTIVATION, _INDEX, _WEIGHT = Role.ACTIVATION, Role.INDEX, Role.WEIGHT


class Work(NamedTuple):
    """What a kernel must do at least, wherever it runs."""

    flop: Size
    bytes_read: Size
    bytes_written: Size
    # Of matrix ops alone:
    activation_bytes: Size = 0.0  # of those read; the others are weights and cached keys
    streamed_bytes: Size = 0.0  # these others, of experts only those that one token chooses
    shape: MatmulShape | AttentionShape | ExpertShape | tuple[()] = ()


@dataclass(frozen=True)
class Rule:
    """How one kind of op is measured and differentiated."""

    work: Callable[[Op], Work]
    keeps: Callable[[Op], tuple[Tensor, ...]] = lambda op: ()
    backward: Callable[[Op], tuple[Op, ...]] = lambda op: ()
    pointwise: bool = False  # may join its neighbours in one kernel
    matrix: bool = False  # its flop count as model flop


def work(op: Op) -> Work:
    """The work of any op."""
    return RULES[op.kind].work(op)


def trains(op: Op) -> bool:
    """Whether an op has a weight that is trained."""
    return any(weight.role is _WEIGHT for weight in op.weights)


def model_flop(op: Op, done: Work) -> Size:
    """The part of a forward matrix op's flop that the model needs: no key that the mask hides."""
    if op.kind in LAID_OUT_ATTENTION:
        wide = op.outputs[0] if op.kind is Kind.SCORES else op.inputs[0]
        return done.flop * op.facts["seen"] / dict(wide.dims)["keys"]
    if "needed" in op.facts:  # of a kernel that walks over hidden keys, too
        return done.flop * op.facts["needed"] / op.facts["seen"]
    return done.flop


def total_bytes(tensors: tuple[Tensor, ...]) -> Size:
    """Sum of sizes."""
    total: Size = 0.0
    for tensor in tensors:
        total = total + tensor.bytes
    return total


# ── matmul: y = x·Wᵀ, with one x and one or more W side by side (q, k and v; gate and up) ────────


def _matmul_work(op: Op) -> Work:
    shape, touched = matmul_shape(op), touched_experts(op)
    flop = 2.0 * shape.batch * shape.m * shape.n * shape.k
    activations, weights = total_bytes(op.inputs), total_bytes(op.weights)
    read = activations + weights * touched
    streamed = _chosen_bytes(op, weights, read - activations)
    return Work(flop, read, total_bytes(op.outputs), activations, streamed, shape)


def _chosen_bytes(op: Op, weights: Size, read: Size) -> Size:
    """Bytes of weights that are read at least: all tokens may choose the same experts."""
    routed = "chosen" in op.facts and "routed" in dict(op.inputs[0].dims)
    return op.facts["chosen"] * weights if routed else read


def _matmul_backward(op: Op) -> tuple[Op, ...]:
    d_out = tuple(t.gradient() for t in op.outputs)
    x = op.inputs[0]
    d_weights = tuple(w.gradient() for w in op.weights)
    casts: tuple[Op, ...] = ()
    if x.bits < NARROW_BITS:  # a narrow product wants narrow gradients: one more cast
        narrow = tuple(Tensor(f"{t.name}.narrow", t.dims, x.bits) for t in d_out)
        turned = tuple(
            Tensor(f"{t.name}.transposed", t.dims, t.bits, role=Role.INDEX)
            for t in narrow
            if trains(op)
        )
        casts = (
            Op(f"{op.name}.cast_gradient", Kind.STREAM, d_out, (*narrow, *turned), part=op.part),
        )
        d_out = narrow
    wgrad = op.changed(kind=Kind.WGRAD, inputs=(x, *d_out), outputs=d_weights, weights=(), of=op)
    dgrad = op.changed(kind=Kind.DGRAD, inputs=d_out, outputs=(x.gradient(),), of=op)
    return (*casts, dgrad, wgrad)


# ── experts served by one fused kernel: gate and up, activation, down ────────────────────────────


def _experts_work(op: Op) -> Work:
    e = expert_shape(op)
    flop = 2.0 * e.rows * e.hidden * e.width * (e.up_ways + 1.0)
    activations, weights = total_bytes(op.inputs), total_bytes(op.weights)
    read = activations + weights * e.touched / e.experts
    streamed = _chosen_bytes(op, weights, read - activations)
    return Work(flop, read, total_bytes(op.outputs), activations, streamed, e)


# ── attention, whole (flash) or laid out as scores, softmax, context ─────────────────────────────


def _attention_flop(a: AttentionShape, head_dims: float, value_dims: float) -> Size:
    pairs = a.batch * a.queries * a.heads * a.seen
    return 2.0 * pairs * (head_dims * a.head_dim + value_dims * a.value_dim)


def _attention_work(op: Op) -> Work:
    a = attention_shape(op)
    q, k = op.inputs[:2]
    bits = op.facts.get("key_bits", k.bits)
    cache = a.batch * a.keys * a.kv_heads * (a.head_dim + a.value_dim) * bits / BITS_PER_BYTE
    cache = op.facts.get("cache_bytes", cache)  # a latent cache is shared by all heads
    flop, read, written = _attention_flop(a, 1, 1), q.bytes + cache, total_bytes(op.outputs)
    return Work(flop, read, written, q.bytes, read - q.bytes, a)


def _attention_backward_work(op: Op) -> Work:
    # FlashAttention-2 backward: QKᵀ again, dV = PᵀdO, dP = dOVᵀ, dQ = dS·K, dK = dSᵀQ
    a = attention_shape(op)
    flop, read, queries = _attention_flop(a, 3, 2), total_bytes(op.inputs), op.inputs[0].bytes
    return Work(flop, read, total_bytes(op.outputs), queries, read - queries, a)


def _attention_backward(op: Op) -> tuple[Op, ...]:
    d_inputs = tuple(t.gradient() for t in op.inputs[:3])
    reads = (*op.inputs[:3], *op.outputs, op.outputs[0].gradient())
    return (
        op.changed(
            kind=Kind.ATTENTION_BACKWARD,
            inputs=reads,
            outputs=d_inputs,
            weights=(),
            fused=(),
            of=op,
        ),
    )


def _product_work(op: Op) -> Work:
    """Scores = QKᵀ and context = PV of an unfused attention: `inner` is the summed dimension."""
    forward = op.of or op
    wide = forward.outputs[0] if forward.kind is Kind.SCORES else forward.inputs[0]
    times = 2.0 if op.of else 1.0  # a product has two gradients, each as large
    flop = 2.0 * wide.elements * op.facts["inner"] * times
    read, shape = total_bytes(op.inputs), laid_out_shape(op)
    return Work(flop, read, total_bytes(op.outputs), read, 0.0, shape)


def _product_backward(op: Op) -> tuple[Op, ...]:
    reads = (*op.inputs, op.outputs[0].gradient())
    writes = tuple(t.gradient() for t in op.inputs)
    return (op.changed(kind=Kind.PRODUCT_BACKWARD, inputs=reads, outputs=writes, of=op),)


# ── memory-bound ops: read the inputs, write the outputs ─────────────────────────────────────────


def _stream_work(op: Op) -> Work:
    widest: Size = 0.0
    for tensor in op.outputs:
        widest = widest + tensor.elements
    flop = widest * op.facts.get("flop_per_element", 1.0)
    return Work(flop, total_bytes(op.inputs) + table_bytes(op), total_bytes(op.outputs))


def table_bytes(op: Op) -> Size:
    """What is read of an op's weights: all of them, or the rows of a table that are looked up."""
    return op.facts.get("rows_bytes", total_bytes(op.weights))


def _stream_backward(op: Op) -> tuple[Op, ...]:
    """Read what was kept and the incoming gradients, write the gradients of the inputs."""
    reads = (*RULES[op.kind].keeps(op), *(t.gradient() for t in _differentiable(op.outputs)))
    passed_on = {t.name for part in op.fused if part.kind is _ADD for t in part.inputs[1:]}
    writes = tuple(t.gradient() for t in _differentiable(op.inputs) if t.name not in passed_on)
    if not writes:
        return ()
    return (Op(op.name, _STREAM, reads, writes, dtype=op.dtype, part=op.part, of=op),)


def _computed_backward(op: Op) -> tuple[Op, ...]:
    """A pass over memory that computes, too: every product has two gradients, each as large."""
    backward = _stream_backward(op)
    made: Size = 0.0
    for tensor in (t for part in backward for t in part.outputs):
        made = made + tensor.elements
    flop = 2.0 * _stream_work(op).flop / made
    return tuple(part.changed(facts={"flop_per_element": flop}) for part in backward)


def _differentiable(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(t for t in tensors if t.role is _ACTIVATION)


def _embedding_backward(op: Op) -> tuple[Op, ...]:
    rows = op.outputs[0].gradient()
    return (Op(op.name, _STREAM, (op.inputs[0], rows), (rows,), part=op.part, of=op),)


def _keep_inputs(op: Op) -> tuple[Tensor, ...]:
    return op.inputs


def _keep_activated(op: Op) -> tuple[Tensor, ...]:
    """What went in; a relu's slope is seen from what came out, which the next product keeps."""
    return op.outputs if op.variant is Activation.RELU else op.inputs


def _keep_recurrence(op: Op) -> tuple[Tensor, ...]:
    """What went in; of a solved system its solution."""
    return op.outputs if op.facts.get("keeps_results") else op.inputs


def _keep_masks(op: Op) -> tuple[Tensor, ...]:
    return tuple(t for t in op.outputs if t.role is _INDEX)


# ── fused chains: intermediate tensors are neither written nor kept, but computed again ──────────


def fused_keeps(op: Op) -> tuple[Tensor, ...]:
    """What the backward of a fused chain needs, an inner tensor traced back to the chain's inputs.

    `silu(g)·u` needs silu(g) for u's gradient: inside the chain it is recomputed from g.
    """
    inner = {t.name: part for part in op.fused for t in part.outputs}
    outside = {t.name for t in (*op.inputs, *op.outputs)}
    needed: dict[str, Tensor] = {}
    queue = [t for part in op.fused for t in RULES[part.kind].keeps(part)]
    while queue:
        tensor = queue.pop(0)
        if tensor.name in outside or tensor.name not in inner:
            needed[tensor.name] = tensor
        else:
            queue += inner[tensor.name].inputs
    return tuple(needed.values())


def _fused_work(op: Op) -> Work:
    flop: Size = 0.0
    for part in op.fused:
        flop = flop + RULES[part.kind].work(part).flop
    read = total_bytes(op.inputs)
    for part in op.fused:
        read = read + table_bytes(part)
    return Work(flop, read, total_bytes(op.outputs))


def _stream(
    keeps: Callable[[Op], tuple[Tensor, ...]] = lambda op: (), *, fuses: bool = True
) -> Rule:
    return Rule(_stream_work, keeps, _stream_backward, pointwise=fuses)


def _eager(*, pointwise: bool = False) -> Rule:
    """A kernel of a function that says itself what its backward is."""
    return Rule(
        _stream_work,
        lambda op: DERIVATIVES[op.function].keeps(op),
        lambda op: DERIVATIVES[op.function].backward(op),
        pointwise=pointwise,
    )


RULES: Final[dict[Kind, Rule]] = {
    Kind.MATMUL: Rule(_matmul_work, _keep_inputs, _matmul_backward, matrix=True),
    Kind.DGRAD: Rule(_matmul_work, matrix=True),
    Kind.WGRAD: Rule(_matmul_work, matrix=True),
    Kind.EXPERTS: Rule(_experts_work, matrix=True),
    Kind.ATTENTION: Rule(
        _attention_work, lambda op: (*op.inputs[:3], *op.outputs), _attention_backward, matrix=True
    ),
    Kind.ATTENTION_BACKWARD: Rule(_attention_backward_work, matrix=True),
    Kind.ATTENTION_DECODE: Rule(_attention_work, matrix=True),
    Kind.SCORES: Rule(_product_work, _keep_inputs, _product_backward, matrix=True),
    Kind.CONTEXT: Rule(_product_work, _keep_inputs, _product_backward, matrix=True),
    Kind.PRODUCT_BACKWARD: Rule(_product_work, matrix=True),
    Kind.SOFTMAX: _stream(lambda op: op.outputs[:1]),
    Kind.NORM: _stream(_keep_inputs),
    Kind.ACTIVATION: _stream(_keep_activated),
    Kind.MULTIPLY: _stream(_keep_inputs),
    Kind.DROPOUT: _stream(_keep_masks),
    Kind.ADD: Rule(_stream_work, pointwise=True),  # its gradient is the incoming one, passed on
    Kind.SCALE: _stream(),
    Kind.ROPE: _stream(),
    Kind.CAST: Rule(_stream_work, pointwise=True),  # the gradient passes through
    Kind.DEQUANTISE: Rule(_stream_work),
    Kind.STREAM: _stream(),
    Kind.RECURRENCE: _stream(_keep_recurrence, fuses=False),
    Kind.CHUNKED: Rule(_stream_work, _keep_recurrence, _computed_backward),
    Kind.SCANNED: Rule(_stream_work, _keep_recurrence, _computed_backward),
    Kind.ROUTE: _stream(lambda op: op.outputs, fuses=False),
    Kind.DISPATCH: _stream(_keep_masks, fuses=False),
    Kind.COMBINE: _stream(fuses=False),  # the router's weights were applied before the last product
    Kind.SAMPLE: Rule(_stream_work),
    Kind.CACHE: _stream(fuses=False),
    Kind.EMBEDDING: Rule(_stream_work, _keep_inputs, _embedding_backward),
    Kind.CROSS_ENTROPY: _stream(lambda op: op.outputs[1:], fuses=False),
    Kind.FUSED_CROSS_ENTROPY: _stream(lambda op: (*op.inputs, *op.outputs[1:]), fuses=False),
    Kind.OPTIMIZER: Rule(_stream_work),
    # eager kernels of PyTorch, by what a compiler may do with them
    Kind.POINTWISE: _eager(pointwise=True),
    Kind.REDUCTION: _eager(),
    Kind.MOVEMENT: _eager(),
    Kind.HOST_COPY: Rule(_stream_work),
    Kind.FUSED: Rule(_fused_work, fused_keeps, _stream_backward),
}
