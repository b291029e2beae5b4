"""The law of ops that only move data: norms, activations, casts, lookups, the optimizer's step.

    t = start (+ a reduction's own wait) + bytes / (b·BW)
`bytes` are what the op must read and write at least. A kind that passes over its data more than
once, or badly, has a share b of its own (`norm`, `softmax`, `norm_backward` …).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from trueflops.clock.law import Law, Parameter, Values, log2, stacked
from trueflops.clock.silicon import Silicon
from trueflops.sizes import Array, Size

KINDS: Final = (
    "norm", "norm_backward", "softmax", "softmax_backward", "activation", "activation_backward",
    "dropout", "cast", "rope", "embedding", "cross_entropy", "cross_entropy_backward", "optimizer",
)  # fmt: skip
# A row must be summed before any of it can be written; an optimizer loops over lists of tensors.
_REDUCES: Final = np.array(
    [*(8.0 * (k == "optimizer") + k.startswith(("norm", "softmax")) for k in KINDS), 0.0]
)


class StreamWork(NamedTuple):
    """Bytes that a kernel reads and writes; `kind` is its place in KINDS, −1 for a plain copy."""

    moved_bytes: Size
    kind: Array


def kind_index(kind: str) -> float:
    """The place of a kind in KINDS; a plain copy has none."""
    return float(KINDS.index(kind)) if kind in KINDS else -1.0


def _kind(w: StreamWork) -> Array:
    """The kind of each op, shaped to broadcast over plans."""
    kind = np.asarray(w.kind)
    return kind.reshape(kind.shape + (1,) * (np.ndim(w.moved_bytes) - kind.ndim))


def _formula(w: StreamWork, chip: Silicon, p: Values) -> Array:
    kind, moved = _kind(w).astype(np.intp), np.asarray(w.moved_bytes)
    share = np.array([*(p.get(k, p["bandwidth"]) for k in KINDS), p["bandwidth"]])[kind]
    waits = p["start_cycles"] + p.get("reduce_cycles", 0.0) * _REDUCES[kind]
    return np.asarray(waits / chip.hertz + moved / (share * chip.bandwidth))


def _features(w: StreamWork, chip: Silicon) -> Array:
    return stacked(log2(w.moved_bytes), _kind(w))


STREAM: Final = Law(
    _formula,
    {
        "start_cycles": Parameter(
            4000.0, 500.0, 20000.0, "cycles before the first byte moves", unit="cycles"
        ),
        "reduce_cycles": Parameter(
            4000.0, 0.0, 30000.0, "more before a row is summed", "low", unit="cycles"
        ),
        "bandwidth": Parameter(
            0.8, 0.05, 1.0, "of the memory's, for a copy or an add", "high", True
        ),
        **{
            kind: Parameter(
                0.6, 0.02, 1.0, f"of the memory's, for {kind.replace('_', ' ')}", "high", True
            )
            for kind in KINDS
        },
    },
    _features,
    reach=(2.0, 0.3),  # two doublings of the bytes; a kind says nothing of another
)
