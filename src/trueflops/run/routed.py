"""Tokens to their experts and back: sorted by expert, sent by all-to-all where ep is above one.

In: rows, the experts that each chose and their scores. Out: the weighted sum of their answers.
Every chosen row is computed: there is no capacity, so no plan drops a token that another keeps.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import DeviceMesh


def routed(
    rows: Tensor,
    which: Tensor,
    scores: Tensor,
    one: Callable[[int, Tensor], Tensor],
    experts: int,
    ep: DeviceMesh | None,
) -> Tensor:
    """What the experts make of all rows; `one` runs one of this rank's."""
    order = which.flatten().argsort(stable=True)
    counts = torch.bincount(which.flatten(), minlength=experts)
    sent = rows[order // which.shape[1]]
    answers = _here(sent, counts, one) if ep is None else _spread(sent, counts, one, ep)
    weighted = answers * scores.flatten()[order].unsqueeze(-1)
    return torch.zeros_like(rows).index_add(0, order // which.shape[1], weighted)


def _here(rows: Tensor, counts: Tensor, one: Callable[[int, Tensor], Tensor]) -> Tensor:
    """Rows sorted by expert; an expert without rows still takes part, so that it has a gradient."""
    pieces = rows.split(counts.tolist())
    return torch.cat([one(expert, piece) for expert, piece in enumerate(pieces)])


def _spread(
    rows: Tensor, counts: Tensor, one: Callable[[int, Tensor], Tensor], ep: DeviceMesh
) -> Tensor:
    """All-to-all there, sort what arrived by expert, compute, and all the way back."""
    ranks, group = ep.size(), ep.get_group()
    arriving = torch.empty_like(counts)
    dist.all_to_all_single(arriving, counts, group=group)
    away = counts.view(ranks, -1).sum(1).tolist()
    here = arriving.view(ranks, -1)
    back = here.sum(1).tolist()
    arrived = all_to_all_single_autograd(rows, back, away, group)
    local = torch.arange(here.shape[1], device=rows.device).repeat(ranks)
    order = local.repeat_interleave(arriving).argsort(stable=True)
    answers = _here(arrived[order], here.sum(0), one)
    unsorted = torch.zeros_like(answers).index_copy(0, order, answers)
    return all_to_all_single_autograd(unsorted, away, back, group)
