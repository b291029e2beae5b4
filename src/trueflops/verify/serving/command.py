"""What the command of a serving benchmark says of its load, where a row's own columns do not.

In: a row of latencies with the benchmark's command, or its words, in `notes` or `flags`. Out:
tokens that a request reads and writes, and how many requests were sent; None where nothing says it.
"""

from __future__ import annotations

import re
from typing import Final

from trueflops.records.tables import Row
from trueflops.verify.cells import count, noted, require, text, whole

ROUNDS: Final = 10
"""Requests a user, where nothing says how many were sent: as InferenceX's scripts send them."""
_PAIR: Final = re.compile(
    r"(?:\bISL/OSL|\binput/output len(?:gths?)?|\brandom)[=: ]{1,3}(\d{1,7})/(\d{1,7})\b",
    re.IGNORECASE,
)
"""'ISL/OSL 1000/1000', 'random 8192/1024'."""
_FLAG: Final = (
    r"(?<![\w/-])(?:--(?:[a-z]{{1,12}}-)?)?{side}[-_]len(?:gth)?[=: ]{{1,3}}(\d{{1,7}})\b"
    r"|(?<![\w/-])(?:--random-{side}|{short})[=: ]{{1,3}}(\d{{1,7}})\b"
)
_SIDES: Final = tuple(
    re.compile(_FLAG.format(side=side, short=short), re.IGNORECASE)
    for side, short in (("input", "ISL"), ("output", "OSL"))
)
_PROMPTS: Final = r"(?<![\w/-])(?:--)?num[-_]prompts?[=: ]{1,3}(\d{1,9})\b"


def printed_lengths(row: Row) -> tuple[float | None, float | None]:
    """Mean tokens read and written by a request, as measured."""
    read, written = (
        require(row, column) if text(row, column) else None
        for column in ("input_len_mean", "output_len_mean")
    )
    return read, written


def said_lengths(row: Row) -> tuple[float | None, float | None]:
    """Tokens read and written by a request: as measured, else as the benchmark was told."""
    said = f"{text(row, 'notes')} {text(row, 'flags')}"
    pair = _PAIR.search(said)
    found: list[float | None] = []
    for side, value in enumerate(printed_lengths(row)):
        if value is None and (flag := _SIDES[side].search(said)):
            value = float(flag[1] or flag[2])
        elif value is None and pair:
            value = float(pair[side + 1])
        found.append(value)
    return found[0], found[1]


def said_prompts(row: Row, users: int | None) -> int | None:
    """How many requests were sent: as the row or its command says, else ten a user."""
    sent = whole(row, "num_prompts") or count(row, "completed", 0) or noted(row, _PROMPTS)
    return sent or (users * ROUNDS if users else None)
