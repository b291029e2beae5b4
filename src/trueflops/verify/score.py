"""Errors by group and over all groups. In: Findings. Out: one Score per group and quantity, and
one Overall per quantity, in which every scored group counts the same, however many rows it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueflops.verify.findings import Finding, Findings


class Score(NamedTuple):
    """What one group's rows of one quantity gave; all but `rows` are fractions."""

    group: str
    quantity: str
    rows: int
    mape: float  # mean of |error|
    median: float  # of |error|
    p90: float  # of |error|
    bias: float  # mean signed error: above zero the prediction is too high
    coverage: float  # share of rows whose interval holds the measured value
    scored: bool


class Overall(NamedTuple):
    """All scored groups of one quantity. `macro_mape` averages the groups, the rest all rows."""

    quantity: str
    groups: int
    rows: int
    macro_mape: float
    median: float
    p90: float
    coverage: float


def summary(findings: Findings) -> list[Score]:
    """One Score per group and quantity, scored groups first, then by name."""
    found: dict[tuple[str, str, bool], list[Counted]] = {}
    for counted in _distinct(findings.rows):
        row = counted.row
        found.setdefault((row.group, row.quantity, row.scored), []).append(counted)
    scores = [_score(*key, rows) for key, rows in found.items()]
    return sorted(scores, key=lambda s: (s.quantity, not s.scored, s.group))


def overall(findings: Findings) -> list[Overall]:
    """One Overall per quantity, over scored groups alone."""
    scored = [counted for counted in _distinct(findings.rows) if counted.row.scored]
    groups = [score for score in summary(findings) if score.scored]
    answers = []
    for quantity in sorted({counted.row.quantity for counted in scored}):
        rows = [counted for counted in scored if counted.row.quantity == quantity]
        mapes = [score.mape for score in groups if score.quantity == quantity]
        off = _misses(rows)
        answers.append(
            Overall(
                quantity,
                len(mapes),
                len(off),
                float(np.mean(mapes)),
                float(np.median(off)),
                float(np.percentile(off, 90)),
                _coverage(rows),
            )
        )
    return answers


def _score(group: str, quantity: str, scored: bool, rows: Sequence[Counted]) -> Score:
    off = _misses(rows)
    return Score(
        group,
        quantity,
        len(off),
        float(np.mean(off)),
        float(np.median(off)),
        float(np.percentile(off, 90)),
        float(np.mean(_errors(rows))),
        _coverage(rows),
        scored,
    )


def _misses(rows: Sequence[Counted]) -> NDArray[np.float64]:
    return np.abs(_errors(rows))


def _errors(rows: Sequence[Counted]) -> NDArray[np.float64]:
    predicted, measured = (_column(rows, name) for name in ("predicted", "measured"))
    return predicted / measured - 1.0


def _coverage(rows: Sequence[Counted]) -> float:
    low, measured, high = (_column(rows, name) for name in ("low", "measured", "high"))
    return float(np.mean((low <= measured) & (measured <= high)))


def _column(rows: Sequence[Counted], name: str) -> NDArray[np.float64]:
    values = np.array([getattr(counted.row, name) for counted in rows], np.float64)
    return np.repeat(values, [counted.times for counted in rows])


class Counted(NamedTuple):
    """A finding, and in how many lines it stands."""

    row: Finding
    times: int


def _distinct(rows: Sequence[Finding]) -> list[Counted]:
    """Lines that are equal share one finding."""
    times = Counter(map(id, rows))
    return [Counted(row, times[number]) for number, row in {id(r): r for r in rows}.items()]
