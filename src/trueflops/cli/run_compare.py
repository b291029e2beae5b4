"""trueflops run --compare: one plan run in several ways, side by side."""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from trueflops import units
from trueflops.errors import BadInput
from trueflops.language import say
from trueflops.predict.stragglers.simulate import Mode
from trueflops.report import encode
from trueflops.report.compared import (
    Way,
    encode_engines,
    encode_precisions,
    show_engines,
    show_precisions,
    way_name,
)
from trueflops.report.tables import console
from trueflops.run.bind import read_nodes
from trueflops.run.job import Job, check_job

Words = Callable[[argparse.Namespace], list[str]]
_SERVED = (Mode.SYNCHRONOUS, Mode.DROPS, Mode.BOUNDED, Mode.ASYNCHRONOUS)
_WAYS = (
    ("ddp", Mode.SYNCHRONOUS),
    ("dataparallel", Mode.SYNCHRONOUS),
    *(("parameter-server", updates) for updates in _SERVED),
)


class _Failed(Exception):
    """A run that ended with this exit code, and said itself why."""


def compare(options: argparse.Namespace, job: Job, words: Words, notes: list[str]) -> int:
    """As --compare says."""
    if job.checkpoint is not None:
        raise BadInput(
            say("--checkpoint with --compare: every way begins anew; leave one of them out")
        )
    if options.compare == "precisions":
        return _precisions(options, job, notes)
    try:
        if options.compare == "engines":
            return _engines(options, job, words, notes)
        return _binding(options, words)
    except _Failed as failed:
        return int(failed.args[0])


def _engines(options: argparse.Namespace, job: Job, words: Words, notes: list[str]) -> int:
    if job.plan.dp < 2:
        raise BadInput(
            say("--compare engines needs replicas; write dp_replicate 2 or more in the plan")
        )
    for engine, updates in _WAYS:
        check_job(replace(job, plan=job.plan.but(engine=engine), updates=updates))
    ways = []
    for engine, updates in _WAYS:
        name = way_name(engine, updates, job.staleness, job.drop)
        limits = {
            "staleness": job.staleness if updates is Mode.BOUNDED else None,
            "drop": job.drop if updates is Mode.DROPS else None,
        }
        served = updates.name.lower() if engine == "parameter-server" else None
        chosen = {"engine": engine, "updates": served} | limits
        ways.append(Way(name, _answer(options, words, name, chosen)))
    if options.json:
        print(encode.to_json(encode_engines(job, ways, notes)))
    else:
        show_engines(console(), job, ways, notes)
    return 0


def _answer(
    options: argparse.Namespace, words: Words, name: str, changes: Mapping[str, Any]
) -> dict[str, Any]:
    """What `trueflops run --json` says with other flags; its steps pass by on stderr."""
    print(f"· {name}", file=sys.stderr, flush=True)
    given = argparse.Namespace(**(vars(options) | {"json": True, "compare": None} | dict(changes)))
    command = [sys.executable, "-m", "trueflops", "run", *words(given)]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if ran.returncode:
        raise _Failed(ran.returncode)
    answer: dict[str, Any] = json.loads(ran.stdout)
    return answer


def _precisions(options: argparse.Namespace, job: Job, notes: list[str]) -> int:
    torch: Any = importlib.import_module("torch")
    precisions: Any = importlib.import_module("trueflops.run.precisions")
    tokens: Any = importlib.import_module("trueflops.run.loop").tokens_of(job)
    on_gpu = options.device != "cpu" and torch.cuda.is_available()
    if job.plan.world > 1:
        said = say(
            "in one process: what {ranks} ranks share is left out", ranks=int(job.plan.world)
        )
        notes = [*notes, said]

    def tell(each: Any) -> None:
        of = each.precision
        line = say(
            "· {compute}, weights {weights}{scaled}: loss {loss:.5f}",
            compute=of.compute,
            weights=of.weights,
            scaled=say(", loss scaled") if of.scaled else "",
            loss=each.losses[-1],
        )
        print(line, file=sys.stderr, flush=True)

    device = torch.device("cuda" if on_gpu else "cpu")
    if not on_gpu:
        notes = [
            *notes, say("on a CPU narrow products are summed in fp32, as accelerators do it"),
        ]  # fmt: skip
    found = list(precisions.compare_precisions(job, tokens, device, tell))
    if options.json:
        print(encode.to_json(encode_precisions(job, found, notes)))
    else:
        show_precisions(console(), job, found, notes)
    return 0


def _binding(options: argparse.Namespace, words: Words) -> int:
    nodes = read_nodes()
    if len(nodes) < 2:
        said = say("one NUMA node") if nodes else say("no NUMA nodes that the system shows")
        print(
            say(
                "This machine has {said}: there is nothing to bind, and nothing to gain.",
                said=said,
            )
        )
        return 0
    free = _answer(options, words, say("not bound"), {"bind": False})
    bound = _answer(options, words, say("bound"), {"bind": True})
    one, other = (answer["measured_step_seconds"] for answer in (free, bound))
    if options.json:
        print(encode.to_json({"nodes": len(nodes), "free": free, "bound": bound}))
    elif one is None or other is None:
        print(say("Every step was counted, which slows it down; write --steps 6 or more."))
    else:
        free_time, bound_time = (units.show(seconds, "seconds") for seconds in (one, other))
        print(
            say(
                "Step {free} not bound, {bound} bound to {nodes} NUMA nodes ({change:+.1%}).",
                free=free_time,
                bound=bound_time,
                nodes=len(nodes),
                change=other / one - 1.0,
            )
        )
    return 0
