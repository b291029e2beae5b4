"""What is asked for where nobody says: the workload that most pre-training runs are near."""

from __future__ import annotations

from typing import Final

from trueflops.model import Model
from trueflops.sizes import divisors

USUAL_SEQ: Final = 8192
BATCH_TOKENS: Final = 2**22  # of a step
_TOKENS_PER_CHIP: Final = 1024  # at least, so that large clusters have something to share out
_TOKENS_PER_PARAMETER: Final = 20.0  # Hoffmann et al. 2022 (arXiv 2203.15556), table 3


def usual_seq(model: Model) -> int:
    """The usual pre-training length, at most the model's own."""
    return min(model.max_positions, USUAL_SEQ)


def usual_tokens(model: Model) -> float:
    """As many as make the best of a budget of compute."""
    return _TOKENS_PER_PARAMETER * model.active_parameter_count


def usual_batch(seq: int, count: int, replicas: int = 1) -> int:
    """Four million tokens, or more on many chips, in sequences that they can share evenly."""
    batch = _even_batch(seq, count)
    return batch if batch % replicas == 0 else -(-batch // replicas) * replicas


def _even_batch(seq: int, count: int) -> int:
    wanted = max(1, round(max(BATCH_TOKENS, _TOKENS_PER_CHIP * count) / seq))
    if wanted >= count:
        return max(1, round(wanted / count)) * count
    shares = [d for d in divisors(count) if wanted / 4 <= d <= wanted]
    return max(shares, default=wanted)
