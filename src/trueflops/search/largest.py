"""Inverse questions: the largest number, and the largest models, of which an answer still holds.

What holds of a number must hold of all smaller ones, too: memory grows with sequences and with
micro-batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from trueflops.errors import TrueflopsError
from trueflops.language import mark
from trueflops.model import Model

Result = TypeVar("Result")
REFUSED: Final = mark("refused")


def largest(candidates: Sequence[int], holds: Callable[[int], bool]) -> int | None:
    """The last of ascending candidates that holds, by doubling and halving; None: of none.

    >>> largest(range(1, 10**6), lambda number: number**2 <= 2000)
    44
    >>> largest([3, 5], lambda number: number < 3)
    """
    holding, step = -1, 1  # the last place known to hold, and how far the next look goes
    while holding + step < len(candidates) and holds(candidates[holding + step]):
        holding, step = holding + step, 2 * step
    beyond = min(holding + step, len(candidates))  # the first place known not to, or the end
    while beyond - holding > 1:
        middle = (holding + beyond) // 2
        if holds(candidates[middle]):
            holding = middle
        else:
            beyond = middle
    return None if holding < 0 else candidates[holding]


class Sized(NamedTuple, Generic[Result]):
    """A model, and what a cluster does with it."""

    model: Model
    result: Result


class Models(NamedTuple, Generic[Result]):
    """Largest first, and how many of those looked at fell out, by the reason."""

    found: tuple[Sized[Result], ...]
    without: Counter[str]
    smaller: int  # that were not looked at
    refusal: str  # of the first that was refused


def largest_models(
    models: Iterable[Model],
    answer: Callable[[Model], Result | str],
    most: int,
    say: Callable[[str], None] = lambda text: None,
) -> Models[Result]:
    """The largest of which there is an answer; where there is none, `answer` says why."""
    found: list[Sized[Result]] = []
    without: Counter[str] = Counter()
    refusal = ""
    known = sorted(models, key=lambda each: (-each.parameter_count, each.name))
    for model in known:
        say(model.name)
        try:
            result = answer(model)
        except TrueflopsError as error:
            result, refusal = REFUSED, refusal or str(error)
        if isinstance(result, str):
            without[result] += 1
            continue
        found.append(Sized(model, result))
        if len(found) == most:
            break
    looked_at = len(found) + without.total()
    return Models(tuple(found), without, len(known) - looked_at, refusal)
