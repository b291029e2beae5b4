"""One rank of many: torch.distributed as the program sees it, though the other ranks do not exist.

The environment is torchrun's. Whatever backend is asked for, a group is torch's fake one under the
name that was asked for, and its collectives are recorded (collectives.py). Everything is restored
when the capture ends.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as native
from torch.distributed import distributed_c10d as c10d

from trueflops.capture.ranks.collectives import MOST_WARMUP_STEPS
from trueflops.capture.ranks.dtensors import wrapped_tensors
from trueflops.capture.ranks.messages import Messages
from trueflops.capture.recorder import Recorder
from trueflops.capture.trouble import CannotCapture, where
from trueflops.errors import BadInput
from trueflops.language import say

_FAKE: Final = "cpu:fake,cuda:fake"
_NCCL, _CUDA = (2, 27, 5), "12.8"  # such as torch is built with
_STORE_SECONDS: Final = 5.0  # a key that another rank would set never comes
_REDUCTIONS: Final = (
    "AllreduceOptions", "AllreduceCoalescedOptions", "ReduceOptions", "ReduceScatterOptions",
)  # fmt: skip
Patches = list[tuple[Any, str, Any]]  # owner, name, value


@contextmanager
def as_rank(
    rank: int, world: int, per_node: int, recorder: Recorder, messages: Messages
) -> Iterator[None]:
    """Inside this context, this process is that rank of a world of `world`."""
    check_rank(rank, world, per_node)
    _have_fakes()
    functions = _groups(recorder, rank, world) | _objects() | messages.functions()
    patches = [(c10d, name, value) for name, value in functions.items()]
    # Most of them are attributes of both modules.
    patches += [(dist, name, value) for name, value in functions.items() if hasattr(dist, name)]
    patches += _coalescing(recorder) + _reductions(recorder) + _data_parallel(recorder)
    patches += [(owner, "ProcessGroupNCCL", _Nccl) for owner in (c10d, dist)]
    patches += [(sys, "excepthook", sys.excepthook), (torch.cuda.nccl, "version", lambda: _NCCL)]
    if world > 1:  # DDP compresses gradients only where there is CUDA
        patches += [(torch.version, "cuda", _CUDA)]
    words = _environment(rank, world, per_node) if world > 1 else {}
    with ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, words))
        for owner, name, value in patches:
            stack.enter_context(mock.patch.object(owner, name, value, create=True))
        stack.enter_context(wrapped_tensors(world))
        stack.callback(_leave)
        yield


def check_rank(rank: int, world: int, per_node: int) -> None:
    """Refuse a rank, world size or node size that cannot be."""
    if world < 1:
        raise BadInput(say("a world of {world} ranks: write 1 or more", world=world))
    if not 0 <= rank < world:
        raise BadInput(
            say(
                "rank {rank} is not of a world of {world}: write 0 to {last}",
                rank=rank,
                world=world,
                last=world - 1,
            )
        )
    if per_node < 1:
        raise BadInput(say("{count} ranks to a node: write 1 or more", count=per_node))


def note_world(recorder: Recorder, rank: int, world: int) -> None:
    """Record which rank the program ran as, once it has run."""
    recording, opened = recorder.recording, recorder.collectives.world
    if opened is None:
        recording.rank, recording.world = 0, 1
        if world > 1:
            recorder.warn(
                say(
                    "the program never called torch.distributed.init_process_group: it ran alone, "
                    "not as rank {rank} of {world}",
                    rank=rank,
                    world=world,
                )
            )
        return
    recording.rank, recording.world = opened


def _environment(rank: int, world: int, per_node: int) -> dict[str, str]:
    """As torchrun sets it, with one accelerator visible to each rank."""
    per_node = min(per_node, world)
    nodes, node = -(-world // per_node), rank // per_node
    return {
        "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": str(per_node), "GROUP_RANK": str(node), "GROUP_WORLD_SIZE": str(nodes),
        "ROLE_RANK": str(rank), "ROLE_WORLD_SIZE": str(world), "ROLE_NAME": "default",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "trueflops", "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0", "TORCH_DIST_INIT_BARRIER": "0",
    }  # fmt: skip


def _leave() -> None:
    """Close what the program left open; DTensor remembers the random state of a mesh."""
    if dist.is_initialized():
        dist.destroy_process_group()
    random: Any = sys.modules.get("torch.distributed.tensor._random")
    if random is not None:
        random._rng_tracker = None


# ── groups ───────────────────────────────────────────────────────────────────────────────────────


class _Store(native.HashStore):
    """The store of a world of one: no other rank writes to it, so waits time out early."""

    def __init__(self) -> None:
        super().__init__()
        super().set_timeout(timedelta(seconds=_STORE_SECONDS))

    def set_timeout(self, timeout: timedelta) -> None:
        """Ignored: the short timeout stays."""


class _Nccl:
    """The class of NCCL's groups, which a CPU build lacks; no group is one."""

    class Options:
        """What a program may choose for a communicator: kept, and never asked for."""

        def __init__(self, *_: Any, **__: Any) -> None:
            self.config = SimpleNamespace()


def _have_fakes() -> None:
    """Register torch's fake backend."""
    from torch.testing._internal.distributed import fake_pg  # noqa: F401


def _groups(recorder: Recorder, rank: int, world: int) -> dict[str, Any]:
    real = c10d._new_process_group_helper

    def rendezvous(url: str, asked: int = -1, size: int = -1, **_: Any) -> Iterator[Any]:
        yield _Store(), rank if asked < 0 else asked, world if size < 0 else size

    def open_group(
        size: int, place: int, ranks: list[int], backend: Any, *args: Any, **kwargs: Any
    ) -> Any:
        if not ranks:
            size, place = (world, rank) if size < 0 else (size, place)  # MPI brings its own
            _agree(place, size, world)
            recorder.collectives.world = (place, size)
        kwargs |= {"backend_options": None, "device_id": None}  # NCCL's own
        group, store = real(size, place, ranks, c10d.Backend(_FAKE), *args, **kwargs)
        if store is not None:
            group._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
            named = c10d.Backend(str(backend) if str(backend) != "undefined" else "nccl")
            c10d._world.pg_map[group] = (named, store)
            c10d._world.pg_backend_config[group] = str(c10d.BackendConfig(named))
        return group, store

    return {
        "rendezvous": rendezvous,
        "_new_process_group_helper": open_group,
        "is_nccl_available": lambda: True,
        "_get_default_timeout": lambda _: c10d.default_pg_timeout,
    }


def _agree(place: int, size: int, world: int) -> None:
    """A program may name its rank itself; it must be one of the world that was asked for."""
    if world not in (1, size):
        raise CannotCapture(
            say(
                "the program opens a world of {size} ranks{at}, but {world} were asked for",
                size=size,
                at=where(),
                world=world,
            )
        )
    if not 0 <= place < size:
        raise CannotCapture(
            say("rank {place} is not of a world of {size}{at}", place=place, size=size, at=where())
        )


def _coalescing(recorder: Recorder) -> Patches:
    """Transfers of one batch are coalesced into one kernel of NCCL."""
    collectives = recorder.collectives
    return [
        (native.FakeProcessGroup, "supports_coalescing", True),
        (dist.ProcessGroup, "_start_coalescing", lambda group, _: collectives.begin_batch(group)),
        (dist.ProcessGroup, "_end_coalescing", lambda group, _: collectives.end_batch(group)),
    ]


def _reductions(recorder: Recorder) -> Patches:
    """The operator of a reduction is hidden in C++: it is noted when the program sets it."""

    def noting(real: Any) -> property:
        def put(options: Any, op: Any) -> None:
            recorder.collectives.reduction = str(getattr(op, "op", op)).rpartition(".")[2].lower()
            real.__set__(options, op)

        return property(real.__get__, put)

    kinds = [getattr(native, name) for name in _REDUCTIONS]
    return [(kind, "reduceOp", noting(kind.reduceOp)) for kind in kinds]


# ── objects ──────────────────────────────────────────────────────────────────────────────────────


def _objects() -> dict[str, Callable[..., Any]]:
    """Collectives of Python objects: every rank is taken to have what this one has."""

    def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
        object_list[:] = [copy.deepcopy(obj) for _ in object_list]

    def gather_object(
        obj: Any, object_gather_list: list[Any] | None = None, *_: Any, **__: Any
    ) -> None:
        if object_gather_list is not None:
            all_gather_object(object_gather_list, obj)

    def broadcast_object_list(object_list: list[Any], *_: Any, **__: Any) -> None:
        return None

    def scatter_object_list(
        scatter_object_output_list: list[Any],
        scatter_object_input_list: list[Any] | None = None,
        src: int | None = None,
        group: Any = None,
        group_src: int | None = None,
    ) -> None:
        if scatter_object_input_list:
            scatter_object_output_list[0] = scatter_object_input_list[dist.get_rank(group)]

    return {
        "all_gather_object": all_gather_object,
        "gather_object": gather_object,
        "broadcast_object_list": broadcast_object_list,
        "scatter_object_list": scatter_object_list,
    }


# ── DistributedDataParallel ──────────────────────────────────────────────────────────────────────


def _data_parallel(recorder: Recorder) -> Patches:
    """What the C++ half of DDP would do by itself."""
    kind: Any = native.Reducer
    rebuild = kind._rebuild_buckets

    def reducer(*args: Any, **kwargs: Any) -> Any:
        """Its buckets are made on the device that C++ sees; they count as the accelerator's."""
        recorder.collectives.warmup_steps = MOST_WARMUP_STEPS
        outer, recorder.stepping = recorder.stepping, True
        try:
            return kind(*args, **kwargs)
        finally:
            recorder.stepping = outer

    def rebuild_buckets(self: Any) -> bool:
        done: bool = rebuild(self)
        if done:  # the steps after this one are like it
            recorder.collectives.warmup_steps = 0
        return done

    return [
        (dist, "Reducer", reducer),
        (kind, "_rebuild_buckets", rebuild_buckets),
        (dist, "_verify_params_across_processes", lambda *_: None),
        # It would warn of a device without timers.
        (native.Logger, "set_runtime_stats_and_log", lambda _: None),
    ]
