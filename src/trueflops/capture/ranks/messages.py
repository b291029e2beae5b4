"""Objects sent point to point, such as the shapes between the stages of a pipeline.

The sending rank does not exist, but it runs the same program: so the program is first run as that
rank, until it has sent what this one waits for.
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
Route = tuple[int, int]  # sender, receiver


class NotYetSent(CannotCapture):
    """A rank receives what another has not sent yet."""

    def __init__(self, route: Route, count: int) -> None:
        sender, receiver = route
        super().__init__(f"rank {receiver} waits for an object of rank {sender}{where()}")
        self.route, self.count = route, count


class SentAll(CannotCapture):
    """A rank has sent all that another waits for: it need not run any further."""


class Messages:
    """The objects sent so far, by sender and receiver."""

    def __init__(self) -> None:
        self._sent: dict[Route, list[Any]] = defaultdict(list)
        self._received: dict[Route, int] = defaultdict(int)
        self._wanted: list[tuple[Route, int]] = []

    def run_as(self, rank: int, run: Callable[[int], Result]) -> Result:
        """Run the program as a rank, and before that as the ranks whose objects it receives."""
        while True:
            for route in [p for p in self._sent if p[0] == rank]:
                del self._sent[route]
            self._received.clear()
            try:
                return run(rank)
            except NotYetSent as missing:
                wanted = (missing.route, missing.count)
                if wanted in self._wanted or missing.route[0] == rank:
                    raise
                self._wanted.append(wanted)
                gc.collect()  # the program so far, before it is built again
                try:
                    self.run_as(missing.route[0], run)
                except SentAll:
                    pass
                else:
                    raise
                finally:
                    self._wanted.pop()

    def send(self, objects: list[Any], receiver: int) -> None:
        """Keep objects for another rank."""
        route = (dist.get_rank(), receiver)
        self._sent[route].extend(copy.deepcopy(objects))
        if self._wanted and self._wanted[-1] == (route, len(self._sent[route])):
            raise SentAll(f"rank {route[0]} has sent what rank {receiver} waits for")

    def receive(self, count: int, sender: int) -> list[Any]:
        """The next objects of another rank."""
        route = (sender, dist.get_rank())
        first = self._received[route]
        if len(self._sent[route]) < first + count:
            raise NotYetSent(route, first + count)
        self._received[route] += count
        return copy.deepcopy(self._sent[route][first : first + count])

    def functions(self) -> dict[str, Any]:
        """The functions of torch.distributed that send and receive objects."""

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
            object_list[:] = self.receive(len(object_list), sender)
            return sender

        return {"send_object_list": send_object_list, "recv_object_list": recv_object_list}


def follow_pipelines(stack: ExitStack) -> None:
    """Stages of a pipeline agree on shapes before they start: this stage answers what it can alone.

    Its own vote decides whether shapes are known; gradients have the shapes of what was sent; only
    the shapes that it receives come from the stage before, unless the program has given them.
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
