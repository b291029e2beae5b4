"""Kernels of layers: norms of rows, of groups and of batches, pooling, up-sampling.

Each call is one op of the IR, whatever kernels a library makes of it: it was timed as a whole.
"""

from __future__ import annotations

from math import prod
from typing import Final

from trueflops.capture.lower.kernels import (
    base_name,
    by_rows,
    channels_last,
    flags,
    kernel,
    laid_out,
    whole_numbers,
)
from trueflops.graph.ir import Op
from trueflops.graph.kinds import Kind
from trueflops.graph.variants import EagerKernel
from trueflops.records.recording import Call, RecordedTensor

# Batch norms that torch 2.11 gives to cuDNN: all but bf16's (truth/h200/calls.csv names the ops).
_CUDNN: Final = ("float32", "float16")
_NORM_VECTOR: Final = 4  # numbers that a norm loads at once (ATen, layer_norm_kernel.cu)


def norm(call: Call) -> list[Op]:
    """Layer and RMS norm: a row is summed and scaled in one kernel."""
    back = "backward" in call.op
    source = call.inputs[0]
    given = [n for n in call.numbers if isinstance(n, (list, tuple)) and n]
    sizes = [n for n in given[0] if isinstance(n, int)] if given else []
    row = prod(sizes) if sizes else source.shape[-1]
    variant = _norm_kernel(row, rms="rms" in call.op, backward=back)
    made = kernel(call, Kind.REDUCTION, variant, **by_rows(source, row))
    return [*laid_out(call, call.inputs[: 2 if back else 1]), made]


def _norm_kernel(row: int, *, rms: bool, backward: bool) -> EagerKernel:
    """Which of torch's kernels runs a norm of rows of this length."""
    if backward:
        return EagerKernel.RMS_NORM_BACKWARD if rms else EagerKernel.NORM_BACKWARD
    if row % _NORM_VECTOR:
        return EagerKernel.RAGGED_RMS_NORM if rms else EagerKernel.RAGGED_NORM
    return EagerKernel.RMS_NORM if rms else EagerKernel.NORM


def group_norm(call: Call) -> list[Op]:
    """Each group of channels of each picture is summed, then all is read again and scaled."""
    back = "backward" in call.op
    source = call.inputs[0]
    groups = whole_numbers(call)[3] if len(whole_numbers(call)) > 3 else 1
    pieces = max(1, source.shape[0] * groups)
    variant = EagerKernel.GROUP_NORM_BACKWARD if back else EagerKernel.GROUP_NORM
    moved = _moved(call, 2 if back else 1)
    return [
        kernel(moved, Kind.REDUCTION, variant, run=source.elements / pieces, pieces=float(pieces))
    ]


def batch_norm(call: Call) -> list[Op]:
    """Each channel is summed over all pictures; in evaluation it knows its sums and only scales."""
    back = "backward" in call.op
    source = call.inputs[0]
    channels = source.shape[1] if len(source.shape) > 1 else 1
    last = channels_last(source) or len(source.shape) == 2
    together = 1.0 if last else float(prod(source.shape[2:]))
    if not back and not (flags(call) or [True])[0]:
        wide = source.dtype in _CUDNN
        variant = EagerKernel.CUDNN_BATCH_SCALE if wide else EagerKernel.BATCH_SCALE
    elif source.dtype in _CUDNN or "cudnn" in call.op:
        variant = EagerKernel.CUDNN_BATCH_NORM_BACKWARD if back else EagerKernel.CUDNN_BATCH_NORM
    elif last:
        variant = EagerKernel.BATCH_NORM_LAST_BACKWARD if back else EagerKernel.BATCH_NORM_LAST
    else:
        variant = EagerKernel.BATCH_NORM_BACKWARD if back else EagerKernel.BATCH_NORM
    moved = _moved(call, 2 if back else 1)
    return [kernel(moved, Kind.REDUCTION, variant, run=together, pieces=float(channels))]


def _moved(call: Call, read: int) -> Call:
    """What is as large as the picture; statistics and weights are small."""
    return call._replace(inputs=call.inputs[:read], outputs=call.outputs[:1])


# ── places ───────────────────────────────────────────────────────────────────────────────────────


def pool(call: Call) -> list[Op]:
    """A window slides over each channel; the gradient asks for the input's shape alone."""
    name = base_name(call.op)
    back = "backward" in name
    kind = next(kind for word, kind in _POOLS.items() if word in name)
    inputs = call.inputs[:1]
    if "max" in name and back:
        inputs = (call.inputs[0], *(a for a in call.inputs if a.dtype == "int64"))
    variant = EagerKernel(f"{kind}_backward") if back else kind
    place, seen = (call.outputs[0] if back else call.inputs[0]), call.outputs[0]
    window = 1 if back or kind is EagerKernel.ADAPTIVE_POOL else _window(call, place)
    looked = seen.elements * window
    return [
        kernel(
            call._replace(inputs=inputs), Kind.MOVEMENT, variant, looked, run=_side_by_side(place),
            pieces=float(seen.elements) if kind is EagerKernel.ADAPTIVE_POOL else 0.0,
        )
    ]  # fmt: skip


def _window(call: Call, place: RecordedTensor) -> int:
    """Elements that one result looks at; no window is larger than the picture."""
    given = next((n for n in call.numbers if isinstance(n, (list, tuple)) and n), (1,))
    sides = [n for n in given if isinstance(n, int)]
    whole = place.shape[-len(sides) :]
    return prod(min(n, m) for n, m in zip(sides, whole, strict=False)) or 1


def resample(call: Call) -> list[Op]:
    """Up-sampling, to the nearest place or between four."""
    name = base_name(call.op)
    back = "backward" in name
    kind = EagerKernel.NEAREST if "nearest" in name else EagerKernel.BILINEAR
    variant = EagerKernel(f"{kind}_backward") if back else kind
    large = call.inputs[0] if back else call.outputs[0]
    run = _side_by_side(call.inputs[0])
    return [kernel(call, Kind.MOVEMENT, variant, large.elements, run=run)]


def _side_by_side(array: RecordedTensor) -> float:
    """Channels that lie next to each other."""
    return float(array.shape[1]) if channels_last(array) else 1.0


_POOLS: Final = {
    "adaptive": EagerKernel.ADAPTIVE_POOL,
    "max": EagerKernel.MAX_POOL,
    "avg": EagerKernel.AVERAGE_POOL,
}
