"""A simulated pipeline task by task: as a trace for Perfetto, and as JSON for a picture.

In: a step and its SimulatedPipeline. Every rank has lanes for compute, collectives and messages to
each neighbour, and a curve of its activations. JSON keeps the beginning and the end of a long step,
whose middle repeats itself; a trace has every task.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

from trueflops.files import write_file
from trueflops.language import ENGLISH, speaking
from trueflops.predict import TrainingStep
from trueflops.predict.training.simulated import SimulatedPipeline
from trueflops.report.pipeline import most_held
from trueflops.runtime.orders import Part, Slot
from trueflops.runtime.stepped import Span
from trueflops.units import MICRO

COMPUTE, DISPATCH, FORWARD, BACK = range(4)  # lanes of a rank
LANES: Final = ("compute", "collectives", "to the next stage", "to the stage before")
MOST_SPANS: Final = 3_000  # of JSON: a browser draws them at once, and they are written in 0.1 s
MOST_MOMENTS: Final = 240  # of a curve in JSON, beyond which stretches of the step are enough


class Lasting(NamedTuple):
    """Something that a lane of a rank does for a while."""

    rank: int
    lane: int
    name: str
    kind: str
    start: float
    end: float
    batches: tuple[int, ...] = ()  # micro-batches, and the pieces of the model they pass through
    pieces: tuple[int, ...] = ()


def timeline(step: TrainingStep, found: SimulatedPipeline) -> list[Lasting]:
    """All lanes of all ranks: the pipeline, then gradients that nothing hid, then the update."""
    spans: list[Lasting] = []
    for rank, ran in enumerate(found.stepped.ranks):
        for span in ran:
            spans += _slot(rank, span, found)
        spans += _after(rank, step, found.stepped.seconds)
    for sent in found.stepped.sends:
        lane = FORWARD if sent.target > sent.source else BACK
        name = f"send {sent.what.part} {sent.what.batch} to {sent.target}"
        spans.append(Lasting(sent.source, lane, name, "send", sent.start, sent.end))
    return spans


def encode_timeline(step: TrainingStep, found: SimulatedPipeline) -> dict[str, Any]:
    """Spans in columns, what was left out of them, and what every rank holds over time."""
    whole = found.stepped.seconds
    spans = [span for span in timeline(step, found) if span.end > span.start]
    spans.sort(key=lambda span: span.start)
    half = MOST_SPANS // 2
    cut = len(spans) > MOST_SPANS
    kept = [*spans[:half], *spans[-half:]] if cut else spans
    return {
        "seconds": max(span.end for span in spans),
        "lanes": LANES,
        "spans": {
            "stage": [span.rank for span in kept],
            "lane": [span.lane for span in kept],
            "name": [span.name for span in kept],
            "kind": [span.kind for span in kept],
            "start_seconds": [span.start for span in kept],
            "end_seconds": [span.end for span in kept],
        },
        "left_out": {
            "spans": len(spans) - len(kept),
            "from_seconds": spans[half].start,
            "until_seconds": spans[-half].start,
        }
        if cut
        else None,
        "held": [_held(found.held(rank), whole) for rank in range(len(found.stepped.ranks))],
    }


def _held(curve: list[tuple[float, float]], whole: float) -> dict[str, Any]:
    """Activations from each moment on: all moments of few, the most in each stretch of many."""
    if len(curve) > MOST_MOMENTS:
        most = most_held(curve, whole, MOST_MOMENTS)
        curve = [(whole * i / MOST_MOMENTS, size) for i, size in enumerate(most)]
    return {
        "from_seconds": [when for when, _ in curve],
        "activation_bytes": [size for _, size in curve],
    }


@speaking(ENGLISH)  # a file
def write_pipeline_trace(step: TrainingStep, found: SimulatedPipeline, path: Path) -> None:
    """Write the timeline in the Trace Event Format."""
    events: list[dict[str, Any]] = []
    for rank in range(len(found.stepped.ranks)):
        events += _names(rank)
        events += [
            {"ph": "C", "name": "activations", "pid": rank, "ts": when / MICRO,
             "args": {"bytes": size}}
            for when, size in found.held(rank)
        ]  # fmt: skip
    events += [_event(span) for span in timeline(step, found)]
    write_file(path, json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))


def _names(rank: int) -> list[dict[str, Any]]:
    lanes = dict(enumerate(LANES)) | {FORWARD: f"to stage {rank + 1}", BACK: f"to stage {rank - 1}"}
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


def _slot(rank: int, span: Span, found: SimulatedPipeline) -> list[Lasting]:
    """What is computed, and the all-to-all: after it, or beside it where another hides it."""
    name = " & ".join(f"{task.part} {task.batch}" for task in span.slot)
    computed = sum(found.stages[task.stage].computed(task.part) for task in span.slot)
    sent = sum(found.stages[task.stage].sent(task.part) for task in span.slot)
    batches = tuple(task.batch for task in span.slot)
    pieces = tuple(task.stage for task in span.slot)
    end = span.start + computed
    spans = [Lasting(rank, COMPUTE, name, _kind(span.slot), span.start, end, batches, pieces)]
    if sent:
        begin = end if len(span.slot) == 1 else span.start
        spans.append(Lasting(rank, DISPATCH, name, "all-to-all", begin, begin + sent))
    return spans


def _kind(slot: Slot) -> str:
    if len(slot) > 1:
        return "forward and backward"
    words = {Part.FORWARD: "forward", Part.INPUT: "input gradient", Part.WEIGHT: "weight gradient"}
    return words.get(slot[0].part, "backward")


def _after(rank: int, step: TrainingStep, now: float) -> list[Lasting]:
    """What follows the pipeline: gradients that nothing hid, then the update."""
    summed = float(step.step["exposed communication"]["data parallel"].value)
    update = float(step.step["optimizer"].value)
    end = now + summed
    return [
        Lasting(rank, DISPATCH, "data parallel, exposed", "collective", now, end),
        Lasting(rank, COMPUTE, "optimizer", "update", end, end + update),
    ]


def _event(of: Lasting) -> dict[str, Any]:
    event: dict[str, Any] = {
        "ph": "X", "name": of.name, "cat": of.kind, "pid": of.rank, "tid": of.lane,
        "ts": of.start / MICRO, "dur": (of.end - of.start) / MICRO,
    }  # fmt: skip
    if of.batches:
        event["args"] = {"micro_batches": list(of.batches), "pieces": list(of.pieces)}
    return event
