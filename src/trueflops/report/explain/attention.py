"""An attention kernel explained: its blocks or shares, and its traffic."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from trueflops import units
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
    "attention": "softmax(QKᵀ)·V of a prompt or a training sequence, by blocks of queries",
    "attention_backward": "the gradients of Q, K and V: five products for the forward's two",
    "attention_decode": "one token for each sequence: its query against the whole cache",
}
BOUND = {
    "compute": "the units' arithmetic",
    "memory": "bandwidth of memory and cache",
    "serial": "the block of queries that sees most keys",
    "start": "the launch, setting blocks up",
}
LIMIT = {
    "compute": "all pairs of a query and a key visited",
    "memory": "queries, keys, values and results once",
    "serial": "the longest block alone",
    "start": "launch, setting blocks up",
}


def show_attention(out: Console, p: AttentionExplained) -> None:
    """Everything, from the answer down to the curve."""
    out.print(Text(f"{p.name} on {p.chip.name}", style="bold"))
    out.print(f"{DOES[p.kind]}; {units.show(p.flop, 'flop')}")
    table = grid("", "")
    key_heads = "as many for keys" if p.kv_heads == p.heads else f"{p.kv_heads:,} for keys"
    table.add_row("heads", f"{p.heads:,} for queries, {key_heads}, of {p.head_dim:,}")
    table.add_row("queries", f"{p.queries:,} in each of {plural(p.batch, 'sequence')}")
    seen = f"of which a query sees {count(p.seen)} on average"
    table.add_row("keys", f"{p.keys:,}, {seen if p.seen < p.keys else 'all seen'}")
    out.print(table)
    out.print()
    show_answer(out, p, BOUND)
    show_limits(out, p, LIMIT)
    show_roofline(out, p, f"{BOUND[p.bound]} takes longer than {p.roofline_side}")
    if p.prompt:
        _show_blocks(out, p, p.prompt)
    if p.decode:
        _show_shares(out, p, p.decode)
    _show_traffic(out, p)
    show_curve(out, p)


def _show_blocks(out: Console, p: AttentionExplained, at: PromptBlocks) -> None:
    table = grid("", "", title=f"Blocks of {units.digits(at.block)} queries")
    table.add_row("blocks", f"{count(at.blocks)}: sequences × heads × blocks of a sequence")
    known = "" if p.units_known else " (assumed)"
    table.add_row("waves", f"{units.digits(at.waves)} over {count_units(p)}{known}")
    visited = f"each query meets {count(at.visited)} keys and sees {count(at.seen)} of them"
    table.add_row("visited", visited)
    lost = f"{percent(at.wasted)} of the pairs multiplied are masked or beyond the edge"
    table.add_row("masked", lost if at.wasted > 0.0005 else "nothing that is multiplied is masked")
    pairs = f"{units.show(p.pairs, 'count')} that count, over all heads"
    table.add_row("pairs", pairs)
    out.print(table)
    out.print()


def _show_shares(out: Console, p: AttentionExplained, at: DecodeShares) -> None:
    table = grid("", "", title="Shares of the cache")
    each = f"{count(at.splits)} for each sequence and key head"
    table.add_row("shares", f"{count(at.shares)}: {each}")
    known = "" if p.units_known else " (assumed)"
    busy = f"{100 * at.busy:.0f} % of them have work"
    waves = f"{units.digits(at.waves)} over {count_units(p)}{known}"
    table.add_row("waves", waves if at.busy >= 1.0 else f"{waves}; {busy}")
    rows = f"{count(at.queries_per_group)} of {count(at.group)} rows of a tensor core's product"
    table.add_row("queries", f"{rows}, for each key head")
    table.add_row("cached", f"{100 * at.hot:.0f} % of keys and values can still be in the cache")
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
