"""A run beside its prediction: lines while it goes on, tables when it is over, JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from rich.table import Table
from rich.text import Text

from trueflops import units
from trueflops.language import mark, say, word
from trueflops.predict.training.sent import Sent, joined
from trueflops.report.served import encode_passed, encode_served, show_one
from trueflops.report.tables import console
from trueflops.run.expected import Expected
from trueflops.run.job import FIRST_SCALE, Job
from trueflops.run.ran import Ran, RankCount


@dataclass(frozen=True)
class Line:
    """One kind of collective: what a rank hands to it in a step, the mean of all ranks."""

    axis: str
    kind: str
    group: int
    predicted: float
    counted: float
    sent: float
    exact: bool  # on every rank; where tokens choose their expert, in sum


def lines(expected: Expected, ran: Ran) -> list[Line]:
    """Predicted and counted payloads side by side."""
    axes = {each.axis for count in ran.ranks for each in count.moved}
    pairs = [(joined(expected.ranks[c.rank].sent, axes), c.moved) for c in ran.ranks]
    keys = sorted({_key(each) for pair in pairs for side in pair for each in side})
    found = []
    for axis, kind, group in keys:
        both = [tuple(_payload(side, (axis, kind, group)) for side in pair) for pair in pairs]
        wanted, counted = (sum(values) for values in zip(*both, strict=True))
        chosen = "ep" in axis.split("+")
        exact = wanted == counted if chosen else all(a == b for a, b in both)
        sent = sum(e.sent for c in ran.ranks for e in c.moved if _key(e) == (axis, kind, group))
        ranks = len(ran.ranks)
        found.append(Line(axis, kind, group, wanted / ranks, counted / ranks, sent / ranks, exact))
    return found


def _key(each: Sent) -> tuple[str, str, int]:
    return each.axis, str(each.kind), each.group


def _payload(side: Sequence[Sent], key: tuple[str, str, int]) -> float:
    return sum(each.payload for each in side if _key(each) == key)


def show_ran(job: Job, expected: Expected, ran: Ran, notes: Sequence[str]) -> None:
    """The tables."""
    out = console()
    out.print()
    every = lines(expected, ran)
    if every:
        out.print(_collectives(every))
        _say_wire(out, ran)
    show_one(out, job, ran)
    if ran.ranks and job.plan.engine == "ddp":  # DataParallel's devices are all in one process
        out.print()
        out.print(_memory(expected, ran))
    if ran.step_seconds is not None:
        out.print()
        measured = units.show(ran.step_seconds, "seconds")
        rate = job.workload.tokens_per_step / ran.step_seconds
        said = say(
            "Step {measured}, {rate:,.0f} tokens/s on {world} × {device}",
            measured=measured,
            rate=rate,
            world=int(job.plan.world),
            device=ran.device,
        )
        if expected.step is not None:
            wanted = units.show(float(expected.step.step.value), "seconds")
            said += say(
                "; predicted for {name}: {wanted}", name=expected.step.cluster.name, wanted=wanted
            )
        out.print(Text(say("{said}.", said=said)))
    for note in (*notes, *_scaled(job, ran)):
        out.print(Text(f"· {note}"))


def _scaled(job: Job, ran: Ran) -> list[str]:
    """How loss scaling went; a scale is halved after a step whose gradients overflowed."""
    if job.plan.compute != "fp16" or not ran.steps:
        return []
    scales = [step.loss_scale for step in ran.steps]
    if job.loss_scale:
        return [say("loss scale {scale:g}, fixed", scale=job.loss_scale)]
    left = (scales[0] < FIRST_SCALE) + sum(b < a for a, b in pairwise(scales))
    return [
        say(
            "loss scale {scale:,.0f} at the end; {left} of {steps} steps overflowed and were left "
            "out",
            scale=scales[-1],
            left=left,
            steps=len(scales),
        )
    ]


def _collectives(every: Sequence[Line]) -> Table:
    table = Table(title=say("Bytes of collectives a rank and step"), title_justify="left", box=None)
    for name in ("axis", "collective"):
        table.add_column(word(name))
    for name in ("ranks", "predicted", "counted", mark("ring sends"), ""):
        table.add_column(word(name), justify="right")
    for line in every:
        table.add_row(
            line.axis, line.kind.replace("_", "-"), str(line.group), f"{line.predicted:,.0f}",
            f"{line.counted:,.0f}", f"{line.sent:,.0f}", word("exact" if line.exact else "differs"),
        )  # fmt: skip
    return table


def _say_wire(out: Any, ran: Ran) -> None:
    wires = [count.wire_bytes for count in ran.ranks if count.wire_bytes is not None]
    if not wires or ran.device != "cpu":
        return
    ring = sum(each.sent for count in ran.ranks for each in count.moved) / len(ran.ranks)
    seen = sum(wires) / len(wires)
    out.print(
        Text(
            say(
                "On the sockets a rank sent {seen:,.0f} bytes; rings would send {ring:,.0f}.",
                seen=seen,
                ring=ring,
            )
        )
    )


def _memory(expected: Expected, ran: Ran) -> Table:
    table = Table(title=say("Memory of tensors, rank by rank"), title_justify="left", box=None)
    table.add_column(word("rank"), justify="right")
    for name in ("weights", "gradients", "states"):
        table.add_column(word(name), justify="right")
    table.add_column(word("peak"), justify="right")
    table.add_column(word("predicted"), justify="right")
    for count in ran.ranks:
        wanted = expected.ranks[count.rank]
        table.add_row(str(count.rank), *(_beside(*pair) for pair in _held(count, wanted)),
                      units.show(count.peak_bytes, "bytes"),
                      f"{units.show(wanted.peak_bytes, 'bytes')} "
                      f"({wanted.peak_bytes / count.peak_bytes - 1.0:+.1%})")  # fmt: skip
    return table


def _held(count: RankCount, wanted: Any) -> list[tuple[float, float]]:
    return [
        (count.weight_bytes, wanted.weight_bytes),
        (count.gradient_bytes, wanted.gradient_bytes),
        (count.state_bytes, wanted.state_bytes),
    ]


def _beside(counted: float, wanted: float) -> str:
    """The counted bytes, with what was predicted where that was another number."""
    if counted == wanted:
        return f"{counted:,.0f}"
    return say("{counted:,.0f} (predicted {wanted:,.0f})", counted=counted, wanted=wanted)


def encode_ran(job: Job, expected: Expected, ran: Ran, notes: Sequence[str]) -> dict[str, Any]:
    """The same as JSON."""
    seconds = None if expected.step is None else float(expected.step.step.value)
    return {
        "model": job.model.name,
        "device": ran.device,
        "notes": list(notes),
        "begun_at_step": ran.begun_at,
        "losses": [step.loss for step in ran.steps],
        "measured_step_seconds": ran.step_seconds,
        "predicted_step_seconds": seconds,
        "loss_scales": [step.loss_scale for step in ran.steps],
        "passed": encode_passed(job, ran),
        "served": encode_served(ran.served) if ran.served else None,
        "collectives": [
            {
                "axis": line.axis, "kind": line.kind, "ranks": line.group,
                "predicted_bytes": line.predicted, "counted_bytes": line.counted,
                "ring_sends_bytes": line.sent, "exact": line.exact,
            }
            for line in lines(expected, ran)
        ],
        "ranks": [
            {
                "rank": count.rank, "stage": count.stage,
                "peak_bytes": count.peak_bytes,
                "predicted_peak_bytes": expected.ranks[count.rank].peak_bytes,
                "weight_bytes": count.weight_bytes,
                "predicted_weight_bytes": expected.ranks[count.rank].weight_bytes,
                "gradient_bytes": count.gradient_bytes,
                "predicted_gradient_bytes": expected.ranks[count.rank].gradient_bytes,
                "state_bytes": count.state_bytes,
                "predicted_state_bytes": expected.ranks[count.rank].state_bytes,
                "socket_bytes": count.wire_bytes,
            }
            for count in ran.ranks
        ],
    }  # fmt: skip
