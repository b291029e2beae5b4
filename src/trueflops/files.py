"""Reading files that a user names: bounded, and every way it can fail is one clear error."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from trueflops.errors import BadInput, printable

LARGEST_BYTES: Final = 4 * 1024 * 1024  # configs, clusters and answers are a few KB


def is_file(path: Path) -> bool:
    """Whether a file is there; a name too long, or with a zero byte, is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def is_folder(path: Path) -> bool:
    """Whether a folder is there."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def read_file(path: Path, most: int = LARGEST_BYTES) -> bytes:
    """The bytes of a file of at most so many."""
    if is_folder(path):
        raise BadInput(f"{printable(str(path))}: a folder; name the files in it")
    if not is_file(path):
        raise BadInput(f"{printable(str(path))}: no such file")
    try:
        with path.open("rb") as stream:
            raw = stream.read(most + 1)
    except OSError as error:
        raise BadInput(f"{printable(str(path))}: cannot be read ({error.strerror})") from None
    if len(raw) > most:
        raise BadInput(f"{printable(str(path))}: larger than {most // 1024 // 1024} MiB")
    return raw
