"""Worker processes and who waits for them: time limits, cancellation, bounded queues.

In: Asked. Out: Answered, or Refused. A question that takes long does not hold the others up: its
worker is set aside, at a lower priority, and another takes its place; few such at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from trueflops.language import say
from trueflops.sweep.local import Worker, dismiss, start_worker
from trueflops.web.asked import Asked
from trueflops.web.worker import STOP, STOPPED, Answered, Run, Told, work

PATIENCE_SECONDS: Final = 1.0  # after which a question counts as a long one
GRACE_SECONDS: Final = 0.5  # in which a worker that was told to stop must have stopped
MOST_ASIDE: Final = 4  # long questions at a time
MOST_WAITING: Final = 1000
MOST_ANSWERED: Final = 2000  # by one process; so what it remembers of them is bounded, too
LOW_PRIORITY: Final = 10
METHOD: Final = "forkserver"  # its children have all modules already
_LOADED: Final = [
    "trueflops.cli.main",
    *(f"trueflops.cli.{name}" for name in
      ("train", "infer", "compare", "catalog", "explain", "collective", "stragglers")),
]  # fmt: skip


Listener = Callable[[Told], None]


class Refused(Exception):
    """A question that is not answered: too long, too large, or too many at a time."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


@dataclass(eq=False)
class Job:
    """A question, who waits for it, and how long it may take."""

    asked: Asked
    seconds: float
    listener: Listener
    done: asyncio.Future[Answered]


@dataclass(eq=False)
class Desk:
    """A worker, what it works on, and what happens if that lasts."""

    worker: Worker
    folder: Path  # where it stands; ours to remove, as it may be killed
    job: Job | None = None
    ready: bool = False
    aside: bool = False
    answered: int = 0
    timers: list[asyncio.TimerHandle] = field(default_factory=list)


class Pool:
    """`await pool.ask(asked, seconds)`."""

    def __init__(self, run: Run, size: int) -> None:
        self.run, self.size = run, size
        self.desks: list[Desk] = []
        self.waiting: deque[Job] = deque()
        self.closed = False

    def start(self) -> None:
        """Hire; the workers load while the first questions wait."""
        for library in ("OMP", "MKL", "OPENBLAS"):  # a worker a core: more threads only fight
            os.environ.setdefault(f"{library}_NUM_THREADS", "1")
        get_context(METHOD).set_forkserver_preload(_LOADED)
        for _ in range(self.size):
            self._hire()

    def close(self) -> None:
        """Dismiss all."""
        self.closed = True
        for desk in list(self.desks):
            self._dismiss(desk)

    async def ask(self, asked: Asked, seconds: float, listener: Listener) -> Answered:
        """The answer; a question that is cancelled is taken back, or its worker told to stop."""
        if len(self.waiting) >= MOST_WAITING:
            raise Refused("BUSY", say("too many questions are waiting; ask again in a moment"))
        job = Job(asked, seconds, listener, asyncio.get_running_loop().create_future())
        self.waiting.append(job)
        self._hand_out()
        try:
            return await job.done
        except asyncio.CancelledError:
            self._take_back(job)
            raise

    def _hire(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="trueflops-web-"))
        desk = Desk(start_worker(work, self.run, folder, method=METHOD), folder)
        self.desks.append(desk)
        number = desk.worker.pipe.fileno()
        asyncio.get_running_loop().add_reader(number, self._read, desk)
        os.set_blocking(number, True)  # uvloop thinks otherwise, and would cut long answers short

    def _dismiss(self, desk: Desk) -> None:
        self.desks.remove(desk)
        self._clear(desk)
        asyncio.get_running_loop().remove_reader(desk.worker.pipe.fileno())
        dismiss(desk.worker)
        shutil.rmtree(desk.folder, ignore_errors=True)

    def _hand_out(self) -> None:
        for desk in self.desks:
            if not self.waiting:
                return
            if desk.ready and desk.job is None:
                self._give(desk, self.waiting.popleft())

    def _give(self, desk: Desk, job: Job) -> None:
        desk.job = job
        later = asyncio.get_running_loop().call_later
        desk.timers = [
            later(PATIENCE_SECONDS, self._set_aside, desk),
            later(job.seconds, self._end, desk, job),
        ]
        with contextlib.suppress(OSError):  # it has just died: seen when its pipe is read
            desk.worker.pipe.send(job.asked)

    def _read(self, desk: Desk) -> None:
        try:
            said = desk.worker.pipe.recv()
        except (EOFError, OSError):
            self._bury(desk)
            return
        job, aside = desk.job, desk.aside
        if isinstance(said, Told):
            if job is not None:
                job.listener(said)
            return
        self._clear(desk)
        desk.ready = True
        if job is not None and not job.done.done():
            if said.code == STOPPED:  # what was to be stopped had ended: this is another
                self.waiting.appendleft(job)
            else:
                job.done.set_result(said)
        desk.answered += job is not None
        if aside:  # a low priority cannot be raised again
            self._dismiss(desk)
        elif desk.answered == MOST_ANSWERED or (job and said.code == "TOO_LARGE"):
            self._replace(desk)
        self._hand_out()

    def _clear(self, desk: Desk) -> None:
        for timer in desk.timers:
            timer.cancel()
        desk.job, desk.timers = None, []

    def _bury(self, desk: Desk) -> None:
        """A worker died: of memory, most likely."""
        job, aside, started = desk.job, desk.aside, desk.ready
        self._dismiss(desk)
        if job is not None and not job.done.done():
            job.done.set_exception(
                Refused(
                    "TOO_LARGE",
                    say(
                        "the process that worked on this died, perhaps of too little memory; ask "
                        "something smaller"
                    ),
                )
            )
        if not aside and started and not self.closed:
            self._hire()

    def _set_aside(self, desk: Desk) -> None:
        if sum(each.aside for each in self.desks) >= MOST_ASIDE:
            return
        desk.aside = True
        pid = desk.worker.process.pid
        with contextlib.suppress(OSError, AttributeError):  # it has just died; Windows
            os.setpriority(os.PRIO_PROCESS, pid or 0, LOW_PRIORITY)
        self._hire()

    def _end(self, desk: Desk, job: Job) -> None:
        """The time of a question is over."""
        if desk.job is not job:
            return
        if not job.done.done():
            job.done.set_exception(
                Refused(
                    "TOO_LONG",
                    say(
                        "this takes longer than the {seconds:g} s that a question may take here; "
                        "fix a part of the plan, or ask the command line",
                        seconds=job.seconds,
                    ),
                )
            )
        self._replace(desk)

    def _replace(self, desk: Desk) -> None:
        aside = desk.aside
        self._dismiss(desk)
        if not aside and not self.closed:
            self._hire()

    def _take_back(self, job: Job) -> None:
        """Nobody waits for this any more: its worker stops, and is free for the next."""
        if job in self.waiting:
            self.waiting.remove(job)
            return
        for desk in self.desks:
            if desk.job is job:
                with contextlib.suppress(OSError):  # it has just died
                    os.kill(desk.worker.process.pid or 0, STOP)
                later = asyncio.get_running_loop().call_later
                desk.timers.append(later(GRACE_SECONDS, self._abandon, desk, job))

    def _abandon(self, desk: Desk, job: Job) -> None:
        """It did not stop: it is deep in a library, or Python dropped the interruption."""
        if desk.job is job:
            self._replace(desk)
