"""From ops of the IR to what the laws ask for: many ops of one class side by side, [op, plan]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from trueflops.clock.attention import ATTENTION, DECODE, AttentionWork
from trueflops.clock.experts import EVER_COLD, EXPERTS, LAID_OUT, ExpertWork
from trueflops.clock.law import Law
from trueflops.clock.matmul import MATMUL, UNALIGNED, WINDOWS, MatmulWork
from trueflops.clock.streams import STREAM, StreamWork
from trueflops.graph.alignment import FULL, ROADS, lying, road
from trueflops.graph.formats import EIGHT_BITS, Format
from trueflops.graph.ir import Op
from trueflops.graph.kinds import EAGER_KINDS, PRODUCTS, Kind
from trueflops.graph.rules import Work, work
from trueflops.graph.shapes import AttentionShape, ExpertShape, MatmulShape, attention_shape
from trueflops.graph.variants import (
    AttentionKernel,
    EagerKernel,
    Variant,
    variant_name,
)
from trueflops.profile.keys import CONVOLUTIONS, CurveKey
from trueflops.profile.keys import LAID_OUT as LAID_OUT_KERNEL
from trueflops.sizes import Array, Size

LAWS: Final[dict[str, Law]] = {
    "matmul": MATMUL,
    "attention": ATTENTION,
    "attention_backward": ATTENTION,
    "attention_decode": DECODE,
    "experts": EXPERTS,
    "memory": STREAM,
    "eager": STREAM,
}
MOVING: Final = ("memory", "eager")  # classes that run on no matrix engine
MARLIN: Final = "int4"  # experts whose weights are so stored run by its kernels (vLLM, SGLang)
_CAST, _FUSED_LOSS = Kind.CAST, Kind.FUSED_CROSS_ENTROPY  # bound once: see graph/kinds.py
# Heads that kernels are built for, as times on an H200 show them: others are computed as the next
# wider one. cuDNN's backward is graded between 64 and 128.
_FLASH_WIDTHS: Final = np.array([64.0, 96.0, 128.0, 256.0])
_CUDNN_WIDTHS: Final = np.array([64.0, 128.0, 192.0, 256.0])
_CUDNN_BACKWARD_WIDTHS: Final = np.array([*range(64, 129, 8), 256], np.float64)
_WIDTHS: Final[dict[tuple[Variant | None, Kind], Array]] = {
    (AttentionKernel.FA2, Kind.ATTENTION): _FLASH_WIDTHS,
    (AttentionKernel.FA2, Kind.ATTENTION_BACKWARD): _FLASH_WIDTHS,
    (AttentionKernel.CUDNN, Kind.ATTENTION): _CUDNN_WIDTHS,
    (AttentionKernel.CUDNN, Kind.ATTENTION_BACKWARD): _CUDNN_BACKWARD_WIDTHS,
    (AttentionKernel.CUDNN_MASKED, Kind.ATTENTION): _CUDNN_WIDTHS,
    (AttentionKernel.CUDNN_MASKED, Kind.ATTENTION_BACKWARD): _CUDNN_BACKWARD_WIDTHS,
}
# Cycles of a unit for each pair of query and key under dropout: cuDNN's kernels, four shapes on an
# H200, forward 0.89-0.97 ps a pair and backward 0.37-0.51.
_DRAWING: Final = {Kind.ATTENTION: 0.217, Kind.ATTENTION_BACKWARD: 0.104}
FALLBACK: Final = AttentionKernel.TRITON  # takes any shape, where no faster attention does
# Head dimensions that kernels over an 8-bit cache are built for (FlashInfer's, TensorRT-LLM's).
SERVED_HEADS: Final = (64.0, 128.0, 256.0, 512.0)
_HALVES: Final = ("bf16", "fp16")  # the same rates everywhere
_CLASSES: Final[dict[Kind, str]] = {
    **{kind: kind.value if kind.value in LAWS else "memory" for kind in Kind},
    **dict.fromkeys(PRODUCTS, "matmul"),
    **dict.fromkeys(EAGER_KINDS, "eager"),
}
ONE_ROAD: Final[Mapping[str, Array | None]] = {"": None}
_RINGS: Final = (Kind.ATTENTION, Kind.ATTENTION_BACKWARD)  # what runs in steps: passes/ring.py


class Pricing(NamedTuple):
    """How an op is priced."""

    kind: str  # its class: whose law gives its seconds
    cause: str  # under which heading they are shown
    key: CurveKey  # the curve whose parameters the law is given


def pricing_of(op: Op, taken: str = "") -> Pricing:
    """Law, heading and curve of an op; of a product, on the road that it takes."""
    kind = op_class(op)
    if kind in ("matmul", "experts"):
        grouped = kind == "matmul" and "routed" in dict((op.of or op).inputs[0].dims)
        if kind == "experts" and "block" in op.facts:
            taken = LAID_OUT_KERNEL
        key = _product_key(kind, op.dtype, op.variant, grouped, taken)
        return Pricing(kind, "experts" if grouped else kind, key)
    if kind.startswith("attention"):
        return Pricing(kind, "attention", _attention_key(kind, op))
    if kind == "eager":
        return Pricing(kind, "memory", _eager_key(op.variant))
    if op.kind is _CAST and op.variant:
        return Pricing(kind, kind, _cast_key(op.variant))
    return Pricing(kind, kind, memory_key(stream_kind(op)))


def op_class(op: Op) -> str:
    """Which law prices an op."""
    return _CLASSES[op.kind]


def roads_of(op: Op, done: Work) -> Mapping[str, Array | None]:
    """Which roads an op takes; where plans take different ones, which of them take each."""
    if op.kind not in PRODUCTS:
        return ONE_ROAD
    assert isinstance(done.shape, MatmulShape)
    roads = road(op, done.shape)
    if not isinstance(roads, np.ndarray):
        return {ROADS[int(roads)]: None} if roads else ONE_ROAD
    return {name: roads == i for i, name in enumerate(ROADS) if np.any(roads == i)}


def is_of_vocabulary(op: Op) -> bool:
    """Whether a product is the head's, or a gradient of it."""
    return any(weight.has("vocab") for weight in (op.of or op).weights)


def curve_key(op: Op) -> CurveKey:
    """The curve of an op: its class, then its dtype and format where they are not plain bf16.

    Of several products, all on one road, as rows of a table are.
    """
    return own_pricing(op, work(op)).key


def own_pricing(op: Op, done: Work) -> Pricing:
    """How an op is priced that takes one road."""
    return pricing_of(op, next(iter(roads_of(op, done))))


@lru_cache(maxsize=1024)
def _product_key(
    kind: str, computed: str, variant: Variant | None, grouped: bool, taken: str
) -> CurveKey:
    dtype, form = "" if computed in _HALVES else computed, variant_name(variant)
    window = form if form in CONVOLUTIONS else ""
    stored = "" if form in (dtype, window) else form
    return CurveKey(kind, dtype=dtype, format=stored, kernel=window or taken, grouped=grouped)


@lru_cache(maxsize=1024)
def _cast_key(narrowed: Variant) -> CurveKey:
    return CurveKey("cast", format=variant_name(narrowed))


@lru_cache(maxsize=1024)
def _eager_key(kernel: Variant | None) -> CurveKey:
    """A kernel that is named as no other is `vector`, the plain one, which has the general key."""
    return CurveKey("eager", kernel="" if kernel is EagerKernel.VECTOR else variant_name(kernel))


@lru_cache(maxsize=64)
def memory_key(kind: str) -> CurveKey:
    """The curve of a memory-bound op of a model, by its costliest part."""
    return CurveKey("memory", kernel=kind)


def _attention_key(kind: str, op: Op) -> CurveKey:
    """Kernels over an 8-bit cache have curves of their own, and so has their fallback.

    Rows of a table name their kernel. For a model whose head dimension those kernels do not
    support, the engine's settings say whether the fallback runs (`odd_heads`).
    """
    narrow, kernel = op.facts.get("key_bits", op.inputs[1].bits) == EIGHT_BITS, op.variant
    if kernel is not FALLBACK and (kernel or not narrow):
        return _kernel_key(kind, kernel)
    heads = attention_shape(op).head_dim
    odd = not kernel and np.ndim(heads) == 0 and heads not in SERVED_HEADS
    return _kernel_key(kind, kernel, bool(narrow), odd)


@lru_cache(maxsize=1024)
def _kernel_key(
    kind: str, kernel: Variant | None, cache8: bool = False, odd_heads: bool = False
) -> CurveKey:
    return CurveKey(kind, cache8=cache8, kernel=variant_name(kernel), odd_heads=odd_heads)


def law_work(pricing: Pricing, ops: Sequence[Op], works: Sequence[Work]) -> Any:
    """The ops of one class and curve as the law's own kind of work."""
    made: Any = _BUILD[pricing.kind](ops, works)
    if pricing.kind == "matmul" and pricing.key.kernel:
        made = _particular(made, ops, works)
        return made._replace(portable=1.0) if pricing.key.kernel in ROADS else made
    return made


def law_of(key: CurveKey) -> Law:
    """The law whose parameters a curve holds."""
    if key.kind == "matmul" and key.kernel:
        return WINDOWS if key.kernel in CONVOLUTIONS else UNALIGNED
    if key.kind == "experts" and key.kernel:
        return LAID_OUT
    return LAWS["memory" if key.kind == "cast" else key.kind]


def stack(sizes: Sequence[Size]) -> Array:
    """Numbers or equal-length arrays as one array [op, plan]."""
    if not any(isinstance(s, np.ndarray) for s in sizes):
        return np.array(sizes, dtype=np.float64)
    return np.stack([np.asarray(a, np.float64) for a in np.broadcast_arrays(*sizes)])


def peak_seconds(works: Sequence[Work], peak: float) -> Array:
    """Seconds that matrix ops take at the peak rate: no kernel is faster, whatever a fit says."""
    return stack([done.flop for done in works]) / peak


def align(*arrays: Array) -> tuple[Array, ...]:
    """Give arrays of [op] a second axis where others are [op, plan]."""
    deepest = max(a.ndim for a in arrays)
    return tuple(a if a.ndim == deepest else a[:, None] for a in arrays)


def _columns(rows: Sequence[tuple[Size, ...]]) -> tuple[Array, ...]:
    """One array per field of rows that are tuples of sizes."""
    return align(*(stack(column) for column in zip(*rows, strict=True)))


def _matmul(ops: Sequence[Op], works: Sequence[Work]) -> MatmulWork:
    rows = []
    for op, done in zip(ops, works, strict=True):
        others = done.activation_bytes + done.bytes_written
        weights = done.bytes_read + done.bytes_written - others  # of experts, those touched
        rows.append((*done.shape, weights, others, op.facts.get("copies", EVER_COLD)))
    batch, m, n, k, weight_bytes, other_bytes, copies = _columns(rows)
    return MatmulWork(ops[0].dtype, batch, m, n, k, weight_bytes, other_bytes, copies)


def _particular(made: MatmulWork, ops: Sequence[Op], works: Sequence[Work]) -> MatmulWork:
    """What decides over kernels that are not the library's usual ones."""
    shapes = [done.shape for done in works]
    found = [
        lying(op, shape)
        for op, shape in zip(ops, shapes, strict=True)
        if isinstance(shape, MatmulShape)
    ]
    said = [(op.facts.get("window", 1.0), op.facts.get("turned", 0.0)) for op in ops]
    rows = [(*both, *more) for both, more in zip(found, said, strict=True)]
    loads, stores, window, turned = align(np.asarray(made.m), *_columns(rows))[1:]
    return made._replace(loads=loads, stores=stores, window=window, turned=turned)


def steps_of(op: Op) -> Size:
    """How often the kernel of an attention runs: once, or for each block that a ring brings by."""
    return op.facts.get("steps", 1.0) if op.kind in _RINGS else 1.0


def _attention(ops: Sequence[Op], works: Sequence[Work]) -> AttentionWork:
    """Of an attention in steps, one of them: all queries, and of the keys an equal share."""
    rows = []
    for op, done in zip(ops, works, strict=True):
        others = done.activation_bytes + done.bytes_written
        products = 2.5 if op.kind is Kind.ATTENTION_BACKWARD else 1.0
        steps, whole = steps_of(op), done.shape
        assert isinstance(whole, AttentionShape)
        cache = (done.bytes_read + done.bytes_written - others) / steps
        drawing = op.facts.get("drawn", 0.0) * _DRAWING.get(op.kind, 0.0)
        one = whole._replace(keys=whole.keys / steps, seen=whole.seen / steps)
        rows.append((*one, cache, others, products, drawing))
    *shape, cached, moved, times, drawing = _columns(rows)
    asked = AttentionShape(*shape)
    widths = _WIDTHS.get((ops[0].variant, ops[0].kind))
    if widths is not None:
        wide = [_built_for(width, widths) for width in (asked.head_dim, asked.value_dim)]
        asked = asked._replace(head_dim=wide[0], value_dim=wide[1])
    return AttentionWork(asked, cached, moved, times, ops[0].dtype, drawing)


def _built_for(width: Size, widths: Array) -> Array:
    """The narrowest head that a kernel is built for and that holds this one."""
    at = np.searchsorted(widths, np.asarray(width, np.float64))
    return np.where(at < len(widths), widths[np.minimum(at, len(widths) - 1)], width)


def _experts(ops: Sequence[Op], works: Sequence[Work]) -> ExpertWork:
    rows = [(*done.shape, op.facts.get("skewed", 0.0)) for op, done in zip(ops, works, strict=True)]
    *shape, skewed = _columns(rows)
    first = ops[0]
    marlin = isinstance(first.variant, Format) and first.variant.kernels == MARLIN
    bits = first.weights[-1].bits
    block = float(first.facts.get("block", 1.0))
    return ExpertWork(ExpertShape(*shape), bits, skewed, first.dtype, float(marlin), block)


def _stream(ops: Sequence[Op], works: Sequence[Work]) -> StreamWork:
    """Memory-bound ops of a model: hand-written kernels, for which no row is too long. Those that
    read a prompt for a recurrent layer may take longer for what they compute.
    """
    if stream_kind(ops[0]) not in _COMPUTING:
        return StreamWork(stack([done.bytes_read + done.bytes_written for done in works]))
    rows = [
        (done.bytes_read + done.bytes_written, done.flop, _passed_on(op))
        for op, done in zip(ops, works, strict=True)
    ]
    moved, computed, pieces = _columns(rows)
    return StreamWork(moved, indexed=computed, pieces=pieces)


def _passed_on(op: Op) -> Size:
    """Blocks of numbers that go from chunk to chunk, one chunk after the other; 0 where all chunks
    are read at once.
    """
    if "tokens" not in op.facts:
        return 0.0
    sizes = dict(op.outputs[0].dims)
    return op.outputs[0].elements * op.facts["tokens"] / sizes["seq"] / PASSED_TOGETHER


def _eager(ops: Sequence[Op], works: Sequence[Work]) -> StreamWork:
    said = ("indexed", 0.0), ("launches", 1.0), ("run", 0.0), ("pieces", 0.0), ("loads", FULL)
    rows = [
        (done.bytes_read + done.bytes_written, *(op.facts.get(name, usual) for name, usual in said))
        for op, done in zip(ops, works, strict=True)
    ]
    return StreamWork(*_columns(rows))


def stream_kind(op: Op) -> str:
    """Whose share of the bandwidth a memory-bound op has: that of its costliest part."""
    forward = op.of or op
    kinds = {part.kind for part in forward.fused} or {forward.kind}
    if _FUSED_LOSS in kinds:  # a softmax over each row of logits, and its gradient
        kinds = {Kind.SOFTMAX}
    name = next((kind for kind in _COSTLIEST if kind in kinds), "")
    return f"{name}_backward" if op.of and name in _OWN_BACKWARD else str(name)


_COMPUTING: Final = frozenset({Kind.CHUNKED, Kind.SCANNED})
PASSED_TOGETHER: Final = (
    1024.0  # numbers of a state a block (benchmarks/state_space.py, chunk_pass)
)
_OWN_BACKWARD: Final = (Kind.NORM, Kind.SOFTMAX, Kind.ACTIVATION, Kind.CROSS_ENTROPY)
_COSTLIEST: Final = (
    Kind.OPTIMIZER,
    Kind.CHUNKED,
    Kind.SCANNED,
    Kind.RECURRENCE,
    Kind.CROSS_ENTROPY,
    Kind.EMBEDDING,
    Kind.SOFTMAX,
    Kind.NORM,
    Kind.DROPOUT,
    Kind.ROPE,
    Kind.ACTIVATION,
    Kind.CAST,
)
_BUILD: Final = {
    "matmul": _matmul,
    "attention": _attention,
    "attention_backward": _attention,
    "attention_decode": _attention,
    "experts": _experts,
    "memory": _stream,
    "eager": _eager,
}
