"""A simulated pipeline for readers: a note, a table of ranks over time, JSON, a trace.

The trace is for Perfetto and chrome://tracing: a process for every rank, with lanes for compute,
the experts' all-to-all and messages to each neighbour, and a curve of its activations.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from rich.console import RenderableType
from rich.text import Text

from trueflops import units
from trueflops.files import write_file
from trueflops.predict import TrainingStep
from trueflops.predict.simulated import TOLERANCE, SimulatedPipeline
from trueflops.report.grid import grid
from trueflops.runtime.orders import Part, Slot
from trueflops.runtime.stepped import Span
from trueflops.units import MICRO

LEVELS: Final = " ▁▂▃▄▅▆▇█"
MOMENTS: Final = 32  # of a curve in the terminal
COMPUTE, DISPATCH, FORWARD, BACK = range(4)  # lanes of a rank
_LANES: Final = {COMPUTE: "compute", DISPATCH: "collectives"}


def pipeline_note(found: SimulatedPipeline) -> str:
    """What the simulation says against the closed form; nothing where they agree."""
    if abs(found.off) <= TOLERANCE:
        return ""
    more = "more" if found.off > 0 else "less"
    taken, apart = units.show(found.seconds, "seconds"), 100.0 * abs(found.off)
    return (
        f"stages and bubble, simulated event by event, take {taken}: {apart:.1f} % {more} than "
        f"the closed form that is shown"
    )


def pipeline_table(found: SimulatedPipeline) -> RenderableType:
    """Every rank: how long it works and waits, and its activations over the step."""
    stepped, whole = found.stepped, found.stepped.seconds
    curves = [found.held(rank) for rank in range(len(stepped.ranks))]
    most = max(size for curve in curves for _, size in curve) or 1.0
    table = grid(
        ("stage", "right"),
        ("works", "right"),
        ("waits", "right"),
        ("at most", "right"),
        "activations over the step",
        title="Every stage, simulated event by event",
    )
    for rank, curve in enumerate(curves):
        busy = stepped.busy(rank)
        table.add_row(
            str(rank),
            units.show(busy, "seconds"),
            f"{100.0 * (whole - busy) / whole:.1f} %",
            units.show(max(size for _, size in curve), "memory"),
            Text(_drawn(curve, whole, most), style="magenta"),
        )
    return table


def _drawn(curve: list[tuple[float, float]], whole: float, most: float) -> str:
    """The most that is held in each of some equal stretches of the step."""
    highest, now, at = [0.0] * MOMENTS, 0.0, 0
    for when, size in [*curve, (whole, 0.0)]:
        until = min(int(MOMENTS * when / whole), MOMENTS - 1)
        for moment in range(at, until + 1):
            highest[moment] = max(highest[moment], now)
        at, now = until, size
        highest[at] = max(highest[at], now)
    top = len(LEVELS) - 1
    return "".join(LEVELS[round(top * size / most)] for size in highest)


def encode_pipeline(found: SimulatedPipeline) -> dict[str, Any]:
    """The same for JSON."""
    stepped = found.stepped
    return {
        "simulated_seconds": found.seconds,
        "closed_form_seconds": found.closed_seconds,
        "ranks": [
            {
                "busy_seconds": stepped.busy(rank),
                "idle_seconds": stepped.seconds - stepped.busy(rank),
                "most_activation_bytes": stepped.most_held(rank, found.kept_bytes),
            }
            for rank in range(len(stepped.ranks))
        ],
    }


def write_pipeline_trace(step: TrainingStep, found: SimulatedPipeline, path: Path) -> None:
    """Write the timeline in the Trace Event Format."""
    events: list[dict[str, Any]] = []
    for rank, spans in enumerate(found.stepped.ranks):
        events += _names(rank)
        for span in spans:
            events += _slot(rank, span, found)
        events += [
            {"ph": "C", "name": "activations", "pid": rank, "ts": when / MICRO,
             "args": {"bytes": size}}
            for when, size in found.held(rank)
        ]  # fmt: skip
        events += _after(rank, step, found.stepped.seconds)
    for sent in found.stepped.sends:
        lane = FORWARD if sent.target > sent.source else BACK
        name = f"send {sent.what.part} {sent.what.batch} to {sent.target}"
        events.append(_event(sent.source, lane, name, "send", sent.start, sent.end))
    write_file(path, json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))


def _names(rank: int) -> list[dict[str, Any]]:
    lanes = _LANES | {FORWARD: f"to stage {rank + 1}", BACK: f"to stage {rank - 1}"}
    named = [("process_name", 0, f"stage {rank}")]
    named += [("thread_name", lane, name) for lane, name in lanes.items()]
    order = {"ph": "M", "name": "process_sort_index", "pid": rank, "args": {"sort_index": rank}}
    return [
        order,
        *(
            {"ph": "M", "name": what, "pid": rank, "tid": lane, "args": {"name": name}}
            for what, lane, name in named
        ),
    ]


def _slot(rank: int, span: Span, found: SimulatedPipeline) -> list[dict[str, Any]]:
    """What is computed, and the all-to-all: after it, or beside it where another hides it."""
    name = " & ".join(f"{task.part} {task.batch}" for task in span.slot)
    computed = sum(found.stages[task.stage].computed(task.part) for task in span.slot)
    sent = sum(found.stages[task.stage].sent(task.part) for task in span.slot)
    more = {
        "micro_batches": [task.batch for task in span.slot],
        "pieces": [task.stage for task in span.slot],
    }
    end = span.start + computed
    events = [_event(rank, COMPUTE, name, _kind(span.slot), span.start, end) | {"args": more}]
    if sent:
        begin = end if len(span.slot) == 1 else span.start
        events.append(_event(rank, DISPATCH, name, "all-to-all", begin, begin + sent))
    return events


def _kind(slot: Slot) -> str:
    if len(slot) > 1:
        return "forward and backward"
    words = {Part.FORWARD: "forward", Part.INPUT: "input gradient", Part.WEIGHT: "weight gradient"}
    return words.get(slot[0].part, "backward")


def _after(rank: int, step: TrainingStep, now: float) -> list[dict[str, Any]]:
    """What follows the pipeline: gradients that nothing hid, then the update."""
    summed = float(step.step["exposed communication"]["data parallel"].value)
    update = float(step.step["optimizer"].value)
    return [
        _event(rank, DISPATCH, "data parallel, exposed", "collective", now, now + summed),
        _event(rank, COMPUTE, "optimizer", "update", now + summed, now + summed + update),
    ]


def _event(rank: int, lane: int, name: str, kind: str, start: float, end: float) -> dict[str, Any]:
    return {
        "ph": "X", "name": name, "cat": kind, "pid": rank, "tid": lane,
        "ts": start / MICRO, "dur": (end - start) / MICRO,
    }  # fmt: skip
