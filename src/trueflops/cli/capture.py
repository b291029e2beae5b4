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
from typing import TextIO

from trueflops.capture.change import Batch, Change, batch_of
from trueflops.capture.named import named_program
from trueflops.catalog import Cluster
from trueflops.cli.question import cluster_of, profile_for
from trueflops.clock import Clock
from trueflops.errors import BadInput, printable
from trueflops.files import check_writable
from trueflops.predict.captured.advice import Advised, advise_program
from trueflops.predict.captured.program import CapturedProgram, predict_program
from trueflops.predict.provenance import Provenance, captured_provenance
from trueflops.profile import Profile
from trueflops.records.recording import Recording
from trueflops.report import encode
from trueflops.report.captured import encode_program, show_program
from trueflops.report.captured_advice import encode_advice, show_advice
from trueflops.report.captured_files import write_trace
from trueflops.report.captured_graph import encode_graph, show_graph
from trueflops.report.plots import check_name
from trueflops.report.provenance import encode_provenance, show_provenance
from trueflops.report.tables import answers_on, console

STDOUT, STDERR = 1, 2  # descriptors, whatever Python calls its streams


def run(options: argparse.Namespace) -> int:
    """Run the program on tensors without data, then price what it launched."""
    where, profile = asked_for(options)
    for picture in (options.roofline, options.timeline):
        if picture:
            check_name(Path(picture))
    if options.trace:
        check_writable(Path(options.trace))
    with program_apart() as answers, answers_on(answers):
        found = predict_program(recorded(options, where), Clock(where, profile))
        advised = _advised(options, where, found) if options.advise else None
        return _answer(options, found, advised, answers)


def _advised(options: argparse.Namespace, where: Cluster, found: CapturedProgram) -> Advised:
    """The changes that would help; the program runs again for those that its recording lacks."""
    place = batch_of(options.program, options.words or ())

    def again(change: Change | None = None, batch: int | None = None) -> CapturedProgram:
        other = None if place is None or batch is None else (place, batch)
        return predict_program(recorded(options, where, change, other), found.clock)

    return advise_program(found, again, place.size if place else None)


def asked_for(options: argparse.Namespace) -> tuple[Cluster, Profile]:
    """Where a program shall run, and what is known of that; all flags are checked before torch."""
    where = _cluster(options)
    named_program(options.program)
    return where, profile_for(options, where.accelerator, framework="plain")


def _answer(
    options: argparse.Namespace, found: CapturedProgram, advised: Advised | None, answers: TextIO
) -> int:
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
        if advised is not None:
            more |= encode_advice(advised)
        print(encode.to_json(encode_program(found) | more), file=answers)
    elif options.graph:
        show_graph(found, options.top)
    else:
        show_program(found, options.top)
    if advised is not None and not options.json:
        show_advice(advised, found)
    if options.provenance and not options.json:
        show_provenance(console(), _provenance(found))
    return 0 if found.fitting.fits else 1


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


def recorded(
    options: argparse.Namespace,
    where: Cluster,
    change: Change | None = None,
    batch: tuple[Batch, int] | None = None,
) -> Recording:
    """The program, run without a device; with a change or another batch, if one is asked for."""
    try:
        from trueflops.capture.pretend.machine import Machine
        from trueflops.capture.program import arguments, capture, load
    except ModuleNotFoundError as error:
        needs = f"{options.command} needs {error.name}: pip install 'trueflops[capture]'"
        raise BadInput(needs) from None
    words, parameters = list(options.words or ()), dict[str, int]()
    said = f" ({change.value.replace('_', ' ')})" if change else ""
    if batch is not None:
        place, size = batch
        words, parameters = place.words(words, size), place.parameters(size)
        said = f" (a batch of {size})"
    machine = Machine.like(where.accelerator, where.per_node)
    world, rank = options.world or where.count, options.rank or 0
    program = printable(options.program)
    print(f"running {program} without a device{said}", file=sys.stderr, flush=True)
    with arguments([options.program.rpartition(":")[0], *words]):
        return capture(
            lambda: partial(load(options.program), **parameters),
            machine,
            world=world,
            rank=rank,
            per_node=where.per_node,
            change=change,
        )


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
