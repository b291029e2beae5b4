"""Small tensors of the accelerator whose values are known without any data.

Positions, masks and counters follow from shapes alone, and programs read them: Hugging Face asks on
every step whether positions are packed. Such a fake tensor carries a real one with its values,
until something unknown is written into its storage.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from trueflops.capture.pretend.facts import Facts, derived, facts_of, if_finite, put_facts
from trueflops.capture.pretend.fake_tensors import (
    claimed_device,
    flat,
    has_memory,
    is_overwritten,
    mark_overwritten,
)
from trueflops.capture.schema import OpTraits
from trueflops.units import MEBI

MOST_FLOATS: Final = 65536
"""Elements of the largest floating-point tensor whose values are followed …"""
MOST_INTEGERS: Final = MEBI
"""… and of the largest integer or boolean one: ids, positions and masks of a batch."""
_INDEX: Final = torch.ops.aten.index.Tensor
_REPEAT: Final = torch.ops.aten.repeat_interleave.Tensor
_CTC: Final = (torch.ops.aten._ctc_loss.default, torch.ops.aten._ctc_loss.Tensor)
_FINITE: Final = torch.ops.aten._amp_foreach_non_finite_check_and_unscale_.default
_WRITES: Final = (
    torch.ops.aten.zero_.default, torch.ops.aten.fill_.Scalar, torch.ops.aten.fill_.Tensor,
    torch.ops.aten.copy_.default,
)  # fmt: skip
_FILLED: Final = (
    "zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones",
    "new_full",
)  # fmt: skip
_LIKE: Final = (
    "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full", "rand_like",
    "randint_like",
)  # fmt: skip
_DRAWN: Final = (
    "randint", "randint_like", "randperm", "random_", "rand", "rand_like", "uniform_", "bernoulli",
    "bernoulli_", "multinomial",
)  # fmt: skip
"""Random numbers that decide: ids, permutations and masks. They are drawn, as a real run draws
them; normal ones stand for data, and are not known."""


class Values:
    """The known values of fake tensors."""

    def __init__(self) -> None:
        self.took_finite = False  # unknown values were asked for infinity or NaN

    def of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The values of a tensor, if they are known."""
        if claimed_device(tensor) is None:
            return tensor
        if tensor.requires_grad:  # weights are trained, and what is made of them is not known
            return None
        behind: torch.Tensor | None = getattr(tensor, "_known_values", None)
        return None if behind is None or is_overwritten(tensor) else behind

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
        if traits.is_view and tensors and self.of(tensors[0]) is None:
            return  # a view of unknown values; facts stand on the storage
        results = _tuple(made)
        name = func.__name__.partition(".")[0]
        filled = name in _FILLED  # of its inputs only the shape counts
        followed = results if filled else (*tensors, *results)
        small = all(isinstance(t, torch.Tensor) and is_small(t, filled) for t in followed)
        if small and (name in _DRAWN or not traits.random):
            known, answer = self.answer(func, args, kwargs)
            if known:
                for fake, value in zip(results, _tuple(answer), strict=True):
                    fake._known_values = value
                return
        if func is _FINITE or if_finite(func.__name__, args) is not None:
            self.took_finite = True
        if traits.is_view or func is _FINITE:
            return  # unknown gradients are taken to be finite: a scaler's check changes nothing
        if func in _WRITES and self._rewritten(func, args, kwargs):
            return
        facts = derived(func, args, self.facts)  # from what was there before it is overwritten
        if traits.mutates:
            for argument, value in zip(func._schema.arguments, args, strict=False):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    self.forget(value)
        self._note(facts, [r for r in results if isinstance(r, torch.Tensor)])

    def forget(self, value: Any) -> None:
        """Something unknown was written into these tensors."""
        for tensor in flat(value):
            mark_overwritten(tensor)

    def _rewritten(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether known numbers replace all that a storage held, which thereby is known again."""
        target = args[0]
        behind = target if has_memory(target) else getattr(target, "_known_values", None)
        size = target.numel() * target.element_size()
        if behind is None or target.requires_grad or size < target.untyped_storage().nbytes():
            return False
        mark_overwritten(target, unknown=False)
        known, _ = self.answer(func, (behind, *args[1:]), kwargs)
        if not known:
            mark_overwritten(target)
        return known

    def facts(self, tensor: torch.Tensor) -> Facts:
        """What is known of a tensor beside its values."""
        return facts_of(tensor, self.of(tensor))

    def _note(self, facts: Facts, results: list[torch.Tensor]) -> None:
        """Note what follows for the results of an op whose inputs are not known."""
        for fake in results:
            put_facts(fake, facts)
            if facts.constant is not None and facts.ones and is_small(fake):
                values = torch.full(fake.shape, facts.constant, dtype=fake.dtype)
                fake._known_values = values  # type: ignore[attr-defined]

    def answer(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, Any]:
        """Whether all inputs are known, and what the op makes of them."""
        named = {k: v for k, v in kwargs.items() if k not in ("pin_memory", "layout")}
        if func.__name__.partition(".")[0] in _LIKE:  # its shape is all that is asked of it
            args = (torch.empty(args[0].shape, dtype=args[0].dtype), *args[1:])
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


def asks_for_numbers(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an op that may depend on values does so as it is called here."""
    if func is _INDEX:  # a mask as an index is looked for before (masks.py)
        return False
    if func is _REPEAT:
        return kwargs.get("output_size", args[1] if len(args) > 1 else None) is None
    return func not in _CTC  # its shapes assume targets of the full width


class _Unknown(Exception):
    """The value of an input is not known."""
