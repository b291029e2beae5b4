"""trueflops run: carry out a plan with PyTorch, predicted beside measured."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import warnings
from pathlib import Path
from typing import Any

from trueflops import units
from trueflops.catalog import Cluster
from trueflops.cli.correcting import WIDE_PLAN, check_calibrate, observe_log, observe_run
from trueflops.cli.question import cluster_of, profile_for
from trueflops.cli.run_compare import compare
from trueflops.errors import BadInput, printable
from trueflops.files import is_file, is_folder, own_path
from trueflops.language import say
from trueflops.model import Model, read_model
from trueflops.plan import Plan
from trueflops.plan.file import PlanFile, read_plan
from trueflops.predict.stragglers.simulate import Mode
from trueflops.profile import Profile
from trueflops.report import encode
from trueflops.report.correction import encode_correction, show_correction
from trueflops.report.ran import encode_ran, show_ran
from trueflops.report.run_log import log_notes, step_line
from trueflops.run.as_run import as_run
from trueflops.run.bind import bind, node_of, read_nodes
from trueflops.run.expected import Expected, expect, framework_of
from trueflops.run.job import Job, check_job
from trueflops.run.launch import check_world, is_rank, need_torch, start
from trueflops.run.peak import peak_of
from trueflops.workload import Training

USUAL_SEQ, USUAL_BATCHES = 128, 2
INTERRUPTED = 130
LOOKED_ON, TRACED = 3, 3  # steps under the counter (run/loop.py), then the profiler (run/traced.py)
_GONE = ("gloo", "peer", "nccl", "connection", "remote")
"""Words of the errors that a collective raises when a rank has died."""


def run(options: argparse.Namespace) -> int:
    """Check everything, then start the ranks, or be one of them."""
    check_calibrate(options)
    if options.log is not None:
        return observe_log(options)
    job, notes = job_of(options)
    need_torch()
    where, profile = _hardware(options, job)
    if options.compare and not is_rank():
        return compare(options, job, words_of, notes)
    expected = expect(job, where, profile, on_gpu=options.device == "cuda")
    if job.processes > 1 and not is_rank():
        words = words_of(options)
        return start(words, job.plan.engine, job.processes, options.max_restarts)
    check_world(job.processes)
    return _be_a_rank(options, job, expected, notes, where)


def job_of(options: argparse.Namespace) -> tuple[Job, list[str]]:
    """From a plan file and flags to what is run, with a note for every default."""
    found = read_plan(own_path(options.plan))
    notes: list[str] = []
    given = dict(found.given)
    if "compute" not in given:
        given |= WIDE_PLAN
        notes.append(say("fp32 throughout: the plan says no compute dtype"))
    if options.engine is not None:
        given["engine"] = options.engine
    model = _model(options, found)
    asked = Plan(**given)
    seq = options.seq or int(found.after("--seq") or 0) or min(USUAL_SEQ, model.max_positions)
    batch = options.global_batch or int(found.after("--global-batch") or 0)
    if not batch:
        stages = int(asked.pp) if asked.pp > 1 else 1
        batch = USUAL_BATCHES * int(asked.micro_batch * asked.dp) * stages
        notes.append(
            say(
                "global batch {batch}: {usual_batches} micro-batches a replica",
                batch=batch,
                usual_batches=USUAL_BATCHES * stages,
            )
        )
    plan, changed = as_run(asked)
    job = Job(
        model=model,
        plan=plan,
        workload=Training(seq, batch, float(seq * batch * options.steps)),
        steps=options.steps,
        seed=options.seed,
        learning_rate=options.lr,
        text=own_path(options.text) if options.text else None,
        checkpoint=own_path(options.checkpoint) if options.checkpoint else None,
        save_every=options.save_every,
        trace=_trace(options),
        **_replicas(options),
    )
    check_job(job)
    if options.loss_scale is not None and plan.compute != "fp16" and not options.compare:
        raise BadInput(
            say("--loss-scale is for fp16; write compute fp16 in the plan, or leave it out")
        )
    if job.text is not None and not is_file(job.text):
        raise BadInput(say("--text {text}: no such file", text=printable(str(job.text))))
    return job, notes + changed


def _replicas(options: argparse.Namespace) -> dict[str, Any]:
    """Flags about how replicas agree; one that would do nothing is refused."""
    if options.compare == "engines" and (options.engine or options.updates):
        raise BadInput(say("--compare engines runs them all; leave --dp-engine and --updates out"))
    updates = Mode[(options.updates or "synchronous").upper()]
    for flag, mode in (("staleness", Mode.BOUNDED), ("drop", Mode.DROPS)):
        given = getattr(options, flag) is not None
        if given and updates is not mode and options.compare != "engines":
            raise BadInput(
                say("{flag} is for {needed}; add that", flag=f"--{flag}",
                    needed=f"--updates {mode.name.lower()}")
            )  # fmt: skip
    if options.loss_scale is not None and options.loss_scale <= 0.0:
        raise BadInput(
            say("--loss-scale must be above 0; leave it out to have it found on the way")
        )
    pause = units.parse(options.pause, "seconds", what="--pause") if options.pause else 0.0
    return {
        "updates": updates,
        "staleness": 3 if options.staleness is None else options.staleness,
        "drop": 1 if options.drop is None else options.drop,
        "pause_seconds": pause,
        "loss_scale": options.loss_scale or 0.0,
    }


def _trace(options: argparse.Namespace) -> Path | None:
    """Where --trace writes, checked before an hour has been run for it."""
    if options.trace is None:
        return None
    path, needed = own_path(options.trace), LOOKED_ON + TRACED
    where = printable(str(path))
    if not where.endswith((".json", ".json.gz")):
        raise BadInput(
            say("--trace {where}: write a name that ends in .json or .json.gz", where=where)
        )
    if not is_folder(path.parent):
        raise BadInput(say("--trace {where}: no such folder", where=where))
    if options.steps < needed:
        raise BadInput(
            say(
                "--trace: needs --steps {needed}: the first are counted, the next traced",
                needed=needed,
            )
        )
    return path


def _model(options: argparse.Namespace, found: PlanFile) -> Model:
    if options.model is not None:
        return read_model(options.model)
    if not found.arguments:
        raise BadInput(
            say(
                "{plan} says no model; add --model with a catalog name or a config.json",
                plan=printable(options.plan),
            )
        )
    return read_model(found.arguments[0])


def _hardware(options: argparse.Namespace, job: Job) -> tuple[Cluster | None, Profile | None]:
    """What --on and --profile name; without them seconds are measured alone."""
    if options.on is None and options.profile is None:
        return None, None
    where = cluster_of(options)
    if where.count != int(job.plan.world):
        raise BadInput(
            say(
                "--on has {count} accelerators, and the plan {world} ranks",
                count=where.count,
                world=int(job.plan.world),
            )
        )
    return where, profile_for(options, where.accelerator, framework_of(job.plan))


def words_of(options: argparse.Namespace) -> list[str]:
    """The command line again, for each rank."""
    said = {
        "--model": options.model, "--steps": options.steps, "--seq": options.seq,
        "--global-batch": options.global_batch, "--lr": options.lr, "--seed": options.seed,
        "--text": options.text, "--checkpoint": options.checkpoint,
        "--save-every": options.save_every, "--device": options.device, "--on": options.on,
        "--profile": options.profile, "--dp-engine": options.engine, "--updates": options.updates,
        "--staleness": options.staleness, "--drop": options.drop, "--pause": options.pause,
        "--loss-scale": options.loss_scale, "--trace": options.trace,
        "--calibrate": options.calibrate, "--lang": options.lang,
    }  # fmt: skip
    words = [f"{flag}={value}" for flag, value in said.items() if value is not None]
    switches = {"--json": options.json, "--verbose": options.verbose, "--bind": options.bind}
    return [options.plan, *words, *(flag for flag, on in switches.items() if on)]


def _be_a_rank(
    options: argparse.Namespace, job: Job, expected: Expected, notes: list[str],
    where: Cluster | None,
) -> int:  # fmt: skip
    warnings.filterwarnings("ignore")  # of torch, about itself: every rank would print them
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # nor does the profiler say that it begins
    torch: Any = importlib.import_module("torch")
    loop: Any = importlib.import_module("trueflops.run.loop")
    mesh: Any = importlib.import_module("trueflops.run.mesh")
    local = int(os.environ.get("LOCAL_RANK", "0"))
    here, gpus = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), int(torch.cuda.device_count())
    processes = here
    if job.plan.engine == "dataparallel":
        here = int(job.plan.dp)
    served = job.plan.engine == "parameter-server"
    if served:  # rank 0 serves, from host memory
        here, local = here - 1, max(local - 1, 0)
    on_gpu = options.device != "cpu" and gpus >= here
    if options.device == "cuda" and not on_gpu:
        if local == 0:  # one rank speaks for all
            there = say("torch sees {gpus} GPUs here, and {here} ranks start", gpus=gpus, here=here)
            instead = say("leave it out, or write cpu\n           [BAD_INPUT]")
            print(
                say("trueflops: --device cuda: {there}; {instead}", there=there, instead=instead),
                file=sys.stderr,
            )
        return BadInput.exit_code
    device = torch.device("cuda", local) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    if options.bind:
        notes = notes + _bind(torch, device, local, processes)
    mesh.join("cpu" if served else device.type)
    rank = torch.distributed.get_rank()
    first = rank == 0

    name = torch.cuda.get_device_name(device) if on_gpu else "cpu"
    if on_gpu and where is None:
        expected = expect(job, None, None, on_gpu=True)
    peak = peak_of(where, name, str(job.plan.compute))
    notes = [*log_notes(peak), *notes]

    def tell(step: Any) -> None:
        if first:
            print(step_line(job, step, expected, peak), file=sys.stderr, flush=True)

    try:
        ran = loop.run_job(job, device, tell)
    except loop.Interrupted as stopped:
        if first:
            kept = say("; {checkpoint} has it", checkpoint=job.checkpoint) if job.checkpoint else ""
            print(say("trueflops: {stopped}{kept}", stopped=stopped, kept=kept), file=sys.stderr)
        torch.distributed.destroy_process_group()
        return INTERRUPTED
    except loop.NotSaved as full:
        if first:
            print(say("trueflops: {full}; make room, and run again", full=full), file=sys.stderr)
        torch.distributed.destroy_process_group()
        return 1
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
    torch.distributed.destroy_process_group()
    if not first:
        return 0
    seen = None
    if options.calibrate is not None and where is not None:
        seen = observe_run(options, job, where, ran.step_seconds)
    if options.json:
        answer = {"plan": encode.plan(job.plan)} | encode_ran(job, expected, ran, notes)
        if seen is not None:
            answer["correction"] = encode_correction(*seen)
        print(encode.to_json(answer))
        return 0
    show_ran(job, expected, ran, notes)
    if seen is not None:
        show_correction(*seen, where=printable(options.calibrate))
    return 0


def _bind(torch: Any, device: Any, local: int, ranks: int) -> list[str]:
    """Bind this rank, and say where ranks went."""
    nodes = read_nodes()
    if len(nodes) < 2:
        return [say("--bind: {why}, so there is nothing to bind", why=_few(len(nodes)))]
    pci = ""
    if device.type == "cuda":
        of = torch.cuda.get_device_properties(device)
        pci = f"{of.pci_domain_id:04x}:{of.pci_bus_id:02x}:{of.pci_device_id:02x}.0"
    bind(node_of(nodes, local, ranks, pci))
    places = ", ".join(node.shown for node in nodes)
    return [
        say(
            "--bind: {ranks} ranks on {places}; memory follows the cores that touch it first",
            ranks=ranks,
            places=places,
        )
    ]


def _few(nodes: int) -> str:
    if nodes:
        return say("this machine has one NUMA node")
    return say("this system shows no NUMA nodes")
