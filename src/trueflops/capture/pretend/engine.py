"""What autograd's engine does in place when no dispatch mode is active.

Under a dispatch mode torch treats every tensor as a subclass (`isTensorSubclassLike`) and adds
gradients into new memory. Without one it adds in place to a gradient that only its own buffer holds
(torch/csrc/autograd/input_buffer.cpp) and writes into the zeros that a formula has just made
(FunctionsManual.cpp). The recorder, itself a dispatch mode, puts the in-place ops back.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from trueflops.capture.trouble import BETWEEN

_ATEN: Final = torch.ops.aten
_ADD: Final = _ATEN.add.Tensor
_RUNS_BACKWARD: Final = "_engine_run_backward"  # the Python frame that the engine is called from
REPLACED: Final = {
    _ATEN.add.Tensor: _ATEN.add_.Tensor,
    _ATEN.index_put.default: _ATEN.index_put_.default,
    _ATEN.index_add.default: _ATEN.index_add_.default,
    _ATEN.scatter_add.default: _ATEN.scatter_add_.default,
    _ATEN.scatter.src: _ATEN.scatter_.src,
}
"""What the engine does in place: adding to a buffer, and putting elements into zeros just made."""


class Engine:
    """Follows the nodes of a backward pass."""

    def __init__(self) -> None:
        self._node = -1
        self._oldest = 0  # storages with larger numbers were made by the current node
        self._alone = _held_by_a_buffer()

    def follow(self, newest: int) -> None:
        """Note the current node, and the newest storage from before it began."""
        node = torch._C._current_autograd_node()
        number = -1 if node is None else node._sequence_nr()
        if number != self._node:
            self._node, self._oldest = number, newest

    def in_place(self, func: Any, args: tuple[Any, ...], number: int) -> Any:
        """The op that torch would run; `number` is that of the first argument's storage."""
        node = torch._C._current_autograd_node()
        if node is None or torch.is_grad_enabled() or not issued_by_engine():
            return func
        fresh = number > self._oldest
        there = self._accumulates(node, args, fresh=fresh) if func is _ADD else fresh
        return REPLACED[func] if there else func

    def _accumulates(self, node: Any, args: tuple[Any, ...], *, fresh: bool) -> bool:
        """Whether this adds to an input buffer that nobody else holds."""
        if not isinstance(args[1], torch.Tensor) or not _dense(args[0]):
            return False
        # What the node itself has made is added up in its formula, unless it gives two gradients
        # to one and the same input.
        edges = [edge for edge in node.next_functions if edge[0] is not None]
        if fresh and len(set(edges)) == len(edges):
            return False
        return all(now <= then for now, then in zip(_holders(args), self._alone, strict=True))


def _holders(args: tuple[Any, ...]) -> tuple[int, int, int]:
    """Reference counts of the first argument: its tensor, its Python object, its storage."""
    storage = args[0].untyped_storage()
    return (
        args[0]._use_count(),
        sys.getrefcount(args[0]),
        torch._C._storage_Use_Count(storage._cdata),
    )


@cache
def _held_by_a_buffer() -> tuple[int, int, int]:
    """The reference counts of a gradient that only an input buffer holds, from a small graph."""
    found: list[tuple[int, int, int]] = []

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            if func is _ADD and torch._C._current_autograd_node() is not None:
                found.append(_holders(args))
            return func(*args, **(kwargs or {}))

    with Counting(), torch.enable_grad():
        x = torch.ones(2, requires_grad=True) * 2
        (x.exp() * x.sin()).sum().backward()
    return found[0]


def _dense(tensor: torch.Tensor) -> bool:
    """One stretch of memory, in whatever order of dimensions."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def issued_by_engine() -> bool:
    """Whether the engine itself called this op, not Python code of a custom backward or hook."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(BETWEEN):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_name == _RUNS_BACKWARD
