"""trueflops capture: a real PyTorch program on an accelerator that is not there."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path

from trueflops.catalog import Cluster
from trueflops.cli.question import cluster_of, profile_for
from trueflops.clock import Clock
from trueflops.errors import BadInput
from trueflops.predict.captured.program import CapturedProgram, predict_program
from trueflops.report import encode
from trueflops.report.captured import encode_program, show_program
from trueflops.report.captured_files import write_trace
from trueflops.report.captured_graph import encode_graph, show_graph


def run(options: argparse.Namespace) -> int:
    """Run the program on tensors without data, then price what it launched."""
    where = _cluster(options)
    found = _captured(options, where)
    if options.trace:
        write_trace(found, Path(options.trace))
    if options.roofline:
        from trueflops.report.captured_plot import plot_roofline

        plot_roofline(found, Path(options.roofline))
    if options.timeline:
        from trueflops.report.captured_plot import plot_memory

        plot_memory(found, Path(options.timeline))
    if options.json:
        graph = encode_graph(found) if options.graph else {}
        print(encode.to_json(encode_program(found) | graph))
    elif options.graph:
        show_graph(found, options.top)
    else:
        show_program(found, options.top)
    return 0 if found.fitting.fits else 1


def _captured(options: argparse.Namespace, where: Cluster) -> CapturedProgram:
    try:
        from trueflops.capture.pretend.machine import Machine
        from trueflops.capture.program import arguments, capture, load
    except ModuleNotFoundError as error:
        raise BadInput(f"capture needs {error.name}: pip install 'trueflops[capture]'") from None
    words = [options.program.rpartition(":")[0], *(options.words or ())]
    machine = Machine.like(where.accelerator, where.per_node)
    world, rank = options.world or where.count, options.rank or 0
    print(f"running {options.program} without a device", file=sys.stderr, flush=True)
    with arguments(words), contextlib.redirect_stdout(sys.stderr):  # stdout is for the answer
        recording = capture(
            lambda: load(options.program), machine, world=world, rank=rank, per_node=where.per_node
        )
    profile = profile_for(options, where.accelerator, framework="plain")
    return predict_program(recording, Clock(where, profile))


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
