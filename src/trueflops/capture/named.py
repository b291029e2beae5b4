"""FILE.py or FILE.py:FUNCTION as text: checked before any of it runs and torch is imported."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

from trueflops.errors import BadInput, printable, shorten
from trueflops.files import is_file, read_file
from trueflops.language import say


def named_program(text: str) -> tuple[Path, str]:
    """The file and the function, "" for a script; BadInput where one of them cannot be.

    Only a name that occurs nowhere in the file is refused here: a function may also be made without
    a `def`, and then it is found when the file runs.
    """
    file, _, name = text.rpartition(":")
    if text.endswith(".py"):
        file, name = text, ""
    elif not file or not name.isidentifier():
        raise BadInput(
            say(
                "{said}: write FILE.py:FUNCTION, such as train.py:build, or FILE.py for a script "
                "that trains",
                said=printable(text),
            )
        )
    path = Path(file)
    if not is_file(path):
        raise BadInput(say("{file}: no such file", file=printable(file)))
    if path.suffix != ".py":
        raise BadInput(
            say("{file}: not a Python file; write FILE.py:FUNCTION", file=printable(file))
        )
    raw = read_file(path)
    _check_syntax(path, raw)
    if not name:
        return path, ""
    source = raw.decode(errors="replace")
    if not re.search(rf"\b{re.escape(name)}\b|\bimport\s*\(?\s*\*", source):
        functions = re.findall(r"^(?:async )?def ([A-Za-z]\w*)", source, re.MULTILINE)
        raise no_function(path, name, functions)
    return path, name


def _check_syntax(path: Path, raw: bytes) -> None:
    """Refuse what Python could not run; warnings about it are left to the run itself."""
    try:
        with warnings.catch_warnings(action="ignore"):
            compile(raw, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        code = shorten((error.text or "").strip(), 80)
        at = f" at {path.name}:{error.lineno}" if error.lineno else ""
        raise BadInput(
            say(
                "running {place}{code}: {error}",
                place=printable(path.name + at),
                code=f" ({code})" if code else "",
                error=f"{type(error).__name__}: {error.msg}",
            )
        ) from None
    except ValueError as error:  # a zero byte
        raise BadInput(
            say("running {place}: {error}", place=printable(path.name), error=error)
        ) from None
    except RecursionError:
        raise BadInput(
            say("running {place}: nested too deeply", place=printable(path.name))
        ) from None


def no_function(path: Path, name: str, functions: list[str]) -> BadInput:
    """The error that names those there are."""
    there = ", ".join(functions[:8]) or say("none")
    return BadInput(
        say(
            "{file} has no function {name!r}; it has: {there}",
            file=printable(path.name),
            name=name,
            there=there,
        )
    )
