"""A captured step as a timeline that Perfetto and chrome://tracing open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from trueflops.files import write_file
from trueflops.predict.captured.groups import label_of
from trueflops.predict.captured.program import CapturedProgram
from trueflops.units import MICRO

HOST, DEVICE, MEMORY = 1, 2, 3
_PROCESSES: Final = {HOST: "host", DEVICE: "device", MEMORY: "memory"}
POINTS: Final = 4000  # of the memory's curve: more cannot be told apart


def write_trace(found: CapturedProgram, path: Path) -> None:
    """Host calls, kernels by stream, and memory by category, in the Trace Event Format."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
        for pid, name in _PROCESSES.items()
    ]
    issued: dict[int, float] = {}
    for each in found.step.ran:
        call = each.kernel.call
        issued.setdefault(id(call), each.issued)
        events.append({
            "ph": "X", "name": each.kernel.name, "cat": each.kernel.cause, "pid": DEVICE,
            "tid": call.stream, "ts": each.start / MICRO, "dur": (each.end - each.start) / MICRO,
            "args": {"call": label_of(call), "module": call.module, "phase": call.phase},
        })  # fmt: skip
    before = 0.0
    for each in found.step.ran:
        when = issued.pop(id(each.kernel.call), None)
        if when is not None:
            events.append({
                "ph": "X", "name": each.kernel.call.op, "cat": each.kernel.call.phase,
                "pid": HOST, "tid": 0, "ts": before / MICRO, "dur": (when - before) / MICRO,
            })  # fmt: skip
            before = when
    events += _memory(found)
    text = json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})
    write_file(path, text)


def _memory(found: CapturedProgram) -> list[dict[str, Any]]:
    """Bytes by category, at the time when the host issued what allocated them."""
    timeline = found.memory.timeline
    every = max(1, len(timeline) // POINTS)
    whole, last = float(found.step.seconds.value), max((at for at, _ in timeline), default=1)
    return [
        {"ph": "C", "name": "allocated bytes", "pid": MEMORY, "ts": whole * at / last / MICRO,
         "args": held}
        for at, held in timeline[::every]
    ]  # fmt: skip
