"""Calls of ATen ops, timed one by one: what a program launches that is not compiled.

A case makes a launch with operands of its own. It is run once under a dispatch mode, which tells
the ATen op behind it, with types, shapes and strides: these are the row's cells, and whoever fits
the row reads them as captured programs are read.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trueflops.measure.device import Device
from trueflops.measure.job import Job
from trueflops.measure.products import has_tf32
from trueflops.measure.timing import copies_of, time_launch
from trueflops.records.call_text import Layout, write_layouts, write_numbers
from trueflops.records.measured import Row

TABLE: Final = "call"
_QUIET: Final = ("aten::empty", "aten::detach", "aten::_unsafe_view", "aten::record_stream")


class Case(NamedTuple):
    """A family of kernels, and how a launch of it is made; each has operands of its own."""

    family: str
    make: Callable[[Device], Callable[[], Any]]


class _Listener(TorchDispatchMode):
    """Writes down what runs and launches something."""

    def __init__(self, *, has_tf32: bool) -> None:
        super().__init__()
        self.has_tf32 = has_tf32
        self.cells: list[Row] = []
        self.moved_bytes = 0.0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        words = (*args, *(kwargs or {}).values())
        given = _flat(words)
        layouts = [_layout(t) for t in given]  # before an op changes them in place
        made = func(*args, **(kwargs or {}))
        if func.is_view or func._schema.name.startswith(_QUIET):
            return made
        results = _flat(made)
        numbers = [w for w in words if isinstance(w, (int, float, str, list, tuple))]
        self.cells.append({
            "op": str(func),
            "inputs": write_layouts(layouts),
            "outputs": write_layouts(map(_layout, results)),
            "numbers": write_numbers(n for n in numbers if not _flat((n,))),
            "tf32": int(self.has_tf32 and _allows_tf32(str(func))),
        })  # fmt: skip
        self.moved_bytes += sum(t.nbytes for t in (*given, *results))
        return made


def _allows_tf32(op: str) -> bool:
    """Whether torch lets an op on fp32 multiply in tf32: convolutions by default, products not."""
    if "convolution" in op or "cudnn_rnn" in op:
        return bool(torch.backends.cudnn.allow_tf32)
    return bool(torch.backends.cuda.matmul.allow_tf32)


def _layout(tensor: torch.Tensor) -> Layout:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return Layout(dtype, tuple(tensor.shape), tuple(tensor.stride()))


def _flat(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def call_jobs(device: Device, cases: Iterable[Case]) -> Iterator[Job]:
    """All cases in a fixed random order, each family met early."""
    waiting = list(cases)
    random.Random("calls").shuffle(waiting)
    met: dict[str, Case] = {}
    for case in waiting:
        met.setdefault(case.family, case)
    first = list(met.values())
    for case in (*first, *(case for case in waiting if met[case.family] is not case)):
        job = _job(device, case)
        if job is not None:
            yield job


def _job(device: Device, case: Case) -> Job | None:
    """The row of a case; None where it is no single call, or this device has no such kernel.

    Or no room for its operands: the case is left out, as others of its family are smaller.
    """
    listener = _Listener(has_tf32=has_tf32(device))
    if device.kind == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = False  # torch's default, which products.py changes
    try:
        launch = case.make(device)
        with listener:
            made = launch()
        taken = _taken_meanwhile(device, launch)
    except (RuntimeError, NotImplementedError, TypeError, AttributeError):
        return None
    if len(listener.cells) != 1:
        return None
    moved = listener.moved_bytes
    workspace = max(0.0, taken - sum(t.nbytes for t in _flat(made)))
    del launch, made

    def measure() -> dict[str, float]:
        copies = 1 if device.is_cpu else copies_of(moved / 2, device, least=1, most=24)
        launches = [case.make(device) for _ in range(copies)]
        timed = time_launch(device, lambda i: launches[i](), copies).cells()
        return {**timed, **({"workspace_bytes": workspace} if workspace else {})}

    return Job(TABLE, {"family": case.family, **listener.cells[0]}, measure)


def _taken_meanwhile(device: Device, launch: Callable[[], Any]) -> float:
    """Bytes that a call takes at most, its results among them."""
    if device.kind != "cuda":
        return 0.0
    torch.cuda.reset_peak_memory_stats(device.at)
    before = torch.cuda.memory_allocated(device.at)
    launch()
    return float(torch.cuda.max_memory_allocated(device.at) - before)


def backward(case: Case) -> Case:
    """The gradient of what a case launches, whose operands must ask for it."""

    def make(device: Device) -> Callable[[], Any]:
        launch = case.make(device)
        made = launch()
        out = made[0] if isinstance(made, tuple) else made
        wanted = [t for t in _leaves(out) if t.requires_grad]
        grad = torch.empty_like(out).copy_(device.normal(*out.shape, dtype=out.dtype))
        return lambda: torch.autograd.grad(out, wanted, grad, retain_graph=True)

    return Case(f"{case.family} backward", make)


def _leaves(out: torch.Tensor) -> list[torch.Tensor]:
    """The tensors whose gradients a result's own node gives."""
    node = out.grad_fn
    found = [] if node is None else [next_node for next_node, _ in node.next_functions]
    return [n.variable for n in found if n is not None and hasattr(n, "variable")]
