"""Rows that are finished, one JSON line each, beside the table that they will be in.

A sweep that was killed goes on where it stopped: a row is kept under a hash of its question, of the
files that it names and of this program, so that a row of another question, of a config that was
edited or of another release is never taken for it. The journal goes when the table is written.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final

from trueflops import __version__
from trueflops.errors import BadInput, printable
from trueflops.files import is_file
from trueflops.language import say
from trueflops.sweep.questions import Question
from trueflops.sweep.rows import Row

PACKAGE: Final = Path(__file__).parents[1]
SYNC_SECONDS: Final = 0.2  # at most so much work is lost if the machine loses power


def journal_of(table: Path) -> Path:
    """Where the journal of a table lies."""
    return table.with_name(f"{table.name}.journal")


def keys_of(questions: Iterable[Question]) -> list[str]:
    """What each question's row is kept under."""
    contents: dict[str, str] = {}  # of files, read once each
    keys = []
    for question in questions:
        for word in question.words:
            if word not in contents:
                contents[word] = _content(word)
        asked = [program(), question.words, [contents[word] for word in question.words]]
        keys.append(hashlib.sha256(json.dumps(asked).encode()).hexdigest())
    return keys


def _content(word: str) -> str:
    """The hash of the file, or of the config in the folder, that a word names; '' of any other."""
    for path in (Path(word), Path(word) / "config.json"):
        if is_file(path):
            return _digest(path)
    return ""


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return "unreadable"  # which its row says better


@cache
def program() -> str:
    """A hash of this package's source and data."""
    whole = hashlib.sha256(__version__.encode())
    for path in sorted(PACKAGE.rglob("*")):
        if path.suffix in (".py", ".toml", ".json", ".csv") and is_file(path):
            whole.update(f"{path.relative_to(PACKAGE)} {_digest(path)}".encode())
    return whole.hexdigest()


class Journal:
    """`with Journal(path) as journal:` one sweep at a time; `rows` are those of before."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[str, Row] = {}
        self._handle = -1
        self._synced = 0.0

    def __enter__(self) -> Journal:
        where = printable(str(self.path))
        try:
            self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise BadInput(
                say("{where}: cannot be written ({strerror})", where=where, strerror=error.strerror)
            ) from None
        if not _locked(self._handle):
            os.close(self._handle)
            raise BadInput(
                say(
                    "{where}: another sweep writes this table now; wait, or name another",
                    where=where,
                )
            )
        with os.fdopen(os.dup(self._handle), "rb") as stream:
            self.rows, whole = _recalled(stream)
        # What a kill left unfinished is asked again; what is appended begins on a line of its own.
        os.truncate(self._handle, whole)
        os.lseek(self._handle, 0, os.SEEK_END)
        return self

    def keep(self, key: str, row: Row) -> None:
        """Write a row; once this returns, a kill of this process does not lose it."""
        self.rows[key] = row
        line = json.dumps({"key": key, "row": row}, allow_nan=False).encode() + b"\n"
        while line:
            line = line[os.write(self._handle, line) :]
        if time.monotonic() - self._synced > SYNC_SECONDS:
            os.fsync(self._handle)
            self._synced = time.monotonic()

    def remove(self) -> None:
        """The table holds everything now."""
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.fsync(self._handle)
        os.close(self._handle)
        if not self.rows:
            self.remove()


def read_journal(path: Path) -> dict[str, Row]:
    """The rows that a journal holds; none where there is no journal."""
    if not is_file(path):
        return {}
    with path.open("rb") as stream:
        return _recalled(stream)[0]


def _recalled(stream: BinaryIO) -> tuple[dict[str, Row], int]:
    """Rows by their key, and how many bytes they take; from the first broken line on, none."""
    rows: dict[str, Row] = {}
    whole = 0
    for line in stream:
        try:
            found: Any = json.loads(line)
            key, row = found["key"], dict(found["row"])
        except (ValueError, TypeError, KeyError):
            break
        if not line.endswith(b"\n"):
            break
        rows[key] = row
        whole += len(line)
    return rows, whole


def _locked(handle: int) -> bool:
    """Whether nobody else has this file; where files cannot be locked, we trust the user."""
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):  # Windows; a network file system without locks
        return True
    return True
