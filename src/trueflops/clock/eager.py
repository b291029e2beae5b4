"""The law of torch's own eager kernels: one op of a program at a time.

    t = (launches)·start + [ (bytes / (b·BW))^q + (indexed·c / (units·clock))^q ]^(1/q)
A `vector` kernel loads many numbers at once and is bound by memory; so is `math` (exponentials,
roots, sines), except on a CPU, which needs cycles for each. Where operands have different layouts,
the kernel computes the offsets of each element: `indexed` elements at c cycles of a unit each. An
eager broadcast runs at half the bandwidth or less, whatever the bytes. Reductions wait for their
rows.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from trueflops.clock.law import Law, Parameter, Values, log2, stacked, together
from trueflops.clock.silicon import Silicon
from trueflops.graph.variants import INDEXED, EagerKernel
from trueflops.sizes import Array, Size

KINDS: Final = tuple(EagerKernel)
# A row must be summed before its result can be written; a list of tensors is dealt out in chunks.
_WAITS: Final = np.array([float(k.startswith(("reduce", "softmax", "norm"))) for k in KINDS])
_LISTS: Final = np.array(
    [float(k in (EagerKernel.FOREACH, EagerKernel.FUSED_OPTIMIZER)) for k in KINDS]
)
SHARPNESS: Final = 4.0  # both limits overlap well: some threads compute offsets while others wait


class EagerWork(NamedTuple):
    """Bytes moved, elements indexed one by one, launches; `kind` is an index of KINDS."""

    moved_bytes: Size
    indexed: Size
    launches: Size
    kind: Array


def limits(w: EagerWork, chip: Silicon, p: Values) -> tuple[Array, Array]:
    """Seconds that moving the bytes, and indexing the elements, would each take alone."""
    kind = np.asarray(w.kind).astype(np.intp)
    share = np.array([p.get(k, p["vector"]) for k in KINDS])[kind]
    cycles = np.array([p.get(f"{k}_cycles", 0.0) for k in KINDS])[kind]
    moving = np.asarray(w.moved_bytes) / (share * chip.bandwidth)
    return moving, np.asarray(w.indexed) * cycles / (chip.units * chip.hertz)


def _formula(w: EagerWork, chip: Silicon, p: Values) -> Array:
    kind = np.asarray(w.kind).astype(np.intp)
    waits = p["reduce_cycles"] * _WAITS[kind] + p["list_cycles"] * _LISTS[kind]
    start = (p["start_cycles"] + waits) / chip.hertz
    return np.asarray(w.launches * start + together(SHARPNESS, *limits(w, chip, p)))


def _features(w: EagerWork, chip: Silicon) -> Array:
    return stacked(log2(w.moved_bytes), np.asarray(w.kind))


EAGER: Final = Law(
    _formula,
    {
        "start_cycles": Parameter(
            4000.0, 500.0, 20000.0, "cycles before the first byte moves", unit="cycles"
        ),
        "reduce_cycles": Parameter(
            4000.0, 0.0, 30000.0, "more before a row is summed", "low", unit="cycles"
        ),
        "list_cycles": Parameter(
            8000.0, 0.0, 60000.0, "more for each launch over a list", "low", unit="cycles"
        ),
        **{
            kind.value: Parameter(0.8, 0.02, 1.0, f"of the memory's bandwidth, for {kind}", "high")
            for kind in KINDS
        },
        **{
            f"{kind}_cycles": Parameter(
                0.8, 0.05, 50.0, f"of a unit for an element of {kind}", "low", unit="cycles"
            )
            for kind in INDEXED
        },
    },
    _features,
    reach=(2.0, 0.3),
)
