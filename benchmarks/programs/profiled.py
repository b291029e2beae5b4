"""One step under PyTorch's profiler, its kernels summed by the op that launched each."""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile

from programs.kit import Step
from trueflops.interop.kineto import host
from trueflops.interop.kineto.file import DEVICE_WORK, OPS, Event, read_document
from trueflops.units import MICRO


class KernelRow(NamedTuple):
    """Kernels of one name, launched by one op on operands of one layout.

    `within` are the ops around it, outermost first, each with its shapes: a capture may record
    `_to_copy` where a profiler sees the `copy_` in it.
    """

    program: str
    op: str
    shapes: str
    strides: str
    dtypes: str
    numbers: str
    kernel: str
    within: str
    launches: int
    microseconds: float


def profile_step(step: Step) -> Path:
    """Warm up, run one step, and leave its trace in a file that the caller deletes."""
    for _ in range(2):
        step()
    torch.cuda.synchronize()
    both = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=both, record_shapes=True) as seen:
        step()
        torch.cuda.synchronize()
    with tempfile.NamedTemporaryFile(suffix=".json", delete=False) as file:
        path = Path(file.name)
    seen.export_chrome_trace(str(path))
    return path


def kernel_rows(program: str, path: Path) -> Iterator[KernelRow]:
    """The kernels of a trace, the costliest first."""
    events = read_document(path).events
    ops = [e for e in events if e.category in OPS]
    calls = [e for e in events if host.is_runtime(e)]
    host.nest([*ops, *calls])
    by_id = {e.args["External id"]: e for e in ops if "External id" in e.args}
    launched_by = {e.args["correlation"]: e for e in calls if "correlation" in e.args}
    sums: dict[tuple[str, str, str, str, str, str, str], list[float]] = defaultdict(
        lambda: [0, 0.0]
    )
    for event in events:
        if event.category in DEVICE_WORK:
            op = by_id.get(event.args.get("External id")) or host.innermost_op(
                launched_by.get(event.args.get("correlation"))
            )
            row = sums[(*_about(op), event.name, _within(op))]
            row[0] += 1
            row[1] += (event.end - event.start) / MICRO
    for key, (count, taken) in sorted(sums.items(), key=lambda item: -item[1][1]):
        yield KernelRow(program, *key, launches=int(count), microseconds=round(taken, 3))


def _about(op: Event | None) -> tuple[str, str, str, str, str]:
    if op is None:
        return "", "", "", "", ""
    listed = ("Input Dims", "Input Strides", "Input type", "Concrete Inputs")
    shapes, strides, dtypes, numbers = (_text(op.args.get(name)) for name in listed)
    return op.name, shapes, strides, dtypes, numbers


def _within(op: Event | None) -> str:
    around = [
        [e.name, e.args.get("Input Dims", [])]
        for e in host.ancestors(op.parent if op else None)
        if e.category in OPS and e.name.startswith("aten::")
    ]
    return _text(around[::-1])


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":")) if value else ""
