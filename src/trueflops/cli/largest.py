"""train's inverse questions of one number: --seq longest, --micro-batch largest.

In: flags with such a word, and what answers flags. Out: the flags with the number in its place.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, Final

from trueflops.cli.arguments.several import LARGEST
from trueflops.cli.planning import searched
from trueflops.errors import BadInput
from trueflops.language import say
from trueflops.model import read_model
from trueflops.predict import TrainingStep
from trueflops.report.progress import Waiting
from trueflops.search.largest import largest
from trueflops.sizes import divisors

LONGEST: Final = "longest"
GRAIN: Final = 1024  # tokens by which sequences grow
_MOST: Final = 2**24  # tokens: beyond what any model was trained on

Ask = Callable[[argparse.Namespace], TrainingStep | None]
"""The step that flags ask for, or of a search the fastest that surely fits, where one does."""


def settle(options: argparse.Namespace, ask: Ask) -> tuple[argparse.Namespace, list[str]]:
    """Flags with the largest number that surely fits for the word, and what to say of it."""
    longest, widest = options.seq == LONGEST, options.micro_batch == LARGEST
    if longest and widest:
        raise BadInput(
            say(
                "--seq longest and --micro-batch largest: each takes the memory that the other "
                "leaves; give one of them as a number"
            )
        )
    if longest:
        return _settled(options, "seq", _lengths(options), ask)
    if widest:
        return _settled(options, "micro_batch", _micro_batches(options, ask), ask)
    return options, []


def _lengths(options: argparse.Namespace) -> Sequence[int]:
    """Up to the table of positions, where a model has one; others are only warned of."""
    model = read_model(options.model)
    most = model.max_positions if model.learned_positions else _MOST
    grain = min(GRAIN, most)
    return range(grain, most + 1, grain)


def _micro_batches(options: argparse.Namespace, ask: Ask) -> Sequence[int]:
    """What divides a replica's share of the global batch."""
    if _left_open(options):
        raise BadInput(
            say(
                "--micro-batch largest: a search chooses it for speed; give a plan beside it, as "
                "--dp 8, or --micro-batch 1..32"
            )
        )
    least = ask(_with(options, "micro_batch", 1))
    if least is None:
        return [1]
    return divisors(int(least.workload.global_batch) // int(least.plan.dp))


def _settled(
    options: argparse.Namespace, name: str, numbers: Sequence[int], ask: Ask
) -> tuple[argparse.Namespace, list[str]]:
    steps: dict[int, TrainingStep | None] = {}

    def step(number: int) -> TrainingStep | None:
        if number not in steps:
            steps[number] = ask(_with(options, name, number))
        return steps[number]

    def surely(number: int) -> bool:
        found = step(number)
        return found is not None and bool(found.fits_surely)

    def perhaps(number: int) -> bool:
        found = step(number)
        return found is not None and bool(found.fits)

    with Waiting(say("looking for the largest that fits")):
        most = largest(numbers, surely)
        hoped = None if _left_open(options) else largest(numbers, perhaps)
    return _with(options, name, most or numbers[0]), [_told(name, numbers, most, hoped)]


def _told(name: str, numbers: Sequence[int], surely: int | None, hoped: int | None) -> str:
    flag = "--" + name.replace("_", "-")
    if surely is None:
        note = say("{flag}: not even {least:,} surely fits", flag=flag, least=numbers[0])
    elif surely == numbers[-1]:
        return say("{flag}: {most:,} fit, and there are no more", flag=flag, most=surely)
    else:
        note = say("{flag}: at most {most:,} surely fit", flag=flag, most=surely)
        if name == "seq":
            note += say(", in steps of {grain:,}", grain=numbers[0])
    if hoped is not None and hoped != surely:
        note += say("; by the middle of the interval {hoped:,} would", hoped=hoped)
    return note


def _left_open(options: argparse.Namespace) -> bool:
    """Whether the plan is searched: neither flags nor a file spell one out."""
    return options.from_file is None and searched(options)


def _with(options: argparse.Namespace, name: str, value: Any) -> argparse.Namespace:
    return argparse.Namespace(**{**vars(options), name: value})
