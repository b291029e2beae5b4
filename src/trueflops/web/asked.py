"""A question as JSON -> the words of a command line, so that a page asks what one could type.

In: {"model": "Llama-3.1-8B", "on": "8xH100", "tp": 2}, untrusted. Out: Asked, whose words the
command line's own main() answers; what it may not be is refused with a sentence.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from trueflops.errors import BadConfig, BadInput
from trueflops.files import LARGEST_BYTES
from trueflops.language import say
from trueflops.model.config import decode_json
from trueflops.sweep.flags import UNSET, shown, text_of
from trueflops.web.allowed import NAMES, check_value
from trueflops.web.forms import Field, Form

DEEPEST: Final = 32  # of nesting; configs of multimodal models have four levels
MOST_LISTED: Final = 64  # words of one argument
_UNNAMED: Final = "model"
_OWN_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")


@dataclass(frozen=True)
class Asked:
    """One question: a command line, and the files of the client's that it names."""

    words: tuple[str, ...]  # the command first, without --json
    files: tuple[tuple[str, bytes], ...] = ()
    wanted: str = ""  # the file or folder that it writes, if that is what is wanted of it

    @property
    def typed(self) -> str:
        """As one types it."""
        return shlex.join(("trueflops", *self.words))


def read_body(raw: bytes) -> dict[str, Any]:
    """A JSON object of bounded size and depth."""
    if len(raw) > LARGEST_BYTES:
        raise BadInput(
            say("the question is larger than {most} MiB", most=LARGEST_BYTES // 1024 // 1024)
        )
    try:
        fields = decode_json(raw, Path("the question"))
    except BadConfig as error:
        raise BadInput(str(error)) from None
    check_depth(fields, "the question")
    return fields


def check_depth(value: object, where: str) -> None:
    """Refuse what is nested deeper than any config, before anything walks down it."""
    level = [value]
    for _ in range(DEEPEST):
        inner: list[object] = []
        for each in level:
            if isinstance(each, Mapping):
                inner += each.values()
            elif isinstance(each, list):
                inner += each
        if not inner:
            return
        level = inner
    raise BadInput(say("{where} is nested more than {most} levels deep", where=where, most=DEEPEST))


def read_asked(form: Form, body: Mapping[str, Any]) -> Asked:
    """The command line of a question; words in the parser's order, so that equal ones are equal."""
    given: dict[str, Any] = {}
    for key, value in body.items():
        field = form.find(key)
        if field.name in given:
            raise BadInput(
                say(
                    "{name!r} is asked twice, as {key!r} too; leave one of them out",
                    name=field.name,
                    key=key,
                )
            )
        if value is not None and value != UNSET:
            given[field.name] = value
    file, config = "", b""
    if isinstance(given.get("model"), Mapping):
        file, config = _config(given["model"])
    positional: list[str] = []
    flags: list[str] = []
    for field in form.fields:
        if field.name not in given:
            continue  # what it lacks, the command says
        if file and field.name == "model":
            words = [file] if field.positional else [field.flag.option, file]
        else:
            words = _words(field, given[field.name])
        (positional if field.positional else flags).extend(words)
    return Asked((form.command, *positional, *flags), ((file, config),) if file else ())


def _words(field: Field, value: object) -> list[str]:
    values = value if isinstance(value, list) and field.several else [value]
    if len(values) > MOST_LISTED:
        raise BadInput(say("{name!r}: more than {most} of them", name=field.name, most=MOST_LISTED))
    words: list[str] = []
    for each in values:
        if not isinstance(each, str | int | float | bool):
            raise BadInput(
                say(
                    "{name!r}: {shown} cannot be typed; write true, false, a number or a text",
                    name=field.name,
                    shown=shown(each),
                )
            )
        if isinstance(each, bool) and field.name in NAMES:
            raise BadInput(say("{name!r}: {shown} is no name", name=field.name, shown=shown(each)))
        if isinstance(each, float) and each - each != 0.0:
            raise BadInput(say("{name!r}: a number too large", name=field.name))
        text = text_of(each)
        if not isinstance(each, bool):
            check_value(field, text)
        try:
            words += field.flag.typed(each)  # what it holds, the command judges
        except BadInput as error:
            raise BadInput(f"{field.name!r}: {error}") from None
    return words


def _config(fields: Mapping[str, Any]) -> tuple[str, bytes]:
    """The file that a client's config.json will be."""
    said = fields.get("_name_or_path")
    name = said.rpartition("/")[2] if isinstance(said, str) else ""
    stem = name if _OWN_NAME.fullmatch(name) and not name.endswith(".json") else _UNNAMED
    return f"{stem}.json", json.dumps(fields).encode()
