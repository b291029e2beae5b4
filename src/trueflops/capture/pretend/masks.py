"""What masks select, where nobody knows how many of their elements are true.

`nonzero` finds the share of elements that facts say (one-hot rows), that the user gives (--assume)
or, where nothing is known, half of them; the answer says so. A mask as an index is looked for by
`nonzero` and then used as places, as torch does on CUDA (aten/src/ATen/native: IndexingUtils.h,
TensorAdvancedIndexing.cpp, cuda/Indexing.cu), so both kernels and the wait between them are there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from trueflops.capture.assumed import USUAL_SHARE, assumptions
from trueflops.capture.pretend.facts import assume_share
from trueflops.capture.pretend.fake_tensors import META
from trueflops.capture.pretend.numbers import assumed_number, assumed_truth
from trueflops.capture.pretend.values import Values
from trueflops.capture.trouble import data_dependent, lines, passes, where
from trueflops.language import mark, say

_ATEN: Final = torch.ops.aten
_INDEX: Final = _ATEN.index.Tensor
_SELECT: Final = _ATEN.masked_select.default
_NONZERO: Final = _ATEN.nonzero.default
_PUTS: Final = (
    _ATEN.index_put.default, _ATEN.index_put_.default, _ATEN._index_put_impl_.default,
)  # fmt: skip
_TAKE_MASKS: Final = {_INDEX, _SELECT, *_PUTS}
_MASKS: Final = (torch.bool, torch.uint8)


def takes_mask(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether an op is given a mask, and first looks for its true elements."""
    if func not in _TAKE_MASKS:
        return False
    if func is not _SELECT:
        return any(index is not None and index.dtype in _MASKS for index in args[1])
    return True


def by_places(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run such an op by places, or by the kernel that needs none.

    Below autograd, which has taken composite ops apart already: only ops that are none are called.
    """
    if func is _SELECT:
        wide = torch.broadcast_shapes(args[0].shape, args[1].shape)
        x, mask = (_ATEN.expand.default(tensor, wide) for tensor in args[:2])
        return by_places(_INDEX, (x, [mask]), {})
    if func in _PUTS and _is_fill(args):
        mask = next(index for index in args[1] if index is not None)
        fill = (_ATEN.masked_fill if func is _PUTS[0] else _ATEN.masked_fill_).Tensor
        for _ in range(args[0].dim() - mask.dim()):
            mask = _ATEN.unsqueeze.default(mask, -1)
        return fill(args[0], mask, args[2])
    places: list[torch.Tensor | None] = []
    for index in args[1]:
        if index is None or index.dtype not in _MASKS:
            places.append(index)
        else:
            places += _ATEN.unbind.int(_NONZERO(index), 1)
    return func(args[0], places, *args[2:], **kwargs)


def _is_fill(args: tuple[Any, ...]) -> bool:
    """One number is put where one mask, of the first dimensions, is true."""
    adds = len(args) > 3 and args[3]
    return len(args[1]) == 1 and args[2].dim() == 0 and not adds


def without_values(
    func: Any, args: tuple[Any, ...], values: Values, note: Callable[[str], None]
) -> Any:
    """What an op gives whose result depends on values that nobody knows; raises where it cannot."""
    if func is _NONZERO:
        return _found(args[0], values, note)
    if func is _ATEN.equal.default:
        return assumed_truth("torch.equal")
    if func is _ATEN._local_scalar_dense.default:
        answer = passes()
        return assumed_number(mark("reading a number")) if answer is None else answer
    made = _given_size(func, args, note)
    if made is None:
        raise data_dependent(str(func))
    return made


def _found(x: torch.Tensor, values: Values, note: Callable[[str], None]) -> torch.Tensor:
    """A meta tensor shaped as the places at which `nonzero` finds something."""
    facts, here, share = values.facts(x), lines(), assumptions().mask
    given = None if facts.told else assumptions().count(here, x.numel())
    if given is not None:
        count, reason = given, say("as --assume says")
    elif facts.share is not None:
        count, reason = round(facts.share * x.numel()), say("by the way in which it was made")
    elif share is not None:
        count = round(share * x.numel())
        reason = say("as --assume mask={share:g} says", share=share)
    else:
        count = round(USUAL_SHARE * x.numel())
        reason = say("assumed: give another share with --assume mask=SHARE")
        reason += say(" or {line}=SHARE", line=here[0]) if here else ""
    if not facts.told:
        note(
            say(
                "the mask{at} is taken to be true in {count:,} of {all:,}, {reason}",
                at=where(),
                count=count,
                all=x.numel(),
                reason=reason,
            )
        )
    if x.numel():
        assume_share(x, count / x.numel())
    # Its columns lie one after another (cuda/Nonzero.cu).
    return torch.empty_strided((count, x.dim()), (1, max(count, 1)), dtype=torch.int64, device=META)


def _given_size(func: Any, args: tuple[Any, ...], note: Callable[[str], None]) -> Any:
    """Meta tensors as large as the user says that a result is; None where nothing is said."""
    rule = _SIZED.get(func)
    if rule is None:
        return None
    least = args[2] if func is _BINCOUNT and len(args) > 2 else 0
    count = assumptions().count(lines(), args[0].numel())
    if count is None and least:
        note(
            say(
                "bincount{at} is taken to find no number above {most:,}: nobody knows",
                at=where(),
                most=least - 1,
            )
        )
    return None if count is None and not least else rule(args, max(count or 0, least))


def _unique(args: tuple[Any, ...], count: int) -> tuple[torch.Tensor, ...]:
    """The values, which of them each element is, and how often each occurs."""
    x, asked = args[0], (*args[2:], False, False)
    made = torch.empty(count, dtype=x.dtype, device=META)
    where_, often = (x.shape if asked[0] else (0,)), (count if asked[1] else 0,)
    return made, *(torch.empty(s, dtype=torch.int64, device=META) for s in (where_, often))


def _integers(args: tuple[Any, ...], count: int) -> torch.Tensor:
    return torch.empty(count, dtype=torch.int64, device=META)


_BINCOUNT: Final = _ATEN.bincount.default
_SIZED: Final[dict[Any, Callable[[tuple[Any, ...], int], Any]]] = {
    _ATEN._unique2.default: _unique,
    _BINCOUNT: _integers,
    _ATEN.repeat_interleave.Tensor: _integers,
}
