"""Objects sent point to point, such as the shapes between the stages of a pipeline.

The sending rank does not run in this process. Where it runs in another, objects travel over a line
to the board that started both (board.py); else the program must be run so.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

from trueflops.capture.trouble import CannotCapture, where
from trueflops.language import say

Route = tuple[int, int]  # sender, receiver


class NotYetSent(CannotCapture):
    """A rank receives what another would have to send, and this process runs alone."""


class Messages:
    """What one rank sends to others and receives from them."""

    def __init__(self, line: Connection | None = None) -> None:
        self._line = line

    def send(self, objects: list[Any], receiver: int) -> None:
        """Send objects to another rank; nobody receives them where this process runs alone."""
        if self._line is not None:
            self._line.send(("sends", receiver, objects))
            self._line.recv()

    def receive(self, count: int, sender: int) -> list[Any]:
        """The next objects of another rank."""
        if self._line is None:
            raise NotYetSent(
                say(
                    "rank {rank} waits for an object of rank {sender}{at}",
                    rank=dist.get_rank(),
                    sender=sender,
                    at=where(),
                )
            )
        self._line.send(("receives", sender, count))
        received: list[Any] = self._line.recv()
        return received

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
