"""Requests as somebody recorded them: a CSV or JSONL file in, Requests out.

Columns may be called as in Azure's LLM traces (TIMESTAMP, ContextTokens, GeneratedTokens),
BurstGPT's (Timestamp, Request tokens, Response tokens), Mooncake's (timestamp in milliseconds,
input_length, output_length, hash_ids), or plainly arrival, input, output. hash_ids name blocks of
512 tokens that prompts share from their start on; what an earlier request had is in the cache.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import numpy as np

from trueflops.errors import BadInput, printable, shorten
from trueflops.files import read_file
from trueflops.language import say
from trueflops.records.tables import read_table
from trueflops.serve.load import Requests
from trueflops.units import read_number

BLOCK: Final = 512  # tokens of one hash_id: Mooncake, FAST25-release/README
MILLI: Final = 1e-3
MOST: Final = 1_000_000  # requests
_ARRIVAL: Final = ("arrival", "arrived_at", "timestamp", "TIMESTAMP", "Timestamp")
_INPUT: Final = ("input", "input_length", "ContextTokens", "Request tokens", "num_prefill_tokens")
_OUTPUT: Final = (
    "output",
    "output_length",
    "GeneratedTokens",
    "Response tokens",
    "num_decode_tokens",
)


def read_requests(path: Path) -> Requests:
    """Every request of a trace, in the order of arrival, the first at 0."""
    where = printable(str(path))
    rows = _json_lines(path, where) if path.suffix in (".jsonl", ".json") else _csv(path)
    if not rows:
        raise BadInput(say("{where}: holds no requests", where=where))
    if len(rows) > MOST:
        raise BadInput(say("{where}: more than {most:,} requests; cut it", where=where, most=MOST))
    arrival, read, written = (_column(rows, names, where) for names in (_ARRIVAL, _INPUT, _OUTPUT))
    when = np.array([_seconds(cell, where, line) for line, cell in enumerate(arrival, 1)])
    if "hash_ids" in rows[0]:
        when = when * MILLI
    order = np.argsort(when, kind="stable")
    lengths = [
        np.array([max(_number(cell, where, line), 1.0) for line, cell in enumerate(cells, 1)])
        for cells in (read, written)
    ]
    return Requests(
        arrival=when[order] - when[order[0]],
        input=lengths[0][order],
        output=lengths[1][order],
        cached=_known([rows[at] for at in order], lengths[0][order]),
    )


def _known(rows: Sequence[Mapping[str, Any]], read: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Tokens of each prompt that earlier ones began with, in a cache that forgets nothing."""
    seen: set[Any] = set()
    known = np.zeros(len(rows))
    for at, row in enumerate(rows):
        blocks = row.get("hash_ids")
        if not isinstance(blocks, list):
            continue
        first_new = next((n for n, block in enumerate(blocks) if block not in seen), len(blocks))
        known[at] = min(first_new * BLOCK, read[at] - 1.0)
        seen.update(blocks)
    return known


def _csv(path: Path) -> list[Mapping[str, Any]]:
    return [dict(row.items()) for _, row in read_table(path).rows]


def _json_lines(path: Path, where: str) -> list[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = []
    for line, text in enumerate(read_file(path).decode(errors="replace").splitlines(), 1):
        if not text.strip():
            continue
        try:
            row = json.loads(text)
        except ValueError:
            raise BadInput(
                say(
                    "{where}, line {line}: not JSON: {text!r}",
                    where=where,
                    line=line,
                    text=shorten(text, 40),
                )
            ) from None
        if not isinstance(row, dict):
            raise BadInput(
                say(
                    "{where}, line {line}: not an object: {text!r}",
                    where=where,
                    line=line,
                    text=shorten(text, 40),
                )
            )
        rows.append(row)
    return rows


def _column(rows: Sequence[Mapping[str, Any]], names: Sequence[str], where: str) -> list[Any]:
    for name in names:
        if name in rows[0]:
            return [row.get(name, "") for row in rows]
    known = ", ".join(names)
    raise BadInput(
        say(
            "{where}: no column of {names}; call it one of {known}",
            where=where,
            names=names[0],
            known=known,
        )
    )


def _number(cell: Any, where: str, line: int) -> float:
    try:
        return read_number(str(cell).strip())
    except BadInput:
        raise BadInput(
            say(
                "{where}, request {line}: not a number: {cell!r}",
                where=where,
                line=line,
                cell=shorten(str(cell), 30),
            )
        ) from None


def _seconds(cell: Any, where: str, line: int) -> float:
    """A number, or a date with a time of day."""
    try:
        return read_number(str(cell).strip())
    except BadInput:
        pass
    try:
        return datetime.fromisoformat(str(cell).strip()[:26]).timestamp()
    except ValueError:
        said = shorten(str(cell), 30)
        raise BadInput(
            say(
                "{where}, request {line}: neither seconds nor a date: {said!r}",
                where=where,
                line=line,
                said=said,
            )
        ) from None
