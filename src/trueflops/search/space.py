"""What a search may try: the values of every dimension of a plan.

An empty tuple leaves a dimension open: every value that is legal for this model on this cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueflops.plan import Plan


class Offload(NamedTuple):
    """What is kept outside the accelerator, as shares."""

    optimizer: float = 0.0
    parameters: float = 0.0
    activations: float = 0.0


KEPT_INSIDE: Final = (Offload(),)
OFFLOADS: Final = (
    Offload(),
    Offload(optimizer=1.0),
    Offload(activations=1.0),
    Offload(optimizer=1.0, activations=1.0),
    Offload(optimizer=1.0, parameters=1.0),
    Offload(1.0, 1.0, 1.0),
)
"""All or nothing of each; weights go only where the states went."""


@dataclass(frozen=True)
class Space:
    """What to try; `base` fixes every field that is no dimension here."""

    tp: tuple[int, ...] = ()
    cp: tuple[int, ...] = ()
    pp: tuple[int, ...] = ()
    vpp: tuple[int, ...] = ()
    ep: tuple[int, ...] = ()
    etp: tuple[int, ...] = ()
    dp: tuple[int, ...] = ()
    dp_replicate: tuple[int, ...] = ()
    dp_shard: tuple[int, ...] = ()
    zero: tuple[int, ...] = (0, 1, 2, 3)
    micro_batch: tuple[int, ...] = ()
    first_stage_layers: tuple[int, ...] = ()
    last_stage_layers: tuple[int, ...] = ()
    recompute: tuple[str, ...] = ("none", "selective", "full")
    recompute_layers: tuple[float, ...] = ()
    sp: tuple[bool, ...] = (True, False)
    cp_kind: tuple[str, ...] = ("ring", "all-to-all")
    schedule: tuple[str, ...] = ("1f1b", "zb-h1", "zb-h2", "zb-v", "dualpipe")
    dispatch: tuple[str, ...] = ("all-to-all", "deduplicated")
    compute: tuple[str, ...] = ()  # empty: that of `base`
    offload: tuple[Offload, ...] = KEPT_INSIDE
    base: Plan = field(default_factory=Plan)
    allows: Callable[[Plan], NDArray[np.bool_]] | None = None  # of many plans, those to be tried
