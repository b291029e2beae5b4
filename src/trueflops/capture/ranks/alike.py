"""Numbers that come out of a collective where those that go in are known.

The other ranks do not exist, so they are taken to hold what this one holds: counts add up to the
world's, gathered sizes are all this rank's. What is not known stays so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch

from trueflops.capture.pretend.ghosts import home_of
from trueflops.capture.pretend.values import MOST, Values, _forget
from trueflops.capture.ranks.meeting import Meeting

Tensors = list[torch.Tensor]


def as_if_alike(meeting: Meeting, reduction: str, values: Values, *, fresh: bool) -> None:
    """Follow a collective on the real numbers behind its tensors, or forget them."""
    sent, received, ranks = meeting.sent, meeting.received, meeting.ranks
    given = [values.of(t) for t in sent]
    made = [_blank(t) if fresh and home_of(t) is not None else values.of(t) for t in received]
    known = all(t is not None for t in (*given, *made))
    rule = next((rule for part, rule in _RULES.items() if part in meeting.name), None)
    small = all(t.numel() <= MOST for t in (*sent, *received))
    numbers = [t for t in made if t is not None]
    if not (known and small and rule and given):
        _forget([t for t in received if not fresh])
        return
    place = meeting.group.rank()
    rule([t for t in given if t is not None], numbers, len(ranks), place, reduction)
    for tensor, number in zip(received, numbers, strict=True):
        if fresh and tensor is not number:
            tensor._behind = number  # type: ignore[attr-defined]


def _blank(ghost: torch.Tensor) -> torch.Tensor | None:
    return torch.zeros(ghost.shape, dtype=ghost.dtype) if ghost.numel() <= MOST else None


def _reduced(tensor: torch.Tensor, ranks: int, reduction: str) -> torch.Tensor:
    if reduction == "sum":
        return tensor * ranks
    return tensor**ranks if reduction == "product" else tensor


def _all_reduce(sent: Tensors, made: Tensors, ranks: int, place: int, reduction: str) -> None:
    for source, target in zip(sent, made, strict=True):
        target.copy_(_reduced(source, ranks, reduction))


def _gather(sent: Tensors, made: Tensors, ranks: int, place: int, reduction: str) -> None:
    whole = len(made) == len(sent) and ranks > 1  # one tensor for all, not one for each rank
    for number, target in enumerate(made):
        source = sent[number if whole else number * len(sent) // len(made)]
        copies = source.reshape(1, -1).expand(ranks if whole else 1, -1)
        target.copy_(copies.reshape(target.shape))


def _reduce_scatter(sent: Tensors, made: Tensors, ranks: int, place: int, reduction: str) -> None:
    whole = len(made) == len(sent) and ranks > 1
    for number, target in enumerate(made):
        source = sent[number].reshape(ranks, -1)[place] if whole else sent[number * ranks + place]
        target.copy_(_reduced(source, ranks, reduction).reshape(target.shape))


def _exchange(sent: Tensors, made: Tensors, ranks: int, place: int, reduction: str) -> None:
    """Pieces change places; of ranks that are alike, each gets what it gave."""
    for source, target in zip(sent, made, strict=True):
        if source.numel() == target.numel():
            target.copy_(source.reshape(target.shape))


_Rule = Callable[[Tensors, Tensors, int, int, str], None]
_RULES: Final[dict[str, _Rule]] = {
    "reduce_scatter": _reduce_scatter,
    "allreduce": _all_reduce,
    "all_reduce": _all_reduce,
    "reduce_": _all_reduce,
    "gather": _gather,
    "to_all": _exchange,
    "toall": _exchange,
    "broadcast": _exchange,
}
"""By a part of the name; the first that fits."""
