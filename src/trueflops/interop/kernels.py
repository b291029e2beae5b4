"""Tables of kernels as CSV: each row becomes ops of the IR, many rows at once.

The header decides what a row is:
    m, n, k                                             a matmul  y[m,n] = x[m,k]·W[n,k]ᵀ
    num_heads, num_kv_heads, head_dim, batch, isl       causal attention over a prompt
    num_heads, num_kv_heads, head_dim, batch, kv_len    one new token per sequence
    num_tokens, hidden, inter, topk, experts            one layer of experts (moe_tp, moe_ep)
    op, gpus, bytes                                     a collective, bytes as in nccl-tests
    kind, rows, columns                                 a memory-bound kernel
    kernel, bytes[, walked, launches, run, pieces]      a kernel of eager torch
    op, inputs, outputs[, numbers, tf32]                a call of an ATen op (records/call_text.py)
`dtype` names the number format, `layout` how operands lie (nt, nn, tn). Optional: `window` limits
attention, `direction` backward asks for its gradient, `causal` 0 lets every query see all keys,
`copies` sets of weights rotate (6 unless said), `cast` 0 says that narrow inputs were stored
narrow, `apart` that what narrows them is not in the row's time, `distribution` skews the routing,
`input_bytes` and `window` make a product a convolution.
Other columns are ignored.
Rows of one format are one Batch whose sizes are arrays: the clock prices them in one call.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueflops.clock.works import FALLBACK
from trueflops.errors import BadInput, UnknownName, printable, shorten
from trueflops.graph.alignment import FULL, ITEM_BYTES, ROADS, alignment, road_of
from trueflops.graph.ir import Collective, Op
from trueflops.graph.variants import AttentionKernel, EagerKernel, ProductKernel
from trueflops.interop.calls import Kernel, kernel_of, read_call
from trueflops.interop.kernel_ops import (
    COLLECTIVES,
    DTYPES,
    KINDS,
    Built,
    Columns,
    Form,
)
from trueflops.interop.memory_ops import MEMORY_KINDS, planned
from trueflops.records.measured import Cell
from trueflops.records.tables import Row, Table, number_in, read_table
from trueflops.units import MOST_COUNTED, read_number

_SGLANG: Final = "sglang_"
"""Experts that aiconfigurator timed with SGLang: copies for experts of other ranks have the id −1,
which `clamp(min=0)` makes the rank's first expert (collector/sglang/collect_moe.py at cb4d907c7, of
the tables of 0.5.10), so that they are multiplied as well."""
_EAGER: Final = tuple(map(str, EagerKernel))
_CONVOLUTIONS: Final = (
    ProductKernel.CONVOLUTION,
    ProductKernel.CONVOLUTION_INPUT,
    ProductKernel.CONVOLUTION_WEIGHT,
)
_NAMED_ATTENTION: Final = (
    AttentionKernel.FA2,
    AttentionKernel.CUDNN,
    AttentionKernel.CUDNN_MASKED,
    AttentionKernel.EFFICIENT,
)
_FALLBACK: Final = ("triton_attn", FALLBACK)  # as tables call the kernel that takes any shape
CALL: Final = "call"
CAST_APART: Final = "apart"
LAYOUTS: Final[Mapping[str, tuple[str, ...]]] = {
    "nt": ("k",),
    "nn": ("k", "n"),
    "tn": ("m", "n"),
}
"""How a product's operands lie, and which of their sides are next to each other in memory."""
MOST_EXPERTS: Final = 10**5  # each has its own share of the tokens, worked out one by one
STEEPEST: Final = 8.0  # exponent of a power law: beyond it one expert has everything
_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "matmul": ("dtype", "cast", "window", "input_bytes", "layout"),
    "attention": ("kv_dtype", "attn_dtype", "kernel", "direction"),
    "attention_decode": ("kv_dtype", "attn_dtype", "kernel", "direction"),
    "experts": ("dtype", "distribution", "kernel"),
    "collective": ("op", "library", "kernel"),
    "memory": ("kind", "dtype"),
    "eager": ("kernel",),
    "product": ("dtype",),
    CALL: ("op", "inputs", "outputs", "numbers", "tf32"),
}  # columns whose words say which form a row has
_NEEDED_WORDS: Final = {"collective": "op", "memory": "kind", "eager": "kernel"}


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of one kind and form. Each kernel among them is priced once, however often it stands."""

    kind: str
    form: Form
    table: Table  # of these rows alone
    columns: Columns  # sizes of the distinct kernels
    kernel: NDArray[np.intp]  # which of those each distinct row of the table is

    @property
    def lines(self) -> list[int]:
        """Where the rows stood."""
        return self.table.lines.tolist()

    @property
    def rows(self) -> list[Row]:
        """All rows, line by line."""
        return [row for _, row in self.table.rows]

    @property
    def kernels(self) -> int:
        """How many distinct ones there are."""
        return len(next(iter(self.columns.values())))

    def distinct(self) -> Built:
        """The ops, or the collective, of every distinct kernel."""
        return KINDS[self.kind].build(self.columns, self.form)

    @property
    def ops(self) -> tuple[Op, ...]:
        """The ops of every row, run one after another; none of a collective."""
        return self._every[0]

    @property
    def collective(self) -> Collective | None:
        """The collective of every row."""
        return self._every[1]

    @property
    def stands_for(self) -> Op | None:
        """The op of a plan for which rows of memory-bound kernels stand in."""
        if self.kind != "memory":
            return None
        at = self.kernel[self.table.at]
        columns = {n: a[at] for n, a in self.columns.items()}
        return planned(columns, self.form.name, wide=self.form.wide)

    @cached_property
    def _every(self) -> Built:
        at = self.kernel[self.table.at]
        return KINDS[self.kind].build({n: a[at] for n, a in self.columns.items()}, self.form)

    @property
    def widest(self) -> int:
        """Ranks of the largest collective; 1 where there is none."""
        return int(np.max(self.columns["gpus"])) if self.kind == "collective" else 1


class RefusedRow(NamedTuple):
    """A row that cannot be used, and why."""

    line: int
    row: Row
    reason: str


def kernel_kind(table: Table) -> str | None:
    """What kind of kernels a table holds, by its header."""
    there = set(table.columns)
    if there.issuperset(("op", "inputs", "outputs")):
        return CALL
    return next((kind for kind in KINDS if there.issuperset(_needed(kind))), None)


def _needed(kind: str) -> list[str]:
    """The columns without which a table is not of this kind."""
    word = _NEEDED_WORDS.get(kind)
    sizes = [name for name, usual in KINDS[kind].columns.items() if usual is None]
    return [word, *sizes] if word else sizes


def read_kernels(path: Path) -> list[Batch]:
    """Read a table of which every row must be usable: the first that is not is an error."""
    batches, refused = batch_kernels(read_table(path))
    if refused:
        where = printable(str(path))
        raise BadInput(f"{where}:{refused[0].line}: {refused[0].reason}")
    return batches


def batch_kernels(table: Table) -> tuple[list[Batch], list[RefusedRow]]:
    """All rows of a table that can be used, form by form, and those that cannot."""
    kind = kernel_kind(table)
    if kind is None:
        known = "; ".join(",".join(_needed(kind)) for kind in KINDS)
        raise BadInput(f"{table.where}: the header names no kernels; it must hold one of: {known}")
    if kind == "attention" and table.has("kv_len"):
        raise BadInput(f"{table.where}: isl and kv_len in one table; split it in two")
    wrong: dict[int, str] = {}
    forms: dict[tuple[str, Form], _Members] = defaultdict(_Members)
    words, counts = table.cells(*_WORDS[kind]), table.cells(*_numbers(kind))
    for at, (said, counted) in enumerate(zip(words, counts, strict=True)):
        try:
            found = _kernel(kind, said, counted)
        except BadInput as error:
            wrong[at] = str(error)
            continue
        members = forms[found.kind, found.form]
        members.rows.append(at)
        members.kernel.append(members.kernels.setdefault(found.sizes, len(members.kernels)))
    batches = []
    for (own, form), members in forms.items():
        columns = dict(zip(KINDS[own].columns, np.array(list(members.kernels)).T, strict=True))
        rows = table.take(members.rows)
        batches.append(Batch(own, form, rows, columns, np.array(members.kernel)))
    apart, reasons = table.take(list(wrong)), list(wrong.values())
    refused = [
        RefusedRow(line, apart.distinct[at], reasons[at])
        for line, at in zip(apart.lines.tolist(), apart.at.tolist(), strict=True)
    ]
    return batches, refused


def _numbers(kind: str) -> tuple[str, ...]:
    return () if kind == CALL else tuple(KINDS[kind].columns)


def _kernel(kind: str, said: tuple[Cell, ...], counted: tuple[Cell, ...]) -> Kernel:
    """What a row is: of a call that which it launches, of a product the road that it takes."""
    if kind == CALL:
        found = kernel_of(read_call(*map(str, said)))
    else:
        found = Kernel(kind, _form(kind, said), _sizes(kind, counted))
        if kind == "matmul":
            layout = str(said[_WORDS[kind].index("layout")]).strip().lower()
            found = _laid(found, layout or "nt")
    sides = dict(zip(KINDS[found.kind].columns, found.sizes, strict=True))
    if found.kind not in ("matmul", "product") or found.form.kernel is not None:
        return found
    narrowest = min(sides["loads"] or FULL, sides["stores"] or FULL)
    taken = ROADS[int(road_of(narrowest, found.form.name))]
    return found._replace(form=found.form._replace(road=taken))


def _laid(found: Kernel, layout: str) -> Kernel:
    """A product with the bytes at whose multiples the rows of its operands start.

    nt is a forward, whose operands lie by rows of k; nn the input's gradient, k and n; tn the
    weights', m and n. What is made lies by rows of n.
    """
    if layout not in LAYOUTS:
        raise UnknownName("layout of a product", layout, LAYOUTS)
    sides = dict(zip(KINDS["matmul"].columns, found.sizes, strict=True))
    item = ITEM_BYTES.get(found.form.name, FULL)
    loads = min(float(alignment(sides[side], item)) for side in LAYOUTS[layout])
    stores = float(alignment(sides["n"], item))
    return found._replace(sizes=(*found.sizes[:-2], loads, stores))


@dataclass
class _Members:
    """Distinct rows of one form, and which of its kernels each is."""

    kernels: dict[tuple[float, ...], int] = field(default_factory=dict)
    rows: list[int] = field(default_factory=list)
    kernel: list[int] = field(default_factory=list)


@lru_cache(maxsize=1 << 16)
def _sizes(kind: str, cells: tuple[Cell, ...]) -> tuple[float, ...]:
    """A row's sizes; BadInput where one is none, or they cannot go together."""
    named = zip(KINDS[kind].columns.items(), cells, strict=True)
    sizes = {name: _size(cell, name, usual) for (name, usual), cell in named}
    for holds, why in _rules(sizes):
        if not holds:
            raise BadInput(why)
    return tuple(sizes.values())


def _size(cell: Cell, name: str, usual: float | None) -> float:
    if usual is not None and not str(cell).strip():
        return usual
    try:
        value = number_in(cell)
    except BadInput:
        raise BadInput(f"{name} = {shorten(str(cell).strip())!r} is not a number") from None
    least = (
        0
        if name in ("window", "walked", "causal", "input_bytes", "run", "pieces", "loads", "stores")
        else 1
    )
    if not least <= value < MOST_COUNTED or value != int(value):
        said = shorten(str(cell).strip())
        most = f" and below {MOST_COUNTED:.0e}" if value >= MOST_COUNTED else ""
        raise BadInput(f"{name} = {said!r} must be a whole number of at least {least}{most}")
    return value


def _rules(c: Mapping[str, float]) -> list[tuple[bool, str]]:
    """Numbers that cannot go together."""
    rules: list[tuple[bool, str]] = []
    if "num_kv_heads" in c:
        heads, kv = c["num_heads"], c["num_kv_heads"]
        rules.append((heads % kv == 0, f"num_kv_heads = {kv:g} must divide num_heads = {heads:g}"))
    if "topk" in c:
        experts, topk, ep = c["experts"], c["topk"], c["moe_ep"]
        rules.append((experts <= MOST_EXPERTS, f"experts must be {MOST_EXPERTS:,} at most"))
        rules.append((topk <= experts, f"topk = {topk:g} must be at most experts = {experts:g}"))
        rules.append((experts % ep == 0, f"moe_ep = {ep:g} must divide experts = {experts:g}"))
    return rules


@lru_cache(maxsize=1 << 12)
def _form(kind: str, cells: tuple[Cell, ...]) -> Form:
    """What rows must share to be priced together."""
    words = (str(cell).strip().lower() for cell in cells)
    said = dict(zip(_WORDS[kind], words, strict=True))
    match kind:
        case "collective":
            name = _known(COLLECTIVES, said["op"], "collective")
            return Form(name, library=_library(said["library"], said["kernel"]))
        case "memory":
            name = said["kind"]
            if name == "embedding_backward":
                raise BadInput("the gradient of a table depends on its size, which has no column")
            if name not in MEMORY_KINDS:
                raise UnknownName("memory-bound kernel", name, MEMORY_KINDS)
            dtype = _known(DTYPES, said["dtype"] or "bf16", "dtype")
            return Form(name, wide=dtype == "fp32")
        case "eager":
            name = said["kernel"]
            if name not in _EAGER:
                raise UnknownName("kernel of torch", name, _EAGER)
            return Form(name)
        case "attention" | "attention_decode":
            name = "fp8" if said["kv_dtype"].startswith("fp8") else "bf16"
            if said["attn_dtype"] in ("float32", "fp32"):
                name = "fp32"
            back = said["direction"] == "backward"
            return Form(name, _attention_kernel(said["kernel"]), backward=back)
        case "experts":
            dtype = _known(DTYPES, said["dtype"] or "bf16", "dtype")
            whole = said["kernel"].startswith(_SGLANG)
            return Form(dtype, power=_skew(said["distribution"]), all_copies=whole)
        case _:
            window = _window(said["window"]) if said["input_bytes"] else None
            dtype = _known(DTYPES, said["dtype"] or "bf16", "dtype")
            stored = said["cast"] == "0"
            return Form(dtype, window, not stored and said["cast"] != CAST_APART, stored)


def _attention_kernel(text: str) -> AttentionKernel | None:
    """Whose kernel a row names; of an engine's own only the one that takes any shape is apart."""
    name = text.strip().lower()
    if name.endswith(_FALLBACK):
        return FALLBACK
    return AttentionKernel(name) if name in _NAMED_ATTENTION else None


def _window(text: str) -> ProductKernel | None:
    """Which way a convolution was run; a plain product has no window."""
    name = text.strip().lower()
    if name and name not in _CONVOLUTIONS:
        raise UnknownName("window of a product", name, _CONVOLUTIONS)
    return ProductKernel(name) if name else None


def _skew(distribution: str) -> float:
    """The exponent of a power law of tokens over experts; 0 where they are balanced."""
    if distribution in ("", "balanced", "uniform", "random"):
        return 0.0
    power = distribution.removeprefix("power_law_")
    try:
        value = read_number(power)
    except BadInput:
        value = -1.0
    if power == distribution or not 0.0 < value <= STEEPEST:
        raise BadInput(
            f"distribution = {shorten(distribution)!r} must be balanced, or power_law_ and an "
            f"exponent of at most {STEEPEST:g}, such as power_law_1.2"
        )
    return value


def _known(names: Mapping[str, str], text: str, what: str) -> str:
    if text not in names:
        raise UnknownName(what, text, names)
    return names[text]


def _library(library: str, kernel: str) -> str:
    """NCCL is the usual; serving engines bring all-reduces of their own, launched or captured."""
    if library in ("", "nccl", "rccl", "oneccl"):
        return ""
    return library + ("_eager" if kernel.endswith("eager") else "")
