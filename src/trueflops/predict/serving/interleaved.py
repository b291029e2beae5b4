"""Two-batch overlap: one half of the tokens computes while the other is on its way to experts.

DeepSeek-V3's report (arXiv 2412.19437, §3.4), SGLang's --enable-two-batch-overlap, vLLM's
--enable-dbo. A layer takes the longer of both halves' computing and both halves' exchanges: weights
are read twice, and what is exchanged costs only what outlasts the computing.
In: Costs of half the tokens and of all. Out: Costs of all, interleaved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, TypeVar

import numpy as np

from trueflops.clock.silicon import Silicon
from trueflops.predict.costs import Costs, PieceCost
from trueflops.sizes import Size
from trueflops.tables import summed

# Units that DeepEP's normal kernels keep while they send (Buffer.num_sms = 20, deep_ep/buffer.py);
# its low-latency kernels receive in the background and keep none (docs/legacy.md).
SENDING_UNITS: Final = 20.0
_EXCHANGE: Final = "ep"
Key = TypeVar("Key")


def interleaved(half: Costs, whole: Costs, silicon: Silicon, *, decoding: bool = False) -> Costs:
    """Blocks in two halves; embedding and head, which exchange nothing, as they were."""
    share = 0.0 if decoding else SENDING_UNITS / silicon.units
    pairs = zip(half.blocks, whole.blocks, strict=True)
    return replace(whole, blocks=tuple(_interleaved(a, b, share) for a, b in pairs))


def _interleaved(half: PieceCost, whole: PieceCost, share: float) -> PieceCost:
    sent = 2.0 * half.of_cause("forward", _EXCHANGE)
    if not np.any(sent):
        return whole
    computed = {k: 2.0 * s for k, s in half.seconds.items() if k[1] != _EXCHANGE}
    busy = summed(computed.values())
    # While something is sent, some units are not there to compute.
    slower = 1.0 + np.minimum(sent / busy, 1.0) * share
    seconds: dict[tuple[str, str], Size] = {k: s * slower for k, s in computed.items()}
    seconds["forward", _EXCHANGE] = np.maximum(sent - busy * slower, 0.0)
    return replace(
        whole,
        seconds=seconds,
        kernels={phase: 2.0 * count for phase, count in half.kernels.items()},
        host=_twice(half.host),
        joules=_twice(half.joules),
    )


def _twice(table: Mapping[Key, Size]) -> dict[Key, Size]:
    return {key: 2.0 * value for key, value in table.items()}
