"""How many rows a router sends where: what `topk` chooses of unknown scores.

A router sends each token to the experts with the best scores, and how many tokens an expert gets
decides shapes. A trained router is balanced, so the choice goes round: the first row takes the
first k positions, the next row the next k. The answer says that it was assumed. A mask that is made
of this choice is then known, and so is how much it selects.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from trueflops.capture.pretend.values import MOST_INTEGERS

_TOPK: Final = torch.ops.aten.topk.default


def chosen_evenly(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], made: Any) -> bool:
    """Give the positions that an unknown `topk` chooses; whether it was one."""
    if func is not _TOPK or getattr(made[1], "_known_values", None) is not None:
        return False
    scores, places = args[0], made[1]
    if scores.dim() < 2 or places.numel() > MOST_INTEGERS:
        return False
    dim = (args[2] if len(args) > 2 else kwargs.get("dim", -1)) % scores.dim()
    count, width = places.shape[dim], scores.shape[dim]
    if not count or not width:
        return False
    rows = places.numel() // count
    chosen = (torch.arange(rows * count) % width).reshape(rows, count)
    others = [size for i, size in enumerate(places.shape) if i != dim]
    places._known_values = chosen.reshape(*others, count).movedim(-1, dim).contiguous()
    return True
