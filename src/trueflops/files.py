"""Files that a user names: read bounded, written whole; every way to fail is one clear error.

Whoever reads a file that we write, and whenever we are killed, it is whole: a temporary file of a
name of its own beside the target, then one rename. Two writers never share it, and a full disk
leaves what was there before. A link is followed and stays a link. What is not a plain file
(/dev/stdout, a pipe) is written to, never replaced. Standard library alone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from trueflops.errors import BadInput, printable
from trueflops.language import say

LARGEST_BYTES: Final = 4 * 1024 * 1024  # configs, clusters and answers are a few KB
_SAID: Final = {
    errno.ENOSPC: "the disk is full; what was there before is untouched",
    errno.EDQUOT: "the quota is used up; what was there before is untouched",
    errno.ENOENT: "no such folder",
    errno.ENXIO: "a pipe that nobody reads",
    errno.ELOOP: "links that lead in a circle",
}
_STREAMS: Final = ("/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/")


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


def _is_there(path: Path) -> bool:
    """Whether anything is there."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


@contextmanager
def open_file(path: Path, most: int = LARGEST_BYTES) -> Iterator[BinaryIO]:
    """A file of at most so many bytes, to be read piece by piece."""
    where = printable(str(path))
    if is_folder(path):
        raise BadInput(say("{where}: a folder; name the files in it", where=where))
    if not is_file(path):
        if _is_there(path):
            raise BadInput(
                say("{where}: a pipe or a device; write it to a file and name that", where=where)
            )
        raise BadInput(say("{where}: no such file", where=where))
    try:
        with path.open("rb") as stream:
            if os.fstat(stream.fileno()).st_size > most:
                raise BadInput(
                    say("{where}: larger than {most} MiB", where=where, most=most // 1024 // 1024)
                )
            yield stream
    except OSError as error:
        raise BadInput(
            say("{where}: cannot be read ({strerror})", where=where, strerror=error.strerror)
        ) from None


def read_file(path: Path, most: int = LARGEST_BYTES) -> bytes:
    """The bytes of a file of at most so many."""
    with open_file(path, most) as stream:
        raw = stream.read(most + 1)  # the size that a file of /proc tells is 0
    if len(raw) > most:
        raise BadInput(
            say(
                "{path}: larger than {most} MiB",
                path=printable(str(path)),
                most=most // 1024 // 1024,
            )
        )
    return raw


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file, whole or not at all; a link stays one, and a stream is written to."""
    raw = content.encode(errors="surrogateescape") if isinstance(content, str) else content
    try:
        target, mode = _target(path)
        if mode is None or stat.S_ISREG(mode):
            _replace(target, raw, mode)
        else:
            _write_through(path, raw)
    except (OSError, ValueError) as error:
        raise _unwritable(path, error) from None


def check_writable(path: Path) -> None:
    """Refuse a file that could not be written, before the work whose result it shall hold."""
    try:
        target, mode = _target(path)
        if mode is None and not target.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, "no such folder")
    except (OSError, ValueError) as error:
        raise _unwritable(path, error) from None


def _target(path: Path) -> tuple[Path, int | None]:
    """What a path leads to, and the mode of what is there."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return Path(os.path.realpath(path)), None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "a folder")
    if stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
        raise OSError(errno.EINVAL, "neither a file nor a stream")
    if str(path.absolute()).startswith(_STREAMS):  # where it leads may be a file: still a stream
        return path, stat.S_IFIFO
    if stat.S_ISREG(mode) and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, "it is write-protected")
    return Path(os.path.realpath(path)), mode


def _replace(target: Path, content: bytes, mode: int | None) -> None:
    beside = target.with_name(f".trueflops-{os.urandom(6).hex()}.part")
    try:
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        if mode is not None:
            beside.chmod(stat.S_IMODE(mode))
        beside.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise


def _write_through(path: Path, content: bytes) -> None:
    # A pipe without a reader must not hang us; what a redirection wrote before stays.
    handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_APPEND)
    os.set_blocking(handle, True)
    with os.fdopen(handle, "wb") as stream:
        stream.write(content)


def _unwritable(path: Path, error: OSError | ValueError) -> BadInput:
    why = str(error)  # of a ValueError: a zero byte in the name
    if isinstance(error, OSError):
        why = _SAID.get(error.errno or 0, error.strerror or why)
    return BadInput(
        say("{path}: cannot be written ({why})", path=printable(str(path), 200), why=why)
    )


def own_path(text: str) -> Path:
    """A path as a user writes it; ~ is a home folder where there is one."""
    try:
        return Path(text).expanduser()
    except RuntimeError:  # nobody of that name, or no home at all
        return Path(text)
