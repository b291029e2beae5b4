"""A line on stderr while an answer takes longer than a second.

Only where stderr is a terminal: nothing of it reaches a file, a pipe or the answer on stdout. Who
runs a command without a terminal, as the web server does, may listen to the same words.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Final

from rich.status import Status

from trueflops import units
from trueflops.language import say
from trueflops.report.tables import console
from trueflops.search import Progress

PATIENCE_SECONDS: Final = 1.0
Listener = Callable[[str, Progress | None], None]
_LISTENER: Final[ContextVar[Listener | None]] = ContextVar("listener", default=None)


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Whatever is said while this lasts is said to the listener too."""
    before = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(before)


class Waiting:
    """`with Waiting("searching") as wait: wait.say("…")`: gone when the block ends."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._lock = threading.Lock()
        self._status: Status | None = None
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Waiting:
        if sys.stderr.isatty():
            self._timer = threading.Timer(PATIENCE_SECONDS, self._begin)
            self._timer.daemon = True
            self._timer.start()
        return self

    def say(self, text: str, progress: Progress | None = None) -> None:
        """What is being done now, and how far a search has come."""
        self.text = text
        if listener := _LISTENER.get():
            listener(text, progress)
        if self._status is not None:
            self._status.update(text)

    def _begin(self) -> None:
        with self._lock:
            if self._timer is not None:
                self._status = Status(self.text, console=console(stderr=True))
                self._status.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._status is not None:
                self._status.stop()


def how_far(done: int, of: int, new: int, seconds: float) -> str:
    """'37 of 96 · 4.2/s · 14 s left'; the pace is that of the `new` ones, which took `seconds`."""
    words = [say("{done:,} of {of:,}", done=done, of=of)]
    if new and seconds > 0:
        words.append(f"{new / seconds:.3g}/s")
        words.append(say("{of} left", of=units.show((of - done) * seconds / new, "seconds")))
    return " · ".join(words)
