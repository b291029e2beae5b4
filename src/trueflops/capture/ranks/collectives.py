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

from trueflops.capture.pretend.fake_tensors import (
    claimed_device,
    fake_of,
    flat,
    has_memory,
    meta_of,
)
from trueflops.capture.pretend.values import Values
from trueflops.capture.ranks.collective import Collective
from trueflops.capture.ranks.identical import as_if_identical
from trueflops.capture.ranks.work import CollectiveWork, StreamMark
from trueflops.capture.schema import OpTraits
from trueflops.records.recording import HOST, Recording

COLLECTIVES: Final = ("c10d", "_c10d_functional", "c10d_functional", "_dtensor")
FIRST_GROUP_STREAM: Final = 1000
"""Streams of process groups are numbered from here; those that the program makes, from 1."""
MOST_WARMUP_STEPS: Final = 3
"""Steps after which DDP has seen the order of gradients and has made its final buckets, at most."""
_FROM_ROOT: Final = ("broadcast", "scatter")
_PEER: Final = {"send": "dst", "isend": "dst", "recv_": "src", "irecv": "src"}


class Recorder(Protocol):
    """What collectives need of whoever writes the program down (capture/recorder.py)."""

    device: str
    stream: int
    values: Values
    recording: Recording

    @property
    def now(self) -> int:
        """How many events there are so far."""

    def waits(self, waiting: int, awaited: int, at: int) -> None:
        """A stream, or the host, waits for another."""

    def _number(self, tensor: torch.Tensor, op: str) -> int:
        """The number of a tensor's storage."""

    def _write(
        self,
        traits: OpTraits,
        inputs: Iterable[torch.Tensor],
        outputs: Iterable[torch.Tensor],
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None = None,
        group: tuple[int, ...] = (),
        stream: int | None = None,
    ) -> None:
        """Write a call down."""


class Collectives:
    """On which streams the collectives of one recorder run, and which streams wait for them."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.world: tuple[int, int] | None = None  # (rank, world size) that the program opened
        self.warmup_steps = 1  # steps to run before every step is like the last
        self.before_message: Callable[[], None] = lambda: None  # told of every send and receive
        self.reduction = "sum"  # the reduceOp of the options made last
        self._group_streams: dict[tuple[str, ...], int] = {}
        # storage -> the marks that its values wait for, and the tensors kept alive until then
        self._pending: dict[int, tuple[tuple[StreamMark, ...], list[torch.Tensor]]] = {}
        # groups that coalesce transfers: the marks to wait for, and the tensors to keep alive
        self._batches: dict[str, tuple[list[StreamMark], list[torch.Tensor]]] = {}
        # C++ calls the Python half of a Work, but does not keep it alive.
        self._works: list[CollectiveWork] = [CollectiveWork(self, (), [])]

    def run(
        self, traits: OpTraits, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Record a collective and make its results; nothing is sent."""
        name = func._schema.name.partition("::")[2]
        if name in _PEER:
            self.before_message()
        if name == "_wrap_tensor_autograd":
            return _async_tensor(args[0])
        if name == "check_for_nan":
            return None
        if name.startswith("wait_tensor"):
            self.wait_for(args[0])
            return args[0]
        given = _arguments(func, args, kwargs)
        if "barrier" in name:
            return self._barrier(traits, func, given)
        made = _results(func, name, args, kwargs, self.recorder.device)
        collective = _collective(name, given, made)
        marks = self._run(traits, collective, tuple(v for v in given.values() if _is_plain(v)))
        asked = given.get("reduce_op")
        reduction = asked if isinstance(asked, str) else self.reduction
        fresh = made is not None and not func._schema.is_mutable
        as_if_identical(collective, reduction, self.recorder.values, fresh=fresh)
        if func.namespace != "c10d":
            for tensor in collective.received:
                number = self.recorder._number(tensor, traits.name)
                self._pending[number] = marks, collective.sent
            return made
        held = collective.sent + collective.received
        batch = self._batches.get(collective.group.group_name)
        if batch is not None:
            batch[0].extend(marks)
            batch[1].extend(held)
        work = self._work((), []) if batch is not None else self._work(marks, held)
        return work.boxed() if len(func._schema.returns) == 1 else (args[0], work.boxed())

    def is_warm(self, steps: int) -> bool:
        """Whether the steps after these are like one another.

        A program that makes its DDP anew in every step is never asked for more than it takes one.
        """
        return steps >= min(self.warmup_steps, MOST_WARMUP_STEPS)

    def _work(self, marks: tuple[StreamMark, ...], held: list[torch.Tensor]) -> CollectiveWork:
        if marks:
            self._works.append(CollectiveWork(self, marks, held))
        return self._works[-1] if marks else self._works[0]

    def wait(self, marks: tuple[StreamMark, ...]) -> None:
        """The current stream waits, or the host where the tensors are on the host."""
        for mark in marks:
            waiting = -1 if mark.on_host else self.recorder.stream
            self.recorder.waits(waiting, mark.stream, mark.at)

    def wait_for(self, tensor: torch.Tensor) -> None:
        """The current stream waits for the result of a functional collective."""
        marks, _ = self._pending.pop(self.recorder._number(tensor, ""), ((), None))
        self.wait(marks)

    @contextmanager
    def side_stream(self, marks: tuple[StreamMark, ...]) -> Iterator[Callable[[], StreamMark]]:
        """Inside, ops run on another stream, after these marks; gives the mark of its end."""
        outer = self.recorder.stream
        stream = self.recorder.stream = self._group_streams.setdefault(
            ("side",), self._next_stream()
        )
        self.wait(marks)
        try:
            yield lambda: StreamMark(stream, self.recorder.now)
        finally:
            self.recorder.stream = outer

    def begin_batch(self, group: dist.ProcessGroup) -> None:
        """Transfers from here on are coalesced into one kernel: they run side by side."""
        self.before_message()
        self._batches[group.group_name] = ([], [])
        streams = [self._stream_of(group, way) for way in ("send", "receive")]
        for stream, other in (streams, streams[::-1]):
            self.recorder.waits(stream, other, self.recorder.now)

    def end_batch(self, group: dist.ProcessGroup) -> CollectiveWork:
        """One handle for all transfers of the batch."""
        marks, held = self._batches.pop(group.group_name)
        return self._work(tuple(marks), held)

    def _run(
        self, traits: OpTraits, collective: Collective, numbers: tuple[Any, ...]
    ) -> tuple[StreamMark, ...]:
        """Record it on the stream that it runs on; gives the marks to wait for afterwards."""
        recorder = self.recorder
        batched = collective.group.group_name in self._batches
        on_host = _is_on_host(collective) and recorder.device != HOST
        if collective.synchronous and not on_host and not batched:
            stream = recorder.stream
        else:
            stream = self._stream_of(collective.group, *self._way(collective, batched))
            if not on_host:
                recorder.waits(stream, recorder.stream, recorder.now)
        recorder._write(
            traits, collective.sent, collective.received, numbers, None, collective.ranks, stream
        )
        return () if stream == recorder.stream else (StreamMark(stream, recorder.now, on_host),)

    @staticmethod
    def _way(collective: Collective, batched: bool) -> tuple[str, ...]:
        """NCCL has a communicator for each pair of ranks, and one for the rest of the group."""
        if not collective.direction:
            return ()
        return (
            (collective.direction,) if batched else tuple(str(r) for r in sorted(collective.ranks))
        )

    def _stream_of(self, group: dist.ProcessGroup, *way: str) -> int:
        key = (group.group_name, *way)
        return self._group_streams.setdefault(key, self._next_stream())

    def _next_stream(self) -> int:
        return FIRST_GROUP_STREAM + len(self._group_streams)

    def _barrier(self, traits: OpTraits, func: Any, given: dict[str, Any]) -> Any:
        """A barrier: the host waits for everything."""
        recorder = self.recorder
        ranks = tuple(dist.get_process_group_ranks(_group(given)))
        recorder._write(traits, (), (), (), {}, ranks)
        recorder.waits(-1, -1, recorder.now)
        return self._works[0].boxed() if func._schema.returns else None


def _async_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """A result that is waited for when it is first used, as functional collectives return it."""
    from torch.distributed._functional_collectives import AsyncCollectiveTensor

    return AsyncCollectiveTensor(tensor)


def _arguments(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments by name, with the defaults of the schema."""
    given = {a.name: a.default_value for a in func._schema.arguments if a.has_default_value()}
    names = [a.name for a in func._schema.arguments]
    return given | dict(zip(names, args, strict=False)) | kwargs


def _collective(name: str, given: dict[str, Any], made: list[torch.Tensor]) -> Collective:
    group = _group(given)
    ranks = tuple(dist.get_process_group_ranks(group))
    sent = [t for k, v in given.items() if k.startswith("input") for t in flat(v)]
    received = [t for k, v in given.items() if k.startswith("output") for t in flat(v)]
    both = flat(given.get("tensors", given.get("tensor")))
    if name in _PEER:
        me, other = dist.get_rank(), ranks[given[_PEER[name]]]
        ranks = (me, other) if "send" in name else (other, me)
    return Collective(
        name=name,
        group=group,
        ranks=ranks,
        sent=sent + ([] if "recv" in name else both),
        received=(received or flat(made)) + ([] if "send" in name else both),
        synchronous=given.get("async_op") is False,
        root=given.get("root_rank", given.get("src")) if name.startswith(_FROM_ROOT) else None,
    )


def _results(
    func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], device: str
) -> Any:
    """The results of a functional collective; one of c10d writes into its arguments."""
    if func.namespace == "c10d":
        return None
    if "out" in kwargs:
        return kwargs["out"]
    if func._schema.is_mutable or name in ("isend", "irecv"):
        return args[0]
    if name == "batch_p2p_ops":
        return args[3]
    on_host = {claimed_device(t) for t in flat(args)} == {None}

    def as_meta(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.to("meta") if has_memory(value) else meta_of(value)
        return [as_meta(each) for each in value] if isinstance(value, (list, tuple)) else value

    def as_fake(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return torch.zeros_like(value, device="cpu") if on_host else fake_of(value, device)
        return [as_fake(each) for each in value]

    return as_fake(func(*[as_meta(a) for a in args], **{k: as_meta(v) for k, v in kwargs.items()}))


def _group(given: dict[str, Any]) -> dist.ProcessGroup:
    """The process group that a collective names, as an object, a boxed object or a name."""
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


def _is_on_host(collective: Collective) -> bool:
    return all(claimed_device(t) in (None, HOST) for t in (*collective.sent, *collective.received))
