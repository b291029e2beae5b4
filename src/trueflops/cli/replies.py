"""Where an answer goes: to stdout as JSON, or, where Python asked, back to who asked.

In: an answer as `--json` shows it, and the typed values that it was made of. Both doors pass here,
so that what Python gets is what the command line prints, to the digit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from trueflops.catalog import Accelerator
from trueflops.predict import Bill, PooledPoint, ServingPoint, TrainingStep, WholeBill
from trueflops.report import encode
from trueflops.search import Found
from trueflops.search.buying import Market
from trueflops.search.chips import Comparison
from trueflops.search.largest import Models


@dataclass(frozen=True)
class Trained:
    """A training step, what it costs, and the search that found it, if there was one."""

    step: TrainingStep
    bill: Bill
    whole_bill: WholeBill
    found: Found | None = None


@dataclass(frozen=True)
class Served:
    """Ways to serve, the best first."""

    points: Sequence[ServingPoint | PooledPoint]


@dataclass(frozen=True)
class Compared:
    """Chips side by side, and what a model does on them, if one was named."""

    chips: Sequence[Accelerator]
    comparison: Comparison | None


Made = Trained | Served | Compared | Market[Any] | Models[Any] | None
"""None: nothing fits, and the answer says why."""


@dataclass(frozen=True)
class Reply:
    """One answer: as --json prints it, and what it was made of."""

    text: str
    made: Made


_ASKED_BY: ContextVar[list[Reply] | None] = ContextVar("asked_by", default=None)


def give(answer: Mapping[str, Any], made: Made) -> None:
    """Print an answer as JSON, or hand it to who asked from Python."""
    reply = Reply(encode.to_json(answer), made)
    asked_by = _ASKED_BY.get()
    if asked_by is None:
        print(reply.text)
    else:
        asked_by.append(reply)


@contextmanager
def received() -> Iterator[list[Reply]]:
    """Answers given inside are kept here and not printed; threads do not see one another's."""
    kept: list[Reply] = []
    token = _ASKED_BY.set(kept)
    try:
        yield kept
    finally:
        _ASKED_BY.reset(token)
