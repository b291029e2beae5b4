"""Rows of a table that are calls of ATen ops, as the kernels that captured programs launch.

A row is lowered as a recorded call is (capture/lower/), so that what was measured and what a
program runs are told apart by the same words. A call that launches several kernels has no law of
its own and is refused: nobody could say which of them took the time.
"""

from __future__ import annotations

from typing import NamedTuple

from trueflops.capture.lower import lower
from trueflops.dtypes import is_of_torch
from trueflops.errors import BadInput, shorten
from trueflops.graph.alignment import FULL
from trueflops.graph.ir import Op
from trueflops.graph.kinds import EAGER_KINDS, PRODUCTS
from trueflops.graph.rules import work
from trueflops.graph.variants import EagerKernel, ProductKernel
from trueflops.interop.kernel_ops import PARTICULAR, Form
from trueflops.records.call_text import read_layouts, read_numbers
from trueflops.records.recording import Call, RecordedTensor

COLUMNS = ("op", "inputs", "outputs", "numbers", "tf32")


class Kernel(NamedTuple):
    """The kind of table that a call's only kernel belongs in, its form and its sizes there."""

    kind: str
    form: Form
    sizes: tuple[float, ...]


def read_call(op: str, inputs: str, outputs: str, numbers: str, tf32: str = "") -> Call:
    """The call that a row's cells spell."""
    try:
        given = [*enumerate(read_layouts(inputs), 1)]
        made = [*enumerate(read_layouts(outputs), 1 + len(given))]
        arrays = [
            tuple(RecordedTensor(i, shape, strides, dtype) for i, (dtype, shape, strides) in each)
            for each in (given, made)
        ]
        words = read_numbers(numbers)
    except ValueError as error:
        raise BadInput(f"{shorten(op)}: {error}") from None
    for array in (*arrays[0], *arrays[1]):
        if not is_of_torch(array.dtype):
            raise BadInput(f"{shorten(op)}: torch has no type {shorten(array.dtype)!r}")
    if op.count(".") < 1:
        raise BadInput(f"op = {shorten(op)!r}: write it as torch does, aten.mm.default")
    flag = tf32.strip() not in ("", "0")
    return Call(op, arrays[0], arrays[1], words, "forward", "", 0, -1, tf32=flag)


def kernel_of(call: Call) -> Kernel:
    """The kernel that a call launches; BadInput where that is none, or several."""
    try:
        ops = lower(call)
    except (ValueError, IndexError, TypeError, ZeroDivisionError, StopIteration) as error:
        raise BadInput(f"{call.op}: its arguments are not those of such a call") from error
    if len(ops) != 1:
        raise BadInput(f"{call.op} launches {len(ops)} kinds of kernel: only one can be a row")
    (op,) = ops
    if op.kind in EAGER_KINDS:
        return _eager(op)
    if op.kind in PRODUCTS:
        return _product(op)
    raise BadInput(f"{call.op}: {op.kind} has a table of its own")


def _eager(op: Op) -> Kernel:
    done, said = work(op), op.facts
    variant = op.variant if isinstance(op.variant, EagerKernel) else EagerKernel.VECTOR
    moved = done.bytes_read + done.bytes_written
    usual = ("indexed", 0.0), ("launches", 1.0), ("run", 0.0), ("pieces", 0.0), ("loads", FULL)
    sizes = (moved, *(said.get(name, value) for name, value in usual))
    return Kernel("eager", Form(variant), tuple(map(float, sizes)))


def _product(op: Op) -> Kernel:
    done = work(op)
    others = done.activation_bytes + done.bytes_written
    weights = done.bytes_read + done.bytes_written - others
    variant = op.variant if isinstance(op.variant, ProductKernel) else None
    sizes = (*done.shape, weights, done.activation_bytes, done.bytes_written)
    particular = tuple(op.facts.get(name, usual) for name, usual in PARTICULAR.items())
    return Kernel(
        "product", Form(op.dtype, variant, cast=False), tuple(map(float, (*sizes, *particular)))
    )
