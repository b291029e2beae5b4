"""The front of time and memory: the fastest plan within an eighth, two eighths … of the memory,
where it takes at most half as long again as the fastest of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trueflops.plan import Plan
from trueflops.sizes import Array

PARTS: Final = 8
SLOWEST: Final = 1.5  # of the fastest plan's time


@dataclass
class Front:
    """Grows as plans come in, in any order."""

    capacity: float

    def __post_init__(self) -> None:
        self.budgets: Array = self.capacity * np.arange(1, PARTS + 1) / PARTS
        self.seconds: Array = np.full(PARTS, np.inf)
        self.sought: NDArray[np.bool_] = np.ones(PARTS, np.bool_)
        self._plans: list[Plan | None] = [None] * PARTS

    @property
    def limits(self) -> Array:
        """What a plan must be faster than to matter, by budget; 0 where none is sought."""
        return np.where(self.sought, np.minimum(self.seconds, self._slowest), 0.0)

    @property
    def _slowest(self) -> float:
        return SLOWEST * float(self.seconds.min())

    def seek(self, budgets: Array) -> None:
        """Look within some budgets only."""
        self.sought = np.isin(self.budgets, budgets)

    def matters(self, seconds: Array, bytes_: Array) -> NDArray[np.bool_]:
        """Whether a plan of that many seconds and bytes would be the fastest within a budget."""
        # What fits into a budget fits into all larger ones: the most generous limit is the first.
        limits = np.maximum.accumulate(np.append(self.limits, 0.0)[::-1])[::-1]
        place = np.searchsorted(self.budgets, bytes_)
        return np.asarray(seconds < limits[place])

    def add(self, seconds: Array, bytes_: Array, plans: Plan) -> None:
        """Take the fastest of many plans within each budget; infinitely slow ones do not count."""
        for part, budget in enumerate(self.budgets):
            taken = np.where(bytes_ <= budget, seconds, np.inf)
            row = int(np.argmin(taken))
            if taken[row] < self.seconds[part]:
                self.seconds[part] = taken[row]
                self._plans[part] = plans.pick(row)

    @property
    def plans(self) -> list[Plan]:
        """Fastest first, each once."""
        found: list[Plan] = []
        shown = self.sought & (self.seconds <= self._slowest)
        for plan, show in zip(reversed(self._plans), reversed(shown), strict=True):
            if show and plan is not None and plan not in found:
                found.append(plan)
        return found
