"""Questions answered by processes of this machine, which start afresh and stay.

In: questions, the function that answers one. Out: rows in the order in which they are ready, each
with the place of its question. A process that dies (out of memory, killed) is replaced and its
question asked again; one that keeps killing processes becomes a row that says so.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Final

from trueflops.errors import TrueflopsError
from trueflops.language import say
from trueflops.sweep.questions import Question
from trueflops.sweep.rows import Row, failed

Answer = Callable[[Question], Row]
TRIES: Final = 3  # of a question whose process dies
READY: Final = "ready"  # a worker's first word: its modules are loaded


@dataclass
class Worker:
    """A process, our end of its pipe, and the place of the question that it works on."""

    process: BaseProcess
    pipe: Connection
    started: bool = False
    place: int | None = None


def answer_by_processes(
    questions: Sequence[Question], answer: Answer, jobs: int
) -> Iterator[tuple[int, Row]]:
    """Rows as they come."""
    crew = _Crew(questions, answer)
    try:
        crew.hire(min(jobs, len(questions)))
        while crew.left:
            yield from crew.next_rows()
    finally:
        crew.dismiss()


class _Crew:
    def __init__(self, questions: Sequence[Question], answer: Answer) -> None:
        self.questions, self.answer = questions, answer
        self.left = len(questions)
        self.waiting = deque(range(len(questions)))
        self.deaths: Counter[int] = Counter()
        self.workers: dict[Connection, Worker] = {}

    def hire(self, count: int) -> None:
        for _ in range(count):
            worker = start_worker(_work, self.answer)
            self.workers[worker.pipe] = worker

    def next_rows(self) -> Iterator[tuple[int, Row]]:
        for pipe in wait(list(self.workers)):
            worker = self.workers[pipe]  # type: ignore[index]  # of what may be waited for, a pipe
            place = worker.place
            try:
                said: Any = worker.pipe.recv()
            except (EOFError, OSError):
                said = self._replace(worker)
            else:
                self._ask(worker)
            if place is not None and said is not None:
                self.left -= 1
                yield place, said

    def _ask(self, worker: Worker) -> None:
        worker.started, worker.place = True, None
        if self.waiting:
            worker.place = self.waiting.popleft()
            with contextlib.suppress(OSError):  # it has just died: seen when its pipe is read
                worker.pipe.send(self.questions[worker.place])

    def _replace(self, worker: Worker) -> Row | None:
        """Another process for one that died; the row of its question once that is given up."""
        del self.workers[worker.pipe]
        dismiss(worker)
        if not worker.started:
            raise TrueflopsError(say("a worker process ended before it could be asked anything"))
        if worker.place is None:
            return None  # nothing was left to ask it
        self.hire(1)
        self.deaths[worker.place] += 1
        if self.deaths[worker.place] == TRIES:
            return failed(
                say("its process died {tries} times, perhaps of too little memory", tries=TRIES)
            )
        self.waiting.appendleft(worker.place)
        return None

    def dismiss(self) -> None:
        for worker in self.workers.values():
            dismiss(worker)


def start_worker(work: Callable[..., None], *given: object, method: str = "spawn") -> Worker:
    """A process that runs work(pipe, *given).

    A fresh process inherits none of our pipes, so that it ends when we are killed. It ignores
    Ctrl-C, which a terminal sends to all of us, from its first moment on; only the main thread may
    say so, and only there does Ctrl-C arrive.
    """
    context = get_context(method)
    ours, theirs = context.Pipe()
    process: BaseProcess = context.Process(target=work, args=(theirs, *given), daemon=True)  # type: ignore[attr-defined]
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if main else None
    try:
        process.start()
    finally:
        if main:
            signal.signal(signal.SIGINT, before)
    theirs.close()
    return Worker(process, ours)


def dismiss(worker: Worker) -> None:
    """End a process."""
    worker.process.terminate()
    worker.process.join()
    worker.pipe.close()


def _work(pipe: Connection, answer: Answer) -> None:
    """Answer what is asked until nobody asks any more."""
    with contextlib.suppress(EOFError, OSError):
        pipe.send(READY)
        while True:
            pipe.send(answer(pipe.recv()))
