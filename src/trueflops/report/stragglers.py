"""Stragglers for readers: what each mode makes of them, and the first steps drawn as bars."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from trueflops import units
from trueflops.catalog import Cluster
from trueflops.language import say
from trueflops.predict.stragglers import Straggled
from trueflops.predict.stragglers.simulate import Mode, Progress, Span
from trueflops.report import encode
from trueflops.report.grid import grid
from trueflops.report.tables import show_list

DRAWN: Final = 4  # workers of a timeline
SLOWER_SERVERS: Final = 1.2  # times an all-reduce: from here on worth a word
STEPS_DRAWN: Final = 12.0  # healthy steps that a timeline is long


def show_stragglers(out: Console, found: Straggled, where: Cluster, batch: int | None) -> None:
    """The question, the modes side by side, and what each loses."""
    n, asked = found.workers.count, found.asked
    out.print(
        Text(
            say("{n} workers of {name}: {found}", n=n, name=where.name, found=_slow(found)), "bold"
        )
    )
    step = units.show(asked.step_seconds, "seconds")
    summed = units.show(found.workers.all_reduce_seconds, "seconds")
    served = units.show(float(found.workers.server_seconds[-1]), "seconds")
    sent = units.show(asked.gradient_bytes, "bytes")
    talk = (
        say(
            "all-reduce of {sent} {summed}, servers {served}",
            sent=sent,
            summed=summed,
            served=served,
        )
        if asked.gradient_bytes
        else (say("communication free (say --bytes)"))
    )
    out.print(
        say(
            "[dim]a healthy step {step}; {talk}; {steps:,} steps each, seed {seed}[/]",
            step=step,
            talk=talk,
            steps=found.steps,
            seed=asked.seed,
        )
    )
    out.print()
    unit = "samples/s" if batch else "gradients/s"
    table = grid(
        "updates", (unit, "right"), ("lost", "right"), ("waiting", "right"), ("dropped", "right"),
        ("stale by", "right"), ("at most", "right"), ("ahead", "right"),
    )  # fmt: skip
    for each in found.found:
        table.add_row(
            _name(each.mode, found),
            _rate(each.gradients_per_second * (batch or 1)),
            _percent(lost(each, found)),
            _percent(each.waiting_share),
            _percent(each.dropped_share),
            units.digits(each.mean_staleness),
            f"{each.most_staleness:,}",
            f"{each.most_ahead:,}",
        )
    out.print(table)
    out.print(
        Text(
            say(
                "lost: of healthy workers in step; stale by: updates of others between "
                "reading and changing parameters; ahead: steps before the slowest"
            ),
            "dim",
        )
    )
    out.print()
    show_list(out, "what that means", _meaning(found))


def lost(each: Progress, found: Straggled) -> float:
    """Of the gradients that healthy workers would have given."""
    return 1.0 - each.gradients_per_second / found.ideal_per_second


def _percent(share: float) -> str:
    return f"{round(100.0 * share, 1) + 0.0:.1f} %"  # no −0.0


def _rate(number: float) -> str:
    return units.digits(number) if number < 1000.0 else f"{number:,.0f}"


def _slow(found: Straggled) -> str:
    asked = found.asked
    said = []
    if asked.slow_rank > 1.0:
        said.append(say("rank 0 computes {slow_rank:g}x as long", slow_rank=asked.slow_rank))
    if asked.slow_link < 1.0:
        said.append(
            say("the link of rank 0 has {slow_link:g}x its bandwidth", slow_link=asked.slow_link)
        )
    if asked.jitter:
        said.append(say("steps vary by {jitter:g} %", jitter=100.0 * asked.jitter))
    return ", ".join(said) or say("none is slow")


def _name(mode: Mode, found: Straggled) -> str:
    match mode:
        case Mode.DROPS:
            return say("drops {drop}", drop=found.asked.drop)
        case Mode.BOUNDED:
            return say("bounded by {staleness}", staleness=found.asked.staleness)
        case _:
            return mode.value


def _meaning(found: Straggled) -> list[tuple[str, str]]:
    by_mode = {each.mode: each for each in found.found}
    n = found.workers.count
    said = [
        ("synchronous", say("every step takes as long as its slowest worker; nothing is stale")),
        (
            "drops",
            say(
                "a step ends when {enough} of {all} are there; who comes late has worked for "
                "nothing, and its samples are not seen",
                enough=n - found.asked.drop,
                all=n,
            ),
        ),
    ]
    start = found.head_start_steps
    bounded = say(
        "no worker begins a step more than {staleness} ahead of the slowest",
        staleness=found.asked.staleness,
    )
    if start < found.steps:
        bounded += say(
            "; one that is always slow sets the pace after some {start:,.0f} steps, "
            "whatever the bound: it only helps against jitter",
            start=start,
        )
    elif found.asked.jitter > 0.0:
        bounded += say(": jitter averages out, as far as the bound lets it")
    said.append(("bounded", bounded))
    served, summed = float(found.workers.server_seconds[-1]), found.healthy_all_reduce_seconds
    if served > SLOWER_SERVERS * summed:
        said.append(
            (
                "servers",
                say(
                    "out of step there is no all-reduce: each gradient goes to parameter servers "
                    "on all ranks, {served} instead of {summed}",
                    served=units.show(served, "seconds"),
                    summed=units.show(summed, "seconds"),
                ),
            )
        )
    stale = by_mode[Mode.ASYNCHRONOUS].mean_staleness
    said.append(
        (
            "asynchronous",
            say(
                "nobody waits; a gradient changes parameters that {stale:.1f} others have "
                "changed since, and the workers drift apart without end. What that costs in "
                "convergence is not predicted",
                stale=stale,
            ),
        )
    )
    return said


def show_timeline(out: Console, found: Straggled) -> None:
    """The first steps of some workers: computing, communicating, waiting."""
    horizon = _horizon(found)
    width = max(out.width - 17, 20)
    out.print(
        Text(
            say(
                "the first {horizon}   █ computes  ─ communicates  · waits",
                horizon=units.show(horizon, "seconds"),
            ),
            "bold",
        )
    )
    for each in found.found:
        for worker in range(min(found.workers.count, DRAWN)):
            name = _name(each.mode, found) if worker == 0 else ""
            drawn = [span for span in _first_spans(each, horizon) if span.worker == worker]
            out.print(Text(f"{name:<12} {worker:>2} {_bar(drawn, horizon, width)}"))
    if found.workers.count > DRAWN:
        out.print(Text(say("… and {count} more workers", count=found.workers.count - DRAWN), "dim"))
    out.print()


def _horizon(found: Straggled) -> float:
    """Seconds that a timeline is long."""
    return STEPS_DRAWN * (found.asked.step_seconds + found.healthy_all_reduce_seconds)


def _first_spans(each: Progress, horizon: float) -> list[Span]:
    """What some workers do until then."""
    return [span for span in each.spans if span.worker < DRAWN and span.start < horizon]


def _bar(spans: Iterable[Span], horizon: float, width: int) -> str:
    cells = ["·"] * width
    for span in spans:
        first = round(span.start / horizon * width)
        for cell in range(first, min(max(round(span.end / horizon * width), first + 1), width)):
            cells[cell] = "█" if span.computes else "─"
        if span.computes and first < width and first > 0:
            cells[first] = "▐"  # where a step begins
    return "".join(cells)


def encode_stragglers(
    found: Straggled, where: Cluster, batch: int | None, *, timeline: bool = False
) -> dict[str, Any]:
    """The same for programs; with `timeline`, what some workers do in the first steps."""
    asked = found.asked
    drawn = {"timeline": _encode_timeline(found)} if timeline else {}
    return {
        "cluster": encode.cluster(where),
        "workers": found.workers.count,
        "step_seconds": asked.step_seconds,
        "gradient_bytes": asked.gradient_bytes,
        "slow_rank": asked.slow_rank,
        "slow_link": asked.slow_link,
        "jitter": asked.jitter,
        "steps": found.steps,
        "seed": asked.seed,
        "all_reduce_seconds": found.workers.all_reduce_seconds,
        "server_seconds": float(found.workers.server_seconds[-1]),
        "slow_server_seconds": float(found.workers.server_seconds[0]),
        "ideal_gradients_per_second": found.ideal_per_second,
        "modes": [_encode_mode(each, found, batch) for each in found.found],
        **drawn,
    }


def _encode_timeline(found: Straggled) -> dict[str, Any]:
    """As the terminal draws it: what is no span is waiting."""
    horizon = _horizon(found)
    return {
        "seconds": horizon,
        "workers": min(found.workers.count, DRAWN),
        "modes": [
            {
                "name": each.mode.name.lower(),
                "spans": [
                    {
                        "worker": span.worker,
                        "start_seconds": span.start,
                        "end_seconds": span.end,
                        "computes": span.computes,
                    }
                    for span in _first_spans(each, horizon)
                ],
            }
            for each in found.found
        ],
    }


def _encode_mode(each: Progress, found: Straggled, batch: int | None) -> Mapping[str, Any]:
    limits = {Mode.DROPS: {"dropped_workers": found.asked.drop},
              Mode.BOUNDED: {"staleness_bound": found.asked.staleness}}  # fmt: skip
    return {
        "name": each.mode.name.lower(),
        **limits.get(each.mode, {}),
        "gradients_per_second": each.gradients_per_second,
        "updates_per_second": each.updates_per_second,
        "samples_per_second": each.gradients_per_second * batch if batch else None,
        "lost": lost(each, found),
        "waiting": each.waiting_share,
        "dropped": each.dropped_share,
        "mean_staleness": each.mean_staleness,
        "most_staleness": each.most_staleness,
        "most_steps_ahead": each.most_ahead,
    }
