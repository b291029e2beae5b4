"""Tables of kernels as CSV: each row becomes ops of the IR, many rows at once.

The header decides what a row is:
    m, n, k                                             a matmul  y[m,n] = x[m,k]·W[n,k]ᵀ
    num_heads, num_kv_heads, head_dim, batch, isl       causal attention over a prompt
    num_heads, num_kv_heads, head_dim, batch, kv_len    one new token per sequence
    num_tokens, hidden, inter, topk, experts            one layer of experts (moe_tp, moe_ep)
    op, gpus, bytes                                     a collective, bytes as in nccl-tests
    kind, rows, columns                                 a memory-bound kernel
    kernel, bytes[, walked, launches]                   a kernel of eager torch
`dtype` names the number format. Optional: `window` limits attention, `direction` backward asks
for its gradient, `causal` 0 lets every query see all keys, `copies` sets of weights rotate (6
unless said), `cast` 0 says that narrow inputs were stored narrow, `distribution` skews the
routing, `input_bytes` and `window` make a product a convolution. Other columns are ignored.
Rows of one format are one Batch whose sizes are arrays: the clock prices them in one call.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueflops.clock.eager import KINDS as EAGER_KINDS
from trueflops.clock.works import FALLBACK
from trueflops.errors import BadInput, UnknownName, shorten
from trueflops.graph.ir import Collective, Op
from trueflops.interop.kernel_ops import COLLECTIVES, DTYPES, KINDS, MEMORY_KINDS, Columns, Form
from trueflops.interop.tables import Row, Table, read_table

LARGEST: Final = 10**15  # no size in a kernel table is larger
_FALLBACK: Final = ("triton_attn", FALLBACK)  # as tables call the kernel that takes any shape
_SAID: Final = {
    "collective": ("op",),
    "memory": ("kind",),
    "eager": ("kernel",),
}  # columns that hold words


@dataclass(frozen=True)
class Batch:
    """Rows of one kind and form: their ops (run one after another), and where they stood."""

    kind: str
    form: Form
    lines: tuple[int, ...]
    ops: tuple[Op, ...]
    collective: Collective | None
    rows: tuple[Row, ...]


class RefusedRow(NamedTuple):
    """A row that cannot be used, and why."""

    line: int
    row: Row
    reason: str


def kernel_kind(table: Table) -> str | None:
    """What kind of kernels a table holds, by its header."""
    for kind, (columns, _) in KINDS.items():
        needed = [*_SAID.get(kind, ()), *(name for name, usual in columns.items() if usual is None)]
        if table.has(*needed):
            return kind
    return None


def read_kernels(path: Path) -> list[Batch]:
    """Read a table of which every row must be usable: the first that is not is an error."""
    batches, refused = batch_kernels(read_table(path))
    if refused:
        raise BadInput(f"{path}:{refused[0].line}: {refused[0].reason}")
    return batches


def batch_kernels(table: Table) -> tuple[list[Batch], list[RefusedRow]]:
    """All rows of a table that can be used, form by form, and those that cannot."""
    kind = kernel_kind(table)
    if kind is None:
        known = "; ".join(
            ",".join([*_SAID.get(k, ()), *(n for n, d in columns.items() if d is None)])
            for k, (columns, _) in KINDS.items()
        )
        raise BadInput(f"{table.where}: the header names no kernels; it must hold one of: {known}")
    if kind == "attention" and table.has("kv_len"):
        raise BadInput(f"{table.where}: isl and kv_len in one table; split it in two")
    refused: list[RefusedRow] = []
    forms: dict[Form, list[tuple[int, Row, list[float]]]] = defaultdict(list)
    for line, row in table.rows:
        try:
            numbers = [_number(row, name, usual) for name, usual in KINDS[kind].columns.items()]
            forms[_form(kind, row)].append((line, row, numbers))
        except BadInput as error:
            refused.append(RefusedRow(line, row, str(error)))
    batches = []
    for form, members in forms.items():
        matrix = np.array([numbers for _, _, numbers in members])
        columns = dict(zip(KINDS[kind].columns, matrix.T, strict=True))
        fine = np.ones(len(members), bool)
        for holds, why in _rules(columns):
            refused += [
                RefusedRow(members[i][0], members[i][1], why) for i in np.flatnonzero(fine & ~holds)
            ]
            fine &= holds
        kept = np.flatnonzero(fine)
        if not kept.size:
            continue
        ops, collective = KINDS[kind].build({n: a[kept] for n, a in columns.items()}, form)
        lines, rows = (tuple(members[i][at] for i in kept) for at in (0, 1))
        batches.append(Batch(kind, form, lines, ops, collective, rows))  # type: ignore[arg-type]
    return batches, sorted(refused, key=lambda r: r.line)


def _rules(c: Columns) -> list[tuple[NDArray[np.bool_], str]]:
    """Numbers that cannot go together, row by row."""
    rules: list[tuple[NDArray[np.bool_], str]] = []
    if "num_kv_heads" in c:
        rules.append(
            (c["num_heads"] % c["num_kv_heads"] == 0, "num_kv_heads must divide num_heads")
        )
    if "topk" in c:
        rules.append((c["topk"] <= c["experts"], "topk is larger than experts"))
        rules.append((c["experts"] % c["moe_ep"] == 0, "moe_ep must divide experts"))
    return rules


def _form(kind: str, row: Row) -> Form:
    """What rows must share to be priced together."""
    match kind:
        case "collective":
            name = _known(COLLECTIVES, row["op"], "collective")
            return Form(name, _library(row.get("library", ""), row.get("kernel", "")))
        case "memory":
            name = row["kind"].strip().lower()
            if name == "embedding_backward":
                raise BadInput("the gradient of a table depends on its size, which has no column")
            if name not in MEMORY_KINDS:
                raise UnknownName("memory-bound kernel", name, MEMORY_KINDS)
            dtype = _known(DTYPES, row.get("dtype") or "bf16", "dtype")
            return Form(name, "fp32" if dtype == "fp32" else "")
        case "eager":
            name = row["kernel"].strip().lower()
            if name not in EAGER_KINDS:
                raise UnknownName("kernel of torch", name, EAGER_KINDS)
            return Form(name)
        case "attention" | "attention_decode":
            name = "fp8" if row.get("kv_dtype", "").strip().lower().startswith("fp8") else "bf16"
            if row.get("attn_dtype", "").strip().lower() in ("float32", "fp32"):
                name = "fp32"
            kernel = row.get("kernel", "").strip().lower()
            variant = kernel if kernel in ("fa2", "cudnn", "cudnn_masked") else ""
            if kernel.endswith(_FALLBACK):
                variant = FALLBACK
            back = row.get("direction", "").strip().lower() == "backward"
            return Form(name, f"{variant} backward" if back else variant)
        case "experts":
            skew = re.search(r"power_law_([\d.]+)", row.get("distribution", ""))
            return Form(
                _known(DTYPES, row.get("dtype") or "bf16", "dtype"), skew[1] if skew else ""
            )
        case _:
            cast = row.get("cast", "").strip() != "0"
            window = row.get("window", "").strip() if "input_bytes" in row else ""
            return Form(_known(DTYPES, row.get("dtype") or "bf16", "dtype"), window, cast=cast)


def _known(names: Mapping[str, str], text: str, what: str) -> str:
    name = text.strip().lower()
    if name not in names:
        raise UnknownName(what, name, names)
    return names[name]


def _library(library: str, kernel: str) -> str:
    """NCCL is the usual; serving engines bring all-reduces of their own, launched or captured."""
    library = library.strip().lower()
    if library in ("", "nccl", "rccl", "oneccl"):
        return ""
    return library + ("_eager" if kernel.strip().lower().endswith("eager") else "")


def _number(row: Row, name: str, usual: float | None) -> float:
    text = row.get(name, "").strip()
    if not text and usual is not None:
        return usual
    try:
        value = float(text)
    except ValueError:
        raise BadInput(f"{name} = {shorten(text)!r} is not a number") from None
    least = 0 if name in ("window", "walked", "causal", "input_bytes") else 1
    if not least <= value < LARGEST or value != int(value):
        raise BadInput(f"{name} = {shorten(text)!r} must be a whole number of at least {least}")
    return value
