"""Every possible plan of a space, as few large Plans: one per combination of what cannot be array.

In: a Model, a Training workload, the number of accelerators, a Space.
Out: Plans whose numeric fields are arrays, already rid of those that break a rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from trueflops.model import Model
from trueflops.plan import Plan, possible
from trueflops.sizes import Array
from trueflops.workload import Training


@dataclass(frozen=True)
class Space:
    """What to try. Empty tuples mean: every value that divides; fields fix what is not searched."""

    tp: tuple[int, ...] = ()
    cp: tuple[int, ...] = ()
    pp: tuple[int, ...] = ()
    vpp: tuple[int, ...] = (1, 2, 4, 5, 8, 10)
    ep: tuple[int, ...] = ()
    zero: tuple[int, ...] = (0, 1, 2, 3)
    micro_batch: tuple[int, ...] = (1, 2, 4, 8)
    recompute: tuple[str, ...] = ("none", "selective", "full")
    base: Plan = field(default_factory=Plan)


def enumerate_plans(
    model: Model, training: Training, accelerators: int, per_node: int, space: Space
) -> Iterator[Plan]:
    """All possible plans, one large Plan per recomputation policy."""
    grid = _grid(model, training, accelerators, per_node, space)
    for policy in space.recompute:
        if policy == "selective" and space.base.flash:
            continue  # flash attention keeps no scores: there is nothing left to select
        if grid["tp"].size == 0:
            return
        whole = space.base.but(**grid, recompute=policy, sp=True)
        fine = possible(whole, model, accelerators, training)
        if fine.any():
            yield whole.take(fine)


def _grid(
    model: Model, training: Training, accelerators: int, per_node: int, space: Space
) -> dict[str, Array]:
    heads = max(b.attention.heads for b in model.blocks)
    experts = max((b.experts.count for b in model.blocks if b.experts), default=1)
    tps = space.tp or [d for d in divisors(accelerators) if d <= min(heads, 2 * per_node)]
    pps = space.pp or [d for d in divisors(accelerators) if d <= model.layers]
    # Below this many tokens a rank, splitting the sequence further only adds communication.
    cps = space.cp or [1, *(d for d in (2, 4, 8, 16) if training.seq >= 8192 * d)]
    eps = space.ep or [d for d in divisors(experts) if d <= accelerators]
    rows = []
    for tp, pp, cp in product(tps, pps, cps):
        if accelerators % (tp * pp * cp):
            continue
        dp = accelerators // (tp * pp * cp)
        for vpp, ep, micro, zero in product(space.vpp, eps, space.micro_batch, space.zero):
            if vpp * pp > model.layers or training.global_batch % (micro * dp):
                continue
            if zero and dp * cp == 1:
                continue
            rows.append((tp, pp, cp, dp, vpp, ep, micro, zero))
    table = np.array(rows, dtype=np.float64).reshape(-1, 8)
    names = ("tp", "pp", "cp", "dp_shard", "vpp", "ep", "micro_batch", "zero")
    return {name: table[:, i] for i, name in enumerate(names)}


def divisors(number: int) -> list[int]:
    """All divisors, smallest first."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})
