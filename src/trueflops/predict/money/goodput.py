"""Goodput: the share of a run's time that is work, between checkpoints, failures and restarts.

    T = M·e^(R/M)·(e^((τ+δ)/M) − 1)·W/τ          time for W seconds of work (Daly 2006)
    τ = √(2δM)·(1 + ⅓·√(δ/2M) + ⅑·δ/2M) − δ      the best interval (the same; M where δ ≥ 2M)
W: work, τ: work between checkpoints, δ: what one stalls, M: mean time between failures of the job,
R: restart. The first order of τ is Young's √(2δM) (Young 1974). Failures come at random (Poisson),
also during a restart. J. T. Daly, Future Generation Computer Systems 22(3), 2006.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trueflops.sizes import Size


@dataclass(frozen=True)
class Interrupted:
    """How a run of so much work goes that is interrupted at random."""

    mtbf_seconds: Size  # of the whole job
    stall_seconds: Size  # of one checkpoint
    restart_seconds: Size  # until a checkpoint is loaded and the first step begins
    unsafe_seconds: Size = 0.0  # work that is lost though its checkpoint was begun
    interval_seconds: Size = np.inf  # work between checkpoints

    @property
    def stretch(self) -> Size:
        """Time over work: 1 where nothing fails and no checkpoint is written."""
        m, tau = self.mtbf_seconds, self.interval_seconds
        with np.errstate(over="ignore"):  # a job that fails before it has restarted never ends
            lost = np.exp((self.restart_seconds + self.unsafe_seconds) / m)
            return m * lost * np.expm1((tau + self.stall_seconds) / m) / tau

    @property
    def goodput(self) -> Size:
        """Work over time."""
        return 1.0 / self.stretch

    @property
    def stalled(self) -> Size:
        """The share of the time in which checkpoints stall work that counts."""
        return self.goodput * self.stall_seconds / self.interval_seconds

    @property
    def restarting(self) -> Size:
        """The share that restarts take: of T, M·(e^(R/M) − 1)·(e^((τ+δ)/M) − 1)·W/τ."""
        after = self.restart_seconds + self.unsafe_seconds
        share = -np.expm1(-after / self.mtbf_seconds)
        return share * self.restart_seconds / np.maximum(after, 1e-300)

    @property
    def repeated(self) -> Size:
        """The share that was worked in vain."""
        return 1.0 - self.goodput - self.stalled - self.restarting


def best_interval(stall_seconds: Size, mtbf_seconds: Size) -> Size:
    """The work between two checkpoints that makes the run shortest (Daly 2006)."""
    half = np.sqrt(stall_seconds / (2.0 * mtbf_seconds))
    first = np.sqrt(2.0 * stall_seconds * mtbf_seconds)  # Young 1974
    higher = first * (1.0 + half / 3.0 + half**2 / 9.0) - stall_seconds
    return np.where(stall_seconds < 2.0 * mtbf_seconds, higher, mtbf_seconds)[()]
