"""trueflops run --calibrate: steps that really ran, kept in a profile that they correct."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

from trueflops.catalog import Cluster, cluster
from trueflops.catalog.measured import cluster_measured
from trueflops.cli.question import cluster_of, given_profile
from trueflops.errors import BadInput, printable
from trueflops.files import is_file, own_path, read_file
from trueflops.language import say
from trueflops.model import read_model
from trueflops.model.config import decode_json
from trueflops.plan import Plan, check_plan
from trueflops.plan.file import PlanFile, as_json, fields_of, read_plan
from trueflops.profile import Profile, write_profile
from trueflops.profile.correction import CORRECTION
from trueflops.profile.library import find_profile
from trueflops.profile.stored import read_record
from trueflops.records.measured import LARGEST, Record
from trueflops.report import encode
from trueflops.report.correction import encode_correction, show_correction
from trueflops.run.as_run import as_run
from trueflops.run.correction import Fit, Observed, correct, curve_of
from trueflops.run.expected import framework_of
from trueflops.run.job import Job
from trueflops.run.logs import read_log
from trueflops.workload import Training

Corrected = tuple[Fit, list[Observed]]
OWN = "run"  # in the file: steps of `trueflops run` itself
WIDE_PLAN = dict.fromkeys(("compute", "parameter_dtype", "gradient_dtype"), "fp32")
"""Where a plan says no compute dtype."""


def check_calibrate(options: argparse.Namespace) -> None:
    """What --calibrate and --log need, before anything runs."""
    if options.log is not None and options.calibrate is None:
        raise BadInput(say("--log: say with --calibrate which profile its steps shall correct"))
    if options.calibrate is None:
        return
    if options.on is None and options.profile is None:
        raise BadInput(say("--calibrate corrects a prediction: say with --on or --profile of what"))
    if not options.calibrate.endswith(".json"):
        raise BadInput(
            say(
                "--calibrate {name}: write a name ending in .json",
                name=printable(options.calibrate),
            )
        )


def observe_log(options: argparse.Namespace) -> int:
    """Steps that torchtitan or Megatron-LM logged of this plan, on what --on names."""
    found, where = read_plan(own_path(options.plan)), cluster_of(options)
    seq = options.seq or int(found.after("--seq") or 0)
    batch = options.global_batch or int(found.after("--global-batch") or 0)
    name = _model(options, found)
    if not (seq and batch and name):
        raise BadInput(say("--log: say with --model, --seq and --global-batch what was run"))
    workload = Training(seq, batch, float(seq * batch))
    check_plan(Plan(**found.given), read_model(name), where.count, workload)
    logged = read_log(own_path(options.log), workload.tokens_per_step, where.count)
    said = {
        "model": name, "plan": as_json(found.given), "seq": seq, "global_batch": batch,
        "on": options.on or where.name, "framework": logged.framework, "seconds": logged.seconds,
        "reserved_bytes": logged.reserved_bytes,
    }  # fmt: skip
    kept = _keep(options, said, where)
    if options.json:
        print(encode.to_json({"correction": encode_correction(*kept)}))
    else:
        show_correction(*kept, where=printable(options.calibrate))
    return 0


def observe_run(
    options: argparse.Namespace, job: Job, where: Cluster, seconds: float | None
) -> Corrected:
    """Steps that we ran."""
    if seconds is None:
        raise BadInput(
            say("--calibrate: no step ran that nobody looked on at; write --steps 8 or more")
        )
    found = read_plan(own_path(options.plan))
    wide = {} if "compute" in found.given else WIDE_PLAN
    said = {
        "model": _model(options, found), "plan": as_json(found.given | wide),
        "seq": job.workload.seq, "global_batch": job.workload.global_batch, "on": where.name,
        "framework": OWN, "seconds": seconds, "reserved_bytes": None,
    }  # fmt: skip
    return _keep(options, said, where)


def _model(options: argparse.Namespace, found: PlanFile) -> str:
    return str(options.model or (found.arguments[0] if found.arguments else ""))


def _keep(options: argparse.Namespace, said: dict[str, Any], where: Cluster) -> Corrected:
    path = own_path(options.calibrate)
    base, record = _base(options)
    runs = [*_runs(path), said]
    observed = [observed_as(each, where, path) for each in runs]
    fit = correct(observed, base)
    chip = where.accelerator
    profile = base or Profile(f"{chip.name}, corrected", chip.name, {})
    profile = profile.having({CORRECTION: curve_of(fit.values, len(runs))})
    write_profile(profile, path, record, runs)
    return fit, observed


def _base(options: argparse.Namespace) -> tuple[Profile | None, Record | None]:
    """What is corrected: --profile, without a correction that it may have already."""
    given = given_profile(options)
    if given is None:
        return None, None
    path = find_profile(options.profile)
    record = (
        read_record(path) if "measured" in decode_json(read_file(path, LARGEST), path) else None
    )
    return uncorrected(given), record


def uncorrected(profile: Profile) -> Profile:
    """The same without what real steps corrected."""
    rest = {key: curve for key, curve in profile.curves.items() if key != CORRECTION}
    return replace(profile, curves=rest)


def _runs(path: Path) -> list[dict[str, Any]]:
    """Those that a file has seen before."""
    if not is_file(path):
        return []
    runs = runs_in(path)
    if runs is None:
        raise BadInput(
            say(
                "--calibrate {name}: there, and not written by --calibrate; name another file, and "
                "this one with --profile",
                name=printable(str(path)),
            )
        )
    return runs


def runs_in(path: Path) -> list[dict[str, Any]] | None:
    """Runs that a profile keeps; None where --calibrate did not write it."""
    runs = decode_json(read_file(path, LARGEST), path).get("runs")
    there = isinstance(runs, list) and all(isinstance(each, dict) for each in runs)
    return runs if there else None


def observed_as(said: Mapping[str, Any], where: Cluster, path: Path) -> Observed:
    """A run as a file holds it; `where` is that file's device, of which a run may have had more."""
    try:
        plan, framework = Plan(**fields_of(said["plan"], where=str(path))), str(said["framework"])
        if framework == OWN:
            plan, _ = as_run(plan)
            framework = framework_of(plan)
        batch, seconds = int(said["global_batch"]), float(said["seconds"])
        if not 0.0 < seconds < inf:
            raise ValueError(f"seconds {seconds:g}")
        return Observed(
            model=read_model(str(said["model"])),
            plan=plan,
            workload=Training(int(said["seq"]), batch, float(said["seq"] * batch)),
            where=_cluster(str(said["on"]), where),
            framework=framework,
            seconds=seconds,
            reserved_bytes=said.get("reserved_bytes"),
            said=said,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(
            say(
                "{name}: a run in it is not as --calibrate writes it ({error})",
                name=printable(str(path)),
                error=error,
            )
        ) from None


def _cluster(named: str, where: Cluster) -> Cluster:
    """Of a device that no catalog knows, as many as the name says."""
    if where.accelerator.status != "measured":
        return cluster(named)
    return cluster_measured(where.accelerator, int(named.partition("x")[0]))
