"""The older ways of data parallelism for readers: what passes one process, and how stale it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trueflops import units
from trueflops.language import mark, say, word
from trueflops.predict.stragglers.simulate import Mode, Progress
from trueflops.predict.training.through_one import Passed, ring_bytes, through_one
from trueflops.run.job import Job
from trueflops.run.ran import Ran
from trueflops.run.served import Served, foresee


def passed_of(ran: Ran) -> tuple[Passed, ...]:
    """What passed the process with the weights; nothing where every rank has them."""
    if ran.served is not None:
        return ran.served.passed
    return ran.ranks[0].passed if ran.ranks else ()


def show_one(out: Console, job: Job, ran: Ran) -> None:
    """Bytes of the one process, and what a parameter server saw."""
    counted = passed_of(ran)
    if counted:
        out.print(Text(say("Bytes that pass the process with the weights, a step"), "italic"))
        out.print(_bytes(through_one(job.model, job.plan, job.workload), counted))
        sent = sum(each.payload for each in counted if each.out)
        ring = ring_bytes(job.model, job.plan)
        out.print(
            Text(
                say(
                    "It sends {sent:,.0f} bytes, which grows with the replicas; a rank of DDP's "
                    "ring sends {ring:,.0f}.",
                    sent=sent,
                    ring=ring,
                )
            )
        )
    if ran.served is not None:
        _served(out, ran.served)


def _bytes(predicted: Sequence[Passed], counted: Sequence[Passed]) -> Table:
    table = Table(box=None)
    table.add_column(say("tensors"))
    table.add_column(say("way"))
    for name in ("predicted", "counted", ""):
        table.add_column(word(name), justify="right")
    found = {(each.what, each.out): each.payload for each in counted}
    for each in predicted:
        there = found.get((each.what, each.out), 0.0)
        table.add_row(
            word(each.what), say("sent") if each.out else say("received"),
            f"{each.payload:,.0f}", f"{there:,.0f}",
            word("exact" if there == each.payload else "differs"),
        )  # fmt: skip
    return table


def mode_name(updates: Mode, staleness: int, drop: int) -> str:
    """As `trueflops stragglers` calls it."""
    match updates:
        case Mode.DROPS:
            return say("drops {drop}", drop=drop)
        case Mode.BOUNDED:
            return say("bounded by {staleness}", staleness=staleness)
        case _:
            return word(updates.value)


def _served(out: Console, served: Served) -> None:
    wanted = foresee(served)
    name = mode_name(served.updates, served.staleness, served.drop)
    table = Table(box=None)
    table.add_column("")
    for column in ("predicted", "measured"):
        table.add_column(word(column), justify="right")
    for row in _rows(served, wanted):
        table.add_row(word(row[0]), *row[1:])
    out.print()
    title = say("Parameter server of {workers} workers, {name}", workers=served.workers, name=name)
    out.print(Text(title, "italic"))
    out.print(table)
    if wanted is not None:
        compute = units.show(_mean(served.compute_seconds), "seconds")
        exchange = units.show(_mean(served.exchange_seconds), "seconds")
        out.print(
            Text(
                say(
                    "Predicted: workers simulated as trueflops stragglers does, with their own "
                    "steps ({compute} each) and exchanges ({exchange}).",
                    compute=compute,
                    exchange=exchange,
                )
            )
        )


def _rows(served: Served, wanted: Progress | None) -> list[tuple[str, str, str]]:
    rate = served.tokens_per_second
    shown: list[tuple[str, Callable[[Served | Progress], str]]] = [
        (mark("stale by, mean"), lambda each: f"{each.mean_staleness:.1f}"),
        (mark("stale by, most"), lambda each: str(each.most_staleness)),
        ("waiting", lambda each: f"{each.waiting_share:.0%}"),
    ]
    if served.updates is Mode.BOUNDED:
        shown.append((mark("steps ahead, most"), lambda each: str(each.most_ahead)))
    if served.updates is Mode.DROPS:
        shown.append(("dropped", lambda each: f"{each.dropped_share:.0%}"))
    predicted = "–" if wanted is None else f"{predicted_rate(served, wanted):,.0f}"
    first = ("tokens/s", predicted, "–" if rate is None else f"{rate:,.0f}")
    rest = ((name, "–" if wanted is None else of(wanted), of(served)) for name, of in shown)
    return [first, *rest]


def predicted_rate(served: Served, wanted: Progress) -> float:
    """Tokens a second."""
    return wanted.gradients_per_second * served.tokens_per_gradient


def _mean(by_worker: Sequence[Sequence[float]]) -> float:
    every = [seconds for own in by_worker for seconds in own]
    return sum(every) / max(len(every), 1)


def encode_passed(job: Job, ran: Ran) -> list[dict[str, Any]]:
    """The bytes as JSON."""
    found = {(each.what, each.out): each.payload for each in passed_of(ran)}
    return [
        {"tensors": each.what, "way": "out" if each.out else "in", "predicted_bytes": each.payload,
         "counted_bytes": found.get((each.what, each.out), 0.0)}
        for each in through_one(job.model, job.plan, job.workload)
    ]  # fmt: skip


def encode_served(served: Served) -> dict[str, Any]:
    """What the server saw as JSON."""
    wanted = foresee(served)
    return {
        "updates": served.updates.name.lower(),
        "staleness_bound": served.staleness if served.updates is Mode.BOUNDED else None,
        "workers": served.workers,
        "gradients": len(served.used),
        "dropped": served.dropped,
        "tokens_per_second": served.tokens_per_second,
        "predicted_tokens_per_second": wanted and predicted_rate(served, wanted),
        "mean_staleness": served.mean_staleness,
        "predicted_mean_staleness": wanted and wanted.mean_staleness,
        "most_staleness": served.most_staleness,
        "predicted_most_staleness": wanted and wanted.most_staleness,
        "most_steps_ahead": served.most_ahead,
        "waiting": served.waiting_share,
        "predicted_waiting": wanted and wanted.waiting_share,
        "compute_seconds": _mean(served.compute_seconds),
        "exchange_seconds": _mean(served.exchange_seconds),
        "server_socket_bytes": served.socket_bytes,
    }
