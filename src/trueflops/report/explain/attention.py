"""An attention kernel explained: its blocks or shares, and its traffic."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from trueflops import units
from trueflops.language import mark, say, word
from trueflops.predict.explain import AttentionExplained
from trueflops.predict.explain.attention import DecodeShares, PromptBlocks
from trueflops.report.explain.page import (
    count_units,
    encode_kernel,
    percent,
    show_answer,
    show_bytes,
    show_curve,
    show_limits,
    show_roofline,
)
from trueflops.report.grid import grid
from trueflops.report.tables import count, plural

DOES = {
    "attention": mark("softmax(QKᵀ)·V of a prompt or a training sequence, by blocks of queries"),
    "attention_backward": mark("the gradients of Q, K and V: five products for the forward's two"),
    "attention_decode": mark("one token for each sequence: its query against the whole cache"),
}
BOUND = {
    "compute": mark("the units' arithmetic"),
    "memory": mark("bandwidth of memory and cache"),
    "serial": mark("the block of queries that sees most keys"),
    "start": mark("the launch, setting blocks up"),
}
LIMIT = {
    "compute": mark("all pairs of a query and a key visited"),
    "memory": mark("queries, keys, values and results once"),
    "serial": mark("the longest block alone"),
    "start": mark("launch, setting blocks up"),
}


def show_attention(out: Console, p: AttentionExplained) -> None:
    """Everything, from the answer down to the curve."""
    out.print(Text(say("{name} on {chip}", name=p.name, chip=p.chip.name), style="bold"))
    out.print(f"{word(DOES[p.kind])}; {units.show(p.flop, 'flop')}")
    table = grid("", "")
    key_heads = (
        say("as many for keys")
        if p.kv_heads == p.heads
        else say("{kv_heads:,} for keys", kv_heads=p.kv_heads)
    )
    table.add_row(
        "heads",
        say(
            "{heads:,} for queries, {key_heads}, of {head_dim:,}",
            heads=p.heads,
            key_heads=key_heads,
            head_dim=p.head_dim,
        ),
    )
    table.add_row(
        "queries",
        say("{queries:,} in each of {batch}", queries=p.queries, batch=plural(p.batch, "sequence")),
    )
    seen = say("of which a query sees {seen} on average", seen=count(p.seen))
    table.add_row("keys", f"{p.keys:,}, {seen if p.seen < p.keys else 'all seen'}")
    out.print(table)
    out.print()
    show_answer(out, p, BOUND)
    show_limits(out, p, LIMIT)
    show_roofline(
        out,
        p,
        say(
            "{bound} takes longer than {roofline_side}",
            bound=BOUND[p.bound],
            roofline_side=p.roofline_side,
        ),
    )
    if p.prompt:
        _show_blocks(out, p, p.prompt)
    if p.decode:
        _show_shares(out, p, p.decode)
    _show_traffic(out, p)
    show_curve(out, p)


def _show_blocks(out: Console, p: AttentionExplained, at: PromptBlocks) -> None:
    table = grid("", "", title=say("Blocks of {block} queries", block=units.digits(at.block)))
    table.add_row(
        "blocks", say("{blocks}: sequences × heads × blocks of a sequence", blocks=count(at.blocks))
    )
    known = "" if p.units_known else " (assumed)"
    table.add_row(
        "waves",
        say("{waves} over {p}{known}", waves=units.digits(at.waves), p=count_units(p), known=known),
    )
    visited = say(
        "each query meets {visited} keys and sees {seen} of them",
        visited=count(at.visited),
        seen=count(at.seen),
    )
    table.add_row("visited", visited)
    lost = say(
        "{wasted} of the pairs multiplied are masked or beyond the edge", wasted=percent(at.wasted)
    )
    table.add_row("masked", lost if at.wasted > 0.0005 else "nothing that is multiplied is masked")
    pairs = say("{pairs} that count, over all heads", pairs=units.show(p.pairs, "count"))
    table.add_row("pairs", pairs)
    out.print(table)
    out.print()


def _show_shares(out: Console, p: AttentionExplained, at: DecodeShares) -> None:
    table = grid("", "", title="Shares of the cache")
    each = say("{splits} for each sequence and key head", splits=count(at.splits))
    table.add_row("shares", f"{count(at.shares)}: {each}")
    known = "" if p.units_known else " (assumed)"
    busy = say("{busy:.0f} % of them have work", busy=100 * at.busy)
    waves = say(
        "{waves} over {p}{known}", waves=units.digits(at.waves), p=count_units(p), known=known
    )
    table.add_row("waves", waves if at.busy >= 1.0 else f"{waves}; {busy}")
    rows = say(
        "{queries_per_group} of {group} rows of a tensor core's product",
        queries_per_group=count(at.queries_per_group),
        group=count(at.group),
    )
    table.add_row("queries", say("{rows}, for each key head", rows=rows))
    table.add_row(
        "cached", say("{hot:.0f} % of keys and values can still be in the cache", hot=100 * at.hot)
    )
    out.print(table)
    out.print()


def _show_traffic(out: Console, p: AttentionExplained) -> None:
    table = grid("", ("bytes", "right"), title="Traffic, each tensor once")
    table.add_row("keys and values", show_bytes(p.cache_bytes))
    table.add_row("queries and results", show_bytes(p.other_bytes))
    table.add_row("sum", show_bytes(p.moved_bytes))
    out.print(table)
    out.print()


def encode_attention(p: AttentionExplained) -> dict[str, Any]:
    """The same for JSON, SI units in the key names."""
    return {
        **encode_kernel(p),
        "kind": p.kind,
        "compute_dtype": p.dtype,
        "batch": p.batch,
        "heads": p.heads,
        "kv_heads": p.kv_heads,
        "queries": p.queries,
        "keys": p.keys,
        "head_dim": p.head_dim,
        "keys_seen_per_query": p.seen,
        "pairs": p.pairs,
        "traffic": {
            "cache_bytes": p.cache_bytes,
            "other_bytes": p.other_bytes,
            "compulsory_bytes": p.moved_bytes,
        },
        "blocks": p.prompt and {**asdict(p.prompt), "wasted_share": p.prompt.wasted},
        "shares": p.decode and asdict(p.decode),
    }
