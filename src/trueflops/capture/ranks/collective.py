"""One collective as a program asks for it: plain data that this folder hands around."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.distributed as dist


class Collective(NamedTuple):
    """One collective or point-to-point transfer: its ranks, its inputs and its outputs."""

    name: str  # without library and overload
    group: dist.ProcessGroup
    ranks: tuple[int, ...]
    sent: list[torch.Tensor]
    received: list[torch.Tensor]
    synchronous: bool  # async_op=False: it runs on the current stream
    root: int | None = None  # who sends, by its place in the group, where only one does

    @property
    def direction(self) -> str:
        """Of a point-to-point transfer; empty for a collective of a whole group."""
        return "send" if "send" in self.name else "receive" if "recv" in self.name else ""
