"""trueflops run: carry out a plan with PyTorch, predicted beside measured."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from trueflops import units
from trueflops.catalog import Cluster
from trueflops.cli.correcting import WIDE_PLAN, check_calibrate, observe_log
from trueflops.cli.question import cluster_of, profile_for
from trueflops.cli.run_compare import compare
from trueflops.cli.run_rank import be_a_rank
from trueflops.errors import BadInput, printable
from trueflops.files import is_file, is_folder, own_path
from trueflops.language import say, spoken
from trueflops.model import Model, read_model
from trueflops.plan import Plan
from trueflops.plan.file import PlanFile, read_plan
from trueflops.predict.stragglers.simulate import Mode
from trueflops.profile import Profile
from trueflops.run.as_run import as_run
from trueflops.run.expected import expect, framework_of
from trueflops.run.job import Job, check_job
from trueflops.run.launch import check_world, is_rank, need_torch, start
from trueflops.workload import Training

USUAL_SEQ, USUAL_BATCHES = 128, 2
LOOKED_ON, TRACED = 3, 3  # steps under the counter (run/loop.py), then the profiler (run/traced.py)


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
    return be_a_rank(options, job, expected, notes, where)


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
        "--calibrate": options.calibrate, "--lang": spoken(),
    }  # fmt: skip
    words = [f"{flag}={value}" for flag, value in said.items() if value is not None]
    switches = {"--json": options.json, "--verbose": options.verbose, "--bind": options.bind}
    return [options.plan, *words, *(flag for flag, on in switches.items() if on)]
