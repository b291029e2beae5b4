"""A process that answers questions by the command line's own main(), and can do nothing else.

In: Asked, through a pipe. Out: Answered: exactly what the command printed, and how it ended.
It stands in an empty folder of its own; it opens no file but Python's, our data and what it wrote
there itself; memory is bounded.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import re
import shutil
import signal
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import all_suffixes
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from trueflops.language import say
from trueflops.records.measured import data_folder
from trueflops.report.progress import Listener, heard_by
from trueflops.search import Progress
from trueflops.units import GIBI
from trueflops.web.asked import Asked

Run = Callable[[Sequence[str]], int]
MOST_BYTES: Final = 2 * int(GIBI)  # of memory beyond what a fresh worker has
WARMING: Final = ("train", "Llama-3.1-8B", "--on", "8xH100", "--tp", "2")
MADE_BETWEEN: Final = 50_000  # objects, between two looks for cycles
SECONDS_BETWEEN: Final = 0.1  # that a search tells how far it is
BUG: Final = 101
STOP: Final = signal.SIGUSR1  # to a worker: nobody waits for the answer any more
STOPPED: Final = "STOPPED"  # from a worker that heard it
_BROKEN: Final = re.compile(r"\n {11}")
_BROKEN_WIDE: Final = re.compile(r"([⺀-\uffef])\n {11}(?=[⺀-\uffef])")  # no space between 中文
_ERROR: Final = re.compile(r"trueflops: (.*)\n\s*\[([A-Z][A-Z0-9_]*)\][^\n]*\n\Z", re.DOTALL)


@dataclass(frozen=True)
class Answered:
    """How a command ended, and what it said."""

    exit_code: int
    answer: bytes = b""  # its JSON
    error: str = ""  # its sentence
    code: str = ""  # and the reason for it, as BAD_INPUT
    made: tuple[tuple[str, bytes], ...] = ()  # files that were wanted


@dataclass(frozen=True)
class Told:
    """How far a question is."""

    text: str
    progress: Progress | None


def work(pipe: Connection, run: Run, folder: Path) -> None:
    """Answer what is asked until nobody asks any more."""
    os.chdir(folder)
    # Whatever the server's own locale is: the page says errors in its reader's language.
    os.environ |= {"COLUMNS": "80", "TRUEFLOPS_LANG": "en"}
    with contextlib.suppress(EOFError, OSError):
        answer(run, Asked(WARMING))
        gc.collect()
        gc.freeze()  # what is loaded stays: no collection need look at it again
        gc.set_threshold(MADE_BETWEEN)  # answers leave few cycles behind, and make much
        _bound_memory()
        _wall_in(folder)
        stoppable = _Stoppable()
        pipe.send(None)
        while True:
            asked = pipe.recv()
            if not folder.is_dir():  # whoever tidies /tmp takes what is old
                folder.mkdir()
                os.chdir(folder)
            try:
                with stoppable, heard_by(_now_and_then(pipe)):
                    found = answer(run, asked)
            except _Stopped:
                _empty(folder)
                found = Answered(BUG, code=STOPPED)
            pipe.send(found)


def answer(run: Run, asked: Asked) -> Answered:
    """One question, as if it had been typed where its files lie."""
    out, said = io.StringIO(), io.StringIO()
    try:
        for name, content in asked.files:
            Path(name).write_bytes(content)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
            code = run([*asked.words, "--json"])
        made = tuple(_made(Path(asked.wanted))) if asked.wanted else ()
    finally:
        _empty(Path())
    if code in (0, 1) and out.getvalue():
        return Answered(code, out.getvalue().encode(), made=made)
    return failure(code, said.getvalue())


class _Stopped(BaseException):
    """Nobody waits for this answer. Not an Exception: no command may take it for its own."""


class _Stoppable:
    """STOP interrupts what runs inside; outside, where answers are sent, it waits for the next.

    It may come before its question has, or after its answer left. Then the next question is handed
    back as stopped, and whoever still waits for it asks again.
    """

    def __init__(self) -> None:
        self.inside = self.wanted = False
        signal.signal(STOP, self._stop)

    def __enter__(self) -> None:
        self.inside = True
        if self.wanted:
            self._stop()

    def __exit__(self, *ended: object) -> None:
        self.inside = False

    def _stop(self, *signalled: object) -> None:
        self.wanted = not self.inside
        if self.inside:
            self.inside = False
            raise _Stopped


def _now_and_then(pipe: Connection) -> Listener:
    """Tell how far a search is, but not a thousand times a second."""
    last = -SECONDS_BETWEEN

    def tell(text: str, progress: Progress | None) -> None:
        nonlocal last
        if time.monotonic() - last >= SECONDS_BETWEEN:
            last = time.monotonic()
            pipe.send(Told(text, progress))

    return tell


def _made(wanted: Path) -> Iterator[tuple[str, bytes]]:
    """The file, or the files of the folder, that a command wrote."""
    if wanted.is_file():
        yield wanted.name, wanted.read_bytes()
    for path in sorted(wanted.rglob("*")):
        if path.is_file():
            yield path.relative_to(wanted).as_posix(), path.read_bytes()


def failure(code: int, said: str) -> Answered:
    """The sentence that a command ended with, on one line again."""
    found = _ERROR.search(said)
    if found is None:
        return Answered(BUG, error=say("a bug of ours: the command said nothing"), code="BUG")
    sentence = _BROKEN.sub(" ", _BROKEN_WIDE.sub(r"\1", found[1]))
    return Answered(code, error=sentence, code=found[2])


def _empty(folder: Path) -> None:
    for left in folder.iterdir():
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def _bound_memory() -> None:
    """Let a question that needs too much fail by itself, before the machine runs out."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (ImportError, OSError):  # Windows; a system without /proc
        return
    most = pages * resource.getpagesize() + MOST_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _wall_in(folder: Path) -> None:
    """From here on, refuse to open what is neither Python's, nor ours, nor in the folder.

    The second wall: what asked.py lets through names no file. If it ever did, this would stop it.
    """
    library = data_folder()
    roots = [Path(__file__).parents[1], *([library] if library else [])]
    roots += [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")]
    roots += [Path(entry) for entry in sys.path if entry.endswith("-packages")]
    allowed = tuple(f"{root.resolve()}{os.sep}" for root in roots)
    # Of any other folder that Python imports from, its modules alone: it may be someone's home.
    modules = tuple(f"{Path(entry).resolve()}{os.sep}" for entry in sys.path)
    suffixes = tuple(all_suffixes())
    own = f"{folder.resolve()}{os.sep}"

    def readable(path: str) -> bool:
        return path.startswith(allowed) or (path.startswith(modules) and path.endswith(suffixes))

    def check(event: str, given: tuple[Any, ...]) -> None:
        if event in _STARTING:
            raise PermissionError(f"a worker of the web server may not {event}")
        if event != "open" or not isinstance(given[0], str | bytes | os.PathLike):
            return  # a number is a file that is open already
        path = os.path.realpath(os.fsdecode(given[0]))
        writing = bool((given[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        if path.startswith(own) or path == os.devnull:
            return
        if writing or not readable(path):
            raise PermissionError("a worker of the web server opens no file of the server")

    sys.addaudithook(check)


_STARTING: Final = frozenset({
    "os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "socket.connect",
    "socket.bind",
})  # fmt: skip
