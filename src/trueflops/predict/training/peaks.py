"""Which bytes a reported peak of memory counts: three people who look see three numbers.

allocated  tensors alive at the fullest moment (torch.cuda.max_memory_allocated): also workspaces
           of cuBLAS, which PyTorch allocates itself (CublasHandlePool.cpp)
reserved   what the caching allocator took for them, and keeps for the next that fits
           (torch.cuda.max_memory_reserved; c10/cuda/CUDACachingAllocator.cpp): blocks of other
           moments count, which it would give back if memory ran out
device     what the driver sees (nvidia-smi, NVML): that, the CUDA context with its kernels, and the
           buffers of NCCL's communicators, which call cudaMalloc themselves (nccl/src/transport)
"""

from __future__ import annotations

from dataclasses import replace
from math import hypot
from typing import Final, Literal

import numpy as np

from trueflops.errors import UnknownName
from trueflops.runtime.terms import Term, lopsided, total

PeakKind = Literal["allocated", "reserved", "device"]

BEYOND: Final[dict[PeakKind, tuple[str, ...]]] = {
    "allocated": ("allocator slack", "communicators", "context"),
    "reserved": ("communicators", "context"),
    "device": (),
}
"""Parts of a predicted memory that each kind leaves out."""


UNSEEN: Final[dict[PeakKind, tuple[float, float]]] = {
    "allocated": (0.0, 0.1),
    "reserved": (0.0, 0.38),
    "device": (0.14, 0.16),
}
"""How far below and above their predictions peaks of runs lie that nobody has seen
(benchmarks/source_errors.py): what an allocator keeps beyond tensors depends on the order of a
whole run."""


def peak_of(memory: Term, kind: PeakKind, cached: Term | None = None) -> Term:
    """The parts of a predicted memory that one kind of peak counts, and their sum; `cached` are the
    blocks that the allocator keeps beside them.
    """
    if kind not in BEYOND:
        raise UnknownName("kind of peak", kind, tuple(BEYOND))
    parts = [part for part in memory.parts if part.name not in BEYOND[kind]]
    if cached is not None and kind != "allocated":
        parts.append(cached)
    either_side, (below, above) = lopsided(*UNSEEN[kind])
    whole = total(
        f"peak {kind}",
        *parts,
        unit=memory.unit,
        cause=memory.cause,
        spread=hypot(memory.spread, either_side),
    )
    low, high = memory.unstated
    return replace(whole, unstated=(np.hypot(low, below), np.hypot(high, above)))
