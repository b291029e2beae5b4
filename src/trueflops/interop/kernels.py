"""Tables of kernels as CSV: each row becomes ops of the IR, many rows at once.

The header decides what a row is:
    m, n, k                                             a matmul  y[m,n] = x[m,k]·W[n,k]ᵀ
    num_heads, num_kv_heads, head_dim, batch, isl       causal attention over a prompt
    num_heads, num_kv_heads, head_dim, batch, kv_len    one new token per sequence
    num_tokens, hidden, inter, topk, experts            one layer of experts (moe_tp, moe_ep)
    op, gpus, bytes                                     a collective, bytes as in nccl-tests
`dtype` names the number format; `window` limits attention; other columns are ignored.
Rows of one format are one Batch whose sizes are arrays: the clock prices them in one call.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from trueflops.errors import BadInput, UnknownName, shorten
from trueflops.graph.build import Pass
from trueflops.graph.ir import Collective, Op, Tensor
from trueflops.graph.passes import Format, number_format
from trueflops.interop.tables import Row, read_table
from trueflops.sizes import Array, Size

LARGEST: Final = 10**15  # no size in a kernel table is larger

# What measured tables call a format -> ours. The compute dtype of weight-only ones is bf16.
DTYPES: Final[Mapping[str, str]] = {
    "bfloat16": "bf16",
    "bf16": "bf16",
    "half": "fp16",
    "float16": "fp16",
    "fp16": "fp16",
    "fp32": "fp32",
    "float32": "fp32",
    "tf32": "tf32",
    "fp8": "fp8",
    "fp8_block": "fp8",
    "sq": "int8",
    "int8": "int8",
    "int8_wo": "w8a16",
    "int4_wo": "int4",
    "nvfp4": "nvfp4",
    "w4a16_mxfp4": "mxfp4",
    "w4a8_mxfp4_mxfp8": "mxfp4",
}
COLLECTIVES: Final[Mapping[str, str]] = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "all_to_all": "all_to_all",
    "broadcast": "broadcast",
    "send_recv": "send_recv",
    "sendrecv": "send_recv",
}


@dataclass(frozen=True)
class Batch:
    """Rows of one kind and format: their ops (run one after another), and where they stood."""

    kind: str
    lines: tuple[int, ...]
    ops: tuple[Op, ...]
    collective: Collective | None
    rows: tuple[Row, ...]


def read_kernels(path: Path) -> list[Batch]:
    """Read a table; a row that cannot be used is an error that names its line."""
    table = read_table(path)
    where, rows = table.where, table.rows
    kind, needed, build = _recognise(rows[0][1], where)
    groups: dict[str, list[tuple[int, Row]]] = defaultdict(list)
    for line, row in rows:
        groups[_group(kind, row, f"{where}:{line}")].append((line, row))
    batches = []
    for group, members in groups.items():
        lines = tuple(line for line, _ in members)
        columns = {
            name: _numbers(members, name, where, default) for name, default in needed.items()
        }
        _check(columns, lines, where)
        ops, collective = build(columns, group)
        batches.append(Batch(kind, lines, ops, collective, tuple(row for _, row in members)))
    return batches


def _check(c: Mapping[str, Array], lines: Sequence[int], where: str) -> None:
    """Numbers that cannot go together, line by line."""
    rules = []
    if "num_kv_heads" in c:
        rules.append(
            (c["num_heads"] % c["num_kv_heads"] == 0, "num_kv_heads must divide num_heads")
        )
    if "topk" in c:
        rules.append((c["topk"] <= c["experts"], "topk is larger than experts"))
        rules.append((c["experts"] % c["moe_ep"] == 0, "moe_ep must divide experts"))
    for fine, why in rules:
        if not fine.all():
            raise BadInput(f"{where}:{lines[int(np.argmin(fine))]}: {why}")


Built = tuple[tuple[Op, ...], Collective | None]


def _recognise(
    row: Row, where: str
) -> tuple[str, Mapping[str, float | None], Callable[[Mapping[str, Array], str], Built]]:
    headers = {
        kind: [
            *(["op"] if kind == "collective" else []),
            *(n for n, d in needed.items() if d is None),
        ]
        for kind, (needed, _) in _KINDS.items()
    }
    for kind, (needed, build) in _KINDS.items():
        if all(name in row for name in headers[kind]):
            if kind == "attention" and "kv_len" in row:
                raise BadInput(f"{where}: isl and kv_len in one table; split it in two")
            return kind, needed, build
    known = "; ".join(",".join(names) for names in headers.values())
    raise BadInput(f"{where}: the header names no kernels; it must hold one of: {known}")


def _group(kind: str, row: Row, where: str) -> str:
    """Rows that can be priced together: one format, or one kind of collective."""
    if kind == "collective":
        name = row["op"].strip().lower()
        if name not in COLLECTIVES:
            raise UnknownName(f"collective ({where})", name, COLLECTIVES)
        return COLLECTIVES[name]
    if kind.startswith("attention"):
        return DTYPES.get(row.get("kv_dtype", "") or "bf16", "bf16")
    name = (row.get("dtype") or "bf16").strip().lower()
    if name not in DTYPES:
        raise UnknownName(f"dtype ({where})", name, DTYPES)
    return DTYPES[name]


def _numbers(
    members: Sequence[tuple[int, Row]], name: str, path: str, default: float | None
) -> Array:
    values = []
    for line, row in members:
        text = row.get(name, "").strip()
        if not text and default is not None:
            values.append(default)
            continue
        try:
            value = float(text)
        except ValueError:
            raise BadInput(f"{path}:{line}: {name} = {shorten(text)!r} is not a number") from None
        least = 0 if name == "window" else 1
        if not least <= value < LARGEST or value != int(value):
            raise BadInput(
                f"{path}:{line}: {name} = {shorten(text)!r} must be a whole number of at least "
                f"{least}"
            )
        values.append(value)
    return np.array(values)


# ── one builder per kind ─────────────────────────────────────────────────────────────────────────


def _product(
    name: str, x: Tensor, w: Tensor, y: Tensor, form: Format, **facts: Size
) -> tuple[Op, ...]:
    """A matmul in a format: narrowed inputs are cast first, narrow weights are read as such."""
    ops = []
    if form.input_bits:
        narrow = Tensor(f"{x.name}.narrow", x.dims, form.input_bits)
        ops.append(Op(f"{name}.cast", "cast", (x,), (narrow,)))
        x = narrow
    dtype = form.compute or ("fp16" if form.name == "fp16" else "bf16")
    return (*ops, Op(name, "matmul", (x,), (y,), (w,), dtype=dtype, facts=facts))


def _matmul(c: Mapping[str, Array], group: str) -> Built:
    form = _form(group)
    wide = 32.0 if form.compute in ("fp32", "tf32") else 16.0
    x = Tensor("x", (("rows", c["m"]), ("inner", c["k"])), wide)
    w = Tensor("w", (("columns", c["n"]), ("inner", c["k"])), form.weight_bits, "weight")
    y = Tensor("y", (("rows", c["m"]), ("columns", c["n"])), wide)
    return _product("matmul", x, w, y, form), None


def _form(group: str) -> Format:
    return Format("tf32", 32.0, "tf32") if group == "tf32" else number_format(group)


def _attention(c: Mapping[str, Array], group: str) -> Built:
    """A prompt: every query sees itself and the keys before it, at most a window of them."""
    return _attend(c, c["isl"], c["isl"], group, "attention"), None


def _decode(c: Mapping[str, Array], group: str) -> Built:
    one = np.ones_like(c["kv_len"])
    return _attend(c, one, c["kv_len"], group, "attention_decode"), None


def _attend(
    c: Mapping[str, Array], queries: Array, keys: Array, group: str, kind: str
) -> tuple[Op, ...]:
    run = Pass(c["batch"], queries, keys - queries)
    window = np.where(c["window"] > 0, c["window"], keys)
    tokens = (("batch", c["batch"]), ("seq", queries))
    narrow = 8.0 if group == "fp8" else 16.0
    q = Tensor("q", (*tokens, ("heads", c["num_heads"]), ("head_dim", c["head_dim"])))
    k = Tensor("k", (*tokens, ("kv_heads", c["num_kv_heads"]), ("head_dim", c["head_dim"])), narrow)
    v = Tensor(
        "v", (*tokens, ("kv_heads", c["num_kv_heads"]), ("value_dim", c["head_dim"])), narrow
    )
    out = Tensor("out", (*tokens, ("heads", c["num_heads"]), ("value_dim", c["head_dim"])))
    facts = {"keys": run.keys_read(window), "seen": run.keys_seen(window)}
    return (Op("attention", kind, (q, k, v), (out,), facts=facts),)


def _experts(c: Mapping[str, Array], group: str) -> Built:
    """Gate and up, activation, down: the experts of one rank and the tokens that reach them."""
    form = _form(group)
    chosen = c["topk"] / c["experts"]
    experts = ("experts", c["experts"] / c["moe_ep"])
    routed = ("routed", np.maximum(c["num_tokens"] * c["topk"] / c["moe_ep"], 1.0))
    wide, hidden = ("expert_ffn", c["inter"] / c["moe_tp"]), ("hidden", c["hidden"])
    x, acted = Tensor("x", (routed, hidden)), Tensor("acted", (routed, wide))
    both = Tensor("both", (routed, ("two", 2.0), wide))
    y = Tensor("y", (routed, hidden))
    up = Tensor("up", (experts, ("two", 2.0), wide, hidden), form.weight_bits, "weight")
    down = Tensor("down", (experts, hidden, wide), form.weight_bits, "weight")
    return (
        *_product("up", x, up, both, form, chosen=chosen),
        Op("act", "multiply", (both,), (acted,)),
        *_product("down", acted, down, y, form, chosen=chosen),
    ), None


def _collective(c: Mapping[str, Array], group: str) -> Built:
    buffer = Tensor("buffer", (("bytes", c["bytes"]),), 8.0)
    return (), Collective(group, group, "tp", c["gpus"], buffer)  # type: ignore[arg-type]


_KINDS: Final[
    Mapping[str, tuple[Mapping[str, float | None], Callable[[Mapping[str, Array], str], Built]]]
] = {
    "matmul": ({"m": None, "n": None, "k": None}, _matmul),
    "attention": (
        {
            "num_heads": None,
            "num_kv_heads": None,
            "head_dim": None,
            "batch": None,
            "isl": None,
            "window": 0.0,
        },
        _attention,
    ),
    "attention_decode": (
        {
            "num_heads": None,
            "num_kv_heads": None,
            "head_dim": None,
            "batch": None,
            "kv_len": None,
            "window": 0.0,
        },
        _decode,
    ),
    "experts": (
        {
            "num_tokens": None,
            "hidden": None,
            "inter": None,
            "topk": None,
            "experts": None,
            "moe_tp": 1.0,
            "moe_ep": 1.0,
        },
        _experts,
    ),
    "collective": ({"gpus": None, "bytes": None}, _collective),
}
