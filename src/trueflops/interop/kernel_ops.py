"""One builder per kind of kernel table: columns of numbers become ops of the IR."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from trueflops import dtypes
from trueflops.graph.alignment import FULL
from trueflops.graph.build import Pass
from trueflops.graph.formats import EIGHT_BIT_DTYPES, FORMATS, Format
from trueflops.graph.ir import Collective, Dims, Op, Tensor
from trueflops.graph.kinds import CollectiveKind, Kind, Role
from trueflops.graph.routing import load
from trueflops.graph.variants import AttentionKernel, EagerKernel, ProductKernel
from trueflops.interop.memory_ops import memory
from trueflops.sizes import Array, Size
from trueflops.units import BITS_PER_BYTE

# How measured tables call a format -> ours.
DTYPES: Final[Mapping[str, str]] = {
    **{
        name: dtype.name
        for dtype in dtypes.DTYPES
        if dtype.name in (*FORMATS, "tf32")
        for name in dtype.spellings
    },
    "fp8_block": "fp8_block",
    "sq": "int8",
    "int8_wo": "w8a16",
    "w8a16": "w8a16",
    "int4_wo": "int4",
    "nvfp4": "nvfp4",
    "mxfp4": "mxfp4",
    "w4a16_mxfp4": "mxfp4",
    "w4a8_mxfp4_mxfp8": "mxfp4_fp8",
    "w4a4_mxfp4": "mxfp4_fp4",
}
COLLECTIVES: Final[Mapping[str, CollectiveKind]] = {
    "all_reduce": CollectiveKind.ALL_REDUCE,
    "all_gather": CollectiveKind.ALL_GATHER,
    "reduce_scatter": CollectiveKind.REDUCE_SCATTER,
    "alltoall": CollectiveKind.ALL_TO_ALL,
    "all_to_all": CollectiveKind.ALL_TO_ALL,
    "broadcast": CollectiveKind.BROADCAST,
    "send_recv": CollectiveKind.SEND_RECV,
    "sendrecv": CollectiveKind.SEND_RECV,
}
_TF32: Final = Format("tf32", 32.0, compute="tf32")
Columns = Mapping[str, Array]
Built = tuple[tuple[Op, ...], Collective | None]


class Form(NamedTuple):
    """What rows must share to be priced in one call."""

    name: str  # number format, kind of collective, memory-bound or eager kernel
    kernel: ProductKernel | AttentionKernel | None = None  # where not the usual one
    cast: bool = True  # whether narrowed inputs are narrowed as part of the row
    stored: bool = False  # whether they lay narrow, so that nothing narrows them at all
    backward: bool = False  # of an attention: its gradient
    wide: bool = False  # of a memory-bound kernel: fp32 in place of bf16
    library: str = ""  # of a collective, where not the vendor's
    road: str = ""  # of a product: see graph/alignment.py
    power: float = 0.0  # exponent of a power law of tokens over experts; 0: balanced
    all_copies: bool = False  # of experts: of every token that the rank gets, others' copies too


class TableKind(NamedTuple):
    """Columns a kind of table must or may have (with their default), and its builder."""

    columns: Mapping[str, float | None]
    build: Callable[[Columns, Form], Built]


def _matmul(c: Columns, form: Form) -> Built:
    """A product in a format: narrowed inputs are cast first, narrow weights are read as such."""
    numbers = format_of(form.name)
    dtype = numbers.compute or ("fp16" if numbers.name == "fp16" else "bf16")
    variant = form.kernel or (None if numbers.name == dtype else numbers)
    if numbers.compute in EIGHT_BIT_DTYPES and form.stored:
        variant = ProductKernel.STORED
    wide = 32.0 if numbers.compute in ("fp32", "tf32") else 16.0
    x = Tensor("x", (("rows", c["m"]), ("inner", c["k"])), _input_bits(c, wide))
    w = Tensor("w", (("columns", c["n"]), ("inner", c["k"])), numbers.weight_bits, role=Role.WEIGHT)
    y = Tensor("y", (("rows", c["m"]), ("columns", c["n"])), wide)
    casts: tuple[Op, ...] = ()
    if numbers.input_bits:
        narrow = Tensor("x.narrow", x.dims, numbers.input_bits)
        if form.cast:
            casts = (Op("matmul.cast", Kind.CAST, (x,), (narrow,), variant=numbers),)
        x = narrow
    facts: dict[str, Size] = {"copies": c["copies"]}
    if np.all(c["loads"] > 0.0):  # a table says how its operands lie; else as a linear layer's do
        facts |= {"loads": c["loads"], "stores": c["stores"]}
    product = Op(
        "matmul", Kind.MATMUL, (x,), (y,), weights=(w,), dtype=dtype, facts=facts, variant=variant
    )
    return (*casts, product), None


PARTICULAR: Final = {"loads": FULL, "stores": FULL, "window": 1.0, "turned": 0.0}
"""What decides over a product's kernel beside its sizes, and what is usual."""


def _product(c: Columns, form: Form) -> Built:
    """A product by what it is multiplied from, whatever of that is stored more than once."""
    numbers = format_of(form.name)
    rows, columns, inner = (("rows", c["m"]), ("columns", c["n"]), ("inner", c["k"]))
    many = ("batch", c["batch"])
    x = _of_bytes("x", (many, rows, inner), c["activation_bytes"])
    w = _of_bytes("w", (many, columns, inner), c["weight_bytes"], Role.WEIGHT)
    y = _of_bytes("y", (many, rows, columns), c["written_bytes"])
    dtype = numbers.compute or ("fp16" if numbers.name == "fp16" else "bf16")
    facts: dict[str, Size] = {"copies": np.ones_like(c["m"]), **{n: c[n] for n in PARTICULAR}}
    op = Op("product", Kind.MATMUL, (x,), (y,), weights=(w,), dtype=dtype, facts=facts,
            variant=form.kernel)  # fmt: skip
    return (op,), None


def _of_bytes(name: str, dims: Dims, held: Array, role: Role = Role.ACTIVATION) -> Tensor:
    """A tensor with so many bytes, one number a row."""
    elements: Size = 1.0
    for _, size in dims:
        elements = elements * size
    bits: Any = held * BITS_PER_BYTE / elements
    return Tensor(name, dims, bits, role=role)


def _input_bits(c: Columns, bits: float) -> Any:
    """Bits of an element of x; a convolution reads less than the windows that it multiplies.

    One number a row, like all sizes here, although tensors elsewhere have one for all.
    """
    given = c["input_bytes"]
    return given * BITS_PER_BYTE / (c["m"] * c["k"]) if np.any(given) else bits


def format_of(name: str) -> Format:
    """A format of the quantise pass, or tf32, which narrows nothing that is stored."""
    return _TF32 if name == "tf32" else FORMATS[name]


def _attention(c: Columns, form: Form) -> Built:
    """A prompt: every query sees itself and the keys before it, at most a window of them."""
    forward = attend(c, c["isl"], c["isl"], form, Kind.ATTENTION)
    return (attend_backward(forward) if form.backward else forward,), None


def attend_backward(forward: Op) -> Op:
    """The kernel that gives the gradients of queries, keys and values."""
    reads = (*forward.inputs, *forward.outputs, forward.outputs[0].gradient())
    writes = tuple(t.gradient() for t in forward.inputs)
    return Op(
        "attention", Kind.ATTENTION_BACKWARD, reads, writes,
        dtype=forward.dtype, facts=forward.facts, of=forward, variant=forward.variant,
    )  # fmt: skip


def _decode(c: Columns, form: Form) -> Built:
    one = np.ones_like(c["kv_len"])
    return (attend(c, one, c["kv_len"], form, Kind.ATTENTION_DECODE),), None


def attend(c: Columns, queries: Array, keys: Array, form: Form, kind: Kind) -> Op:
    """Queries that look at the last of so many keys; `form` is fp8 where the cache is narrow."""
    run, one = Pass(c["batch"], queries, keys - queries), np.ones_like(keys)
    window = np.where(c["window"] > 0, c["window"], keys)
    tokens = (("batch", c["batch"]), ("seq", queries))
    wide = 32.0 if form.name == "fp32" else 16.0
    narrow = 8.0 if form.name == "fp8" else wide
    kv = ("kv_heads", c["num_kv_heads"])
    value = ("value_dim", c["head_dim"])
    q = Tensor("q", (*tokens, ("heads", c["num_heads"]), ("head_dim", c["head_dim"])), wide)
    k = Tensor("k", (*tokens, kv, ("head_dim", c["head_dim"])), narrow)
    v = Tensor("v", (*tokens, kv, value), narrow)
    out = Tensor("out", (*tokens, ("heads", c["num_heads"]), value), wide)
    seen = np.where(c.get("causal", one) > 0, run.keys_seen(window), keys)
    facts = {"keys": run.keys_read(window), "seen": seen}
    dtype = "fp32" if form.name == "fp32" else "bf16"
    return Op("attention", kind, (q, k, v), (out,), dtype=dtype, facts=facts, variant=form.kernel)


def _experts(c: Columns, form: Form) -> Built:
    """Gate and up, activation, down in one kernel: the fullest rank and the tokens it gets."""
    numbers = format_of(form.name)
    names = ("num_tokens", "topk", "experts", "moe_ep")
    loads = [load(*map(float, row), form.power) for row in zip(*(c[n] for n in names), strict=True)]
    rows, touched = (np.array(column) for column in zip(*loads, strict=True))
    if form.all_copies:
        rows = _with_copies_of_others(rows, c["num_tokens"], c["topk"], balanced=not form.power)
    experts, hidden = ("experts", c["experts"] / c["moe_ep"]), ("hidden", c["hidden"])
    wide = ("expert_ffn", c["inter"] / c["moe_tp"])
    x, y = (Tensor(name, (("routed", rows), hidden)) for name in "xy")
    up = Tensor("up", (experts, ("two", 2.0), wide, hidden), numbers.weight_bits, role=Role.WEIGHT)
    down = Tensor("down", (experts, hidden, wide), numbers.weight_bits, role=Role.WEIGHT)
    dtype = numbers.compute or "bf16"
    facts: dict[str, Size] = {
        "chosen": c["topk"] / c["experts"],
        "per_token": c["topk"],
        "tokens": c["num_tokens"],
        "touched": touched,
        "skewed": 1.0 if form.power else 0.0,
    }
    variant = None if numbers.name == dtype else numbers
    made = Op(
        "experts",
        Kind.EXPERTS,
        (x,),
        (y,),
        weights=(up, down),
        dtype=dtype,
        facts=facts,
        variant=variant,
    )
    return (made,), None


def _with_copies_of_others(
    rows: Array, tokens: Array, per_token: Array, *, balanced: bool
) -> Array:
    """Rows of a rank that multiplies all k copies of every token of which one is its own.

    Of its share s of all copies: balanced, a token's copies lie as far apart as they can, so that
    min(k s, 1) of the tokens come; drawn, 1 − (1 − s)^k.
    """
    share = np.minimum(rows / (tokens * per_token), 1.0)
    come = np.minimum(per_token * share, 1.0) if balanced else 1.0 - (1.0 - share) ** per_token
    return np.maximum(tokens * per_token * come, rows)


def _collective(c: Columns, form: Form) -> Built:
    buffer = Tensor("buffer", (("bytes", c["bytes"]),), 8.0)
    kind = CollectiveKind(form.name)
    return (), Collective(
        kind, kind, axis="tp", group=c["gpus"], payload=buffer, library=form.library
    )


def _memory(c: Columns, form: Form) -> Built:
    return memory(c, form.name, wide=form.wide), None


def _eager(c: Columns, form: Form) -> Built:
    """A kernel of torch's own, by what it moves and looks up."""
    moved = Tensor("moved", (("bytes", c["bytes"]),), 8.0)
    named = {
        "indexed": "walked",
        "launches": "launches",
        "run": "run",
        "pieces": "pieces",
        "loads": "loads",
    }
    facts: dict[str, Size] = {fact: c[column] for fact, column in named.items()}
    kernel = EagerKernel(form.name)
    return (Op(kernel, Kind.POINTWISE, (moved,), (), facts=facts, variant=kernel),), None


KINDS: Final[Mapping[str, TableKind]] = {
    "matmul": TableKind(
        {
            "m": None,
            "n": None,
            "k": None,
            "copies": 6.0,
            "input_bytes": 0.0,
            "loads": 0.0,
            "stores": 0.0,
        },
        _matmul,
    ),
    "attention": TableKind(
        {
            "num_heads": None,
            "num_kv_heads": None,
            "head_dim": None,
            "batch": None,
            "isl": None,
            "window": 0.0,
            "causal": 1.0,
        },
        _attention,
    ),
    "attention_decode": TableKind(
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
    "experts": TableKind(
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
    "collective": TableKind({"gpus": None, "bytes": None}, _collective),
    "memory": TableKind({"rows": None, "columns": None}, _memory),
    "eager": TableKind(
        {
            "bytes": None,
            "walked": 0.0,
            "launches": 1.0,
            "run": 0.0,
            "pieces": 0.0,
            "loads": FULL,
        },
        _eager,
    ),
    "product": TableKind(
        {
            "batch": None,
            "m": None,
            "n": None,
            "k": None,
            "weight_bytes": None,
            "activation_bytes": None,
            "written_bytes": None,
            **PARTICULAR,
        },
        _product,
    ),
}
