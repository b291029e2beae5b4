"""Kernels over lists of tensors: foreach ops and fused optimizers."""

from __future__ import annotations

from typing import Final

from trueflops.capture.lower.kernels import base_name, flags, kernel
from trueflops.graph.ir import Op
from trueflops.graph.kinds import Kind
from trueflops.graph.variants import EagerKernel
from trueflops.records.recording import Call, RecordedTensor

CHUNK: Final = 65536 * 320
"""Elements that one launch of torch's foreach kernels walks over (MultiTensorApply.cuh)."""


def foreach(call: Call) -> list[Op]:
    """One kernel walks over a list of tensors, a few megabytes to a launch."""
    name = base_name(call.op)
    each = _list_length(call)
    first = call.inputs[:each]
    reads, writes = call.inputs, call.outputs or first
    if name == "_foreach_zero":
        reads = ()
    elif name == "_foreach_copy" and len(call.inputs) > each:
        reads = call.inputs[each:]
    elif name in ("_foreach_norm", "_foreach_max", "_foreach_powsum"):
        writes = ()  # a number each
    indexed = max(sum(a.elements for a in first), 1)
    moved = call._replace(inputs=tuple(reads), outputs=tuple(writes))
    return [
        kernel(moved, Kind.POINTWISE, EagerKernel.FOREACH, indexed, launches=_launches(indexed))
    ]


def _launches(elements: int) -> float:
    return float(max(1, -(-elements // CHUNK)))


def _list_length(call: Call) -> int:
    """How many tensors each of its lists holds: those before the first shape comes again."""
    if call.outputs:
        return len(call.outputs)
    shapes = [a.shape for a in call.inputs]
    count = len(shapes)
    for lists in (4, 3, 2):
        each = count // lists
        if count % lists == 0 and shapes[:each] * lists == shapes:
            return each
    return count


def fused_optimizer(call: Call) -> list[Op]:
    """One pass over weights, gradients and moments; all but the gradients are written."""
    lists = _lists(call)
    moved = [array for each in lists for array in each]
    written = [array for i, each in enumerate(lists) if i != 1 for array in each]
    indexed = sum(a.elements for a in lists[0])
    done = call._replace(inputs=tuple(moved), outputs=tuple(written))
    return [
        kernel(
            done, Kind.POINTWISE, EagerKernel.FUSED_OPTIMIZER, indexed, launches=_launches(indexed)
        )
    ]


def _lists(call: Call) -> list[tuple[RecordedTensor, ...]]:
    """Weights, gradients and their moments; counters, scales and learning rates left out."""
    name, arrays = base_name(call.op), call.inputs
    if "adam" in name:
        amsgrad = (flags(call) or [False])[0]
        lists, counters = (5, 1) if amsgrad else (4, 1)
    elif "adagrad" in name:
        lists, counters = 3, 1
    else:
        plain = [a.shape for a in arrays if a.elements > 1]
        third = len(plain) // 3
        lists, counters = (3 if plain == plain[:third] * 3 else 2), 0
        arrays = tuple(a for a in arrays if a.elements > 1)
    each = max(1, len(arrays) // (lists + counters))
    return [arrays[i * each : (i + 1) * each] for i in range(lists)]
