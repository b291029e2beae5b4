"""Kernels of a captured step, alike ones together: what costs most, and which limit each meets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from trueflops.capture.lower import base_name
from trueflops.clock import Clock
from trueflops.dtypes import short_name
from trueflops.predict.captured.prices import Kernel
from trueflops.predict.captured.step import Ran
from trueflops.predict.kernels import price_kernels
from trueflops.records.recording import Call, RecordedTensor
from trueflops.runtime.terms import Estimate

SHAPES: Final = 3  # operands that a label names


@dataclass
class KernelGroup:
    """Calls of one op on operands of one shape."""

    label: str
    cause: str
    count: int
    seconds: float
    flop: float
    moved_bytes: float
    error: float
    first: Kernel

    @property
    def estimate(self) -> Estimate:
        """Of all of them."""
        return Estimate(self.seconds, {self.first.curve: self.error}, "derived")

    @property
    def intensity(self) -> float:
        """Flop per byte."""
        return self.flop / self.moved_bytes if self.moved_bytes else 0.0


def group_kernels(ran: Iterable[Ran]) -> list[KernelGroup]:
    """The costliest first."""
    found: dict[tuple[str, str], KernelGroup] = {}
    for each in ran:
        kernel, taken = each.kernel, each.end - each.start
        moved = float(kernel.work.bytes_read + kernel.work.bytes_written)
        key = (label_of(kernel.call), kernel.cause)
        group = found.get(key)
        if group is None:
            found[key] = KernelGroup(
                key[0], kernel.cause, 1, taken, float(kernel.work.flop), moved, kernel.error, kernel
            )
            continue
        group.count += 1
        group.seconds += taken
        group.flop += float(kernel.work.flop)
        group.moved_bytes += moved
    return sorted(found.values(), key=lambda g: -g.seconds)


def bound_of(group: KernelGroup, clock: Clock) -> str:
    """What its first kernel is limited by: compute, memory, serial, start or links."""
    if group.first.op is None:
        return "links"
    if group.first.cause == "host copy":
        return "host link"
    return price_kernels(clock, [group.first.op], None, 1).bound[0]


def alike_layers(module: str) -> str:
    """`model.layers.7.mlp.up_proj` -> `model.layers.*.mlp.up_proj`."""
    return ".".join("*" if part.isdigit() else part for part in module.split("."))


def label_of(call: Call) -> str:
    """`mm bf16 [8192,2048]·[2048,8192]`; lists of tensors by their number."""
    name = base_name(call.op).strip("_")
    if "attention" in name:
        kernel = next((k for k in ("cudnn", "flash", "efficient") if k in name), "")
        name = f"attention{' backward' if 'backward' in name else ''} {kernel}".strip()
    operands = call.inputs or call.outputs
    if not operands:
        return name
    dtype = short_name(operands[0].dtype)
    if name.startswith(("foreach", "fused")):
        return f"{name} {dtype}, {len(operands):,} tensors"
    return f"{name} {dtype} {shapes_of(operands)}"


def shapes_of(operands: Sequence[RecordedTensor]) -> str:
    """`8192×2048 2048×8192`: of the first operands that have any."""
    sizes = [a for a in operands if a.shape][:SHAPES]
    return " ".join("×".join(map(str, a.shape)) for a in sizes)
