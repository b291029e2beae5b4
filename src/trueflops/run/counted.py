"""What a rank really did: bytes of each collective, live memory, bytes on its sockets.

In: whatever runs while `Counting` is entered. Out: payloads by axis and kind, as c10d's ops were
called (torch's CommDebugMode sees the same ones), and the largest sum of live storages. Storages
inside one ATen kernel are not seen. Payloads are named as nccl-tests names them: the gathered
result, the whole input of a reduce-scatter.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import weakref
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.distributed_c10d import GroupName
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trueflops.graph.kinds import CollectiveKind
from trueflops.predict.training.sent import Sent

_KINDS: Final[Mapping[str, CollectiveKind]] = {
    "allreduce_": CollectiveKind.ALL_REDUCE,
    "all_reduce": CollectiveKind.ALL_REDUCE,
    "all_reduce_": CollectiveKind.ALL_REDUCE,
    "_allgather_base_": CollectiveKind.ALL_GATHER,
    "allgather_": CollectiveKind.ALL_GATHER,
    "all_gather_into_tensor": CollectiveKind.ALL_GATHER,
    "_reduce_scatter_base_": CollectiveKind.REDUCE_SCATTER,
    "reduce_scatter_": CollectiveKind.REDUCE_SCATTER,
    "reduce_scatter_tensor": CollectiveKind.REDUCE_SCATTER,
    "alltoall_base_": CollectiveKind.ALL_TO_ALL,
    "all_to_all_single": CollectiveKind.ALL_TO_ALL,
    "broadcast_": CollectiveKind.BROADCAST,
    "send": CollectiveKind.SEND_RECV,
}
_LIBRARIES: Final = ("c10d", "_c10d_functional")
_SENT_AT: Final = 200  # tcpi_bytes_sent, tcpi_bytes_retrans of struct tcp_info (linux/tcp.h, 4.19)


class Counting(TorchDispatchMode):
    """Counts while it is entered; `start` forgets what was moved before, but not what is alive."""

    def __init__(self, axes: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.axes = axes or {}
        self.live = self.peak = 0
        self._alive: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._moved: dict[tuple[str, CollectiveKind, int], list[int]] = defaultdict(lambda: [0, 0])

    def start(self, axes: Mapping[str, str]) -> None:
        """Count from here on; `axes` says which axis of the plan a process group serves."""
        self.axes, self.peak = axes, self.live
        self._moved.clear()

    def moved(self) -> tuple[Sent, ...]:
        """What was handed to collectives since then."""
        return tuple(
            Sent(axis, kind, group, float(payload), calls)
            for (axis, kind, group), (payload, calls) in sorted(self._moved.items())
        )

    def __enter__(self) -> Counting:
        """Storages that FSDP empties and fills again change their size without an op."""
        resize, count = torch.UntypedStorage.resize_, self

        def resized(storage: Any, size: int) -> Any:
            made = resize(storage, size)
            count._note(storage)
            return made

        self._resize = resize
        torch.UntypedStorage.resize_ = resized  # type: ignore[method-assign, assignment]
        super().__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        """Storages resize themselves again."""
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        super().__exit__(*raised)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an op; note what it made, and what it sent."""
        if any(issubclass(t, (DTensor, AsyncCollectiveTensor)) for t in types):
            return NotImplemented  # what they are made of comes by on its own
        made = func(*args, **(kwargs or {}))
        if func.namespace in _LIBRARIES:
            self._send(func, args, made)
        for each in tree_leaves((made, args)):
            if isinstance(each, Tensor):
                self._note(each.untyped_storage())
        return made

    def _send(self, func: Any, args: Sequence[Any], made: Any) -> None:
        kind = _KINDS.get(func._schema.name.partition("::")[2])
        if kind is None:
            return
        group = _group(args)
        if group.size() == 1:
            return
        given = [t for t in tree_leaves(args) if isinstance(t, Tensor)]
        found = given + [t for t in tree_leaves(made) if isinstance(t, Tensor)]
        sizes = [t.numel() * t.element_size() for t in found]
        # In place or not, the whole buffer is the largest; of an all-to-all it is what is sent:
        # the second argument of c10d's op, the first of the functional one.
        swaps = kind is CollectiveKind.ALL_TO_ALL
        payload = sizes[1 if func.namespace == "c10d" else 0] if swaps else max(sizes)
        entry = self._moved[self.axes.get(group.group_name, "world"), kind, group.size()]
        entry[0] += payload
        entry[1] += 1

    def _note(self, storage: Any) -> None:
        key, size = storage._cdata, int(storage.nbytes())
        known = self._alive.get(key)
        if known is None:
            self._alive[key] = weakref.ref(storage, lambda _: self._forget(key)), size
        elif known[1] != size:
            self.live -= known[1]
            self._alive[key] = known[0], size
        else:
            return
        self.live += size
        self.peak = max(self.peak, self.live)

    def _forget(self, key: int) -> None:
        _, size = self._alive.pop(key)
        self.live -= size


def _group(args: Sequence[Any]) -> dist.ProcessGroup:
    for each in tree_leaves(args):
        if isinstance(each, torch.ScriptObject) and "ProcessGroup" in str(each._type()):
            return dist.ProcessGroup.unbox(each)
    named = next(each for each in reversed(tree_leaves(args)) if isinstance(each, str))
    found: dist.ProcessGroup = distributed_c10d._resolve_process_group(GroupName(named))  # type: ignore[attr-defined]
    return found


def wire_bytes() -> int | None:
    """Bytes that this process has sent on its TCP sockets, once each, headers of gloo included.

    The kernel counts them (getsockopt TCP_INFO). None where it does not, or is not Linux.
    """
    if not sys.platform.startswith("linux"):
        return None
    return sum(_sent(number) for number in _descriptors())


def _descriptors() -> Iterator[int]:
    for name in os.listdir("/proc/self/fd"):
        yield int(name)


def _sent(descriptor: int) -> int:
    try:
        own = os.dup(descriptor)
    except OSError:  # closed since it was listed
        return 0
    try:
        copy = socket.socket(fileno=own)
    except OSError:  # no socket
        os.close(own)
        return 0
    with copy:
        try:
            told = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SENT_AT + 16)
        except OSError:  # not of TCP
            return 0
    if len(told) < _SENT_AT + 16:
        return 0
    sent, again = struct.unpack_from("QQ", told, _SENT_AT)
    return int(sent - again)  # a busy machine probes even its own loopback
