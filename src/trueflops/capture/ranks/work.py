"""Handles of asynchronous collectives, as torch gives them to a program."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import torch
import torch.distributed as dist


class StreamMark(NamedTuple):
    """A point in the work of a stream, to be waited for."""

    stream: int
    at: int  # events seen when it was set
    on_host: bool = False


class Owner(Protocol):
    """Who started a collective, and lets streams wait for it (ranks/collectives.py)."""

    def wait(self, marks: tuple[StreamMark, ...]) -> None:
        """The current stream waits for these."""

    def side_stream(
        self, marks: tuple[StreamMark, ...]
    ) -> AbstractContextManager[Callable[[], StreamMark]]:
        """Another stream, which waits for these; gives the mark of its end."""


class CollectiveWork(dist.Work):
    """An asynchronous collective; waiting for it makes the current stream wait."""

    def __init__(
        self, owner: Owner, marks: tuple[StreamMark, ...], tensors: list[torch.Tensor]
    ) -> None:
        super().__init__()
        self._owner, self._marks = owner, marks
        self._held = tensors  # NCCL keeps them alive until somebody waits

    def wait(self, timeout: Any = None) -> bool:
        """Make the current stream wait for the result."""
        self._owner.wait(self._marks)
        self._held = []
        return True

    def synchronize(self) -> None:
        """The same as waiting, as with NCCL."""
        self.wait()

    def block_current_stream(self) -> None:
        """The same, by its newer name."""
        self.wait()

    def is_completed(self) -> bool:
        """Always true, so that polling ends."""
        return True

    def is_success(self) -> bool:
        """Always true: ranks that do not exist do not fail."""
        return True

    def exception(self) -> None:
        """Always none."""
        return

    def result(self) -> list[torch.Tensor]:
        """The resulting tensors."""
        return self._held

    def source_rank(self) -> int:
        """The sender, where the program received from any rank."""
        return 0 if dist.get_rank() else 1

    _source_rank = source_rank

    def get_future(self) -> Any:
        """DDP waits for it in C++ at the end of the backward pass: that wait is queued here."""
        future = Future(self._owner, self._marks)
        future.set_result(self._held)
        self._held = []  # the future keeps them now
        if torch._C._current_graph_task_id() != -1:
            marks, owner = self._marks, self._owner
            torch.autograd.Variable._execution_engine.queue_callback(lambda: owner.wait(marks))
        return future


class Future(torch.futures.Future):  # type: ignore[type-arg]
    """The future to which a communication hook of DDP chains its own work."""

    def __init__(self, owner: Owner, marks: tuple[StreamMark, ...]) -> None:
        super().__init__()
        self._owner, self._marks = owner, marks

    def wait(self) -> Any:
        """Wait, and return the result."""
        self._owner.wait(self._marks)
        return super().value()

    def then(self, callback: Callable[[Any], Any]) -> Any:
        """Torch runs callbacks on a stream of their own, which waits for this one."""
        owner, marks = self._owner, self._marks
        with owner.side_stream(marks) as mark:
            result = callback(self)
        chained = Future(owner, (mark(),))
        chained.set_result(result)
        if torch._C._current_graph_task_id() != -1:
            done = chained._marks
            torch.autograd.Variable._execution_engine.queue_callback(lambda: owner.wait(done))
        return chained
