"""trueflops run: carry out a plan with PyTorch, predicted beside measured."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import warnings
from typing import Any

from trueflops import units
from trueflops.catalog import Cluster
from trueflops.cli.question import cluster_of, profile_for
from trueflops.errors import BadInput, printable
from trueflops.files import is_file, own_path
from trueflops.model import Model, read_model
from trueflops.plan import Plan
from trueflops.plan.file import PlanFile, read_plan
from trueflops.profile import Profile
from trueflops.report import encode
from trueflops.report.ran import encode_ran, show_ran, step_line
from trueflops.run.as_run import as_run
from trueflops.run.expected import Expected, expect, framework_of
from trueflops.run.job import Job, check_job
from trueflops.run.launch import check_world, is_rank, need_torch, start
from trueflops.workload import Training

USUAL_SEQ, USUAL_BATCHES = 128, 2
INTERRUPTED = 130
_GONE = ("gloo", "peer", "nccl", "connection", "remote")
"""Words of the errors that a collective raises when a rank has died."""


def run(options: argparse.Namespace) -> int:
    """Check everything, then start the ranks, or be one of them."""
    job, notes = job_of(options)
    need_torch()
    world = int(job.plan.world)
    where, profile = _hardware(options, job)
    expected = expect(job, where, profile)
    if world > 1 and not is_rank():
        return start(_words(options), world, options.max_restarts)
    check_world(world)
    return _be_a_rank(options, job, expected, notes)


def job_of(options: argparse.Namespace) -> tuple[Job, list[str]]:
    """From a plan file and flags to what is run, with a note for every default."""
    found = read_plan(own_path(options.plan))
    notes: list[str] = []
    given = dict(found.given)
    if "compute" not in given:
        given |= {"compute": "fp32", "parameter_dtype": "fp32", "gradient_dtype": "fp32"}
        notes.append("fp32 throughout: the plan says no compute dtype")
    model = _model(options, found)
    asked = Plan(**given)
    seq = options.seq or int(found.after("--seq") or 0) or min(USUAL_SEQ, model.max_positions)
    batch = options.global_batch or int(found.after("--global-batch") or 0)
    if not batch:
        stages = int(asked.pp) if asked.pp > 1 else 1
        batch = USUAL_BATCHES * int(asked.micro_batch * asked.dp) * stages
        notes.append(f"global batch {batch}: {USUAL_BATCHES * stages} micro-batches a replica")
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
    )
    check_job(job)
    if job.text is not None and not is_file(job.text):
        raise BadInput(f"--text {printable(str(job.text))}: no such file")
    return job, notes + changed


def _model(options: argparse.Namespace, found: PlanFile) -> Model:
    if options.model is not None:
        return read_model(options.model)
    if not found.arguments:
        raise BadInput(
            f"{printable(options.plan)} says no model; add --model with a catalog name or a "
            "config.json"
        )
    return read_model(found.arguments[0])


def _hardware(options: argparse.Namespace, job: Job) -> tuple[Cluster | None, Profile | None]:
    """What --on and --profile name; without them seconds are measured alone."""
    if options.on is None and options.profile is None:
        return None, None
    where = cluster_of(options)
    if where.count != int(job.plan.world):
        raise BadInput(
            f"--on has {where.count} accelerators, and the plan {int(job.plan.world)} ranks"
        )
    return where, profile_for(options, where.accelerator, framework_of(job.plan))


def _words(options: argparse.Namespace) -> list[str]:
    """The command line again, for each rank."""
    said = {
        "--model": options.model, "--steps": options.steps, "--seq": options.seq,
        "--global-batch": options.global_batch, "--lr": options.lr, "--seed": options.seed,
        "--text": options.text, "--checkpoint": options.checkpoint,
        "--save-every": options.save_every, "--device": options.device, "--on": options.on,
        "--profile": options.profile,
    }  # fmt: skip
    words = [f"{flag}={value}" for flag, value in said.items() if value is not None]
    switches = {"--json": options.json, "--verbose": options.verbose}
    return [options.plan, *words, *(flag for flag, on in switches.items() if on)]


def _be_a_rank(options: argparse.Namespace, job: Job, expected: Expected, notes: list[str]) -> int:
    warnings.filterwarnings("ignore")  # of torch, about itself: every rank would print them
    torch: Any = importlib.import_module("torch")
    loop: Any = importlib.import_module("trueflops.run.loop")
    mesh: Any = importlib.import_module("trueflops.run.mesh")
    local = int(os.environ.get("LOCAL_RANK", "0"))
    here, gpus = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), int(torch.cuda.device_count())
    on_gpu = options.device != "cpu" and gpus >= here
    if options.device == "cuda" and not on_gpu:
        if local == 0:  # one rank speaks for all
            there = f"torch sees {gpus} GPUs here, and {here} ranks start"
            instead = "leave it out, or write cpu\n           [BAD_INPUT]"
            print(f"trueflops: --device cuda: {there}; {instead}", file=sys.stderr)
        return BadInput.exit_code
    device = torch.device("cuda", local) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    mesh.join(device.type)
    rank = torch.distributed.get_rank()
    first = rank == 0

    def say(step: Any) -> None:
        if first:
            print(step_line(job, step, expected), file=sys.stderr, flush=True)

    try:
        ran = loop.run_job(job, device, say)
    except loop.Interrupted as stopped:
        if first:
            kept = f"; {job.checkpoint} has it" if job.checkpoint else ""
            print(f"trueflops: {stopped}{kept}", file=sys.stderr)
        torch.distributed.destroy_process_group()
        return INTERRUPTED
    except torch.OutOfMemoryError:
        needed = units.show(expected.ranks[rank].peak_bytes, "memory")
        print(
            f"trueflops: rank {rank}: out of memory; {needed} of tensors were predicted: take more "
            "ranks, a higher ZeRO stage or recompute",
            file=sys.stderr,
        )
        return 1
    except RuntimeError as error:
        if not any(word in str(error).lower() for word in _GONE):
            raise
        print(f"trueflops: rank {rank}: another rank is gone", file=sys.stderr)
        os._exit(1)  # nobody is left to take leave of
    torch.distributed.destroy_process_group()
    if not first:
        return 0
    if options.json:
        print(
            encode.to_json({"plan": encode.plan(job.plan)} | encode_ran(job, expected, ran, notes))
        )
    else:
        show_ran(job, expected, ran, notes)
    return 0
