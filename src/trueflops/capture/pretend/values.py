"""Small tensors of the accelerator whose values are known without any data.

Positions, masks and counters follow from shapes alone, and programs read them: Hugging Face asks on
every step whether positions are packed. Such a fake tensor carries a real one with its values,
until something unknown is written into its storage.
"""

from __future__ import annotations

from math import inf
from typing import Any, Final

import torch

from trueflops.capture.pretend.fake_tensors import claimed_device
from trueflops.capture.schema import OpTraits
from trueflops.units import MEBI

MOST_FLOATS: Final = 65536
"""Elements of the largest floating-point tensor whose values are followed …"""
MOST_INTEGERS: Final = MEBI
"""… and of the largest integer or boolean one: ids, positions and masks of a batch."""
_OVERWRITTEN: Final = "_trueflops_overwritten"  # set on a storage
_INDEX: Final = torch.ops.aten.index.Tensor
_REPEAT: Final = torch.ops.aten.repeat_interleave.Tensor
_CTC: Final = (torch.ops.aten._ctc_loss.default, torch.ops.aten._ctc_loss.Tensor)
_FINITE: Final = torch.ops.aten._amp_foreach_non_finite_check_and_unscale_.default
_FILLED: Final = (
    "zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones",
    "new_full",
)  # fmt: skip
_LIKE: Final = ("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full")


class Values:
    """The known values of fake tensors."""

    def of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The values of a tensor, if they are known."""
        if claimed_device(tensor) is None:
            return tensor
        if tensor.requires_grad:  # weights are trained, and what is made of them is not known
            return None
        behind: torch.Tensor | None = getattr(tensor, "_known_values", None)
        if behind is None or getattr(tensor.untyped_storage(), _OVERWRITTEN, False):
            return None
        return behind

    def follow(
        self,
        traits: OpTraits,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tensors: list[torch.Tensor],
        made: Any,
    ) -> None:
        """Run the op on the known values too, or forget the values that it overwrites."""
        results = _tuple(made)
        filled = func.__name__.partition(".")[0] in _FILLED  # of its inputs only the shape counts
        followed = results if filled else (*tensors, *results)
        small = all(isinstance(t, torch.Tensor) and is_small(t, filled) for t in followed)
        if small and not traits.random:
            known, answer = self.answer(func, args, kwargs)
            if known:
                for fake, value in zip(results, _tuple(answer), strict=True):
                    fake._known_values = value
                return
        # Unknown gradients are taken to be finite, so a gradient scaler's check changes nothing.
        if traits.mutates and func is not _FINITE:
            for argument, value in zip(func._schema.arguments, args, strict=False):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    _forget(value)

    def answer(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, Any]:
        """Whether all inputs are known, and what the op makes of them."""
        named = {k: v for k, v in kwargs.items() if k not in ("pin_memory", "layout")}
        if func.__name__.partition(".")[0] in _LIKE:  # its shape is all that is asked of it
            args = (torch.empty(args[0].shape, dtype=args[0].dtype), *args[1:])
        finite = _if_finite(func, args)
        if finite is not None:
            return True, torch.full(args[0].shape, finite)
        try:
            plain = [self._real(value) for value in args]
            words = {k: self._real(v) for k, v in named.items()}
            return True, func(*plain, **words)
        except (_Unknown, NotImplementedError, RuntimeError):  # the CPU lacks some kernels
            return False, None

    def _real(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            behind = self.of(value)
            if behind is None:
                raise _Unknown
            return behind
        if isinstance(value, (list, tuple)):
            return type(value)([self._real(each) for each in value])
        return torch.device("cpu") if isinstance(value, torch.device) else value


def is_small(tensor: torch.Tensor, filled: bool = False) -> bool:
    """Whether the values of such a tensor are followed.

    Larger ones of floating point are, where they are `filled` with one number: a router's map of
    tokens and experts begins so, and is then made of whole numbers.
    """
    plain = tensor.is_floating_point() and not filled
    plain = plain and getattr(tensor, "_known_values", None) is None
    return tensor.numel() <= (MOST_FLOATS if plain else MOST_INTEGERS)


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _if_finite(func: Any, args: tuple[Any, ...]) -> bool | None:
    """The answer to a test for infinity or NaN: unknown values are taken to be finite."""
    name = func.__name__
    if name in ("isnan.default", "isinf.default"):
        return False
    if name in ("eq.Tensor", "ne.Tensor") and args[0] is args[1]:  # NaN alone differs from itself
        return name == "eq.Tensor"
    if name in ("eq.Scalar", "ne.Scalar") and args[1] in (inf, -inf):
        return name == "ne.Scalar"
    return None


def asks_for_numbers(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an op that may depend on values does so as it is called here."""
    if func is _INDEX:
        masks = [i for i in args[1] if i is not None and i.dtype in (torch.bool, torch.uint8)]
        return bool(masks)
    if func is _REPEAT:
        return kwargs.get("output_size", args[1] if len(args) > 1 else None) is None
    return func not in _CTC  # its shapes assume targets of the full width


class _Unknown(Exception):
    """The value of an input is not known."""


def _forget(value: Any) -> None:
    if isinstance(value, torch.Tensor):
        if claimed_device(value) is not None:
            setattr(value.untyped_storage(), _OVERWRITTEN, True)
    elif isinstance(value, (list, tuple)):
        for each in value:
            _forget(each)
