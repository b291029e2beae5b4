"""How to serve, for the terminal and as JSON: pools, the best of every kind, why not, the front."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10
from pathlib import Path
from typing import Any, Final

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.text import Text

from trueflops import units
from trueflops.language import ENGLISH, mark, say, speaking, word
from trueflops.plan.words import worker_words
from trueflops.predict import Point, Pool, PooledPoint, ServingPoint
from trueflops.report import encode
from trueflops.report.grid import grid
from trueflops.report.plots import (
    BAR,
    FADED,
    GOOD,
    INK,
    LOSS,
    check_name,
    load_pyplot,
    open_frame,
    save,
)  # fmt: skip
from trueflops.report.serving.answer import (
    describe_replicas,
    money_rows,
    print_asked,
    routing_notes,
)
from trueflops.report.tables import count, plural, ranged
from trueflops.report.training import memory_table, print_plan
from trueflops.search.configurations import Configurations
from trueflops.search.serving import Limits

LIMITED: Final = {
    "load": mark("neither pool is full: more requests would be answered"),
    "prefill": mark("the prefill pool is full"),
    "decode": mark("the decode pool is full"),
    "links": mark("the links between the pools are full"),
}


def describe(point: Point) -> str:
    """A configuration in the words of its flags."""
    if isinstance(point, ServingPoint):
        return describe_replicas(point)
    prefill, decode = _pool(point.prefill_pool), _pool(point.decode_pool)
    return say(
        "prefill {prefill} → decode {decode}, {running} each",
        prefill=prefill,
        decode=decode,
        running=plural(point.running, "request"),
    )


def _pool(pool: Pool) -> str:
    words = " · ".join(worker_words(pool.plan))
    return f"{pool.workers} × ({words})" if pool.workers > 1 else f"({words})"


def pool_flags(point: PooledPoint) -> str:
    """The same as it is typed: '--prefill 2xtp4 --decode 1xtp1dp16ep16'."""
    said = [
        f"--{name} {pool.workers}x{''.join(worker_words(pool.plan)).replace(' ', '')}"
        for name, pool in (("prefill", point.prefill_pool), ("decode", point.decode_pool))
    ]
    return " ".join(said)


def print_pooled(out: Console, point: PooledPoint, notes: Sequence[str] = ()) -> None:
    """The whole answer for one pair of pools."""
    print_asked(out, point)
    routed = routing_notes(point.model, point.decode_pool.plan, point.running)
    said = [pool_flags(point), *notes, *routed]
    print_plan(out, describe(point), said)
    out.print()
    out.print(_pooled_table(point))
    out.print()
    out.print(memory_table(point.memory, point.capacity_bytes))


def _pooled_table(point: PooledPoint) -> RenderableType:
    table = grid("", ("", "right"), ("90 % interval", "right"), "", title="What it gives")

    def row(name: str, value: tuple[str, str], note: str = "") -> None:
        table.add_row(name, *value, Text(word(note), style="dim"))

    waits = say("no queue after the first wave")
    if point.queue_seconds > 1e-4:
        queue = units.show(point.queue_seconds, "seconds")
        waits = say("{queue} queue after the first wave", queue=queue)
    row(
        "time to first token",
        ranged(point.ttft, "seconds"),
        waits,
    )
    row("time per output token", ranged(point.tpot, "seconds"), "no prefill comes between")
    row("prefill of a prompt", ranged(point.prefill.estimate, "seconds"))
    moved = units.show(100.0 * point.links_busy, "count")
    row(
        "transfer of its cache",
        ranged(point.transfer.estimate, "seconds"),
        say("links {moved} % busy", moved=moved),
    )
    chips = point.prefill_pool.accelerators + point.decode_pool.accelerators
    idle = point.cluster.count - chips
    left = (
        say(", {idle} of {count} accelerators idle", idle=idle, count=point.cluster.count)
        if idle
        else ""
    )
    each = say("{point} per accelerator{left}", point=count(per_accelerator(point)), left=left)
    row("tokens/s written", ranged(point.tokens_per_second, "count"), each)
    busy = f"{100.0 * point.prefill_busy:.0f} %"
    table.add_row("prefill pool busy", busy, "", Text(word(LIMITED[point.limited_by]), "dim"))
    for name, value, note in money_rows(point):
        row(name, value, note)
    if point.joules_per_token:
        row("energy per token", ranged(point.joules_per_token, "joules"))
    else:
        table.add_row("energy per token", "?", "", Text(say("no power figure known"), "dim"))
    whole = units.show(point.cache_bytes_per_request, "memory")
    room = Text(
        say("room for {most_requests:,} in a decode replica", most_requests=point.most_requests),
        style="dim",
    )
    table.add_row("KV cache of a request", whole, "", room)
    return table


def kinds_table(points: Sequence[Point]) -> RenderableType:
    """The best of every kind."""
    table = grid(
        "",
        ("tok/s", "right"),
        ("in flight", "right"),
        ("TTFT", "right"),
        ("TPOT", "right"),
        "configuration",
        title="The best of every kind",
    )
    formats = [
        say(
            "{name}, {cache_bits:g}-bit cache: ",
            name=point.weights.name,
            cache_bits=point.cache_bits,
        )
        for point in points
    ]
    several = len(set(formats)) > 1
    for rank, point in enumerate(points, 1):
        table.add_row(
            str(rank),
            units.show(float(point.tokens_per_second.value), "count"),
            count(point.workload.concurrency),
            units.show(float(point.ttft.value), "seconds"),
            units.show(float(point.tpot.value), "seconds"),
            (formats[rank - 1] if several else "") + describe(point),
        )
    return table


def refusals(found: Configurations, limits: Limits) -> list[str]:
    """How many were tried, why most of them are not in the list, and which came nearest."""
    said = [
        say("{number:,} by {why}", number=number, why=why)
        for why, number in found.refused.most_common()
        if number
    ]
    tried = say("{tried} tried", tried=plural(found.tried, "configuration"))
    lines = [
        say("{tried}; refused: {names}", tried=tried, names=", ".join(said)) if said else tried
    ]
    if found.nearest is not None and not found.points and limits.given and found.nearest.fits:
        over = 100.0 * (limits.by_how_much(found.nearest) - 1.0)
        missed = " and ".join(limits.missed(found.nearest))
        lines.append(
            say(
                "nearest: {nearest} misses the {missed} by {over:.0f} %",
                nearest=describe(found.nearest),
                missed=missed,
                over=over,
            )
        )
    return lines


# ── speed for one user against throughput ────────────────────────────────────────────────────────

_WIDE, _HIGH = 60, 12


def per_user(point: Point) -> float:
    """Tokens a second that one user sees."""
    return 1.0 / float(point.tpot.value)


def per_accelerator(point: Point) -> float:
    """Tokens a second that one accelerator writes."""
    return float(point.tokens_per_second.value) / point.cluster.count


def draw_front(front: Sequence[Point], columns: int) -> list[Text]:
    """A log-log plot in the terminal: ● cuts into replicas, ◆ pairs of pools."""
    if not front:
        return []
    width = max(min(_WIDE, columns - 12), 20)
    xs, ys = [per_user(p) for p in front], [per_accelerator(p) for p in front]
    left, right = log10(min(xs)) - 0.02, log10(max(xs)) + 0.02
    bottom, top = log10(min(ys)) - 0.02, log10(max(ys)) + 0.02
    cells = [[" "] * width for _ in range(_HIGH)]
    for point, x, y in zip(front, xs, ys, strict=True):
        across = min(int((log10(x) - left) / (right - left) * width), width - 1)
        down = _HIGH - 1 - min(int((log10(y) - bottom) / (top - bottom) * _HIGH), _HIGH - 1)
        cells[down][across] = "◆" if isinstance(point, PooledPoint) else "●"
    names = {0: units.digits(10**top), _HIGH - 1: units.digits(10**bottom)}
    lines = [Text(say("tokens/s per accelerator   ● replicas   ◆ two pools"), style="dim")]
    for row, line in enumerate(cells):
        lines.append(Text(f"{names.get(row, ''):>8} │{''.join(line).rstrip()}", no_wrap=True))
    lines.append(Text(f"{'':8} └{'─' * width}", style="dim", no_wrap=True))
    ends = (
        f"{units.digits(10**left)}{units.digits(10**right):>{width - len(units.digits(10**left))}}"
    )
    lines.append(Text(f"{'':10}{ends}", style="dim", no_wrap=True))
    axis = say("tokens/s for one user")
    lines.append(Text(" " * (width + 10 - cell_len(axis)) + axis, style="dim", no_wrap=True))
    return lines


def front_table(front: Sequence[Point]) -> RenderableType:
    """The same as numbers."""
    table = grid(
        ("user tok/s", "right"), ("chip tok/s", "right"), ("in flight", "right"), ("TTFT", "right"),
        "configuration", title="Speed for one user against tokens per accelerator",
    )  # fmt: skip
    for point in front:
        table.add_row(
            units.digits(per_user(point)),
            units.digits(per_accelerator(point)),
            count(point.workload.concurrency),
            units.show(float(point.ttft.value), "seconds"),
            describe(point),
        )
    return table


@speaking(ENGLISH)  # the font of pictures has no other letters
def plot_front(front: Sequence[Point], path: Path) -> None:
    """The front as a picture, with the 90 % interval of every point."""
    check_name(path)
    pyplot = load_pyplot()
    figure, axes = pyplot.subplots(figsize=(8.0, 4.8))
    axes.plot([per_user(p) for p in front], [per_accelerator(p) for p in front], color=LOSS)
    for pooled, color, name in ((False, BAR, "replicas"), (True, GOOD, mark("two pools"))):
        some = [point for point in front if isinstance(point, PooledPoint) == pooled]
        if not some:
            continue
        x, y = [per_user(p) for p in some], [per_accelerator(p) for p in some]
        wide = [
            [each - 1.0 / float(p.tpot.high) for each, p in zip(x, some, strict=True)],
            [1.0 / float(p.tpot.low) - each for each, p in zip(x, some, strict=True)],
        ]
        tall = [
            [
                each - float(p.tokens_per_second.low) / p.cluster.count
                for each, p in zip(y, some, strict=True)
            ],
            [
                float(p.tokens_per_second.high) / p.cluster.count - each
                for each, p in zip(y, some, strict=True)
            ],
        ]
        axes.errorbar(x, y, tall, wide, fmt="o", color=color, label=name, elinewidth=0.5)
    axes.set(xscale="log", yscale="log")
    axes.set_xlabel(say("tokens/s for one user"), color=INK)
    axes.set_ylabel("tokens/s per accelerator", color=INK)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,g}")
        axis.set_minor_formatter(lambda value, _: "")
    axes.grid(color=LOSS, linewidth=0.5)
    open_frame(axes)
    axes.legend(loc="best", frameon=False, fontsize=9)
    first = front[0]
    asked = first.workload
    title = f"{first.model.name} on {first.cluster.count} × {first.cluster.accelerator.name}"
    axes.set_title(title, loc="left", fontsize=12, fontweight="bold", color=INK, pad=16)
    said = f"{asked.input:,} tokens in, {asked.output:,} out"
    axes.text(0, 1.015, said, transform=axes.transAxes, fontsize=9, color=FADED)
    figure.tight_layout()
    save(figure, path)


# ── JSON ─────────────────────────────────────────────────────────────────────────────────────────


def encode_point(point: Point) -> dict[str, Any]:
    """One configuration of several."""
    said: dict[str, Any] = {
        "kind": "pools" if isinstance(point, PooledPoint) else "replicas",
        "words": describe(point),
        "weights": point.weights.name,
        "concurrency": point.workload.concurrency,
        "fits": point.fits,
        "ttft_seconds": float(point.ttft.value),
        "tpot_seconds": float(point.tpot.value),
        "tokens_per_second": float(point.tokens_per_second.value),
        "tokens_per_second_per_user": per_user(point),
        "tokens_per_second_per_accelerator": per_accelerator(point),
    }
    if isinstance(point, ServingPoint):
        return said | {"plan": encode.plan(point.plan)}
    return said | {"plan": encode.plan(point.decode_pool.plan), "plan_flags": pool_flags(point)}


def encode_pooled(question: dict[str, Any], point: PooledPoint) -> dict[str, Any]:
    """A pair of pools, in the same keys as a cut into replicas where these have a meaning."""
    pools = {
        name: {
            "workers": pool.workers,
            "accelerators": pool.accelerators,
            "replicas": pool.replicas,
            "plan": encode.plan(pool.plan),
        }
        for name, pool in (("prefill", point.prefill_pool), ("decode", point.decode_pool))
    }
    return {
        "question": question,
        "model": {
            "name": point.model.name,
            "parameters": point.model.parameter_count,
            "active_parameters": point.model.active_parameter_count,
        },
        "cluster": encode.cluster(point.cluster),
        "plan": encode.plan(point.decode_pool.plan),
        "plan_flags": pool_flags(point),
        "pools": pools,
        "weights": point.weights.name,
        "kv_cache_bits": point.cache_bits,
        "replicas": point.decode_pool.replicas,
        "running_requests_per_replica": point.running,
        "most_requests_per_replica": point.most_requests,
        "fits": point.fits,
        "limited_by": point.limited_by,
        "prefill_pool_busy": point.prefill_busy,
        "links_busy": point.links_busy,
        "queue_seconds": point.queue_seconds,
        **encode.estimate("ttft_seconds", point.ttft),
        **encode.estimate("tpot_seconds", point.tpot),
        **encode.estimate("tokens_per_second", point.tokens_per_second),
        **encode.estimate("usd_per_million_tokens", point.usd_per_million_tokens),
        **encode.usd_apart(point.usd_apart),
        "price_usd_per_hour": point.price.usd_per_hour if point.price else None,
        **encode.estimate("power_watts", point.watts),
        **encode.estimate("joules_per_token", point.joules_per_token),
        "kv_cache_bytes_per_request": point.cache_bytes_per_request,
        "kv_cache_bytes_per_request_and_accelerator": point.cache_bytes_per_accelerator,
        "capacity_bytes": point.capacity_bytes,
        "memory": encode.term(point.memory),
        "prefill_memory": encode.term(point.prefill_memory),
        "prefill": encode.term(point.prefill),
        "transfer": encode.term(point.transfer),
        "decode": encode.term(point.decode),
    }
