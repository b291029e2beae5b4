"""trueflops infer: configurations of every kind; or, with --prefill and --decode, two pools."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Any, Final

from trueflops import units
from trueflops.catalog import Accelerator, Cluster
from trueflops.cli.loading import SIMULATED
from trueflops.cli.question import question_of
from trueflops.cli.replies import Served, give
from trueflops.cli.unread import refuse_unread, typed_flags
from trueflops.errors import BadInput
from trueflops.graph.formats import EIGHT_BITS
from trueflops.graph.passes import format_named
from trueflops.language import say
from trueflops.model import Model
from trueflops.plan import Plan, check_plan, serving_plan
from trueflops.plan.serving import DEGREES
from trueflops.plan.words import read_worker
from trueflops.predict import Point, Pool, PooledPoint, Pools, Server, ServingPoint
from trueflops.predict.released import Weights, multiplies, served_weights, weights_alone
from trueflops.predict.serving.cache import CACHE_BITS
from trueflops.predict.serving.sparse import spreads
from trueflops.profile.engines import engine_of
from trueflops.report import encode
from trueflops.report.plots import check_name
from trueflops.report.progress import Waiting
from trueflops.report.serving.answer import print_serving
from trueflops.report.serving.configurations import (
    draw_front,
    encode_point,
    encode_pooled,
    front_table,
    kinds_table,
    plot_front,
    print_pooled,
    refusals,
)
from trueflops.report.tables import console, count, plural
from trueflops.report.training import tree_table
from trueflops.search import Limits
from trueflops.search.configurations import Configurations, pareto, search_configurations

ANY: Final = "any"
NARROWER: Final = ("fp8", "nvfp4", "mxfp4_fp4", "int4")
"""Formats that --weights any tries, where all chips have products of them."""

WEIGHING: Final = ("users", "pools", "pareto", "plot")
"""Flags that ask for configurations of every kind."""
UNREAD_WHERE_WEIGHED: Final = (*SIMULATED, *DEGREES, "provenance", "ops", "emit", "force")
UNREAD_OF_POOLS: Final = (*UNREAD_WHERE_WEIGHED, *WEIGHING, "tensor_split")


def check_kind(options: argparse.Namespace) -> None:
    """Refuse flags of one kind of question beside those of another, which would be left unread."""
    if options.prefill or options.decode:
        pools = say("a question about two given pools")
        refuse_unread(options, pools, say("leave --prefill and --decode out"), UNREAD_OF_POOLS)
    weighing = [flag for name, flag in typed_flags(options).items() if name in WEIGHING]
    if weighing:
        instead = say("leave {flag} out", flag=weighing[0])
        refuse_unread(options, weighing[0], instead, UNREAD_WHERE_WEIGHED)


def chooses(options: argparse.Namespace, limits: Limits) -> bool:
    """Whether configurations of every kind are sought, and not only cuts at one load."""
    if any(getattr(options, name) for name in (*DEGREES, "provenance", "ops")):
        return False
    formats = ANY in (options.weights, options.cache)
    asked = options.users is not None or options.pools or options.pareto or options.plot
    return bool(limits.given or formats or asked)


def choose(
    options: argparse.Namespace, servers: Sequence[Server], limits: Limits, more: dict[str, Any]
) -> Configurations:
    """Search, and answer on stdout where something fits in time; `more` gets why others do not.

    Where times are limited and no load is given, each configuration is asked at the largest load
    that it answers in time.
    """
    _check(options, limits)
    any_load = options.users is not None or (limits.given and options.concurrency is None)
    whole = Configurations()
    front: list[Point] = []
    with Waiting(
        say("trying every configuration of {count:,} accelerators", count=servers[0].cluster.count)
    ):
        for server in servers:
            found = search_configurations(server, limits, any_load=any_load)
            whole.add(found, limits)
            if options.pareto or options.plot:
                front += pareto(server, limits)
    front = front_of_all(front) if len(servers) > 1 else front
    more |= {
        "tried": whole.tried,
        "refused": dict(whole.refused),
        "nearest": encode_point(whole.nearest) if whole.nearest else None,
    }
    if front:
        more["pareto"] = [encode_point(point) for point in front]
    more["why_not"] = refusals(whole, limits)
    if whole.points:
        _show(options, whole, front, more)
    return whole


def formats_of(options: argparse.Namespace, model: Model, where: Cluster) -> list[Weights]:
    """The format asked for, or as released; with any, also every narrower one of all its chips."""
    chip = where.accelerator
    if options.weights != ANY:
        asked = served_weights(model, chip, options.weights)
        if why := getattr(options, "weights_why", None):  # a file says the format, or a name in it
            asked = asked._replace(why=why)
        for card in where.cards or (chip,):
            _check_products(card, asked.name)
        return [asked]
    found = [served_weights(model, chip)]
    for name in NARROWER:
        bits = format_named(found[-1].name).weight_bits
        everywhere = all(multiplies(card, name) for card in where.cards or (chip,))
        if everywhere and format_named(name).weight_bits < 0.9 * bits:
            found.append(served_weights(model, chip, name))
    return found


def _check_products(chip: Accelerator, name: str) -> None:
    """Refuse a format in which a chip has no products, with the one that only stores it."""
    compute = format_named(name).compute
    if compute in ("", "fp32") or chip.computes(compute):
        return
    raise BadInput(
        say(
            "--weights {name}: {chip} has no {compute} path; write --weights {narrow}, stored as "
            "narrow and multiplied in 16 bits, or int4",
            name=name,
            chip=chip.name,
            compute=compute,
            narrow=weights_alone(name),
        )
    )


def caches_of(options: argparse.Namespace, where: Cluster) -> list[float]:
    """Bits of the cache: as asked for, else 16; with any, 8 too where all chips have fp8."""
    if options.cache == ANY:
        return [16.0, 8.0] if where.computes("fp8") else [16.0]
    return [CACHE_BITS[options.cache or "bf16"]]


def show_pools(
    options: argparse.Namespace, server: Server, limits: Limits, more: dict[str, Any]
) -> int:
    """Predict the pools that the flags spell out."""
    if not (options.prefill and options.decode):
        given, other = ("prefill", "decode") if options.prefill else ("decode", "prefill")
        raise BadInput(
            say(
                "--{given} is one of two pools: give --{other} too, as --{other} 1xtp8",
                given=given,
                other=other,
            )
        )
    if not server.engine.hands_over:
        raise BadInput(
            say(
                "--prefill and --decode: {engine} hands no cache from one worker to another; leave "
                "them out, or name another --engine",
                engine=server.engine.name,
            )
        )
    pools = [_given_pool(options, server, name) for name in ("prefill", "decode")]
    taken = sum(pool.accelerators for pool in pools)
    if taken > server.cluster.count:
        raise BadInput(
            say(
                "--prefill and --decode take {taken} accelerators and --on has {count}: take "
                "fewer workers or a larger cluster",
                taken=taken,
                count=server.cluster.count,
            )
        )
    point = Pools(server).predict(*pools)
    fine = point.fits and limits.met(point)
    if options.json:
        answer = encode_pooled(question_of(options), point) | more
        give(answer | {"in_time": limits.met(point)}, Served([point]))
        return 0 if fine else 1
    out = console()
    print_pooled(out, point, more["notes"])
    if options.explain:
        _explain(point)
    if not point.fits:
        out.print(say("\n[red]Does not fit[/]: {point}", point=_too_large(point)))
    elif not fine:
        late = " and ".join(limits.missed(point))
        out.print(say("\n[red]Not in time[/]: these pools miss the {late}.", late=late))
    return 0 if fine else 1


def _too_large(point: PooledPoint) -> str:
    if point.limited_by == "decode" and point.most_requests:
        held = plural(point.most_requests * point.decode_pool.replicas, "request")
        return say(
            "the caches of the decode pool hold {held}; others wait. Give it more workers.",
            held=held,
        )
    pool = "decode" if float(point.memory.value) > point.capacity_bytes else "prefill"
    return say(
        "a worker of --{pool} has too few accelerators for the weights; use more of them.",
        pool=pool,
    )


def _given_pool(options: argparse.Namespace, server: Server, name: str) -> Pool:
    workers, degrees = read_worker(getattr(options, name), name)
    replicas = degrees.pop("dp", 1)
    count = degrees.get("tp", 1) * degrees.get("pp", 1) * replicas
    if server.model.is_moe and replicas > 1 and "ep" not in degrees:
        degrees.setdefault("etp", degrees.get("tp", 1) * replicas)  # they share every expert
    return Pool(laid_out(server, count, replicas=replicas, **degrees), workers)


def laid_out(server: Server, count: int, **degrees: int) -> Plan:
    """The plan of these degrees on so many accelerators, if it is one and the engine can run it."""
    plan = serving_plan(server.model, server.dtype, **degrees)
    check_plan(plan, server.model, count)
    if refused := server.why_not_run(plan):
        raise refused
    chip = server.cluster.accelerator
    if plan.dcp > 1 and not spreads(server.engine, server.model, chip, server.passes.cache_bits):
        instead = say("leave dcp out, or use vLLM")
        if spreads(server.engine, server.model, chip, EIGHT_BITS):
            instead = say("use --cache fp8")
        elif spreads(engine_of(server.engine.name), server.model, chip, server.passes.cache_bits):
            instead = say("leave dcp out, or use a newer --release")
        raise BadInput(
            say(
                "dcp {dcp}: {engine} does not spread such keys of {model} over ranks of tp on "
                "{chip}; {instead}",
                dcp=plan.dcp, engine=server.engine.name, model=server.model.name, chip=chip.name,
                instead=instead,
            )
        )  # fmt: skip
    return plan


def _check(options: argparse.Namespace, limits: Limits) -> None:
    """What cannot be answered is said before the search."""
    if options.users is not None and options.concurrency is not None:
        raise BadInput(say("--users finds how many requests are in time: leave --concurrency out"))
    if options.users is not None and not limits.given:
        raise BadInput(
            say("--users needs a goal to hold for each of them: --ttft 1s or --tpot 50ms")
        )
    if options.plot:
        check_name(Path(options.plot))


def front_of_all(points: Sequence[Point]) -> list[Point]:
    """The front of several fronts."""
    front: list[Point] = []
    for point in sorted(points, key=lambda each: float(each.tpot.value)):
        rate = float(point.tokens_per_second.value)
        if not front or rate > float(front[-1].tokens_per_second.value):
            front.append(point)
    return front


def _show(
    options: argparse.Namespace,
    found: Configurations,
    front: list[Point],
    more: dict[str, Any],
) -> None:
    best, listed = found.points[0], found.kinds(options.top)
    users = _users(options, best)
    if options.plot:
        plot_front(front, Path(options.plot))
    if options.json:
        question = question_of(options)
        if isinstance(best, PooledPoint):
            answer = encode_pooled(question, best)
        else:
            answer = encode.serving(question, best)
        answer |= more | {"in_time": True, "users": users}
        answer["cuts"] = [encode_point(point) for point in listed]
        give(answer, Served(listed))
        return
    out = console()
    if isinstance(best, ServingPoint):
        print_serving(out, best, more["notes"])
    else:
        print_pooled(out, best, more["notes"])
    if len(listed) > 1:
        out.print()
        out.print(kinds_table(listed))
    for line in more["why_not"]:
        out.print(line, style="dim")
    if users:
        out.print(
            say(
                "\n{users} users: {accelerators} accelerators, {clusters}",
                users=count(users["users"]),
                accelerators=count(users["accelerators"]),
                clusters=plural(users["clusters"], "such cluster"),
            )
            + _per_hour(users)
        )
    if options.pareto and front:
        out.print()
        out.print(front_table(front))
        out.print()
        for text in draw_front(front, out.width):
            out.print(text)
    if options.explain:
        _explain(best)


def _users(options: argparse.Namespace, best: Point) -> dict[str, Any] | None:
    """Clusters like this one for all users, each with a request in flight all the time."""
    if options.users is None:
        return None
    users = units.parse_count(str(options.users), what="--users")
    clusters = ceil(users / best.workload.concurrency)
    chips = clusters * best.cluster.count
    return {
        "users": users,
        "clusters": clusters,
        "accelerators": chips,
        "usd_per_hour": chips * best.price.usd_per_hour if best.price else None,
    }


def _per_hour(users: dict[str, Any]) -> str:
    usd = users["usd_per_hour"]
    return f", {units.show(usd, 'usd_per_hour')}" if usd is not None else ""


def _explain(point: Point) -> None:
    out = console()
    trees = [point.decode, point.prefill, point.memory]
    if isinstance(point, PooledPoint):
        trees.insert(2, point.transfer)
    for tree in trees:
        out.print()
        out.print(tree_table(tree))
