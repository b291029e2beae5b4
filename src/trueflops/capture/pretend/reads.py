"""Ways in which a program reads the values of a tensor, answered for fake tensors.

A value that is known is returned; a float that is only logged may be anything; one that decides a
branch is an error that names the line. These methods are C functions: overrides.py intercepts them
as torch functions, before they touch memory that is not there.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

import torch

from trueflops.capture.pretend.numbers import assumed_number, assumed_truth, read_number
from trueflops.capture.recorder import Recorder
from trueflops.capture.trouble import decides, passes, unknown_value, where
from trueflops.language import mark, say

Read = Callable[..., Any]
_KEPT: Final = mark("keep the numbers in tensors, or leave it out of the step")


def reads(recorder: Recorder) -> dict[Any, Read]:
    """The answers by function of torch."""
    tensor = torch.Tensor

    def known(fake: torch.Tensor) -> torch.Tensor | None:
        """Its values, if they are known; reading them makes the host wait."""
        recorder.waits(-1, -1, recorder.now)
        recorder.tell_assumed()
        return recorder.values.of(fake)

    def answering(what: str, real: Read, instead: str = "") -> Read:
        def read(fake: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            value = known(fake)
            if value is None:
                raise unknown_value(what, instead)
            return real(value, *args, **kwargs)

        return read

    def counted(what: str) -> Read:
        def read(fake: torch.Tensor) -> int:
            value = known(fake)
            return int(assumed_number(what) if value is None else value)

        return read

    def contains(fake: torch.Tensor, element: Any) -> bool:
        value = known((element == fake).any())
        return assumed_truth(mark("`in` of a tensor")) if value is None else bool(value)

    def as_bool(fake: torch.Tensor) -> bool:
        value = known(fake)
        if value is not None:
            return bool(value)
        answer = passes()
        if answer is None:
            return assumed_truth(mark("a branch on a tensor"))
        recorder.warn(say("the check{at} is taken for passed: nobody knows the value", at=where()))
        return answer

    def as_float(fake: torch.Tensor) -> float:
        value = known(fake)
        if value is not None:
            return float(value)
        if decides():
            return float(assumed_number(mark("float() of a tensor")))
        recorder.warn(say("float(){at} is taken for 1.0: nobody knows the value", at=where()))
        return float(read_number(fake))

    def select(fake: torch.Tensor, index: Any, *args: Any) -> Any:
        """Index with a scalar tensor: which element it names does not change the result's shape."""
        if isinstance(index, (int, slice)) and not args:
            return torch.Tensor.__getitem__(fake, index)
        many = isinstance(index, tuple)
        plain = [_position(i, known) for i in (index if many else (index,))]
        real = torch.Tensor.__setitem__ if args else torch.Tensor.__getitem__
        return real(fake, tuple(plain) if many else plain[0], *args)

    return {
        tensor.__bool__: as_bool,
        tensor.__int__: counted(mark("int() of a tensor")),
        tensor.__index__: counted(mark("a tensor as an index or a count")),
        tensor.__complex__: answering(mark("complex() of a tensor"), complex),
        tensor.__float__: as_float,
        tensor.numpy: answering(".numpy()", tensor.numpy, _KEPT),
        tensor.__array__: answering(mark("a numpy array of a tensor"), tensor.__array__, _KEPT),
        tensor.__contains__: contains,
        tensor.__getitem__: select,
        tensor.__setitem__: select,
        tensor.__deepcopy__: _deepcopy,
        tensor.__repr__: _text_of,
        tensor.data_ptr: _address,
    }


def _position(index: Any, known: Callable[[torch.Tensor], torch.Tensor | None]) -> Any:
    scalar = isinstance(index, torch.Tensor) and index.dim() == 0 and not index.is_floating_point()
    if not scalar or index.dtype == torch.bool:
        return index
    value = known(index)
    return 0 if value is None else int(value)


def _deepcopy(fake: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    """As torch does it, except that the storage, which has no memory, is not copied."""
    if id(fake) in memo:
        made: torch.Tensor = memo[id(fake)]
        return made
    if not fake.is_leaf:
        raise RuntimeError("only leaf tensors can be copied with deepcopy")
    with torch.no_grad():
        made = fake.clone()
    made.requires_grad_(fake.requires_grad)
    if fake.grad is not None:
        made.grad = copy.deepcopy(fake.grad, memo)
    memo[id(fake)] = made
    return made


def _text_of(fake: torch.Tensor, **_: Any) -> str:
    return f"tensor(..., size={tuple(fake.shape)}, dtype={fake.dtype}, device='{fake.device}')"


def _address(fake: torch.Tensor) -> int:
    """An address that no other storage has: programs find shared weights by it."""
    return int(fake.untyped_storage()._cdata + fake.storage_offset() * fake.element_size())
