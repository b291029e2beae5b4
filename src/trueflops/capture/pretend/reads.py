"""Ways in which a program looks at the numbers of a tensor, answered for ghosts.

What is known is told; a float that is only logged may be anything; what decides something is an
error that names the line. These methods are C functions: they are met as torch functions
(doors.py), before they reach for memory that is not there.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

import torch

from trueflops.capture.pretend.numbers import read_number
from trueflops.capture.recorder import Recorder
from trueflops.capture.trouble import decides, passes, unknown_value, where

Read = Callable[..., Any]
_KEPT: Final = "keep the numbers in tensors, or leave it out of the step"


def reads(recorder: Recorder) -> dict[Any, Read]:
    """The answers by function of torch."""
    tensor = torch.Tensor

    def known(ghost: torch.Tensor) -> torch.Tensor | None:
        """Its numbers, for which the host waits."""
        recorder.waits(-1, -1, len(recorder.recording.events))
        return recorder.values.of(ghost)

    def answering(what: str, real: Read, instead: str = "") -> Read:
        def read(ghost: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            value = known(ghost)
            if value is None:
                raise unknown_value(what, instead)
            return real(value, *args, **kwargs)

        return read

    def as_bool(ghost: torch.Tensor) -> bool:
        value = known(ghost)
        if value is not None:
            return bool(value)
        answer = passes()
        if answer is None:
            raise unknown_value("a branch on a tensor")
        recorder.warn(f"the check{where()} is taken for passed: nobody knows the value")
        return answer

    def as_float(ghost: torch.Tensor) -> float:
        value = known(ghost)
        if value is not None:
            return float(value)
        if decides():
            raise unknown_value("float() of a tensor")
        recorder.warn(f"float(){where()} is taken for 1.0: nobody knows the value")
        return float(read_number(ghost))

    def select(ghost: torch.Tensor, index: Any, *args: Any) -> Any:
        """A number of a tensor as index: which part is taken does not change its shape."""
        many = isinstance(index, tuple)
        plain = [_position(i, known) for i in (index if many else (index,))]
        real = torch.Tensor.__setitem__ if args else torch.Tensor.__getitem__
        return real(ghost, tuple(plain) if many else plain[0], *args)

    return {
        tensor.__bool__: as_bool,
        tensor.__int__: answering("int() of a tensor", int),
        tensor.__index__: answering("a tensor as an index or a count", int),
        tensor.__complex__: answering("complex() of a tensor", complex),
        tensor.__float__: as_float,
        tensor.numpy: answering(".numpy()", tensor.numpy, _KEPT),
        tensor.__array__: answering("a numpy array of a tensor", tensor.__array__, _KEPT),
        tensor.__contains__: answering("`in` of a tensor", torch.Tensor.__contains__),
        tensor.__getitem__: select,
        tensor.__setitem__: select,
        tensor.__deepcopy__: _deepcopy,
        tensor.__repr__: _shown,
        tensor.data_ptr: _address,
    }


def _position(index: Any, known: Callable[[torch.Tensor], torch.Tensor | None]) -> Any:
    scalar = isinstance(index, torch.Tensor) and index.dim() == 0 and not index.is_floating_point()
    if not scalar or index.dtype == torch.bool:
        return index
    value = known(index)
    return 0 if value is None else int(value)


def _deepcopy(ghost: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    """As torch does it, but for the copy of a storage that has no memory."""
    if id(ghost) in memo:
        made: torch.Tensor = memo[id(ghost)]
        return made
    if not ghost.is_leaf:
        raise RuntimeError("only leaf tensors can be copied with deepcopy")
    with torch.no_grad():
        made = ghost.clone()
    made.requires_grad_(ghost.requires_grad)
    if ghost.grad is not None:
        made.grad = copy.deepcopy(ghost.grad, memo)
    memo[id(ghost)] = made
    return made


def _shown(ghost: torch.Tensor, **_: Any) -> str:
    return f"tensor(..., size={tuple(ghost.shape)}, dtype={ghost.dtype}, device='{ghost.device}')"


def _address(ghost: torch.Tensor) -> int:
    """No two storages have the same: programs look for shared weights by it."""
    return int(ghost.untyped_storage()._cdata + ghost.storage_offset() * ghost.element_size())
