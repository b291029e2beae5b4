"""trueflops capture: a real PyTorch program on an accelerator that is not there."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from functools import partial
from pathlib import Path
from threading import active_count
from typing import Any, TextIO

from trueflops.capture.assumed import Assumptions, assuming
from trueflops.capture.named import named_program
from trueflops.catalog import Cluster
from trueflops.cli.question import cluster_of, profile_for
from trueflops.clock import Clock
from trueflops.errors import BadInput, printable
from trueflops.files import check_writable
from trueflops.predict.captured.program import CapturedProgram, predict_program
from trueflops.predict.captured.stages import CapturedStages, predict_stages
from trueflops.predict.provenance import Provenance, captured_provenance
from trueflops.profile import Profile
from trueflops.report import encode
from trueflops.report.captured import encode_program, show_program
from trueflops.report.captured_files import write_trace
from trueflops.report.captured_graph import encode_graph, show_graph
from trueflops.report.captured_stages import encode_stages, show_stages
from trueflops.report.plots import check_name
from trueflops.report.provenance import encode_provenance, show_provenance
from trueflops.report.tables import answers_on, console

STDOUT, STDERR = 1, 2  # descriptors, whatever Python calls its streams


def run(options: argparse.Namespace) -> int:
    """Run the program on tensors without data, then price what it launched."""
    where = _cluster(options)
    named_program(options.program)
    for picture in (options.roofline, options.timeline):
        if picture:
            check_name(Path(picture))
    if options.trace:
        check_writable(Path(options.trace))
    given = Assumptions.of(options.assume)
    profile = profile_for(options, where.accelerator, framework="plain")
    with program_apart() as answers, answers_on(answers), assuming(given):
        return _answer(options, _captured(options, where, profile), answers)


def _answer(options: argparse.Namespace, stages: CapturedStages, answers: TextIO) -> int:
    found = stages.ranks[options.rank or 0]
    if options.trace:
        write_trace(found, Path(options.trace))
    if options.roofline:
        from trueflops.report.captured_plot import plot_roofline

        plot_roofline(found, Path(options.roofline))
    if options.timeline:
        from trueflops.report.captured_plot import plot_memory

        plot_memory(found, Path(options.timeline))
    if options.json:
        more = encode_graph(found) if options.graph else {}
        if options.provenance:
            more["provenance"] = encode_provenance(_provenance(found))
        if options.pipeline:
            more["pipeline"] = encode_stages(stages)
        print(encode.to_json(encode_program(found) | more), file=answers)
    elif options.graph:
        show_graph(found, options.top)
    else:
        if options.pipeline:
            show_stages(stages)
        show_program(found, options.top)
    if options.provenance and not options.json:
        show_provenance(console(), _provenance(found))
    return 0 if all(each.fitting.fits for each in stages.ranks.values()) else 1


def _provenance(found: CapturedProgram) -> Provenance:
    return captured_provenance(found.step, found.clock.profile)


@contextmanager
def program_apart() -> Iterator[TextIO]:
    """Where the answer goes, while standard output is standard error for everybody else.

    For Python, for whoever writes to the descriptor itself, for child processes and for threads
    that live longer than the step: nothing that a program prints gets between the answer's lines.
    """
    sys.stdout.flush()
    answers, number = sys.stdout, None
    with suppress(OSError, ValueError):  # a stream of memory has no descriptor
        number = answers.fileno()
    if number is None or number != STDOUT:
        with redirect_stdout(sys.stderr):
            yield answers
        return
    kept, alone = os.dup(number), active_count()
    encoding = answers.encoding
    os.dup2(STDERR, number)
    try:
        with (
            redirect_stdout(sys.stderr),
            open(kept, "w", encoding=encoding, errors="replace", closefd=False) as real,
        ):
            yield real
    finally:
        if active_count() <= alone:  # a thread of the program's that still runs may still print
            os.dup2(kept, number)
        os.close(kept)


def _captured(options: argparse.Namespace, where: Cluster, profile: Profile) -> CapturedStages:
    """The rank that was asked for; with --pipeline, all stages of its pipeline."""
    try:
        from trueflops.capture import program
        from trueflops.capture.pretend.machine import Machine
    except ModuleNotFoundError as error:
        raise BadInput(f"capture needs {error.name}: pip install 'trueflops[capture]'") from None
    path, function = named_program(options.program)
    words = list(options.words or ())
    machine, clock = Machine.like(where.accelerator, where.per_node), Clock(where, profile)
    rank = options.rank or 0
    place: dict[str, int] = {
        "world": options.world or where.count, "rank": rank, "per_node": where.per_node,
    }  # fmt: skip
    print(f"running {printable(options.program)} without a device", file=sys.stderr, flush=True)

    def load() -> Any:
        return program.load(options.program)

    with program.arguments([str(path), *words]):
        if options.pipeline:
            run = (
                partial(program.run_function, load)
                if function
                else partial(program.run_file, path, words)
            )
            return predict_stages(program.capture_stages(run, machine, **place), clock)
        recording = (
            program.capture(load, machine, **place)
            if function
            else program.capture_script(path, words, machine, **place)
        )
    return CapturedStages({rank: predict_program(recording, clock)})


def _cluster(options: argparse.Namespace) -> Cluster:
    """--on; --world 64 --on H100 is sixty-four of them."""
    where = cluster_of(options)
    world = options.world or where.count
    if world < 1 or not 0 <= (options.rank or 0) < world:
        raise BadInput(
            f"--rank {options.rank}: the ranks of a world of {world} are 0 to {world - 1}"
        )
    if where.count == 1 and world > 1:
        options.on = f"{world}x{where.accelerator.name}"
        return cluster_of(options)
    if where.count != world:
        raise BadInput(f"--world {world}, but --on {options.on} has {where.count} chips")
    return where
