"""A serving answer for the terminal: latency, throughput, memory, other ways to cut the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console, RenderableType
from rich.text import Text

from trueflops import units
from trueflops.errors import join_or
from trueflops.graph.passes import format_named
from trueflops.language import mark, say, word
from trueflops.model import Model
from trueflops.plan import Plan
from trueflops.plan.words import serving_words
from trueflops.predict import Point, ServingPoint
from trueflops.predict.serving.memory import KvCache
from trueflops.predict.serving.offloading import OF_HOST_MEMORY
from trueflops.predict.serving.ranks import fullest_experts
from trueflops.report.grid import grid
from trueflops.report.tables import count, plural, ranged
from trueflops.report.training import describe_cluster, memory_table, print_plan

CACHE_LEAST: Final = 8.0  # bits: no engine keeps fewer
UNEVEN: Final = 0.02  # tokens that blocks hold, beside those that fit: more is no rounding


def print_asked(out: Console, point: Point) -> None:
    """What is served, on what, under which load."""
    model, asked = point.model, point.workload
    out.print(
        Text.assemble(
            (model.name, "bold"),
            say(
                " ({parameter_count} parameters, {name}) on ",
                parameter_count=units.show(model.parameter_count, "count"),
                name=point.weights.name,
            ),
            describe_cluster(point.cluster),
        )
    )
    out.print(
        say(
            "{concurrency} in flight, {input:,} tokens in, {output:,} out",
            concurrency=plural(asked.concurrency, "request"),
            input=asked.input,
            output=asked.output,
        )
    )


def print_serving(out: Console, point: ServingPoint, notes: Sequence[str] = ()) -> None:
    """The whole answer for one way of cutting the cluster."""
    print_asked(out, point)
    print_plan(
        out,
        describe_replicas(point),
        [*notes, *routing_notes(point.model, point.plan, point.running)],
    )
    out.print()
    out.print(serving_table(point))
    out.print()
    out.print(memory_table(point.memory, point.capacity_bytes))


def routing_notes(model: Model, plan: Plan, running: int) -> list[str]:
    """How evenly ranks that share experts are loaded."""
    if plan.ep == 1:
        return []
    said = say(
        "experts: the busiest of {ranks} ranks has {share} times the tokens of the mean one in a "
        "decode step, chosen at random",
        ranks=count(float(plan.ep)),
        share=units.digits(fullest_experts(model, plan, running)),
    )
    copies = max((block.experts.copies for block in model.blocks if block.experts), default=0)
    if copies:
        return [said + say("; copies keep popular ones apart (EPLB)")]
    return [said + say("; popular ones add to it: the interval is wider for that")]


def describe_replicas(point: ServingPoint) -> str:
    """'tp 1 · ep 8, 8 replicas, 64 requests each': the cut in the words of its flags."""
    each = plural(point.batch, "request")
    if point.waiting:
        each = say("{running} of {each} at once", running=count(point.running), each=each)
    if point.replicas > 1:
        each = say("{replicas} replicas, {each} each", replicas=point.replicas, each=each)
    return f"{' · '.join(serving_words(point.plan))}, {each}"


def serving_table(point: ServingPoint) -> RenderableType:
    """Latency, throughput, money and energy with their intervals."""
    table = grid("", ("", "right"), ("90 % interval", "right"), "", title="What it gives")

    def row(name: str, value: tuple[str, str], note: str = "") -> None:
        table.add_row(name, *value, Text(word(note), style="dim"))

    first = say("queue, prefill, one step")
    if point.waiting:
        first = _why_wait(point)
    row("time to first token", ranged(point.ttft, "seconds"), first)
    row("time per output token", ranged(point.tpot, "seconds"), "prefills of others included")
    step = say("decode step") if point.gain is None else say("step, a token")
    row(
        step,
        ranged(point.decode.estimate, "seconds"),
        say("batch {running:,}", running=point.running),
    )
    row(
        "tokens/s written",
        ranged(point.tokens_per_second, "count"),
        say(
            "{value} per accelerator",
            value=count(float(point.tokens_per_second.value) / point.cluster.count),
        ),
    )
    for name, value, note in money_rows(point):
        row(name, value, note)
    if point.joules_per_token:
        row("energy per token", ranged(point.joules_per_token, "joules"))
    else:
        table.add_row("energy per token", "?", "", Text(say("no power figure known"), "dim"))
    whole, part = (
        units.show(size, "memory")
        for size in (point.cache_bytes_per_request, point.cache_bytes_per_accelerator)
    )
    pool = point.kv_cache
    if point.cache_filled is None:
        table.add_row("KV cache tokens", "none", "", Text(say("nothing is left for it"), "dim"))
        return table
    row("KV cache tokens", ranged(pool.tokens, "count"), _where_tokens_lie(pool))
    at = say("requests of {length:,} tokens", length=pool.length)
    row("maximum concurrency", ranged(pool.concurrency, "count"), at)
    filled = Text(
        say("by {running} of full length", running=plural(point.running, "request")), style="dim"
    )
    table.add_row("KV cache filled", f"{100 * point.cache_filled:.1f} %", "", filled)
    room = Text(
        say("room for {most_requests:,} in a replica", most_requests=point.most_requests),
        style="dim",
    )
    table.add_row("KV cache of a request", whole, "", room)
    if point.plan.tp * point.plan.pp > 1:
        table.add_row("… on one accelerator", part, "", Text(say("of those that share it"), "dim"))
    return table


def _why_wait(point: ServingPoint) -> str:
    """How many requests wait, and for what: a turn in the engine, or room in its cache."""
    waiting = count(point.waiting * point.replicas)
    if point.running < point.engine.most_sequences:
        return say("{waiting} requests wait for room", waiting=waiting)
    return say(
        "{waiting} requests wait: an engine runs {most} at once",
        waiting=waiting,
        most=count(point.engine.most_sequences),
    )


def _where_tokens_lie(pool: KvCache) -> str:
    """In how many blocks, where every token takes one's share; windows and states do not."""
    if not pool.blocks:
        return say("of the host: it has every layer")
    if pool.block <= 1:
        return say("of a replica")
    if abs(pool.blocks * pool.block / max(float(pool.tokens.value), 1.0) - 1.0) > UNEVEN:
        return say("some layers keep a window or a state")
    return say("{blocks:,} blocks of {block}", blocks=pool.blocks, block=pool.block)


def money_rows(point: Point) -> list[tuple[str, tuple[str, str], str]]:
    """Dollars for a million tokens: all of it on those written, then read and written apart."""
    apart = point.usd_apart
    if point.usd_per_million_tokens is None or point.price is None or apart is None:
        return [(say("cost per M tokens"), ("?", ""), say("no price known; give --price"))]
    price = f"{units.show(point.price.usd_per_hour, 'usd_per_hour')} {word(point.price.kind)}"
    return [
        (say("cost per M tokens"), ranged(point.usd_per_million_tokens, "usd"), price),
        (say("… if those read pay too"), ranged(apart.read, "usd"), say("per M tokens in")),
        ("", ranged(apart.written, "usd"), say("per M tokens out")),
    ]


def cuts_table(points: Sequence[ServingPoint]) -> RenderableType:
    """Other ways to cut the cluster into replicas."""
    table = grid(
        "",
        ("tok/s", "right"),
        ("TTFT", "right"),
        ("TPOT", "right"),
        ("GiB", "right"),
        "plan",
        title="Ways to cut the cluster",
    )
    for rank, point in enumerate(points, 1):
        table.add_row(
            str(rank),
            units.show(float(point.tokens_per_second.value), "count"),
            units.show(float(point.ttft.value), "seconds"),
            units.show(float(point.tpot.value), "seconds"),
            Text(
                f"{float(point.memory.value) / units.GIBI:.1f}{'' if point.fits else ' ✗'}",
                style="" if point.fits else "red",
            ),
            describe_replicas(point),
        )
    return table


def _or_spread(point: ServingPoint) -> str:
    """What spreading keys over ranks that now hold the same ones would do."""
    tp, dcp = int(point.plan.tp), point.spread_for(point.batch)
    if dcp == point.plan.dcp:
        return ""
    if point.room_at(dcp) >= min(point.batch, point.engine.most_sequences):
        return say(", or with --tp {tp} --dcp {dcp}", tp=tp, dcp=dcp)
    times = dcp // point.plan.dcp
    return say("; --tp {tp} --dcp {dcp} has {times} times the room", tp=tp, dcp=dcp, times=times)


def why_not(point: ServingPoint) -> str:
    """By how much a point does not fit, what runs all the same, and what would help.

    Nothing is proposed that the question has already.
    """
    over = units.show(float(point.memory.value) - point.capacity_bytes, "memory")
    if point.most_requests > 0:
        runs, waits = point.running * point.replicas, point.waiting * point.replicas
        now = say(
            "{runs} run at once and {waits} wait, as the times above have it",
            runs=count(runs),
            waits=count(waits),
        )
        would = say(
            "It would with --concurrency {most_requests}{or_spread}.",
            most_requests=point.most_requests * point.replicas,
            or_spread=_or_spread(point),
        )
        return say(
            "{over} too many for all requests at once; {now}. {would}",
            over=over,
            now=now,
            would=would,
        )
    advice = [say("more accelerators")]
    if (dcp := point.spread_for(point.batch)) > point.plan.dcp:
        advice.insert(0, f"--tp {int(point.plan.tp)} --dcp {dcp}")
    if float(point.memory["weights"].value) < point.capacity_bytes and point.cache_filled is None:
        advice += [
            mark("fewer --max-num-seqs or --max-num-batched-tokens"),
            mark("a larger --memory-share"),
        ]
        left = say("weights and what a pass needs leave nothing for the cache")
        return say(
            "{over} too many: {left}. Use {advice}.", over=over, left=left, advice=join_or(advice)
        )
    if float(point.memory["weights"].value) < point.capacity_bytes:
        advice += [mark("a shorter --input or --output")]
        advice += [mark("--cache fp8")] if point.cache_bits > CACHE_LEAST else []
        return say(
            "{over} too many: the cache of one request is too large. Use {advice}.",
            over=over,
            advice=join_or(advice),
        )
    advice += [
        say("--weights {name}", name=name)
        for name in ("fp8", "int4")
        if format_named(name).weight_bits < 0.9 * point.weights.weight_bits
    ]
    return say(
        "{over} too many: the weights alone are too large. Use {advice}.",
        over=over,
        advice=join_or([*advice, *layers_on_host(point)]),
    )


def layers_on_host(point: ServingPoint) -> list[str]:
    """How many layers would fit, where the host could compute the others."""
    layers, chip = point.layers_that_fit, point.cluster.accelerator
    now = point.model.layers - (point.offload.layers if point.offload else 0)
    if (
        chip.is_cpu
        or chip.form == OF_HOST_MEMORY
        or not 0 < layers < min(now, point.model.layers + 1)
    ):
        return []
    flags = f"--gpu-layers {layers}"
    if point.engine.offloads != "layers":
        flags = f"--engine llama.cpp {flags}"
    return [
        say(
            "{flags}, as so many of its {all} layers fit",
            flags=flags,
            all=point.model.layers,
        )
    ]
