"""One collective as a program asks for it: plain data that this folder hands around."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.distributed as dist


class Meeting(NamedTuple):
    """One collective: who takes part, what is handed in and what comes out."""

    name: str  # without library and overload
    group: dist.ProcessGroup
    ranks: tuple[int, ...]
    sent: list[torch.Tensor]
    received: list[torch.Tensor]
    waited_for: bool  # async_op=False: nothing else goes on meanwhile

    @property
    def direction(self) -> str:
        """Of a transfer between two; empty for what all of a group join."""
        return "send" if "send" in self.name else "receive" if "recv" in self.name else ""
