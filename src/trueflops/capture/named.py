"""FILE.py or FILE.py:FUNCTION as text: checked before any of it runs and torch is imported."""

from __future__ import annotations

import re
from pathlib import Path

from trueflops.errors import BadInput, printable
from trueflops.files import is_file, read_file


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
            f"{printable(text)}: write FILE.py:FUNCTION, such as train.py:build, or FILE.py for a "
            "script that trains"
        )
    path = Path(file)
    if not is_file(path):
        raise BadInput(f"{printable(file)}: no such file")
    if not name:
        return path, ""
    source = read_file(path).decode(errors="replace")
    if not re.search(rf"\b{re.escape(name)}\b|\bimport\s*\(?\s*\*", source):
        functions = re.findall(r"^(?:async )?def ([A-Za-z]\w*)", source, re.MULTILINE)
        raise no_function(path, name, functions)
    return path, name


def no_function(path: Path, name: str, functions: list[str]) -> BadInput:
    """The error that names those there are."""
    there = ", ".join(functions[:8]) or "none"
    return BadInput(f"{printable(path.name)} has no function {name!r}; it has: {there}")
