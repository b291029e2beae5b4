"""Files that a launch file names, found and read.

In: a key whose value is a name, and the file that says it. Out: the text of that file. It is sought
beside the file, in the working directory, and in the folders above the file: configs name their
DeepSpeed config from the root of the repository that both lie in.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from trueflops.errors import BadInput, printable
from trueflops.files import is_file, read_file
from trueflops.interop.launch.settings import Said
from trueflops.language import say


def text_named(said: Said, key: str, file: Path) -> tuple[str, str]:
    """The text of a file that a key names, and what it is called in errors."""
    value: Any = said.values[key]
    name = str(value[0] if isinstance(value, list) else value)
    path = find_named(re.sub(r"^\$\{?HERE\}?/", "", name), file)
    if path is None:
        raise BadInput(
            say(
                "{place}: no file {name} beside it or in the working directory; put it there, or "
                "give --from that",
                place=said.place(key),
                name=printable(name),
            )
        )
    return text_of(path), printable(path.name)


def text_of(path: Path) -> str:
    """A file's text."""
    try:
        return read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(say("{name}: not a text", name=printable(path.name))) from None


def find_named(name: str, file: Path) -> Path | None:
    """A file that another one names; None where there is none."""
    above = file.absolute().parent.parents
    folders = (file.parent, Path(), *above)
    return next((path for folder in folders if is_file(path := folder / name)), None)
