"""Rows of a table of memory-bound kernels: rows, columns, and a name as people use it.

What was timed are torch's own kernels, and as such a row is priced: a cross-entropy is a cast, a
softmax and a look-up. A plan's ops of the same kind are hand-written by whoever made the framework,
of which nobody measured any: for those the row stands in (`planned`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from trueflops.graph.alignment import alignment
from trueflops.graph.ir import Op, Tensor
from trueflops.graph.kinds import Kind
from trueflops.graph.variants import INDEXED, EagerKernel
from trueflops.sizes import Array, Size
from trueflops.units import BITS_PER_BYTE

Columns = Mapping[str, Array]
_BY_ROWS: Final = ("norm", "rms_norm", "softmax", "log_softmax")


class MemoryKind(NamedTuple):
    """A memory-bound kernel: whose share of the bandwidth it has, and the least that it moves."""

    kind: Kind
    read: tuple[float, ...]  # bits per element of each operand
    written: tuple[float, ...]
    backward: bool = False
    kernel: EagerKernel | None = None  # torch's own that was timed, where it is one


MEMORY_KINDS: Final[Mapping[str, MemoryKind]] = {
    "copy": MemoryKind(Kind.STREAM, (16.0,), (16.0,), kernel=EagerKernel.COPY),
    "add": MemoryKind(Kind.STREAM, (16.0, 16.0), (16.0,), kernel=EagerKernel.VECTOR),
    "gelu": MemoryKind(Kind.ACTIVATION, (16.0,), (16.0,), kernel=EagerKernel.GELU),
    "gelu_backward": MemoryKind(
        Kind.ACTIVATION, (16.0, 16.0), (16.0,), backward=True, kernel=EagerKernel.GELU
    ),
    "silu": MemoryKind(Kind.ACTIVATION, (16.0,), (16.0,), kernel=EagerKernel.MATH),
    "silu_backward": MemoryKind(
        Kind.ACTIVATION, (16.0, 16.0), (16.0,), backward=True, kernel=EagerKernel.GELU
    ),
    "dropout": MemoryKind(Kind.DROPOUT, (16.0,), (16.0, 8.0), kernel=EagerKernel.RANDOM),
    "layer_norm": MemoryKind(Kind.NORM, (16.0,), (16.0,), kernel=EagerKernel.NORM),
    "layer_norm_backward": MemoryKind(
        Kind.NORM, (16.0, 16.0), (16.0,), backward=True, kernel=EagerKernel.NORM_BACKWARD
    ),
    "rms_norm": MemoryKind(Kind.NORM, (16.0,), (16.0,), kernel=EagerKernel.RMS_NORM),
    "rms_norm_backward": MemoryKind(
        Kind.NORM, (16.0, 16.0), (16.0,), backward=True, kernel=EagerKernel.RMS_NORM_BACKWARD
    ),
    "softmax": MemoryKind(Kind.SOFTMAX, (16.0,), (16.0,), kernel=EagerKernel.SOFTMAX),
    "softmax_backward": MemoryKind(
        Kind.SOFTMAX, (16.0, 16.0), (16.0,), backward=True, kernel=EagerKernel.SOFTMAX_BACKWARD
    ),
    "to_fp32": MemoryKind(Kind.CAST, (16.0,), (32.0,), kernel=EagerKernel.WIDEN),
    "cross_entropy": MemoryKind(Kind.CROSS_ENTROPY, (16.0,), (32.0,)),
    "cross_entropy_backward": MemoryKind(Kind.CROSS_ENTROPY, (32.0, 32.0), (16.0,), backward=True),
    "embedding": MemoryKind(Kind.EMBEDDING, (16.0,), (16.0,), kernel=EagerKernel.GATHER),
    "adamw": MemoryKind(Kind.OPTIMIZER, (32.0, 32.0, 32.0, 32.0), (32.0, 32.0, 32.0)),
    "adamw_fused": MemoryKind(Kind.OPTIMIZER, (32.0, 32.0, 32.0, 32.0), (32.0, 32.0, 32.0)),
}


def memory(c: Columns, name: str, *, wide: bool) -> tuple[Op, ...]:
    """The kernels of torch's own that a row timed."""
    kind = MEMORY_KINDS[name]
    if kind.kernel is not None:
        return (_timed(c, name, kind.kernel, _bits(kind.read, wide), _bits(kind.written, wide)),)
    if parts := _COMPOSED.get(name):
        return tuple(_timed(c, name, *part) for part in parts)
    return (planned(c, name, wide=wide),)


def planned(c: Columns, name: str, *, wide: bool) -> Op:
    """The op of a plan for which a row stands in."""
    kind = MEMORY_KINDS[name]
    inputs = _tensors("in", c, _bits(kind.read, wide))
    outputs = _tensors("out", c, _bits(kind.written, wide))
    made = Op(name, kind.kind, inputs, outputs)
    return Op(name, Kind.STREAM, inputs, outputs, of=made) if kind.backward else made


def _bits(bits: tuple[float, ...], wide: bool) -> tuple[float, ...]:
    return tuple(32.0 if wide and each == 16.0 else each for each in bits)


def _tensors(name: str, c: Columns, bits: tuple[float, ...]) -> tuple[Tensor, ...]:
    dims = (("rows", c["rows"]), ("columns", c["columns"]))
    return tuple(Tensor(f"{name}{i}", dims, each) for i, each in enumerate(bits))


def _timed(
    c: Columns,
    name: str,
    kernel: EagerKernel,
    read: tuple[float, ...],
    written: tuple[float, ...],
    narrow: bool = False,
) -> Op:
    """One kernel over all elements; `narrow`: over one of each row."""
    if narrow:
        c = {**c, "columns": np.ones_like(c["columns"])}
    rows, columns = c["rows"], c["columns"]
    facts: dict[str, Size] = {"indexed": rows * columns if kernel in _COUNTED else 0.0}
    if kernel.startswith(_BY_ROWS) or kernel is EagerKernel.GATHER:
        facts |= {"run": columns, "pieces": rows}
    if "softmax" in kernel:
        facts["loads"] = alignment(columns, read[0] / BITS_PER_BYTE)
    inputs, outputs = _tensors("in", c, read), _tensors("out", c, written)
    return Op(name, Kind.POINTWISE, inputs, outputs, facts=facts, variant=kernel)


_COUNTED: Final = (*INDEXED, EagerKernel.LOSS)
_COMPOSED: Final[
    Mapping[str, tuple[tuple[EagerKernel, tuple[float, ...], tuple[float, ...], bool], ...]]
] = {
    "cross_entropy": (
        (EagerKernel.WIDEN, (16.0,), (32.0,), False),
        (EagerKernel.SOFTMAX, (32.0,), (32.0,), False),
        (EagerKernel.LOSS, (32.0, 64.0), (), True),
    ),
    "cross_entropy_backward": (
        (EagerKernel.FILL, (), (32.0,), False),
        (EagerKernel.GATHER, (64.0,), (32.0,), True),
        (EagerKernel.LOG_SOFTMAX_BACKWARD, (32.0, 32.0), (32.0,), False),
        (EagerKernel.VECTOR, (32.0,), (16.0,), False),
    ),
}
"""Of logits that are first lifted to fp32, as torch's cross_entropy(x.float(), …) runs."""
