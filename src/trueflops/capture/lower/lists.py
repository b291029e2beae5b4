"""Kernels over lists of tensors: foreach ops and fused optimizers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trueflops.capture.lower.kernels import base_name, flags, kernel
from trueflops.graph.ir import Op
from trueflops.graph.kinds import Kind
from trueflops.graph.variants import EagerKernel
from trueflops.records.recording import Call, RecordedTensor

# MultiTensorApply.cuh: elements of a chunk, chunks of a launch, and tensors of one by depth.
CHUNK: Final = 65536
CHUNKS_A_LAUNCH: Final = 320
TENSORS_A_LAUNCH: Final = (110, 64, 48, 36, 30)


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
    variant = EagerKernel.FOREACH_APART if call.outputs else EagerKernel.FOREACH
    if name in ("_foreach_norm", "_foreach_max", "_foreach_powsum"):
        writes, variant = (), EagerKernel.LIST_NORM  # a number each
    indexed = max(sum(a.elements for a in first), 1)
    moved = call._replace(inputs=tuple(reads), outputs=tuple(writes))
    depth = -(-len(call.inputs) // max(each, 1)) + bool(call.outputs)
    return [kernel(moved, Kind.POINTWISE, variant, indexed, **dealt(first, depth))]


def dealt(tensors: Sequence[RecordedTensor], depth: int) -> dict[str, float]:
    """How a kernel over `depth` lists of tensors is dealt out: a block to each chunk of a tensor.

    So many tensors and chunks go into the arguments of one launch.
    """
    chunks = sum(-(-max(array.elements, 1) // CHUNK) for array in tensors)
    most = TENSORS_A_LAUNCH[min(depth, len(TENSORS_A_LAUNCH)) - 1]
    launches = max(-(-chunks // CHUNKS_A_LAUNCH), -(-len(tensors) // most), 1)
    return {"launches": float(launches), "pieces": float(chunks)}


def _list_length(call: Call) -> int:
    """How many tensors each of its lists holds: as many lists come in as its name says."""
    if call.outputs:
        return len(call.outputs)
    return max(1, len(call.inputs) // _lists_given(call))


def _lists_given(call: Call) -> int:
    name, overload = base_name(call.op), call.op.rpartition(".")[2]
    if name in ("_foreach_addcmul", "_foreach_addcdiv"):
        return 3
    if name == "_foreach_lerp":
        return 3 if overload == "List" else 2
    return 2 if overload == "List" or name == "_foreach_copy" else 1


def fused_optimizer(call: Call) -> list[Op]:
    """One pass over weights, gradients and moments; all but the gradients are written."""
    lists = _lists(call)
    moved = [array for each in lists for array in each]
    written = [array for i, each in enumerate(lists) if i != 1 for array in each]
    indexed = sum(a.elements for a in lists[0])
    done = call._replace(inputs=tuple(moved), outputs=tuple(written))
    how = dealt(lists[0], len(lists))
    return [kernel(done, Kind.POINTWISE, EagerKernel.FUSED_OPTIMIZER, indexed, **how)]


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
