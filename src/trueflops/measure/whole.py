"""The one writer of files: a file is complete whenever it is read, even if we are killed.

A temporary file of a name of its own beside the target, then one rename: two writers never share
it, and a full disk leaves what was there before. A link is followed and stays a link. What is not
a plain file (/dev/stdout, a pipe) is written to, never replaced. Standard library alone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import Final

_SAID: Final = {
    errno.ENOSPC: "the disk is full; what was there before is untouched",
    errno.EDQUOT: "the quota is used up; what was there before is untouched",
    errno.ENOENT: "no such folder",
    errno.ENXIO: "a pipe that nobody reads",
    errno.ELOOP: "links that lead in a circle",
}
_STREAMS: Final = ("/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/")


class Refused(Exception):
    """Something that was asked for cannot be done; the message says what to do instead."""


def write_whole(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all; Refused says why it cannot be."""
    try:
        target, mode = _target(path)
        if mode is None or stat.S_ISREG(mode):
            _replace(target, content, mode)
        else:
            _write_through(path, content)
    except (OSError, ValueError) as error:
        raise Refused(f"{_shown(path)}: cannot be written ({_why(error)})") from None


def check_target(path: Path) -> None:
    """Refuse at once what could not be written later: before hours of work, not after."""
    try:
        target, mode = _target(path)
        if mode is None and not target.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, "no such folder")
    except (OSError, ValueError) as error:
        raise Refused(f"{_shown(path)}: cannot be written ({_why(error)})") from None


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


def _why(error: OSError | ValueError) -> str:
    if not isinstance(error, OSError):
        return str(error)  # a zero byte in the name
    return _SAID.get(error.errno or 0, error.strerror or str(error))


def _shown(path: Path) -> str:
    """A name as it may be printed."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(path))[:200]


def own_path(text: str) -> Path:
    """A path as a user writes it; ~ is a home folder where there is one."""
    try:
        return Path(text).expanduser()
    except RuntimeError:  # nobody of that name, or no home at all
        return Path(text)
