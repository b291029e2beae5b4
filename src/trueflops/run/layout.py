"""Where a rank's tensors lie, and the collectives that move them between ranks of tp and cp.

token     whole on every rank of tp; with sequence parallelism a piece of the sequence
tensor    heads, ffn or vocabulary of this rank, of the whole sequence
partial   one term of a sum over the ranks of tp
Layouts change where trueflops.graph.passes.shard says they do, through DTensor.redistribute, whose
autograd sends the gradient back by the dual collective.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

SEQUENCE = 1  # the dimension of tokens: [batch, sequence, …]


@dataclass(frozen=True)
class Layout:
    """The ranks that one micro-batch is split over; an axis of one rank has no mesh."""

    tp: DeviceMesh | None = None
    cp: DeviceMesh | None = None
    ep: DeviceMesh | None = None
    sp: bool = False

    @property
    def tp_size(self) -> int:
        """Ranks of tensor parallelism."""
        return self.tp.size() if self.tp else 1

    @property
    def cp_size(self) -> int:
        """Ranks of context parallelism."""
        return self.cp.size() if self.cp else 1

    def place(self, axis: str) -> int:
        """This rank's number along an axis."""
        mesh = {"tp": self.tp, "cp": self.cp, "ep": self.ep}.get(axis)
        return mesh.get_local_rank() if mesh else 0

    def as_tensor(self, x: Tensor) -> Tensor:
        """From token to tensor layout: what is split by tp is about to read it."""
        if self.tp is None:
            return x
        here = [Shard(SEQUENCE)] if self.sp else [Replicate()]
        there = DTensor.from_local(x, self.tp, here, run_check=False)
        return there.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()])

    def as_token(self, x: Tensor) -> Tensor:
        """From partial to token layout: the terms are summed."""
        if self.tp is None:
            return x
        there = [Shard(SEQUENCE)] if self.sp else [Replicate()]
        summed = DTensor.from_local(x, self.tp, [Partial()], run_check=False)
        return summed.redistribute(placements=there).to_local()

    def summed(self, x: Tensor, how: str = "sum") -> Tensor:
        """From partial to whole on every rank of tp, whose gradient is whole on each, too."""
        if self.tp is None:
            return x
        terms = DTensor.from_local(x, self.tp, [Partial(how)], run_check=False)
        return terms.redistribute(placements=[Replicate()]).to_local()

    def gathered_keys(self, x: Tensor, dim: int) -> Tensor:
        """Keys or values of the whole sequence, in the order of the ranks of cp."""
        if self.cp is None:
            return x
        pieces = DTensor.from_local(x, self.cp, [Shard(dim)], run_check=False)
        return pieces.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()])

    def positions(self, seq: int, device: torch.device, rank: int | None = None) -> Tensor:
        """Which tokens of a sequence a rank of cp holds: an early piece and a late one, so that the
        causal mask leaves every rank the same work.
        """
        if self.cp is None:
            return torch.arange(seq, device=device)
        pieces = torch.arange(seq, device=device).chunk(2 * self.cp_size)
        rank = self.place("cp") if rank is None else rank
        return torch.cat([pieces[rank], pieces[2 * self.cp_size - 1 - rank]])

    def own_tokens(self, x: Tensor) -> Tensor:
        """Of something on every token of this rank of cp, this rank of tp's piece under sp."""
        return x.chunk(self.tp_size, dim=0)[self.place("tp")] if self.sp and self.tp else x

    def cross_entropy(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The sum over tokens, of logits that are split by vocabulary: ranks agree on the maximum,
        the sum of exponentials and the target's logit (Shoeybi 2019 §3).
        """
        logits = logits.float()
        if self.tp is None:
            return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
        largest = self.summed(logits.detach().amax(-1), "max")
        logits = logits - largest.unsqueeze(-1)
        width = logits.shape[-1]
        local = targets - self.place("tp") * width
        here = (local >= 0) & (local < width)
        chosen = logits.gather(-1, local.clamp(0, width - 1).unsqueeze(-1)).squeeze(-1)
        both = self.summed(torch.stack([logits.exp().sum(-1), chosen * here]))
        return (both[0].log() - both[1]).sum()
