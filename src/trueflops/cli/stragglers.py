"""trueflops stragglers: a slow rank or link under synchronous and asynchronous updates."""

from __future__ import annotations

import argparse

from trueflops import units
from trueflops.cli.collective import read_bytes
from trueflops.cli.question import cluster_of, profile_for
from trueflops.clock import Clock
from trueflops.predict.stragglers import Straggling, predict_straggling
from trueflops.report import encode
from trueflops.report.stragglers import encode_stragglers, show_stragglers, show_timeline
from trueflops.report.tables import console


def run(options: argparse.Namespace) -> int:
    """Simulate every mode and show them side by side."""
    step = units.parse(options.step, "seconds", what="--step")
    asked = Straggling(
        step_seconds=units.check_sane(step, "seconds", what="--step"),
        gradient_bytes=read_bytes(options.bytes) if options.bytes else 0.0,
        slow_rank=options.slow_rank,
        slow_link=options.slow_link,
        jitter=options.jitter,
        staleness=options.staleness,
        drop=options.drop,
        steps=options.rounds,
        seed=options.seed,
    )
    where = cluster_of(options)
    clock = Clock(where, profile_for(options, where.accelerator))
    found = predict_straggling(clock, options.ranks or where.count, asked)
    if options.json:
        answer = encode_stragglers(found, where, options.batch, timeline=options.timeline)
        print(encode.to_json(answer))
        return 0
    out = console()
    show_stragglers(out, found, where, options.batch)
    if options.timeline:
        show_timeline(out, found)
    return 0
