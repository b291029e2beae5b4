"""A question's answer as files: the trace for Perfetto, launch files, a table.

In: a question, and which files. Out: the question whose command writes them, and what is sent.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from trueflops.errors import BadInput, UnknownName, printable
from trueflops.language import say
from trueflops.web.asked import Asked
from trueflops.web.worker import Answered

KINDS: Final = ("trace", "emit", "csv")
_TRACE: Final = "trace.json"
_FOLDER: Final = "launch"
_USUAL: Final = {"train": "megatron", "infer": "vllm"}
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)  # zip's first: equal files are equal archives
Column = dict[str, Any]


def asked_for(kind: str, asked: Asked, tool: object) -> Asked:
    """The question whose command writes what is wanted."""
    command = asked.words[0]
    if kind not in KINDS:
        raise UnknownName("export", kind, KINDS)
    if kind == "csv":
        return asked
    if command not in _USUAL:
        raise BadInput(
            say("{command} has no {kind}; ask train or infer", command=command, kind=kind)
        )
    if kind == "trace":
        return replace(asked, words=(*asked.words, "--trace", _TRACE), wanted=_TRACE)
    if tool is not None and (not isinstance(tool, str) or not tool.isalnum()):
        raise BadInput(
            say(
                "tool: {tool!r} is none; write one as {usual}",
                tool=printable(str(tool), 40),
                usual=_USUAL[command],
            )
        )
    words = (*asked.words, "--emit", tool or _USUAL[command], _FOLDER)
    return replace(asked, words=words, wanted=_FOLDER)


def packed(kind: str, asked: Asked, found: Answered) -> tuple[str, str, bytes]:
    """Name, media type and content of what is sent."""
    if kind == "csv":
        return "answer.csv", "text/csv", table(asked.words[0], json.loads(found.answer))
    if not found.made:
        raise BadInput(say("nothing was written: {why}", why=_why(json.loads(found.answer))))
    if kind == "trace":
        return _TRACE, "application/json", found.made[0][1]
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as files:
        for name, content in found.made:
            files.writestr(zipfile.ZipInfo(f"{_FOLDER}/{name}", _EPOCH), content)
    return "launch.zip", "application/zip", archive.getvalue()


def _why(answer: Mapping[str, Any]) -> str:
    """What an answer says of itself."""
    if why := answer.get("why"):
        return str(why)
    said = [note for note in answer.get("notes", ()) if str(note).startswith("--emit")]
    if said:
        return str(said[0])
    fits = answer.get("fits", True)
    return say("this answer has none") if fits else say("the plan does not fit")


def table(command: str, answer: Mapping[str, Any]) -> bytes:
    """A row for each chip of a comparison; of any other answer, a row for each of its numbers."""
    rows: list[Column]
    if command == "compare":
        rows = [dict(_cells("", chip)) for chip in answer["chips"]]
    else:
        rows = list(_numbers((), answer))
    columns = list(dict.fromkeys(column for row in rows for column in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


def _cells(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Columns of an object: nested names joined by dots."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _cells(f"{name}.{key}" if name else key, inner)
    elif isinstance(value, list):
        yield name, "; ".join(map(str, value))
    else:
        yield name, value


def _numbers(where: tuple[str, ...], value: Any) -> Iterator[Column]:
    """Every number, by the names that lead to it; an estimate is one, with its interval."""
    if isinstance(value, Mapping):
        if {"value", "low", "high"} <= value.keys():
            row = {key: value[key] for key in ("value", "low", "high")}
            yield {"name": " / ".join(where), **row, "origin": value.get("origin", "")}
            return
        if "parts" in value or {"name", "low", "high"} <= value.keys():
            yield from _node(where, value)
            return
        for key, inner in value.items():
            yield from _numbers((*where, str(key)), inner)
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            named = inner.get("name", at) if isinstance(inner, Mapping) else at
            yield from _numbers((*where, str(named)), inner)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield {"name": " / ".join(where), "value": value, "low": "", "high": "", "origin": ""}


def _node(where: tuple[str, ...], node: Mapping[str, Any]) -> Iterator[Column]:
    """A node of a tree whose parts sum: its number stands under its unit."""
    known = ("name", "low", "high", "origin", "combine", "parts")
    unit = next((key for key in node if key not in known), "")
    yield {
        "name": " / ".join(where),
        "value": node.get(unit, ""),
        **{key: node.get(key, "") for key in ("low", "high", "origin")},
        "unit": unit,
    }
    for part in node.get("parts", ()):
        yield from _node((*where, str(part["name"])), part)
