"""Small tensors of the accelerator whose numbers are known without any data.

Positions, masks and counters follow from shapes alone, and programs look at them: Hugging Face
asks on every step whether positions are packed. Such a ghost carries its real numbers along, until
something unknown is written into its storage.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from trueflops.capture.ghosts import home_of
from trueflops.capture.schema import Manner

MOST: Final = 65536
"""Elements of the largest tensor whose numbers are carried along."""
_OVERWRITTEN: Final = "_trueflops_overwritten"  # set on a storage
_FINITE: Final = torch.ops.aten._amp_foreach_non_finite_check_and_unscale_.default


class Values:
    """The real numbers behind ghosts."""

    def of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The numbers of a tensor, if they are known."""
        if home_of(tensor) is None:
            return tensor
        behind: torch.Tensor | None = getattr(tensor, "_behind", None)
        if behind is None or getattr(tensor.untyped_storage(), _OVERWRITTEN, False):
            return None
        return behind

    def follow(
        self,
        manner: Manner,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tensors: list[torch.Tensor],
        made: Any,
    ) -> None:
        """Do on real numbers what was done on ghosts, or forget what was overwritten."""
        small = isinstance(made, torch.Tensor) and made.numel() <= MOST and not manner.random
        if small and all(t.numel() <= MOST for t in tensors):
            known, answer = self.answer(func, args, kwargs)
            if known and isinstance(answer, torch.Tensor):
                made._behind = answer
                return
        # A gradient scaler's check finds nothing infinite in gradients that nobody has.
        if manner.mutates and func is not _FINITE:
            for argument, value in zip(func._schema.arguments, args, strict=False):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    _forget(value)

    def answer(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, Any]:
        """Whether all inputs are known, and what the op makes of them."""
        named = {k: v for k, v in kwargs.items() if k not in ("pin_memory", "layout")}
        try:
            plain = [self._real(value) for value in args]
            words = {k: self._real(v) for k, v in named.items()}
        except _Unknown:
            return False, None
        return True, func(*plain, **words)

    def _real(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            behind = self.of(value)
            if behind is None:
                raise _Unknown
            return behind
        if isinstance(value, (list, tuple)):
            return type(value)([self._real(each) for each in value])
        return torch.device("cpu") if isinstance(value, torch.device) else value


class _Unknown(Exception):
    """Some number is not known."""


def _forget(value: Any) -> None:
    if isinstance(value, torch.Tensor):
        if home_of(value) is not None:
            setattr(value.untyped_storage(), _OVERWRITTEN, True)
    elif isinstance(value, (list, tuple)):
        for each in value:
            _forget(each)
