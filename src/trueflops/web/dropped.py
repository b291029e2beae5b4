"""A file that was dropped on the page: what it is, and which command shows it.

In: its name and bytes, untrusted; the name says nothing, the content does. Out: a kind and the
command line that reads it. A trace may be packed; every other kind is text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from trueflops.errors import BadConfig, BadInput, printable
from trueflops.files import LARGEST_BYTES
from trueflops.language import mark, say
from trueflops.model.config import decode_json
from trueflops.records.measured import LARGEST as LARGEST_PROFILE
from trueflops.web.asked import Asked, check_depth

Kind = Literal["trace", "profile", "csv", "answer", "config"]
Body = dict[str, Any]
ReadWords = Callable[[str, Sequence[str]], Body]  # a command's words -> a question as JSON
LARGEST_DROP: Final = 64 * 1024 * 1024
_GZIP: Final = b"\x1f\x8b"
_SAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_KNOWN: Final = mark(
    "drop a trace of PyTorch's profiler, a profile of trueflops measure, a CSV of measured runs, "
    "an answer of --json, or a model's config.json"
)


@dataclass(frozen=True)
class Dropped:
    """What a file is, and what is to be asked about it; an answer is shown as it is."""

    kind: Kind
    asked: Asked | None = None
    answer: Mapping[str, Any] | None = None
    question: Mapping[str, Any] | None = None


def recognise(name: str, raw: bytes, on: str, read_words: ReadWords) -> Dropped:
    """What a file is; `on` is the chip of a trace that does not say it."""
    if not raw.strip():
        raise BadInput(
            say("{name}: the file is empty; {known}", name=printable(name), known=_KNOWN)
        )
    chip = ("--on", on) if on else ()
    if raw.startswith(_GZIP):
        return Dropped("trace", _ask(("diagnose",), _file(name, ".json.gz"), raw, chip))
    if raw.lstrip()[:1] not in (b"{", b"["):
        if b"\x00" in raw[:4096]:
            raise BadInput(say("{name}: not a text; {known}", name=printable(name), known=_KNOWN))
        return Dropped("csv", _ask(("verify",), _file(name, ".csv"), raw))
    if b'"traceEvents"' in raw or raw.lstrip()[:1] == b"[":
        return Dropped("trace", _ask(("diagnose",), _file(name, ".json"), raw, chip))
    return _json(name, raw, read_words)


def _json(name: str, raw: bytes, read_words: ReadWords) -> Dropped:
    if len(raw) > max(LARGEST_PROFILE, LARGEST_BYTES):
        raise BadInput(
            say("{name}: too large for a profile or a config, and no trace", name=printable(name))
        )
    try:
        fields = decode_json(raw, Path(printable(name)))
    except BadConfig as error:
        raise BadInput(str(error)) from None
    check_depth(fields, printable(name))
    file = _file(name, ".json")
    if "curves" in fields or "measured" in fields:
        return Dropped("profile", _ask(("measure", "show"), file, raw))
    if "schema_version" in fields:
        return Dropped("answer", answer=fields, question=_question(name, fields, read_words))
    if "model_type" in fields or "text_config" in fields:
        return Dropped("config", _ask(("catalog",), file, raw), question={"model": fields})
    raise BadInput(
        say("{name}: none of the files that are known; {known}", name=printable(name), known=_KNOWN)
    )


def _question(name: str, fields: Mapping[str, Any], read_words: ReadWords) -> Body:
    """What an answer was asked, as the page asks it."""
    asked = fields.get("question")
    if not isinstance(asked, Mapping):
        raise BadInput(
            say(
                "{name}: this answer does not say what was asked; ask it anew", name=printable(name)
            )
        )
    command, words = asked.get("command"), asked.get("arguments")
    if not isinstance(command, str) or not isinstance(words, list):
        raise BadInput(
            say("{name}: its question is not a command and its arguments", name=printable(name))
        )
    if len(words) > 200 or not all(isinstance(w, str) and len(w) < 300 for w in words):
        raise BadInput(
            say("{name}: the arguments of its question are no short texts", name=printable(name))
        )
    return {"command": command, **read_words(command, words)}


def _ask(command: tuple[str, ...], file: str, raw: bytes, more: tuple[str, ...] = ()) -> Asked:
    return Asked((*command, file, *more), ((file, raw),))


def _file(name: str, suffix: str) -> str:
    """The name under which a worker sees a file: its own, without what could lead elsewhere."""
    stem = _SAFE.sub("-", name.rpartition("/")[2].rpartition("\\")[2])[:60].strip(".-")
    for known in (".gz", ".json", ".csv"):
        stem = stem.removesuffix(known)
    return f"{stem or 'dropped'}{suffix}"
