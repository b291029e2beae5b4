"""What an answer must be: printable, finite, above zero, and inside its own interval."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from math import isfinite
from typing import Any, Final

# Numbers without which an answer is none.
_NEEDED: Final = frozenset(
    [
        "step_seconds",
        "tokens_per_second",
        "mfu",
        "ttft_seconds",
        "tpot_seconds",
        "seconds",
        "low",
        "high",
        "value",
        "predicted",
        "bytes",
        "flop",
        "capacity_bytes",
    ]
)
_UNITS: Final = ("value", "seconds", "bytes", "predicted", "flop_per_second")
# A number of the answer that is none; a refusal may quote such a cell.
_NOT_FINITE: Final = re.compile(r"∞|\b(?:nan|inf)\s*(?:%|[µmn]?s\b|[TGMk]?i?B\b|[TG]FLOP)")
SLACK: Final = 1e-9  # rounding, relative


def wrong_with(words: list[str], code: int, out: str, err: str) -> str:
    """What is wrong with an answer; nothing if it is as it should be."""
    if code not in (0, 1, 2):
        return f"exit {code}"
    for name, text in (("stdout", out), ("stderr", err)):
        if any(not (ch.isprintable() or ch in "\n\t") for ch in text):
            return f"{name} holds control characters"
    if "Traceback" in err and not {"-v", "--verbose"} & set(words):
        return "a traceback without -v"
    if code == 2:
        return "" if err.strip() else "exit 2 without a word"
    if "--json" in words and "--help" not in words and out.lstrip().startswith("{"):
        try:
            answer = json.loads(out, parse_constant=_refuse)
        except ValueError as error:
            return f"not JSON: {error}"
        known = words[0] != "catalog"  # a chip may have no such format, and null says so
        return next(_wrong_numbers(answer, "", fits=code == 0 and known), "")
    shown = "" if words[0] in ("catalog", "compare", "measure") else _NOT_FINITE.search(out)
    return f"shows {shown[0]!r}" if shown else ""


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} in JSON")


def _wrong_numbers(value: Any, path: str, *, fits: bool) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _wrong_numbers(each, f"{path}[]", fits=fits)
    if not isinstance(value, dict):
        return
    for key, inner in value.items():
        if fits and inner is None and key in _NEEDED:
            yield f"{path}.{key} is null"
        if isinstance(inner, float) and not isfinite(inner):
            yield f"{path}.{key} is {inner}"
        yield from _wrong_numbers(inner, f"{path}.{key}", fits=fits)
    unit = next((u for u in _UNITS if isinstance(value.get(u), int | float)), None)
    ends = (value.get("low"), value.get("high"))
    if unit and all(isinstance(end, int | float) for end in ends):
        low, high = ends
        middle, room = value[unit], SLACK * abs(value[unit])
        if not low - room <= middle <= high + room:
            yield f"{path}: low {low:.6g}, {unit} {middle:.6g}, high {high:.6g}"
        if fits and path.endswith(("_seconds", "_per_second", ".rows[]")) and not middle > 0:
            yield f"{path}.{unit} is {middle}"
