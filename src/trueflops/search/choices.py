"""How replicas may share what they hold: ZeRO stage, groups, offload.

Which choices there are depends on how many replicas a key leaves, whether its stages follow each
other, and whether it is one rank alone: keys that agree in these have one menu.

In: a Space, keys. Out: Choices, one menu after the other, and the menu of each key.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from trueflops.plan import Plan
from trueflops.search.space import Space
from trueflops.sizes import Array, distinct, divisors

Rows = NDArray[np.intp]
FIELDS: Final = (
    "zero", "dp_replicate", "dp_shard",
    "offload_optimizer", "offload_parameters", "offload_activations",
)  # fmt: skip
"""Of a plan, what a choice says."""


@dataclass(frozen=True)
class Choices:
    """Menus of choices, one after the other."""

    table: Array  # [field, choice]
    starts: Rows  # of each menu

    def of(self, columns: Any) -> dict[str, Array]:
        """Plan fields of some choices."""
        return dict(zip(FIELDS, self.table[:, columns], strict=True))

    @cached_property
    def sizes(self) -> Rows:
        """Of each menu."""
        return np.diff(np.append(self.starts, self.table.shape[1]))

    def on(self, menus: Rows) -> tuple[Rows, Rows]:
        """Each row with every choice of its menu: which row, which choice."""
        at, place = repeated(self.sizes[menus])
        return at, self.starts[menus][at] + place


def repeated(many: Rows) -> tuple[Rows, Rows]:
    """Each row so many times: which row, and which of its times, from 0."""
    at = np.repeat(np.arange(many.size), many)
    return at, np.arange(at.size) - np.repeat(np.cumsum(many) - many, many)


def choices_of(space: Space, keys: Plan) -> tuple[Choices, Rows]:
    """The menus of some keys, whose `dp_replicate` are all their replicas, and which each has.

    Where stages follow each other, gradients cannot stay in shards: they are added up until the
    pipeline is flushed. One rank alone has nobody to share with.
    """
    alone = np.asarray(keys.dp_replicate * keys.cp == 1, np.float64)
    staged = np.asarray(keys.pp, np.float64) > 1
    kinds, menu = distinct([keys.dp_replicate, alone, staged.astype(np.float64)])
    menus = []
    for replicas, is_alone, is_staged in kinds:
        rows = ways_to_share(space, int(replicas))
        zero = rows[:, FIELDS.index("zero")]
        fine = zero == 0 if is_alone else (zero != 2 if is_staged else zero >= 0)
        menus.append(rows[fine])
    starts = np.cumsum([0, *(len(rows) for rows in menus[:-1])])
    return Choices(np.concatenate(menus).T, starts), menu


def ways_to_share(space: Space, replicas: int) -> Array:
    """Every choice of so many replicas, [choice, field]."""
    groups = [s for s in divisors(replicas) if not space.dp_shard or s in space.dp_shard]
    groups = [s for s in groups if not space.dp_replicate or replicas // s in space.dp_replicate]
    rows = []
    for zero, offload in product(space.zero, space.offload):
        if offload.parameters and zero < 3:
            continue  # weights stream in piece by piece only where they are gathered so
        sharing = groups if zero else [1]
        rows += [(zero, replicas // shard, shard, *offload) for shard in sharing]
    return np.array(rows, np.float64).reshape(-1, len(FIELDS))
