"""trueflops infer: predict serving for every cut of the cluster, or for a given one."""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

import numpy as np

from trueflops import units
from trueflops.cli.buying import asks_for_chips, buy_serving, check_wishes
from trueflops.cli.question import (
    check_length,
    cluster_of,
    profile_for,
    pue_of,
    question_of,
    recall,
    rent_of,
    software_of,
)
from trueflops.model import Model, read_model
from trueflops.plan import Plan, check_plan, serving_plan
from trueflops.predict import Server, ServingPoint
from trueflops.predict.provenance import serving_provenance
from trueflops.predict.released import served_weights
from trueflops.profile import engine_of
from trueflops.profile.frameworks import SERVING
from trueflops.report import encode
from trueflops.report.progress import Waiting
from trueflops.report.provenance import encode_provenance, show_provenance
from trueflops.report.serving import cuts_table, print_serving, why_not
from trueflops.report.tables import console
from trueflops.report.training import tree_table
from trueflops.search import Limits, search_serving
from trueflops.workload import Serving

USUAL = {"input": 1024, "output": 256, "concurrency": 64}


class Answer(NamedTuple):
    """Cuts of the cluster, the best first, what they are held against, and what to say of them."""

    server: Server
    points: list[ServingPoint]
    limits: Limits
    more: dict[str, Any]


def run(options: argparse.Namespace) -> int:
    """Answer the question on stdout; exit 1 if it does not fit or not in time."""
    if asks_for_chips(options):
        model = read_model(options.model)
        return buy_serving(options, model, _asked(options, model), _limits(options))
    check_wishes(options)
    server, points, limits, more = ask(options)
    if options.provenance:
        found = serving_provenance(server, points[0])
        more["provenance"] = {name: encode_provenance(each) for name, each in found.items()}
        code = show(points, limits, options, more)
        if not options.json:
            for each in found.values():
                show_provenance(console(), each)
        return code
    return show(points, limits, options, more)


def ask(options: argparse.Namespace) -> Answer:
    """Predict the cut that the flags spell out, or every cut of the cluster."""
    options = recall(options)
    where, model = cluster_of(options), read_model(options.model)
    asked = _asked(options, model)
    notes = check_length(model, asked.context, "--input and --output:")
    cache = {"fp32": 32.0, "fp8": 8.0}.get(options.cache or "", 16.0)
    weights = served_weights(model, where.accelerator, options.weights)
    software = software_of(options, where.accelerator, SERVING)
    notes += [f"weights {weights.name}: {weights.why}", software.note("engine")]
    server = Server(
        model,
        asked,
        where,
        profile_for(options, where.accelerator, software.name),
        cache_bits=cache,
        weights=weights.name,
        engine=engine_of(software.name),
        pue=pue_of(options),
        rent=rent_of(options, where),
    )
    limits = _limits(options)
    if options.tp or options.pp or options.ep:
        points = [server.predict(given_plan(options, server))]
    else:
        with Waiting(f"trying every cut of {where.count:,} accelerators"):
            points = search_serving(server, limits, options.top)
    more = {"weights_why": weights.why, "engine": software._asdict(), "notes": notes}
    return Answer(server, points, limits, more)


def _limits(options: argparse.Namespace) -> Limits:
    return Limits(*(_seconds(options, name) for name in ("ttft", "tpot")))


def _asked(options: argparse.Namespace, model: Model) -> Serving:
    """The load; a prompt that nobody gave leaves room for the output in the model's own length."""
    output = _count(options, "output", USUAL["output"])
    room = max(model.max_positions - output, 1)
    read = _count(options, "input", min(USUAL["input"], room))
    return Serving(read, output, _count(options, "concurrency", USUAL["concurrency"]))


def _count(options: argparse.Namespace, name: str, usual: int) -> int:
    value = getattr(options, name)
    return usual if value is None else units.parse_count(str(value), what=f"--{name}")


def given_plan(options: argparse.Namespace, server: Server) -> Plan:
    """The plan that the flags spell out; replicas take what is left."""
    count = server.cluster.count
    tp, pp, ep = options.tp or 1, options.pp or 1, options.ep or 1
    replicas = max(count // (tp * pp), 1)
    plan = serving_plan(server.model, server.dtype, tp=tp, pp=pp, replicas=replicas, ep=ep)
    check_plan(plan, server.model, count)
    return plan


def show(
    points: list[ServingPoint], limits: Limits, options: argparse.Namespace, more: dict[str, Any]
) -> int:
    """Print the best point and the other cuts."""
    point = points[0]
    fine = point.fits and limits.met(point)
    if options.json:
        answer = encode.serving(question_of(options), point) | more
        answer["in_time"] = limits.met(point)
        answer["cuts"] = [
            {
                "plan": encode.plan(p.plan),
                "fits": p.fits,
                "ttft_seconds": float(p.ttft.value),
                "tpot_seconds": float(p.tpot.value),
                "tokens_per_second": float(p.tokens_per_second.value),
            }
            for p in points
        ]
        print(encode.to_json(answer))
        return 0 if fine else 1
    out = console()
    print_serving(out, point, more["notes"])
    if len(points) > 1:
        out.print()
        out.print(cuts_table(points))
    if options.explain:
        for tree in (point.decode, point.prefill, point.memory):
            out.print()
            out.print(tree_table(tree))
    if not point.fits:
        out.print()
        out.print(f"[red]Does not fit[/]: {why_not(point)}")
    elif not limits.met(point):
        out.print()
        out.print(f"[red]Not in time[/]: {why_late(points)}.")
    return 0 if fine else 1


def why_late(points: list[ServingPoint]) -> str:
    """What was tried in vain."""
    tried = "no cut of this cluster answers" if len(points) > 1 else "this plan does not answer"
    return f"{tried} within the limits given"


def _seconds(options: argparse.Namespace, name: str) -> float:
    text = getattr(options, name)
    return np.inf if text is None else units.parse(text, "seconds", what=f"--{name}")
