"""Collectives of a program that runs as one rank of many, the others of which do not exist.

A collective returns at once, with results of the right shape. NCCL runs what is asynchronous on a
stream of its own for each group, which first waits for the current one; `work.wait()` and
`wait_tensor` make the current stream wait for it. What is asked with async_op=False runs on the
current stream itself (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, `collective`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol, cast

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import GroupName

from trueflops.capture.pretend.ghosts import ghost_of, home_of, shade_of
from trueflops.capture.pretend.values import Values
from trueflops.capture.ranks.alike import as_if_alike
from trueflops.capture.ranks.meeting import Meeting
from trueflops.capture.ranks.works import Mark, Work
from trueflops.capture.schema import Manner
from trueflops.records.recording import HOST, Recording

COLLECTIVES: Final = ("c10d", "_c10d_functional", "c10d_functional", "_dtensor")
FIRST_LANE: Final = 1000
"""Streams of groups are numbered from here; those that the program makes, from 1."""
_PEER: Final = {"send": "dst", "isend": "dst", "recv_": "src", "irecv": "src"}


class Recorder(Protocol):
    """What collectives need of whoever writes the program down (capture/recorder.py)."""

    device: str
    stream: int
    values: Values
    recording: Recording

    def waits(self, waiting: int, awaited: int, at: int) -> None:
        """A stream, or the host, waits for another."""

    def _number(self, tensor: torch.Tensor, op: str) -> int:
        """The number of a tensor's storage."""

    def _write(
        self,
        manner: Manner,
        inputs: Iterable[torch.Tensor],
        outputs: Iterable[torch.Tensor],
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None = None,
        group: tuple[int, ...] = (),
        stream: int | None = None,
    ) -> None:
        """Write a call down."""


class Collectives:
    """Where the collectives of one recorder run, and who waits for them."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.world: tuple[int, int] | None = None  # which rank of how many the program opened
        self.settling = 1  # steps to be run until every step is like the one before
        self.reduction = "sum"  # what the last options of a reduction asked for
        self._lanes: dict[tuple[str, ...], int] = {}
        # storage -> where its numbers come from, and what is kept alive until they are there
        self._pending: dict[int, tuple[tuple[Mark, ...], list[torch.Tensor]]] = {}
        # groups that gather transfers up: what to wait for, and what to keep
        self._batches: dict[str, tuple[list[Mark], list[torch.Tensor]]] = {}
        # C++ calls the Python half of a Work, but does not keep it alive.
        self._works: list[Work] = [Work(self, (), [])]

    def join(self, manner: Manner, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Join the other ranks, who are not there: results are made, nothing is sent."""
        name = func._schema.name.partition("::")[2]
        if name == "_wrap_tensor_autograd":
            return _under_way(args[0])
        if name == "check_for_nan":
            return None
        if name.startswith("wait_tensor"):
            self.arrive(args[0])
            return args[0]
        given = _arguments(func, args, kwargs)
        if "barrier" in name:
            return self._stand_still(manner, func, given)
        made = _results(func, name, args, kwargs, self.recorder.device)
        meeting = _meeting(name, given, made)
        marks = self._run(manner, meeting, tuple(v for v in given.values() if _is_plain(v)))
        asked = given.get("reduce_op")
        reduction = asked if isinstance(asked, str) else self.reduction
        fresh = made is not None and not func._schema.is_mutable
        as_if_alike(meeting, reduction, self.recorder.values, fresh=fresh)
        if func.namespace != "c10d":
            for tensor in meeting.received:
                number = self.recorder._number(tensor, manner.name)
                self._pending[number] = marks, meeting.sent
            return made
        held = meeting.sent + meeting.received
        batch = self._batches.get(meeting.group.group_name)
        if batch is not None:
            batch[0].extend(marks)
            batch[1].extend(held)
        work = self._work((), []) if batch is not None else self._work(marks, held)
        return work.boxed() if len(func._schema.returns) == 1 else (args[0], work.boxed())

    def _work(self, marks: tuple[Mark, ...], held: list[torch.Tensor]) -> Work:
        if marks:
            self._works.append(Work(self, marks, held))
        return self._works[-1] if marks else self._works[0]

    def wait(self, marks: tuple[Mark, ...]) -> None:
        """The current stream waits, or the host where the numbers are the host's."""
        for mark in marks:
            waiting = -1 if mark.on_host else self.recorder.stream
            self.recorder.waits(waiting, mark.lane, mark.at)

    def arrive(self, tensor: torch.Tensor) -> None:
        """The current stream waits for what a functional collective makes."""
        marks, _ = self._pending.pop(self.recorder._number(tensor, ""), ((), None))
        self.wait(marks)

    @contextmanager
    def aside(self, marks: tuple[Mark, ...]) -> Iterator[Callable[[], Mark]]:
        """Another stream, which waits for these; gives the mark of its end."""
        outer, events = self.recorder.stream, self.recorder.recording.events
        lane = self.recorder.stream = self._lanes.setdefault(("aside",), self._next_lane())
        self.wait(marks)
        try:
            yield lambda: Mark(lane, len(events))
        finally:
            self.recorder.stream = outer

    def begin_batch(self, group: dist.ProcessGroup) -> None:
        """Transfers from here on are one kernel: they run side by side."""
        self._batches[group.group_name] = ([], [])
        lanes = [self._lane(group, way) for way in ("send", "receive")]
        for lane, other in (lanes, lanes[::-1]):
            self.recorder.waits(lane, other, len(self.recorder.recording.events))

    def end_batch(self, group: dist.ProcessGroup) -> Work:
        """One Work for all of them."""
        marks, held = self._batches.pop(group.group_name)
        return self._work(tuple(marks), held)

    def _run(self, manner: Manner, meeting: Meeting, numbers: tuple[Any, ...]) -> tuple[Mark, ...]:
        """Write it down on the stream that it runs on; what must be waited for afterwards."""
        recorder, events = self.recorder, self.recorder.recording.events
        batched = meeting.group.group_name in self._batches
        on_host = _is_hosts(meeting) and recorder.device != HOST
        if meeting.waited_for and not on_host and not batched:
            lane = recorder.stream
        else:
            lane = self._lane(meeting.group, *self._way(meeting, batched))
            if not on_host:
                recorder.waits(lane, recorder.stream, len(events))
        recorder._write(manner, meeting.sent, meeting.received, numbers, None, meeting.ranks, lane)
        return () if lane == recorder.stream else (Mark(lane, len(events), on_host),)

    @staticmethod
    def _way(meeting: Meeting, batched: bool) -> tuple[str, ...]:
        """NCCL has a communicator for each pair of ranks, and one for the rest of the group."""
        if not meeting.direction:
            return ()
        return (meeting.direction,) if batched else tuple(str(r) for r in sorted(meeting.ranks))

    def _lane(self, group: dist.ProcessGroup, *way: str) -> int:
        key = (group.group_name, *way)
        return self._lanes.setdefault(key, self._next_lane())

    def _next_lane(self) -> int:
        return FIRST_LANE + len(self._lanes)

    def _stand_still(self, manner: Manner, func: Any, given: dict[str, Any]) -> Any:
        """A barrier: the host waits for everything."""
        recorder = self.recorder
        ranks = tuple(dist.get_process_group_ranks(_group(given)))
        recorder._write(manner, (), (), (), {}, ranks)
        recorder.waits(-1, -1, len(recorder.recording.events))
        return self._works[0].boxed() if func._schema.returns else None


def _under_way(tensor: torch.Tensor) -> torch.Tensor:
    """A result that is waited for when it is first used."""
    from torch.distributed._functional_collectives import AsyncCollectiveTensor

    return AsyncCollectiveTensor(tensor)


def _arguments(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """By name; those that were left out as the schema has them."""
    given = {a.name: a.default_value for a in func._schema.arguments if a.has_default_value()}
    names = [a.name for a in func._schema.arguments]
    return given | dict(zip(names, args, strict=False)) | kwargs


def _meeting(name: str, given: dict[str, Any], made: list[torch.Tensor]) -> Meeting:
    group = _group(given)
    ranks = tuple(dist.get_process_group_ranks(group))
    sent = [t for k, v in given.items() if k.startswith("input") for t in flat(v)]
    received = [t for k, v in given.items() if k.startswith("output") for t in flat(v)]
    both = flat(given.get("tensors", given.get("tensor")))
    if name in _PEER:
        me, other = dist.get_rank(), ranks[given[_PEER[name]]]
        ranks = (me, other) if "send" in name else (other, me)
    return Meeting(
        name=name,
        group=group,
        ranks=ranks,
        sent=sent + ([] if "recv" in name else both),
        received=(received or flat(made)) + ([] if "send" in name else both),
        waited_for=given.get("async_op") is False,
    )


def _results(
    func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], device: str
) -> Any:
    """What a functional collective makes; those of c10d write into what they are given."""
    if func.namespace == "c10d":
        return None
    if "out" in kwargs:
        return kwargs["out"]
    if func._schema.is_mutable or name in ("isend", "irecv"):
        return args[0]
    if name == "batch_p2p_ops":
        return args[3]
    homes = {home_of(t) for t in flat(args)}
    home = None if homes == {None} else device

    def shaded(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return shade_of(value) if home_of(value) is not None else value.to("meta")
        return [shaded(each) for each in value] if isinstance(value, (list, tuple)) else value

    def back(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return ghost_of(value, home) if home else torch.zeros_like(value, device="cpu")
        return [back(each) for each in value]

    return back(func(*[shaded(a) for a in args], **{k: shaded(v) for k, v in kwargs.items()}))


def _group(given: dict[str, Any]) -> dist.ProcessGroup:
    """The group that a collective names, in whichever of the ways."""
    asked = given.get("process_group", given.get("group_name"))
    if isinstance(asked, torch.ScriptObject):
        return dist.ProcessGroup.unbox(asked)
    if isinstance(asked, str):
        return torch._C._distributed_c10d._resolve_process_group(GroupName(asked))
    return cast(dist.ProcessGroup, asked)


def _is_plain(value: Any) -> bool:
    """A number, a word or a list of numbers."""
    if isinstance(value, (list, tuple)):
        return all(isinstance(each, int) for each in value)
    return isinstance(value, (int, float, str))


def _is_hosts(meeting: Meeting) -> bool:
    return all(home_of(t) in (None, HOST) for t in (*meeting.sent, *meeting.received))


def flat(value: Any) -> list[torch.Tensor]:
    """Every tensor of nested lists."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for each in value for tensor in flat(each)]
    return []
