"""Handles of collectives that are under way, as torch gives them to a program."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import torch
import torch.distributed as dist


class Mark(NamedTuple):
    """A point on a stream, to be waited for."""

    lane: int
    at: int  # events seen when it was set
    on_host: bool = False


class Owner(Protocol):
    """Who started a collective, and lets streams wait for it (ranks/collectives.py)."""

    def wait(self, marks: tuple[Mark, ...]) -> None:
        """The current stream waits for these."""

    def aside(self, marks: tuple[Mark, ...]) -> AbstractContextManager[Callable[[], Mark]]:
        """Another stream, which waits for these; gives the mark of its end."""


class Work(dist.Work):
    """Something that other ranks take part in; whoever waits for it lets its stream wait."""

    def __init__(self, owner: Owner, marks: tuple[Mark, ...], tensors: list[torch.Tensor]) -> None:
        super().__init__()
        self._owner, self._marks = owner, marks
        self._held = tensors  # NCCL keeps them alive until somebody waits

    def wait(self, timeout: Any = None) -> bool:
        """The current stream goes on only when the numbers are there."""
        self._owner.wait(self._marks)
        self._held = []
        return True

    def synchronize(self) -> None:
        """As NCCL has it, the same as waiting."""
        self.wait()

    def block_current_stream(self) -> None:
        """The same, by its newer name."""
        self.wait()

    def is_completed(self) -> bool:
        """Nobody polls in vain."""
        return True

    def is_success(self) -> bool:
        """Ranks that do not exist do not fail."""
        return True

    def exception(self) -> None:
        """None ever."""
        return

    def result(self) -> list[torch.Tensor]:
        """What came out."""
        return self._held

    def source_rank(self) -> int:
        """Who sent what was received from anybody."""
        return 0 if dist.get_rank() else 1

    _source_rank = source_rank

    def get_future(self) -> Any:
        """DDP waits for it in C++, at the end of the backward pass, unseen: so that is told now."""
        future = Future(self._owner, self._marks)
        future.set_result(self._held)
        self._held = []  # it is the future's to keep them
        if torch._C._current_graph_task_id() != -1:
            marks, owner = self._marks, self._owner
            torch.autograd.Variable._execution_engine.queue_callback(lambda: owner.wait(marks))
        return future


class Future(torch.futures.Future):  # type: ignore[type-arg]
    """What a communication hook of DDP chains its own work to."""

    def __init__(self, owner: Owner, marks: tuple[Mark, ...]) -> None:
        super().__init__()
        self._owner, self._marks = owner, marks

    def wait(self) -> Any:
        """Wait, and give what came out."""
        self._owner.wait(self._marks)
        return super().value()

    def then(self, callback: Callable[[Any], Any]) -> Any:
        """Torch runs callbacks on a stream of their own, which waits for this one."""
        owner, marks = self._owner, self._marks
        with owner.aside(marks) as mark:
            result = callback(self)
        chained = Future(owner, (mark(),))
        chained.set_result(result)
        if torch._C._current_graph_task_id() != -1:
            done = chained._marks
            torch.autograd.Variable._execution_engine.queue_callback(lambda: owner.wait(done))
        return chained
