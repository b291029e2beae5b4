"""trueflops infer: predict serving for every cut of the cluster, or for a given one."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trueflops import units
from trueflops.cli.buying import asks_for_chips, buy_serving, check_wishes
from trueflops.cli.choosing import (
    caches_of,
    check_kind,
    choose,
    chooses,
    formats_of,
    laid_out,
    show_pools,
)
from trueflops.cli.deploying import Deployment, engine_for, engine_notes, length_for
from trueflops.cli.loading import (
    Simulation,
    load_of,
    percentile_of,
    prefix_notes,
    rate_of,
    requests_of,
    says_load,
    simulate,
    simulates,
    why_so_many,
    without_waiting,
)
from trueflops.cli.models import asks_for_models, served_models
from trueflops.cli.offloading import offload_notes, offload_of
from trueflops.cli.question import (
    check_length,
    cluster_of,
    power_note,
    profile_for,
    pue_of,
    question_of,
    recall,
    rent_of,
    software_of,
)
from trueflops.cli.rates import run_rates, settle
from trueflops.cli.replies import Served, give
from trueflops.cli.speculation import speculation_notes, speculation_of
from trueflops.cli.splitting import faster_split, split_as_asked, split_notes, stages_of
from trueflops.errors import BadInput, join_or
from trueflops.files import check_writable
from trueflops.language import mark, say, word
from trueflops.model import add_copies, read_model
from trueflops.plan import Plan
from trueflops.plan.serving import DEGREES
from trueflops.predict import Server, ServingPoint
from trueflops.predict.provenance import serving_provenance
from trueflops.predict.ran_ops import Ran, serving_ops
from trueflops.profile.frameworks import SERVING
from trueflops.report import encode
from trueflops.report.ops import encode_ops, print_ops
from trueflops.report.progress import Waiting
from trueflops.report.provenance import encode_provenance, show_provenance
from trueflops.report.serving.answer import cuts_table, print_serving, why_not
from trueflops.report.serving.cards import print_cards
from trueflops.report.serving.load import (
    encode_load,
    print_deployment,
    print_load,
    write_load_trace,
)
from trueflops.report.serving.speculation import encode_speculation, print_speculation
from trueflops.report.tables import console
from trueflops.report.training import tree_table
from trueflops.search import Limits, search_serving
from trueflops.search.serving import rank
from trueflops.serve.load import Requests

NONE_IN_TIME = mark("no configuration of this cluster answers within the limits given")
OPS_OF = {"decode": mark("one decode step"), "prefill": mark("a pass that reads a prompt")}


class Answer(NamedTuple):
    """Cuts of the cluster, the best first, what they are held against, and what to say of them."""

    server: Server
    points: list[ServingPoint]
    limits: Limits
    more: dict[str, Any]


def run(options: argparse.Namespace) -> int:
    """Answer the question on stdout; exit 1 if it does not fit or not in time."""
    if simulates(options) and (asks_for_chips(options) or options.provenance):
        raise BadInput(
            say(
                "a load is simulated on a given cluster: leave --rate and its kin away, or "
                "--provenance and the question for chips"
            )
        )
    if asks_for_models(options):
        return served_models(options, serve, _cuts, _limits(options))
    if asks_for_chips(options):
        return buy_serving(options, serve, _limits(options))
    check_wishes(options)
    if options.trace:
        check_writable(Path(options.trace))
    options = recall(options)
    check_kind(options)
    limits = _limits(options)
    deployment = Deployment(options)
    tried: dict[str, Any] = {}
    if options.prefill or options.decode:
        servers, more = serve(options)
        return show_pools(options, servers[0], limits, more)
    if chooses(options, limits) and not simulates(options) and options.emit is None:
        servers, tried = serve(options)
        found = choose(options, servers, limits, tried)
        if found.points:
            return 0
        if isinstance(found.nearest, ServingPoint) and found.nearest.fits:
            return show([found.nearest], limits, options, tried)
    with deployment.blamed():
        server, points, limits, more = ask(options)
    more = tried | more
    more["notes"] += deployment.compare(server.cluster.count)
    if chooses(options, limits) and server.has_pools:
        more["notes"] += deployment.leaves_pools()
    return _answer(options, server, points, limits, more, deployment)


def _answer(
    options: argparse.Namespace,
    server: Server,
    points: list[ServingPoint],
    limits: Limits,
    more: dict[str, Any],
    deployment: Deployment,
) -> int:
    """Show it, with the chain of every number where that was asked for."""
    if options.rates is not None and points[0].most_requests:
        with deployment.started(points[0], more):
            return run_rates(server, points[0], limits, options, more)
    if simulates(options) and points[0].most_requests:
        return run_load(server, points, limits, options, more, deployment)
    priced = serving_provenance(server, points[0]) if options.provenance else {}
    ran = serving_ops(server, points[0]) if options.ops else {}
    if priced:
        more["provenance"] = {name: encode_provenance(each) for name, each in priced.items()}
    if ran:
        more["ops"] = _encode_ops(server, ran)
    with deployment.started(points[0], more, in_time=limits.met(points[0])):
        code = show(points, limits, options, more)
        if not options.json:
            _print_ops(server, ran)
            for chain in priced.values():
                show_provenance(console(), chain)
    return code


def _encode_ops(server: Server, ran: Mapping[str, Sequence[Ran]]) -> dict[str, Any]:
    return {name: encode_ops(each, server.clock, OPS_OF[name]) for name, each in ran.items()}


def _print_ops(server: Server, ran: Mapping[str, Sequence[Ran]]) -> None:
    for name, each in ran.items():
        print_ops(console(), each, server.clock, OPS_OF[name])


def run_load(
    server: Server,
    points: list[ServingPoint],
    limits: Limits,
    options: argparse.Namespace,
    more: dict[str, Any],
    deployment: Deployment,
) -> int:
    """Simulate the load on the first cut that keeps its limits at the percentile asked for."""
    percentile = percentile_of(options)
    requests = requests_of(options, server)
    with Waiting(say("simulating {count:,} requests", count=requests.count)):
        found = simulate(server, points, requests, limits, percentile)
    if options.trace:
        write_load_trace(found.served, Path(options.trace))
    with deployment.started(found.point, more, in_time=found.in_time):
        _show_load(server, points, found, requests, limits, options, more)
    return 0 if found.in_time else 1


def _show_load(
    server: Server,
    points: list[ServingPoint],
    found: Simulation,
    requests: Requests,
    limits: Limits,
    options: argparse.Namespace,
    more: dict[str, Any],
) -> None:
    percentile = percentile_of(options)
    if options.json:
        answer = encode.serving(question_of(options), found.point) | more
        answer["load"] = encode_load(found.seen, found.point, percentile, found.in_time)
        if options.ops:
            answer["ops"] = _encode_ops(server, serving_ops(server, found.point))
        give(answer, Served([found.point]))
        return
    out = console()
    print_deployment(out, found.point, requests, rate_of(options), more["notes"])
    out.print()
    print_load(out, found.seen, found.point, requests, rate_of(options), limits, percentile)
    if options.explain:
        for tree in (found.point.decode, found.point.prefill, found.point.memory):
            out.print()
            out.print(tree_table(tree))
    if options.ops:
        _print_ops(server, serving_ops(server, found.point))
    if not found.in_time:
        out.print()
        out.print(
            say(
                "[red]Not in time[/] at p{percentile:g}: {points}.",
                percentile=percentile,
                points=why_late(points),
            )
        )


def ask(options: argparse.Namespace) -> Answer:
    """Predict the cut that the flags spell out, or every cut of the cluster into replicas."""
    options = recall(options)
    for name in ("prefill", "decode", "users"):  # which run() answers, and a sweep has no row for
        if getattr(options, name) is not None:
            raise BadInput(
                say("--{name} is answered by trueflops infer alone, not in a sweep", name=name)
            )
    servers, more = serve(options)
    limits = _limits(options)
    tried = [(server, _cuts(options, server, limits)) for server in servers]
    server, points = min(tried, key=lambda each: rank(each[1][0], limits))
    if not says_load(options) and points[0].most_requests:
        server = without_waiting(server, points[0])
        points = _cuts(options, server, limits) if points[0].waiting else points
        more["notes"] += why_so_many(server, points[0])
    if options.rate is not None and options.concurrency is None:
        server = settle(server, points[0], rate_of(options))
        points = _cuts(options, server, limits)
    if outlook := server.outlook(points[0]):
        more["outlook"] = outlook
    more |= faster_split(options, server, points[0])
    return Answer(server, points, limits, more)


def _cuts(options: argparse.Namespace, server: Server, limits: Limits) -> list[ServingPoint]:
    """The cut that the flags spell out, or the best of all."""
    if not server.stages and any(getattr(options, name) for name in DEGREES):
        return [server.predict(given_plan(options, server))]
    with Waiting(say("trying every cut of {count:,} accelerators", count=server.cluster.count)):
        return search_serving(server, limits, options.top)


def serve(options: argparse.Namespace) -> tuple[list[Server], dict[str, Any]]:
    """The server that is asked, one for each format that may be tried, and what to say of it."""
    copies = options.redundant_experts or 0
    where, model = cluster_of(options), add_copies(read_model(options.model), copies)
    software = software_of(options, where.accelerator, SERVING)
    engine = engine_for(options, software.name, where.accelerator)
    asked = load_of(options, model)
    notes = [*map(word, model.notes), *check_length(model, asked.context, "--input and --output")]
    weights = formats_of(options, model, where)
    speculation = speculation_of(options, model, engine)
    offload = offload_of(options, engine, model, where)
    stages = stages_of(options, model, where, offload)
    if copies:
        notes.append(
            say("{copies} redundant experts in every layer, counted as parameters", copies=copies)
        )
    why = weights[0].why
    if len(weights) > 1:
        why = say(
            "the best of {names}; fewer bits lose precision",
            names=join_or([each.name for each in weights]),
        )
    name = weights[0].name if len(weights) == 1 else "any"
    notes += [say("weights {name}: {why}", name=name, why=why), software.note("engine")]
    notes += engine_notes(options) + prefix_notes(options)
    for chip in dict.fromkeys(where.cards or (where.accelerator,)):
        notes += power_note(options, chip)
    notes += speculation_notes(speculation, model, software.name)
    servers = [
        Server(
            model,
            asked,
            where,
            profile_for(options, where.accelerator, software.name),
            cache_bits=cache,
            weights=each.name,
            engine=engine,
            length=length_for(options, asked),
            speculation=speculation,
            offload=offload,
            stages=stages,
            pue=pue_of(options),
            rent=rent_of(options, where),
        )
        for each in weights
        for cache in caches_of(options, where)
    ]
    if stages:
        servers = [split_as_asked(options, server) for server in servers]
    notes += offload_notes(options, servers[-1]) + split_notes(options, servers[-1])
    more = {"weights_why": why, "engine": software._asdict(), "notes": notes}
    return servers, more


def _limits(options: argparse.Namespace) -> Limits:
    ttft, tpot = (_seconds(options, name) for name in ("ttft", "tpot"))
    return Limits(ttft, tpot, at_once=options.users is not None)


def given_plan(options: argparse.Namespace, server: Server) -> Plan:
    """The plan that the flags spell out; replicas take what is left."""
    count = server.cluster.count
    tp, pp = options.tp or 1, options.pp or 1
    replicas = max(count // (tp * pp), 1)
    others = {key: getattr(options, key) for key in ("ep", "etp", "dcp")}
    degrees = {"tp": tp, "pp": pp} | {key: value for key, value in others.items() if value}
    return laid_out(server, count, replicas=replicas, **degrees)


def show(
    points: list[ServingPoint], limits: Limits, options: argparse.Namespace, more: dict[str, Any]
) -> int:
    """Print the best point and the other cuts."""
    point = points[0]
    fine = point.fits and limits.met(point)
    outlook = more.pop("outlook", None)
    if options.json:
        if point.gain and outlook:
            more["speculation"] = encode_speculation(point.gain, outlook)
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
        give(answer, Served(points))
        return 0 if fine else 1
    out = console()
    print_serving(out, point, more["notes"])
    if point.gain and outlook:
        out.print()
        print_speculation(out, point, outlook)
    if len(points) > 1:
        out.print()
        out.print(cuts_table(points))
    if point.stages:
        print_cards(out, point, more.get("faster_split"))
    if options.explain:
        for tree in (point.decode, point.prefill, point.memory):
            out.print()
            out.print(tree_table(tree))
    if not point.fits:
        out.print()
        out.print(say("[red]Does not fit[/]: {point}", point=why_not(point)))
    elif not limits.met(point):
        out.print()
        late = why_late(points) if "why_not" not in more else NONE_IN_TIME
        out.print(say("[red]Not in time[/]: {late}.", late=late))
    for line in more.get("why_not", ()):
        out.print(line, style="dim")
    return 0 if fine else 1


def why_late(points: list[ServingPoint]) -> str:
    """What was tried in vain."""
    tried = (
        say("no cut of this cluster answers")
        if len(points) > 1
        else say("this plan does not answer")
    )
    return say("{tried} within the limits given", tried=tried)


def _seconds(options: argparse.Namespace, name: str) -> float:
    text = getattr(options, name)
    return np.inf if text is None else units.parse(text, "seconds", what=f"--{name}")
