"""trueflops capture: a real PyTorch program on an accelerator that is not there."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from functools import partial
from pathlib import Path
from threading import active_count
from typing import Any, TextIO

from trueflops.capture.assumed import Assumptions, assuming
from trueflops.capture.change import Batch, Change, batch_of
from trueflops.capture.named import named_program
from trueflops.catalog import Cluster
from trueflops.cli.question import cluster_of, profile_for
from trueflops.clock import Clock
from trueflops.errors import BadInput, printable
from trueflops.files import check_writable
from trueflops.interop.onnx import Given, read_onnx
from trueflops.language import say
from trueflops.predict.captured.advice import Advised, advise_program
from trueflops.predict.captured.program import CapturedProgram, predict_program
from trueflops.predict.captured.stages import CapturedStages, predict_stages
from trueflops.predict.provenance import Provenance, captured_provenance
from trueflops.profile import Profile
from trueflops.records.recording import Recording
from trueflops.report import encode
from trueflops.report.captured.advice import encode_advice, show_advice
from trueflops.report.captured.files import write_trace
from trueflops.report.captured.graph import encode_graph, show_graph
from trueflops.report.captured.stages import encode_stages, show_stages
from trueflops.report.captured.step import encode_program, show_program
from trueflops.report.plots import check_name
from trueflops.report.progress import Waiting
from trueflops.report.provenance import encode_provenance, show_provenance
from trueflops.report.tables import answers_on, console

STDOUT, STDERR = 1, 2  # descriptors, whatever Python calls its streams


def run(options: argparse.Namespace) -> int:
    """Run the program on tensors without data, then price what it launched."""
    model = is_model(options.program)
    where, profile = _asked_for_model(options) if model else asked_for(options)
    if not model and (options.dim or options.shape):
        raise BadInput(say("--dim and --shape are of ONNX files; a program says its sizes itself"))
    for picture in (options.roofline, options.timeline):
        if picture:
            check_name(Path(picture))
    if options.trace:
        check_writable(Path(options.trace))
    if options.pipeline and options.advise:
        raise BadInput(say("--advise tries changes on one rank: drop --pipeline"))
    clock = Clock(where, profile)
    if model:
        return _answer(options, _model(options, clock), None, sys.stdout)
    with program_apart() as answers, answers_on(answers):
        stages = _captured(options, where, clock)
        found = stages.ranks[options.rank or 0]
        advised = _advised(options, where, found) if options.advise else None
        return _answer(options, stages, advised, answers)


def asked_for(options: argparse.Namespace) -> tuple[Cluster, Profile]:
    """Where a program shall run, and what is known of that; all flags are checked before torch."""
    where = _cluster(options)
    named_program(options.program)
    Assumptions.of(options.assume)
    return where, profile_for(options, where.accelerator, framework="plain")


def is_model(program: str) -> bool:
    """Whether this is a file of a model rather than a program."""
    return program.lower().endswith(".onnx")


def _asked_for_model(options: argparse.Namespace) -> tuple[Cluster, Profile]:
    """The same of an ONNX file."""
    where = _cluster(options)
    if where.count > 1:
        raise BadInput(
            say(
                "--on {on}: an ONNX file is of one chip; say --on {name}",
                on=options.on,
                name=where.accelerator.name,
            )
        )
    if options.pipeline:
        raise BadInput(say("--pipeline: an ONNX file has no stages; leave it out"))
    if options.assume:
        raise BadInput(say("--assume: an ONNX file asks for sizes alone: --dim NAME=N and --shape"))
    if options.advise:
        raise BadInput(say("--advise changes programs, not ONNX files; leave it out"))
    if options.words:
        raise BadInput(say("an ONNX file takes no arguments; sizes are --dim NAME=N and --shape"))
    return where, profile_for(options, where.accelerator, framework="plain")


def _model(options: argparse.Namespace, clock: Clock) -> CapturedStages:
    """One forward pass of an ONNX file."""
    given = Given.read(options.shape or (), options.dim or ())
    with Waiting(say("reading {program}", program=printable(options.program))):
        # onnxruntime's CUDA provider allows tf32 unless it is told not to (use_tf32 in
        # core/providers/cuda/cuda_execution_provider_info.h).
        tf32 = clock.chip.computes("tf32")
        recording = read_onnx(Path(options.program), given, tf32=tf32)
        return CapturedStages({0: predict_program(recording, clock)})


def _advised(options: argparse.Namespace, where: Cluster, found: CapturedProgram) -> Advised:
    """The changes that would help; the program runs again for those that its recording lacks."""
    place = batch_of(options.program, options.words or ())

    def again(change: Change | None = None, batch: int | None = None) -> CapturedProgram:
        other = None if place is None or batch is None else (place, batch)
        return predict_program(recorded(options, where, change, other), found.clock)

    return advise_program(found, again, place.size if place else None)


def _answer(
    options: argparse.Namespace, stages: CapturedStages, advised: Advised | None, answers: TextIO
) -> int:
    found = stages.ranks[options.rank or 0]
    if options.trace:
        write_trace(found, Path(options.trace))
    if options.roofline:
        from trueflops.report.captured.plot import plot_roofline

        plot_roofline(found, Path(options.roofline))
    if options.timeline:
        from trueflops.report.captured.plot import plot_memory

        plot_memory(found, Path(options.timeline))
    if options.json:
        more = encode_graph(found) if options.graph else {}
        if options.provenance:
            more["provenance"] = encode_provenance(_provenance(found))
        if advised is not None:
            more |= encode_advice(advised)
        if options.pipeline:
            more["pipeline"] = encode_stages(stages)
        print(encode.to_json(encode_program(found) | more), file=answers)
    elif options.graph:
        show_graph(found, options.top)
    else:
        if options.pipeline:
            show_stages(stages)
        show_program(found, options.top)
    if advised is not None and not options.json:
        show_advice(advised, found)
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


def _captured(options: argparse.Namespace, where: Cluster, clock: Clock) -> CapturedStages:
    """The rank that was asked for; with --pipeline, all stages of its pipeline."""
    if not options.pipeline:
        found = predict_program(recorded(options, where), clock)
        return CapturedStages({options.rank or 0: found})
    program, machine = _recorder(options), _machine(where)
    path, function = named_program(options.program)
    words = list(options.words or ())
    with _running(options, program, words):
        run = (
            partial(program.run_function, lambda: program.load(options.program))
            if function
            else partial(program.run_file, path, words)
        )
        return predict_stages(program.capture_stages(run, machine, **_place(options, where)), clock)


def recorded(
    options: argparse.Namespace,
    where: Cluster,
    change: Change | None = None,
    batch: tuple[Batch, int] | None = None,
) -> Recording:
    """The program, run without a device; with a change or another batch, if one is asked for."""
    program, machine = _recorder(options), _machine(where)
    path, function = named_program(options.program)
    words, parameters = list(options.words or ()), dict[str, int]()
    said = f" ({change.value.replace('_', ' ')})" if change else ""
    if batch is not None:
        place, size = batch
        words, parameters = place.words(words, size), place.parameters(size)
        said = say(" (a batch of {size})", size=size)
    with _running(options, program, words, said):
        ranks = _place(options, where)
        found: Recording = (
            program.capture(
                lambda: partial(program.load(options.program), **parameters),
                machine,
                **ranks,
                change=change,
            )
            if function
            else program.capture_script(path, words, machine, **ranks, change=change)
        )
        return found


def _recorder(options: argparse.Namespace) -> Any:
    """The module that runs programs; it needs torch, and is imported only now."""
    try:
        return importlib.import_module("trueflops.capture.program")
    except ModuleNotFoundError as error:
        needs = say(
            "{command} needs {name}: pip install 'trueflops[capture]'",
            command=options.command,
            name=error.name,
        )
        raise BadInput(needs) from None


def _machine(where: Cluster) -> Any:
    from trueflops.capture.pretend.machine import Machine

    return Machine.like(where.accelerator, where.per_node)


def _place(options: argparse.Namespace, where: Cluster) -> dict[str, int]:
    return {
        "world": options.world or where.count, "rank": options.rank or 0,
        "per_node": where.per_node,
    }  # fmt: skip


@contextmanager
def _running(
    options: argparse.Namespace, program: Any, words: list[str], said: str = ""
) -> Iterator[None]:
    """Say what runs, and give it its arguments and the values that are assumed."""
    name = printable(options.program)
    print(
        say("running {name} without a device{said}", name=name, said=said),
        file=sys.stderr,
        flush=True,
    )
    path, _ = named_program(options.program)
    given = Assumptions.of(options.assume)
    with program.arguments([str(path), *words]), assuming(given):
        yield


def _cluster(options: argparse.Namespace) -> Cluster:
    """--on; --world 64 --on H100 is sixty-four of them."""
    where = cluster_of(options)
    world = options.world or where.count
    if world < 1 or not 0 <= (options.rank or 0) < world:
        raise BadInput(
            say(
                "--rank {rank}: the ranks of a world of {world} are 0 to {last}",
                rank=options.rank,
                world=world,
                last=world - 1,
            )
        )
    if where.count == 1 and world > 1:
        options.on = f"{world}x{where.accelerator.name}"
        return cluster_of(options)
    if where.count != world:
        raise BadInput(
            say(
                "--world {world}, but --on {on} has {count} chips",
                world=world,
                on=options.on,
                count=where.count,
            )
        )
    return where
