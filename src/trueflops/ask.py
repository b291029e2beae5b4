"""The Python door: train, infer and compare, asked as on a command line, answered in types.

In: a model, a place, and flags by the names that the commands give them. Out: an answer that holds
the typed values and, as `json`, what the command prints with --json, to the digit: the code that
answers is the command's own.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, Final

import numpy as np

from trueflops import units
from trueflops.catalog import Accelerator
from trueflops.cli import compare as comparing
from trueflops.cli import infer as serving
from trueflops.cli import train as training
from trueflops.cli.arguments import parse
from trueflops.cli.arguments.flags import flags_of
from trueflops.cli.replies import Compared, Reply, Served, Trained, received
from trueflops.errors import BadInput
from trueflops.predict import Bill, Estimate, Point, TrainingStep, WholeBill
from trueflops.search.buying import Market
from trueflops.search.chips import Comparison
from trueflops.sweep.flags import Value, shown, text_of

LOOKS: Final = frozenset({"json", "verbose", "explain"})
"""Flags that change how text looks: an answer in types has no text."""
WRITES: Final = frozenset({"emit", "force"})
LISTED: Final = 5  # offers in a line

Given = Value | np.generic | PathLike[str] | Sequence[Value] | None
"""What a flag may be given: None where it is not, several values where a search may choose."""


@dataclass(frozen=True, repr=False)
class Answer:
    """What every command answers: whether it is a yes, and all of it as --json prints it."""

    ok: bool  # False where the command exits 1: nothing fits, or not in time
    json: dict[str, Any]
    market: Market[Any] | None  # where chips were sought: on="any"

    @property
    def why(self) -> str:
        """Why nothing fits; empty where something does."""
        return str(self.json.get("why", ""))

    def __repr__(self) -> str:
        """As a notebook shows it."""
        return f"<{type(self).__name__}: {self}>"


@dataclass(frozen=True, repr=False)
class TrainingAnswer(Answer):
    """A step of the plan that was given, or of the best that a search found."""

    step: TrainingStep | None
    bill: Bill | None
    whole_bill: WholeBill | None
    plans: tuple[TrainingStep, ...]  # the best of a search, the best first

    def __str__(self) -> str:
        """In a line."""
        if self.step is None or self.bill is None:
            return self.why or _offered(self.market)
        where = f"{self.step.model.name} on {self.step.cluster.name}"
        held = units.show(float(self.step.memory.value), "memory")
        room = units.show(self.step.capacity_bytes, "memory")
        fits = "" if self.ok else ": does not fit"
        return (
            f"{where}: {_between(self.bill.step_seconds, 'seconds')} a step, "
            f"{float(self.bill.mfu.value):.0%} MFU, {held} of {room}{fits}"
        )


@dataclass(frozen=True, repr=False)
class ServingAnswer(Answer):
    """Ways to serve, the best first."""

    points: tuple[Point, ...]

    @property
    def point(self) -> Point | None:
        """The best way."""
        return self.points[0] if self.points else None

    def __str__(self) -> str:
        """In a line."""
        point = self.point
        if point is None:
            return self.why or _offered(self.market)
        where = f"{point.model.name} on {point.cluster.name}"
        first, each = _between(point.ttft, "seconds"), _between(point.tpot, "seconds")
        rate = f"{float(point.tokens_per_second.value):,.0f} tokens/s"
        return f"{where}: {first} to the first token, {each} for each more, {rate}"


@dataclass(frozen=True, repr=False)
class ComparisonAnswer(Answer):
    """Chips side by side, and what a model does on them where one was named."""

    chips: tuple[Accelerator, ...]
    comparison: Comparison | None

    def __str__(self) -> str:
        """In a line."""
        return ", ".join(chip.name for chip in self.chips)


def train(model: str | PathLike[str], *, on: str | None = None, **flags: Given) -> TrainingAnswer:
    """What `trueflops train MODEL --on CLUSTER …` answers; flags by their names, - as _.

    Without any of tp, pp, cp, dp and ep the best plan is searched.

    >>> import trueflops as tf
    >>> answer = tf.train("Llama-3.1-8B", on="8xH100", tp=2, zero=1, seq=8192, global_batch=64)
    >>> answer.ok, bool(0.3 < answer.bill.mfu.value < 0.7), answer.json["plan"]["tp"]
    (True, True, 2)
    """
    ok, reply = _ask(training.run, "train", {"model": model, "on": on, **flags})
    made = reply.made
    step = made if isinstance(made, Trained) else None
    return TrainingAnswer(
        ok,
        json.loads(reply.text),
        made if isinstance(made, Market) else None,
        step.step if step else None,
        step.bill if step else None,
        step.whole_bill if step else None,
        tuple(step.found.best if step.found else (step.step,)) if step else (),
    )


def infer(model: str | PathLike[str], *, on: str | None = None, **flags: Given) -> ServingAnswer:
    """What `trueflops infer MODEL --on CLUSTER …` answers; flags by their names, - as _.

    >>> import trueflops as tf
    >>> answer = tf.infer("Llama-3.1-70B", on="8xH100", tp=8, input=1024, concurrency=64)
    >>> bool(0.01 < answer.point.tpot.value < 0.1), answer.json["most_requests_per_replica"] > 64
    (True, True)
    """
    ok, reply = _ask(serving.run, "infer", {"model": model, "on": on, **flags})
    made = reply.made
    return ServingAnswer(
        ok,
        json.loads(reply.text),
        made if isinstance(made, Market) else None,
        tuple(made.points) if isinstance(made, Served) else (),
    )


def compare(
    *chips: str, model: str | PathLike[str] | None = None, **flags: Given
) -> ComparisonAnswer:
    """What `trueflops compare CHIP… --for MODEL` answers; without chips, all that ship.

    >>> import trueflops as tf
    >>> [chip["name"] for chip in tf.compare("H100", "RTX4090").json["chips"]]
    ['H100-SXM5-80GB', 'RTX 4090']
    """
    for chip in chips:
        if not chip or chip.startswith("-"):
            raise BadInput(f"{shown(chip)} cannot be a chip; name one of trueflops catalog")
    ok, reply = _ask(comparing.run, "compare", {"for": model, **flags}, chips)
    assert isinstance(reply.made, Compared)
    made = reply.made
    return ComparisonAnswer(ok, json.loads(reply.text), None, tuple(made.chips), made.comparison)


def _ask(
    run: Callable[[Any], int], command: str, given: dict[str, Given], first: Sequence[str] = ()
) -> tuple[bool, Reply]:
    """Type the question, have the command answer it, keep what it would print."""
    words = [command, *first, *_words(command, given), "--json"]
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            options = parse(words)
    except SystemExit:  # what only argparse can see, such as two flags that exclude one another
        message = " ".join(said.getvalue().partition("[")[0].split())
        raise BadInput(message.removeprefix("trueflops: ")) from None
    with received() as replies:
        code = run(options)
    return code == 0, replies[-1]


def _words(command: str, given: dict[str, Given]) -> Iterator[str]:
    """The flags as they are typed, each checked before the command reads it."""
    flags = flags_of(command, LOOKS)
    for name, value in given.items():
        if value is None:
            continue
        if name in WRITES:
            raise BadInput(f"{name} writes files: ask trueflops {command} … --{name}")
        flag = flags.find(name)
        try:
            yield from flag.words(_value(value))
        except BadInput as error:
            raise BadInput(f"{name}: {error}") from None


def _value(value: Given) -> Value:
    if isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, np.generic):
        return _value(value.item())
    if isinstance(value, PathLike):
        return fspath(value)
    if isinstance(value, Sequence):
        return ",".join(text_of(each) for each in value)
    raise BadInput(f"a {type(value).__name__} cannot be typed; write a text or a number")


def _between(of: Estimate, dimension: str) -> str:
    value, low, high = float(of.value), float(of.low), float(of.high)
    return f"{units.show(value, dimension)} ({units.show_between(low, value, high, dimension)})"


def _offered(market: Market[Any] | None) -> str:
    if market is None or not market.offers:
        return "no chip can"
    best = ", ".join(f"{offer.count:,} × {offer.chip.name}" for offer in market.offers[:LISTED])
    more = len(market.offers) - LISTED
    return f"{best} and {more} more" if more > 0 else best
