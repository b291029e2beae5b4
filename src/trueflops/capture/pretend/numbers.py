"""Numbers that a program reads from tensors without data.

A loss that is printed or averaged is fine; one that decides a branch is not. So `.item()` of a fake
tensor gives a number that can be calculated with and refuses to be compared.
"""

from __future__ import annotations

from typing import Any

import torch

from trueflops.capture.assumed import assumptions
from trueflops.capture.trouble import (
    asked_by_optimizer,
    asks_whether_unequal,
    decides,
    lines,
    passes,
    unknown_value,
)
from trueflops.language import mark


class UnknownNumber(float):
    """A float whose value is not known."""

    def _combined(self, *_: Any) -> UnknownNumber:
        return UnknownNumber(1.0)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _combined
    __truediv__ = __rtruediv__ = __pow__ = __rpow__ = __neg__ = __abs__ = _combined
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pos__ = _combined

    def __bool__(self) -> bool:
        return assumed_truth(mark("a branch on .item()"))

    def _compared(self, other: object) -> bool:
        if asked_by_optimizer():
            return True
        answer = passes()
        return assumed_truth(mark("comparing .item()")) if answer is None else answer

    def _equal(self, other: object) -> bool:
        """Lists that are compared by != ask their elements whether they are equal."""
        return self._compared(other) is not asks_whether_unequal()

    __lt__ = __le__ = __gt__ = __ge__ = _compared
    __eq__ = _equal
    __ne__ = _compared
    __hash__ = float.__hash__

    def __int__(self) -> int:
        return int(assumed_number(mark("int() of .item()")))

    __index__ = __trunc__ = __floor__ = __ceil__ = __int__

    def __float__(self) -> float:
        if decides():
            raise unknown_value(mark("comparing .item()"))
        return 1.0

    def __round__(self, digits: int | None = None) -> UnknownNumber:  # type: ignore[override]
        return self


def read_number(tensor: torch.Tensor) -> Any:
    """What `.item()` of a tensor without data returns."""
    if tensor.numel() != 1:
        return torch._C.TensorBase.item(tensor)  # torch's own error
    given = assumptions().at(lines())  # a truth is that of a comparison on the same line
    return UnknownNumber(1.0) if given is None or isinstance(given, (bool, list)) else given


def assumed_truth(what: str) -> bool:
    """Which way a branch goes, as the user says; else the error that asks for it."""
    given = assumptions().at(lines())
    if given is None or isinstance(given, list):
        raise unknown_value(what, give="true")
    return bool(given)


def assumed_number(what: str) -> int | float:
    """A number, as the user says; else the error that asks for it."""
    given = assumptions().at(lines())
    if given is None or isinstance(given, list):
        raise unknown_value(what, give="NUMBER")
    return given
