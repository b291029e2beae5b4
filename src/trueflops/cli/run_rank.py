"""One rank of `trueflops run`: its device, its steps, what became of them."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import warnings
from typing import Any, NamedTuple

from trueflops import units
from trueflops.catalog import Cluster
from trueflops.cli.correcting import observe_run
from trueflops.errors import BadInput, printable
from trueflops.language import say
from trueflops.report import encode
from trueflops.report.correction import encode_correction, show_correction
from trueflops.report.ran import encode_ran, show_ran
from trueflops.report.run_log import log_notes, step_line
from trueflops.run.bind import bind, node_of, read_nodes
from trueflops.run.expected import Expected, expect
from trueflops.run.job import Job
from trueflops.run.peak import peak_of

INTERRUPTED = 130
_GONE = ("gloo", "peer", "nccl", "connection", "remote")
"""Words of the errors that a collective raises when a rank has died."""


class _Place(NamedTuple):
    """Where a rank computes."""

    device: Any
    local: int  # of the ranks of its machine that compute
    ranks: int  # of its machine
    on_gpu: bool
    meets_on: str  # the device whose backend the ranks meet by


def be_a_rank(
    options: argparse.Namespace, job: Job, expected: Expected, notes: list[str],
    where: Cluster | None,
) -> int:  # fmt: skip
    """Run the job's steps as the rank that the environment names; the first one answers."""
    warnings.filterwarnings("ignore")  # of torch, about itself: every rank would print them
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # nor does the profiler say that it begins
    torch: Any = importlib.import_module("torch")
    mesh: Any = importlib.import_module("trueflops.run.mesh")
    place = _place(torch, options.device, job)
    if options.device == "cuda" and not place.on_gpu:
        return BadInput.exit_code
    if options.bind:
        notes = notes + _bind(torch, place)
    mesh.join(place.meets_on)
    if place.on_gpu and where is None:
        expected = expect(job, None, None, on_gpu=True)
    name = torch.cuda.get_device_name(place.device) if place.on_gpu else "cpu"
    peak = peak_of(where, name, str(job.plan.compute))
    rank = int(torch.distributed.get_rank())

    def tell(step: Any) -> None:
        if rank == 0:
            print(step_line(job, step, expected, peak), file=sys.stderr, flush=True)

    ran = _carry_out(torch, job, place.device, rank, expected, tell)
    if isinstance(ran, int):
        return ran
    torch.distributed.destroy_process_group()
    if rank == 0:
        _answer(options, job, expected, ran, [*log_notes(peak), *notes], where)
    return 0


def _place(torch: Any, asked: str, job: Job) -> _Place:
    """A GPU where there is one for every rank that computes, else the CPU."""
    local = int(os.environ.get("LOCAL_RANK", "0"))
    ranks, gpus = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), int(torch.cuda.device_count())
    needed = int(job.plan.dp) if job.plan.engine == "dataparallel" else ranks
    served = job.plan.engine == "parameter-server"
    if served:  # rank 0 serves, from host memory
        needed, local = needed - 1, max(local - 1, 0)
    on_gpu = asked != "cpu" and gpus >= needed
    if asked == "cuda" and not on_gpu and local == 0:  # one rank speaks for all
        there = say("torch sees {gpus} GPUs here, and {here} ranks start", gpus=gpus, here=needed)
        instead = say("leave it out, or write cpu\n           [BAD_INPUT]")
        print(
            say("trueflops: --device cuda: {there}; {instead}", there=there, instead=instead),
            file=sys.stderr,
        )
    device = torch.device("cuda", local) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    return _Place(device, local, ranks, on_gpu, "cpu" if served else device.type)


def _carry_out(
    torch: Any, job: Job, device: Any, rank: int, expected: Expected, tell: Any
) -> Any | int:
    """What ran; where it was stopped, the exit code, and why on stderr."""
    loop: Any = importlib.import_module("trueflops.run.loop")
    why = ""
    try:
        return loop.run_job(job, device, tell)
    except loop.Interrupted as stopped:
        kept = say("; {checkpoint} has it", checkpoint=job.checkpoint) if job.checkpoint else ""
        why, code = say("trueflops: {stopped}{kept}", stopped=stopped, kept=kept), INTERRUPTED
    except loop.NotSaved as full:
        why, code = say("trueflops: {full}; make room, and run again", full=full), 1
    except torch.OutOfMemoryError:
        needed = units.show(expected.ranks[rank].peak_bytes, "memory")
        print(
            say(
                "trueflops: rank {rank}: out of memory; {needed} of tensors were predicted: "
                "take more ranks, a higher ZeRO stage or recompute",
                rank=rank,
                needed=needed,
            ),
            file=sys.stderr,
        )
        return 1
    except RuntimeError as error:
        if not any(word in str(error).lower() for word in _GONE):
            raise
        print(say("trueflops: rank {rank}: another rank is gone", rank=rank), file=sys.stderr)
        os._exit(1)  # nobody is left to take leave of
    if rank == 0:  # what stops all ranks, one tells
        print(why, file=sys.stderr)
    torch.distributed.destroy_process_group()
    return code


def _answer(
    options: argparse.Namespace, job: Job, expected: Expected, ran: Any, notes: list[str],
    where: Cluster | None,
) -> None:  # fmt: skip
    """Print predicted beside measured, and what was learnt for the next prediction."""
    seen = None
    if options.calibrate is not None and where is not None:
        seen = observe_run(options, job, where, ran.step_seconds)
    if options.json:
        answer = {"plan": encode.plan(job.plan)} | encode_ran(job, expected, ran, notes)
        if seen is not None:
            answer["correction"] = encode_correction(*seen)
        print(encode.to_json(answer))
        return
    show_ran(job, expected, ran, notes)
    if seen is not None:
        show_correction(*seen, where=printable(options.calibrate))


def _bind(torch: Any, place: _Place) -> list[str]:
    """Bind this rank, and say where ranks went."""
    nodes = read_nodes()
    if len(nodes) < 2:
        return [say("--bind: {why}, so there is nothing to bind", why=_few(len(nodes)))]
    pci = ""
    if place.on_gpu:
        of = torch.cuda.get_device_properties(place.device)
        pci = f"{of.pci_domain_id:04x}:{of.pci_bus_id:02x}:{of.pci_device_id:02x}.0"
    bind(node_of(nodes, place.local, place.ranks, pci))
    places = ", ".join(node.shown for node in nodes)
    return [
        say(
            "--bind: {ranks} ranks on {places}; memory follows the cores that touch it first",
            ranks=place.ranks,
            places=places,
        )
    ]


def _few(nodes: int) -> str:
    if nodes:
        return say("this machine has one NUMA node")
    return say("this system shows no NUMA nodes")
