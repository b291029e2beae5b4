"""Values of a collective's results, where those of its inputs are known.

The other ranks do not exist, so they are taken to hold what this one holds: counts add up to the
world's, gathered sizes are all this rank's. What is not known stays so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch

from trueflops.capture.pretend.facts import collected, put_facts
from trueflops.capture.pretend.fake_tensors import claimed_device
from trueflops.capture.pretend.values import Values, is_small
from trueflops.capture.ranks.collective import Collective

Tensors = list[torch.Tensor]


def as_if_identical(collective: Collective, reduction: str, values: Values, *, fresh: bool) -> None:
    """Work the results of a collective out where its inputs are known; else forget its outputs."""
    sent, received, ranks = collective.sent, collective.received, collective.ranks
    given = [values.of(t) for t in sent]
    made = [
        _blank(t) if fresh and claimed_device(t) is not None else values.of(t) for t in received
    ]
    # What another rank sends is not what this one had in its place; but states of generators,
    # as bytes, are taken to be the same on all.
    sends = collective.root in (None, collective.group.rank()) or all(
        t.dtype == torch.uint8 for t in received
    )
    known = sends and all(t is not None for t in (*given, *made))
    rule = next((rule for part, rule in _RULES.items() if part in collective.name), None)
    small = all(is_small(t) for t in (*sent, *received))
    numbers = [t for t in made if t is not None]
    if not (known and small and rule and given):
        facts = collected([values.facts(t) for t in sent], reduction)
        values.forget([t for t in received if not fresh])
        for tensor in received:
            if claimed_device(tensor) is not None:
                put_facts(tensor, facts)
        return
    place = collective.group.rank()
    rule([t for t in given if t is not None], numbers, len(ranks), place, reduction)
    for tensor, number in zip(received, numbers, strict=True):
        if fresh and tensor is not number:
            tensor._known_values = number  # type: ignore[attr-defined]


def _blank(fake: torch.Tensor) -> torch.Tensor | None:
    return torch.zeros(fake.shape, dtype=fake.dtype) if is_small(fake) else None


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
    """An all-to-all or a broadcast: where all ranks hold the same, each receives what it sent."""
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
"""By a part of the collective's name; the first that fits."""
