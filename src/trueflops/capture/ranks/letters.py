"""Objects that one rank sends to another, such as the shapes between the stages of a pipeline.

The other rank does not exist, but it runs the same program: so the program is run as that rank
first, until it has sent what this one waits for.
"""

from __future__ import annotations

import copy
import gc
import sys
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, TypeVar
from unittest import mock

import torch
import torch.distributed as dist

from trueflops.capture.trouble import CannotCapture, where

Result = TypeVar("Result")
Path = tuple[int, int]  # who sends, who reads


class Unsent(CannotCapture):
    """A rank reads what another has not sent yet."""

    def __init__(self, path: Path, count: int) -> None:
        sender, reader = path
        super().__init__(f"rank {reader} waits for an object of rank {sender}{where()}")
        self.path, self.count = path, count


class Enough(CannotCapture):
    """A rank has sent what another waits for: there is no need to run it any further."""


class Letters:
    """What has been sent so far, by whom and to whom."""

    def __init__(self) -> None:
        self._sent: dict[Path, list[Any]] = defaultdict(list)
        self._read: dict[Path, int] = defaultdict(int)
        self._wanted: list[tuple[Path, int]] = []

    def run_as(self, rank: int, run: Callable[[int], Result]) -> Result:
        """Run the program as a rank, and before that as those whose objects it reads."""
        while True:
            for path in [p for p in self._sent if p[0] == rank]:
                del self._sent[path]
            self._read.clear()
            try:
                return run(rank)
            except Unsent as missing:
                wanted = (missing.path, missing.count)
                if wanted in self._wanted or missing.path[0] == rank:
                    raise
                self._wanted.append(wanted)
                gc.collect()  # the program so far, before it is built again
                try:
                    self.run_as(missing.path[0], run)
                except Enough:
                    pass
                else:
                    raise
                finally:
                    self._wanted.pop()

    def send(self, objects: list[Any], reader: int) -> None:
        """Leave objects for another rank."""
        path = (dist.get_rank(), reader)
        self._sent[path].extend(copy.deepcopy(objects))
        if self._wanted and self._wanted[-1] == (path, len(self._sent[path])):
            raise Enough(f"rank {path[0]} has sent what rank {reader} waits for")

    def read(self, count: int, sender: int) -> list[Any]:
        """The next objects of another rank."""
        path = (sender, dist.get_rank())
        first = self._read[path]
        if len(self._sent[path]) < first + count:
            raise Unsent(path, first + count)
        self._read[path] += count
        return copy.deepcopy(self._sent[path][first : first + count])

    def functions(self) -> dict[str, Any]:
        """As torch.distributed calls them."""

        def peer(group: Any, rank: int | None, place: int | None) -> int:
            if rank is not None:
                return rank
            return dist.get_process_group_ranks(group)[place or 0]

        def send_object_list(
            object_list: list[Any], dst: int | None = None, group: Any = None, device: Any = None,
            group_dst: int | None = None, use_batch: bool = False,
        ) -> None:  # fmt: skip
            self.send(object_list, peer(group, dst, group_dst))

        def recv_object_list(
            object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None,
            group_src: int | None = None, use_batch: bool = False,
        ) -> int:  # fmt: skip
            sender = peer(group, src, group_src)
            object_list[:] = self.read(len(object_list), sender)
            return sender

        return {"send_object_list": send_object_list, "recv_object_list": recv_object_list}


def follow_pipelines(stack: ExitStack) -> None:
    """Stages agree on shapes before they start: what can be told alone is told alone.

    Whether shapes are given is what this stage says; gradients are shaped as what was sent; only
    the shape of what comes in is asked of the stage before, unless the program has said it.
    """
    module: Any = sys.modules.get("torch.distributed.pipelining.stage")
    if module is None or not hasattr(module.PipelineStage, "_warmup_forward_vote"):
        return
    kind = module.PipelineStage
    receive = kind._recv_meta

    def own_vote(stage: Any, has_backward: bool, received_acc: Any = None) -> Any:
        unknown = module.InferenceMode.needs_dynamic(stage._user_meta, has_backward)
        return torch.tensor([int(not unknown)], dtype=torch.int32)

    def own_result(stage: Any, received_result: Any = None) -> Any:
        return received_result

    def receive_meta(stage: Any, source: int) -> Any:
        if source == stage.stage_index + 1:
            grads = module._derive_grad_metas(stage._stage_meta.outputs)
            return module._StageBackwardMeta(backward_metas=grads)
        if stage._user_meta.inputs is not None:
            return module._StageForwardMeta(forward_metas=stage._user_meta.inputs)
        return receive(stage, source)

    for name, value in (
        ("_warmup_forward_vote", own_vote),
        ("_warmup_backward_result", own_result),
        ("_recv_meta", receive_meta),
    ):
        stack.enter_context(mock.patch.object(kind, name, value))
