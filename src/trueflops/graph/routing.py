"""Where tokens go among experts: rows of the fullest rank, and how many experts have any.

balanced   every expert in turn
random     k of E experts each, all alike: what a server's ranks see at best
power law  shares of the experts drawn from a truncated power law, the heaviest on one rank: how
           aiconfigurator (ai-dynamo, Apache-2.0) draws the skewed rows of its tables
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from trueflops.sizes import Size

_HEAVIEST_SHARE = 0.8  # of the tokens that one expert may draw


def above_mean(ranks: Size) -> Size:
    """How many deviations the fullest of so many ranks stands above their mean, about.

    The asymptote of a normal's largest (Gumbel), √(2 ln n), shrunk as it is for few ranks.
    """
    return 0.85 * np.sqrt(2.0 * np.log(ranks))


def fullest_share(rows: Size, ranks: Size, experts: Size, per_token: Size) -> Size:
    """Rows of the fullest rank over the mean `rows`, where tokens choose experts at random.

    A token's k choices are distinct, so that those on one of n ranks are hypergeometric:
        σ² = rows · (1 − 1/n) · (E − k) / (E − 1)
    """
    spread = (1.0 - 1.0 / ranks) * (experts - per_token) / np.maximum(experts - 1.0, 1.0)
    deviation = np.sqrt(np.maximum(spread, 0.0) / np.maximum(rows, 1e-9))
    return np.minimum(1.0 + above_mean(ranks) * deviation, ranks)


class Load(NamedTuple):
    """What the fullest rank of experts has to do."""

    rows: float
    touched: float


@lru_cache(maxsize=1 << 16)
def load(tokens: float, per_token: float, experts: float, ranks: float, power: float) -> Load:
    """Rows and touched experts of the fullest rank; a `power` of 0 is balanced."""
    own, copies = experts / ranks, tokens * per_token
    if power == 0.0:
        rows = max(copies / ranks, 1.0)
        return Load(rows, float(np.clip(copies / ranks, 1.0, own)))
    shares = _power_law(tokens, copies, int(experts), power)
    whole = np.round(shares)
    left = max(copies - whole.sum(), 0.0)  # handed out one by one, to the heaviest first
    touched = max(float((whole >= 1.0).sum()), min(experts, left), 1.0)
    if ranks == 1.0:
        return Load(float(shares.sum()), touched)
    mean, deviation = float(shares.mean()), float(shares.std())
    above = deviation * np.sqrt(own) * float(above_mean(ranks))
    rows = min(own * mean + above, float(shares.max()) + (own - 1.0) * mean)
    return Load(max(float(rows), 1.0), float(np.clip(1.1 * own * touched / experts, 1.0, own)))


def _power_law(tokens: float, copies: float, experts: int, power: float) -> np.ndarray:
    """Quantiles of a power law between its ends, scaled to all copies, at most one per token."""
    few = copies <= experts
    low, high = (0.01, 2.0) if few else (1.0, max(_HEAVIEST_SHARE * tokens, 1.0001))
    at = (np.arange(experts) + 0.5) / experts
    inverse = 1.0 - power
    if inverse == 0.0:  # the limit: quantiles of 1/x
        shares = low * (high / low) ** at
    else:
        shares = ((high**inverse - low**inverse) * at + low**inverse) ** (1.0 / inverse)
    for _ in range(3):  # capping some raises the others
        shares = np.minimum(shares / shares.sum() * copies, tokens)
    return shares
