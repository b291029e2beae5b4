"""trueflops train: predict a given plan, or search for the best one."""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from trueflops import units
from trueflops.catalog import Cluster
from trueflops.cli.question import cluster_of, pue_of, question_of, recall, rent_of
from trueflops.errors import BadInput
from trueflops.model import Model, read_model
from trueflops.plan import Plan, check_plan
from trueflops.predict import Trainer, TrainingStep, training_bill
from trueflops.profile import from_datasheet
from trueflops.report import encode
from trueflops.report.tables import console
from trueflops.report.training import (
    print_training,
    runners_up_table,
    stages_table,
    tree_table,
)
from trueflops.search import Found, Space, enumerate_plans, search_plans, what_would_fit
from trueflops.workload import Training

DEGREES = ("tp", "pp", "cp", "dp", "dp_replicate", "dp_shard", "ep")


def run(options: argparse.Namespace) -> int:
    """Answer the question on stdout; exit 1 if nothing fits."""
    recall(options, "train")
    where, model = cluster_of(options), read_model(options.model)
    workload, notes = workload_of(options, model)
    base, why = base_plan(options, where)
    notes += why
    trainer = Trainer(model, workload, where, from_datasheet(where.accelerator))
    searching = options.search or all(getattr(options, name) is None for name in DEGREES)
    found: Found | None = None
    if searching:
        found = search(trainer, options, base)
        if not found.best:
            return say_none_fits(trainer, found, options)
        step = found.best[0]
        notes.append(f"best of {found.tried:,} possible plans, of which {found.fitting:,} fit")
    else:
        plan = given_plan(options, base, where)
        check_plan(plan, model, where.count, workload)
        step = trainer.predict_one(plan)
    return show(trainer, step, found, options, notes)


def show(
    trainer: Trainer,
    step: TrainingStep,
    found: Found | None,
    options: argparse.Namespace,
    notes: list[str],
) -> int:
    """Print one answer, as text or JSON."""
    money = {"rent": rent_of(options, trainer.cluster), "pue": pue_of(options)}
    bill = training_bill(step, **money)  # type: ignore[arg-type]
    others = found.best[: options.top] if found else ()
    fit = what_would_fit(trainer, step.plan) if not step.fits else []
    if options.json:
        answer = encode.training(question_of(options), step, bill)
        answer["notes"] = notes
        answer["stages"] = [encode.term(stage) for stage in trainer.memory_by_stage(step.plan)]
        answer["would_fit"] = [words for words, _ in fit]
        answer["best"] = [
            {
                "plan": encode.plan(s.plan),
                "step_seconds": s.step.value,
                "memory_bytes": s.memory.value,
            }
            for s in others
        ]
        print(encode.to_json(answer))
        return 0 if step.fits else 1
    if options.plot:
        from trueflops.report.plots import plot_waterfall

        plot_waterfall(step, Path(options.plot))
    out = console()
    print_training(out, step, bill, notes)
    if len(others) > 1:
        out.print()
        bills = [training_bill(s, **money) for s in others]  # type: ignore[arg-type]
        out.print(runners_up_table(list(zip(others, bills, strict=True))))
    if options.explain:
        explain(trainer, step)
    if not step.fits:
        out.print()
        over = units.show(float(step.memory.value) - step.capacity_bytes, "memory")
        out.print(f"[red]Does not fit[/]: {over} too many on the fullest accelerator.")
        for words, better in fit:
            out.print(
                f"  would fit: {words}  (step {units.show(float(better.step.value), 'seconds')})"
            )
        if not fit:
            out.print(
                "  no single change was found that makes it fit; leave the plan out to search"
            )
        return 1
    return 0


def explain(trainer: Trainer, step: TrainingStep) -> None:
    """Walk the trees: the step, the memory, every stage, and what fusion saved."""
    out = console()
    for tree in (step.step, step.memory):
        out.print()
        out.print(tree_table(tree))
    if step.plan.pp > 1:
        out.print()
        out.print(stages_table(trainer.memory_by_stage(step.plan), step.capacity_bytes))
    saved = trainer.fusion_savings(step.plan)
    out.print()
    out.print(
        f"Fusion: {saved.kernels_before:.0f} kernels became {saved.kernels_after:.0f} and "
        f"{units.show(saved.bytes_before - saved.bytes_after, 'bytes')} of "
        f"{units.show(saved.bytes_before, 'bytes')} memory traffic were saved, "
        "per layer and micro-batch."
    )


def search(trainer: Trainer, options: argparse.Namespace, base: Plan) -> Found:
    """Every plan that keeps what the flags fix."""

    def only(name: str) -> tuple[int, ...]:
        value = getattr(options, name)
        return () if value is None else (value,)

    usual = Space()
    space = Space(
        tp=only("tp"),
        pp=only("pp"),
        cp=only("cp"),
        ep=only("ep"),
        vpp=only("vpp"),
        zero=only("zero") or usual.zero,
        micro_batch=only("micro_batch") or usual.micro_batch,
        recompute=(options.recompute,) if options.recompute else usual.recompute,
        base=base,
    )
    where = trainer.cluster
    plans = enumerate_plans(trainer.model, trainer.workload, where, space)
    return search_plans(trainer, plans, options.top)


def say_none_fits(trainer: Trainer, found: Found, options: argparse.Namespace) -> int:
    """Why a search came back empty, and what to change."""
    chip = trainer.cluster.accelerator
    if not found.tried:
        batch, count = trainer.workload.global_batch, trainer.cluster.count
        reason = (
            f"no plan divides {count} {chip.name} and a global batch of {batch}; "
            f"try a global batch that is a multiple of {count}"
        )
    else:
        least = units.show(found.smallest_bytes, "memory")
        have = units.show(trainer.capacity, "memory")
        reason = (
            f"none of {found.tried:,} plans fits: the leanest needs {least} of {chip.name}'s "
            f"{have}; use more accelerators, --offload-optimizer, or a smaller --seq"
        )
    if options.json:
        print(encode.to_json({"question": question_of(options), "fits": False, "why": reason}))
    else:
        print(f"trueflops: {reason}", file=sys.stderr)
    return 1


def workload_of(options: argparse.Namespace, model: Model) -> tuple[Training, list[str]]:
    """The workload, with a reason for every default."""
    notes = []
    if options.seq:
        seq = units.parse_count(str(options.seq), what="--seq")
    else:
        seq = min(model.max_positions, 8192)
        notes.append(f"sequence {seq}: the usual pre-training length, at most the model's own")
    if options.global_batch:
        batch = units.parse_count(str(options.global_batch), what="--global-batch")
    else:
        batch = max(1, 2**22 // seq)
        notes.append(f"global batch {batch}: about 4 M tokens a step, as recent models train")
    if options.tokens:
        tokens = units.parse(str(options.tokens), "count", what="--tokens")
    else:
        tokens = 20.0 * model.active_parameter_count
        notes.append("tokens: 20 a parameter (Hoffmann 2022)")
    if seq > model.max_positions and model.learned_positions:
        raise BadInput(
            f"--seq {seq}: {model.name} has learned positions for {model.max_positions} tokens"
        )
    return Training(seq, batch, tokens), notes


def base_plan(options: argparse.Namespace, where: Cluster) -> tuple[Plan, list[str]]:
    """The fields that are not degrees: given ones, or defaults with their reason."""
    given: dict[str, Any] = {}
    for field in fields(Plan):
        value = getattr(options, field.name, None)
        if value is not None and field.name not in DEGREES:
            given[field.name] = value
    notes = []
    if "compute" not in given:
        given["compute"], note = compute_dtype(where)
        notes += note
    if given["compute"] in ("fp16", "tf32", "fp32"):
        wide = "fp32" if given["compute"] in ("tf32", "fp32") else "fp16"
        given.setdefault("parameter_dtype", wide)
        given.setdefault("gradient_dtype", wide)
    return Plan(**given), notes


def compute_dtype(where: Cluster) -> tuple[str, list[str]]:
    """bf16 where the chip has it; else the next best, said aloud."""
    chip = where.accelerator
    if chip.computes("bf16"):
        return "bf16", []
    dtype = next((d for d in ("fp16", "tf32", "fp32") if chip.computes(d)), "bf16")
    return dtype, [f"computing in {dtype}: {chip.name} has no bf16"]


def given_plan(options: argparse.Namespace, base: Plan, where: Cluster) -> Plan:
    """The plan that the flags spell out; data parallelism takes what is left."""
    degrees = {name: getattr(options, name) or 1 for name in ("tp", "pp", "cp", "ep")}
    inner = degrees["tp"] * degrees["pp"] * degrees["cp"]
    replicate, shard = options.dp_replicate, options.dp_shard
    if options.dp is not None and (replicate or shard):
        raise BadInput("give --dp, or --dp-replicate and --dp-shard, not both")
    if replicate is None and shard is None:
        dp = options.dp if options.dp is not None else max(where.count // inner, 1)
        replicate, shard = (1, dp) if options.zero else (dp, 1)
    sp = options.sp if options.sp is not None else degrees["tp"] > 1
    return base.but(**degrees, dp_replicate=replicate or 1, dp_shard=shard or 1, sp=sp)
