"""Files that a user names: read bounded, written whole; every way to fail is one clear error."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from trueflops.errors import BadInput, printable
from trueflops.measure.whole import Refused, check_target, write_whole
from trueflops.measure.whole import own_path as own_path

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


@contextmanager
def open_file(path: Path, most: int = LARGEST_BYTES) -> Iterator[BinaryIO]:
    """A file of at most so many bytes, to be read piece by piece."""
    where = printable(str(path))
    if is_folder(path):
        raise BadInput(f"{where}: a folder; name the files in it")
    if not is_file(path):
        raise BadInput(f"{where}: no such file")
    try:
        with path.open("rb") as stream:
            if os.fstat(stream.fileno()).st_size > most:
                raise BadInput(f"{where}: larger than {most // 1024 // 1024} MiB")
            yield stream
    except OSError as error:
        raise BadInput(f"{where}: cannot be read ({error.strerror})") from None


def read_file(path: Path, most: int = LARGEST_BYTES) -> bytes:
    """The bytes of a file of at most so many."""
    with open_file(path, most) as stream:
        raw = stream.read(most + 1)  # the size that a file of /proc tells is 0
    if len(raw) > most:
        raise BadInput(f"{printable(str(path))}: larger than {most // 1024 // 1024} MiB")
    return raw


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file, whole or not at all; a link stays one, and a stream is written to."""
    raw = content.encode(errors="surrogateescape") if isinstance(content, str) else content
    try:
        write_whole(path, raw)
    except Refused as error:
        raise BadInput(str(error)) from None


def check_writable(path: Path) -> None:
    """Refuse a file that could not be written, before the work whose result it shall hold."""
    try:
        check_target(path)
    except Refused as error:
        raise BadInput(str(error)) from None
