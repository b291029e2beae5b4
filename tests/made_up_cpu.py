"""A CPU made of arithmetic: every ATen op takes what a roofline says, and no clock is asked.

It runs what torch runs, so that a measurement goes through all its own code, but its seconds are
counted and not waited for: the same on a busy machine and on a quiet one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

FLOP_PER_SECOND: Final = 2e10
BYTES_PER_SECOND: Final = 8e9
TILE: Final = 64  # products are padded to so many rows and columns
ATTENTION: Final = 0.4  # of the peak: between its products are exponentials
LAUNCH_SECONDS: Final = 10e-6  # of an op that does nothing
IDENTITY: Final = {
    "kind": "cpu", "name": "a made-up CPU", "uuid": "made-up", "memory_bytes": 8 * 2**30,
    "units": 2, "l2_bytes": 2**20, "capability": "arithmetic",
}  # fmt: skip
Make = Callable[[Any, Any], Any]  # from the arguments of an op, its result
_FREE: Final = ("empty", "empty_like", "empty_strided", "new_empty", "detach", "_unsafe_view")
_OVERWRITE: Final = ("copy_", "fill_", "zero_")  # what was there is not read
_LOOKUPS: Final = ("embedding", "index_add_", "embedding_dense_backward")  # of the table, few rows


class MadeUpCPU(TorchDispatchMode):
    """While it is entered, its clock goes on by what each op would take."""

    def __init__(self, speed: float = 1.0) -> None:
        super().__init__()
        self.speed = speed
        self.now = 0.0
        self._known: dict[Any, tuple[float, Make]] = {}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        key = (func, *map(_signature, tree_leaves((args, given))))
        known = self._known.get(key)
        if known is not None:  # the same again: its time is known, and nobody reads its numbers
            self.now += known[0]
            return known[1](args, given)
        made = func(*args, **given)
        seconds = seconds_of(func, args, given, made) / self.speed
        self.now += seconds
        again = _maker(func, made)
        if again is not None:
            self._known[key] = (seconds, again)
        return made

    def sleep(self, seconds: float) -> None:
        """Nothing runs for so long."""
        self.now += seconds


def seconds_of(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], made: Any) -> float:
    """The roofline of one op (Williams et al. 2009), and a launch before it."""
    name = func.overloadpacket.__name__
    if func.is_view or name in _FREE:
        return 0.0
    inputs = _tensors((args, {key: value for key, value in kwargs.items() if key != "out"}))
    read = {t.data_ptr(): t.nbytes for t in (inputs[1:] if name in _OVERWRITE else inputs)}
    written = {t.data_ptr(): t.nbytes for t in _tensors(made)}
    moved = sum(read.values()) + sum(written.values())
    if name in _LOOKUPS:
        moved = 2 * min(t.nbytes for t in (*inputs, *_tensors(made)) if t.is_floating_point())
    flop = _flop(name, args, kwargs, made)
    return LAUNCH_SECONDS + max(flop / FLOP_PER_SECOND, moved / BYTES_PER_SECOND)


def _flop(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], made: Any) -> float:
    """What is computed, the padding of tiles included."""
    if name in ("mm", "addmm", "bmm", "baddbmm"):
        a, b = (t.shape for t in args[-2:])
        return (a[0] if len(a) == 3 else 1) * _product(a[-2], b[-1], a[-1])
    if name in ("convolution", "convolution_backward"):
        back = "backward" in name
        weight, out = args[2 if back else 1], args[0] if back else made
        outputs = len(weight)
        places, inner = out.numel() / outputs, weight.numel() / outputs
        if not back:
            return _product(places, outputs, inner)
        gradients = (_product(places, inner, outputs), _product(outputs, inner, places))
        return sum(each for each, asked in zip(gradients, args[10], strict=False) if asked)
    if name.startswith("_scaled_dot_product"):
        back = "backward" in name
        q, k = args[1:3] if back else args[:2]
        causal = 7 if back else 4
        half = args[causal] if len(args) > causal else kwargs.get("is_causal", False)
        pairs = q.numel() // q.shape[-1] * k.shape[-2] * (0.5 if half else 1.0)
        return float(pairs * 4 * q.shape[-1] * (2.5 if back else 1.0) / ATTENTION)
    return 0.0


def _product(m: float, n: float, k: float) -> float:
    return 2.0 * k * math.ceil(m / TILE) * TILE * math.ceil(n / TILE) * TILE


def _signature(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.shape, leaf.stride(), leaf.dtype
    return leaf if isinstance(leaf, (int, float, bool, str, torch.dtype)) else str(leaf)


def _maker(func: Any, made: Any) -> Make | None:
    """What stands for the result of an op without computing it; None for what must be computed.

    That is small results and whole numbers: a program may look at them, or look up with them.
    """
    large = all(t.is_floating_point() and t.numel() > 256 for t in _tensors(made))
    if func.is_view or not large:
        return None
    if func._schema.is_mutable:
        return lambda args, kwargs: kwargs.get("out", args[0]) if made is not None else None
    leaves, shape = tree_flatten(made)
    if not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
        return None
    like = [(t.shape, t.stride(), t.dtype) for t in leaves]

    def make(args: Any, kwargs: Any) -> Any:
        new = [torch.empty_strided(size, stride, dtype=kind) for size, stride, kind in like]
        return tree_unflatten(new, shape)

    return make


def _tensors(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


@contextmanager
def in_place_of_this_one(speed: float = 1.0) -> Iterator[MadeUpCPU]:
    """Here `trueflops measure --device cpu` finds the made-up CPU, and its time."""
    from trueflops.measure import device, kernels, power, run, sections, stopping, streams, timing

    cpu = MadeUpCPU(speed)
    clock = SimpleNamespace(
        monotonic=lambda: cpu.now, perf_counter=lambda: cpu.now, sleep=cpu.sleep
    )
    with pytest.MonkeyPatch.context() as patch, cpu:
        for module in (kernels, power, run, timing):
            patch.setattr(module, "time", clock)
        patch.setattr(device, "_cpu_identity", lambda: dict(IDENTITY))
        patch.setattr(streams, "cache_bytes", lambda: IDENTITY["l2_bytes"])
        patch.setattr(sections, "numa_jobs", list)  # they run in processes of their own
        patch.setattr(stopping, "listen", lambda: None)  # signals are for whoever runs the tests
        yield cpu
