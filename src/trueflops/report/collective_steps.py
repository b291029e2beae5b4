"""The messages of a collective drawn in a terminal: who sends which chunk to whom at which step.

A ring is drawn as a ring; other algorithms as lists of messages. Beyond eight ranks the middle is
left out; --json has every message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from string import ascii_lowercase
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from trueflops import units
from trueflops.clock import Algorithm
from trueflops.graph.kinds import CollectiveKind
from trueflops.language import columns, say
from trueflops.predict.collective import CollectiveCompared, Schedule
from trueflops.predict.collective.schedule import Message, Step, contributions
from trueflops.report.collective import NAMES
from trueflops.report.tables import plural

DRAWN: Final = 8  # ranks, messages or steps that are drawn in full
ENDS: Final = 3  # of more: how many of the first, before the last


def show_steps(out: Console, of: Schedule, found: CollectiveCompared) -> None:
    """Every phase with its steps, and what each rank holds between phases."""
    whole = of.ranks * found.payload_bytes if _is_exchange(of) else found.payload_bytes
    chunk = units.show(whole / of.chunks, "bytes")
    out.print(Text(say("{names}, step by step", names=NAMES[of.algorithm]), style="bold"))
    steps = plural(of.steps, "step")
    size = (
        plural(of.chunks, "chunk")
        if not _is_exchange(of)
        else say("{ranks} chunks on each rank", ranks=of.ranks)
    )
    out.print(
        say(
            "{size} of {chunk}; {steps}{of}",
            size=size,
            chunk=chunk,
            steps=steps,
            of=_pace(of, found),
        )
    )
    number = 0
    for phase in of.phases:
        adds = any(message.adds for step in phase.steps for message in step)
        does = say("each receiver adds") if adds else say("each receiver keeps")
        out.print(Text(f"{phase.name}: {does}"))
        lines = [(number + i + 1, _step(of, step)) for i, step in enumerate(phase.steps)]
        for at, line in _elided(lines):
            out.print(Text(f"  {at:>4}  {line}", no_wrap=True, overflow="ellipsis"))
        number += len(phase.steps)
    if of.ranks <= DRAWN and of.chunks <= DRAWN:
        _show_held(out, of)
    out.print()


def _is_exchange(of: Schedule) -> bool:
    return of.kind is CollectiveKind.ALL_TO_ALL


def _pace(of: Schedule, found: CollectiveCompared) -> str:
    """What a step takes where all are alike."""
    if of.algorithm is not Algorithm.RING or of.kind is CollectiveKind.BROADCAST:
        return ""
    way = next(e.way for e in found.found if e.way.algorithm is of.algorithm)
    return say(" of {seconds} on average", seconds=units.show(way.seconds / of.steps, "seconds"))


def _elided(lines: Sequence[tuple[int, str]]) -> Iterator[tuple[str, str]]:
    """All of few lines; of many the first ones and the last."""
    if len(lines) <= DRAWN:
        yield from ((str(at), line) for at, line in lines)
        return
    yield from ((str(at), line) for at, line in lines[:ENDS])
    yield "…", say("{number} more steps", number=len(lines) - ENDS - 1)
    yield str(lines[-1][0]), lines[-1][1]


def _step(of: Schedule, step: Step) -> str:
    if of.algorithm is Algorithm.RING and of.kind is not CollectiveKind.BROADCAST:
        return _ring(of, step)
    words = [f"{m.source}─{_chunks(of, m)}→{m.destination}" for m in step]
    if len(words) > DRAWN:
        words = [*words[:ENDS], "…", words[-1]]
    return "  ".join(words)


def _ring(of: Schedule, step: Step) -> str:
    """0 ─a→ 1 ─b→ 2 ─c→ 0."""
    links = [f"{m.source} ─{_chunks(of, m)}→" for m in step]
    if len(links) > DRAWN:
        links = [*links[: 2 * ENDS], "…", links[-1]]
    return " ".join([*links, str(step[-1].destination)])


def _chunks(of: Schedule, message: Message) -> str:
    """Letters of few chunks, numbers of many; of several the first and the last."""
    if _is_exchange(of):
        return say("for {chunks}", chunks=message.chunks[0] % of.ranks)
    names = [ascii_lowercase[c] if of.chunks <= len(ascii_lowercase) else str(c)
             for c in message.chunks]  # fmt: skip
    if len(names) == of.chunks and of.chunks > 1:
        return say("all")
    if len(names) <= ENDS + 1:
        return "".join(names) if of.chunks <= len(ascii_lowercase) else "+".join(names)
    return say("{number} chunks", number=len(names))


def _show_held(out: Console, of: Schedule) -> None:
    """Of how many ranks each chunk holds the sum, before, between and after the phases."""
    grids = [contributions(of, done) for done in range(len(of.phases) + 1)]
    reduces = of.kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER)
    letters = " ".join(ascii_lowercase[: of.chunks])
    heads = [
        say("at first"),
        *(say("after {name}", name=phase.name).split(",")[0] for phase in of.phases),
    ]
    wide = max(columns(each) for each in (letters, *heads)) + 2
    says = say("Σ: the sum of all") if reduces else "•: there"
    out.print(
        Text(
            say(
                "what each rank holds of chunks {letters} ({says})",
                letters=letters.replace(" ", ", "),
                says=says,
            )
        )
    )
    out.print(
        Text(
            "        " + "".join(head + " " * (wide - columns(head)) for head in heads).rstrip(),
            "dim",
        )
    )
    for rank in range(of.ranks):
        cells = ("".join(f"{_cell(int(c), of, reduces)} " for c in grid[rank]) for grid in grids)
        line = "".join(f"{cell.strip():<{wide}}" for cell in cells)
        out.print(Text(f"  {rank:>4}  {line.rstrip()}"))


def _cell(count: int, of: Schedule, reduces: bool) -> str:
    if count == 0:
        return "·"
    if not reduces:
        return "•"
    return "Σ" if count == of.ranks else str(count)


def encode_steps(of: Schedule) -> dict[str, Any]:
    """Every message."""
    return {
        "algorithm": of.algorithm.value,
        "chunks": of.chunks,
        "phases": [
            {
                "name": phase.name,
                "steps": [
                    [
                        {
                            "source": m.source,
                            "destination": m.destination,
                            "chunks": list(m.chunks),
                            "adds": m.adds,
                        }
                        for m in step
                    ]
                    for step in phase.steps
                ],
            }
            for phase in of.phases
        ],
    }
