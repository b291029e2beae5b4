"""trueflops collective: one collective by every algorithm, step by step."""

from __future__ import annotations

import argparse
from pathlib import Path

from trueflops import units
from trueflops.cli.question import cluster_of, profile_for
from trueflops.clock import Algorithm, Clock
from trueflops.errors import BadInput, join_or
from trueflops.graph.kinds import CollectiveKind
from trueflops.language import say
from trueflops.predict.collective import CollectiveCompared, Schedule, compare_collective, schedule
from trueflops.report import encode
from trueflops.report.collective import encode_collective, show_collective
from trueflops.report.collective_plot import plot_collective
from trueflops.report.collective_steps import encode_steps, show_steps
from trueflops.report.tables import console

MOST_DRAWN = 4096  # ranks: messages of more are too many to write down


def run(options: argparse.Namespace) -> int:
    """Price every algorithm and show them side by side."""
    kind = CollectiveKind(options.kind)
    payload = read_bytes(options.bytes)
    where = cluster_of(options)
    clock = Clock(where, profile_for(options, where.accelerator))
    found = compare_collective(clock, kind, payload, options.ranks or where.count)
    steps = _steps(options.steps, found) if options.steps else None
    if options.plot is not None:
        plot_collective(found, Path(options.plot))
    if options.json:
        drawn = {"schedule": encode_steps(steps)} if steps else {}
        print(encode.to_json(encode_collective(found) | drawn))
        return 0
    out = console()
    show_collective(out, found)
    if steps:
        show_steps(out, steps, found)
    return 0


def read_bytes(text: str) -> float:
    """'1GB' as bytes: one at least."""
    value = units.parse(text, "bytes", what="--bytes")
    return units.check_sane(value, "bytes", what="--bytes")


def _steps(name: str, found: CollectiveCompared) -> Schedule:
    """The messages of the algorithm that --steps names."""
    if found.ranks > MOST_DRAWN:
        raise BadInput(
            say(
                "--steps: {ranks} ranks are too many; write --ranks {most_drawn} or fewer",
                ranks=found.ranks,
                most_drawn=MOST_DRAWN,
            )
        )
    there = [each.way.algorithm for each in found.found]
    drawn = {a: schedule(found.kind, a, found.sizes) for a in there}
    wanted = Algorithm(name)
    if name == Algorithm.RING and found.kind is CollectiveKind.ALL_TO_ALL:
        wanted = Algorithm.DIRECT  # what --steps alone means: the way the library has
    picked = drawn.get(wanted)
    if picked is None:
        known = join_or(a.value for a, steps in drawn.items() if steps)
        why = say("has no messages from rank to rank") if wanted in there else say("is none here")
        raise BadInput(
            say(
                "--steps {name}: {value} {why} for {kind}; write {known}",
                name=name,
                value=wanted.value,
                why=why,
                kind=found.kind,
                known=known,
            )
        )
    return picked
