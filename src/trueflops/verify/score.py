"""Errors by group and over all groups. In: Findings. Out: one Score per group and quantity, and
one Overall per quantity, in which every scored group counts the same, however many rows it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
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
    found: dict[tuple[str, str, bool], list[Finding]] = {}
    for row in findings.rows:
        found.setdefault((row.group, row.quantity, row.scored), []).append(row)
    scores = [_score(*key, rows) for key, rows in found.items()]
    return sorted(scores, key=lambda s: (s.quantity, not s.scored, s.group))


def overall(findings: Findings) -> list[Overall]:
    """One Overall per quantity, over scored groups alone."""
    scored = [row for row in findings.rows if row.scored]
    groups = [score for score in summary(findings) if score.scored]
    answers = []
    for quantity in sorted({row.quantity for row in scored}):
        rows = [row for row in scored if row.quantity == quantity]
        mapes = [score.mape for score in groups if score.quantity == quantity]
        off = _misses(rows)
        answers.append(
            Overall(
                quantity,
                len(mapes),
                len(rows),
                float(np.mean(mapes)),
                float(np.median(off)),
                float(np.percentile(off, 90)),
                _coverage(rows),
            )
        )
    return answers


def _score(group: str, quantity: str, scored: bool, rows: list[Finding]) -> Score:
    off = _misses(rows)
    return Score(
        group,
        quantity,
        len(rows),
        float(np.mean(off)),
        float(np.median(off)),
        float(np.percentile(off, 90)),
        float(np.mean(_errors(rows))),
        _coverage(rows),
        scored,
    )


def _misses(rows: Sequence[Finding]) -> NDArray[np.float64]:
    return np.abs(_errors(rows))


def _errors(rows: Sequence[Finding]) -> NDArray[np.float64]:
    predicted, measured = (_column(rows, name) for name in ("predicted", "measured"))
    return predicted / measured - 1.0


def _coverage(rows: Sequence[Finding]) -> float:
    low, measured, high = (_column(rows, name) for name in ("low", "measured", "high"))
    return float(np.mean((low <= measured) & (measured <= high)))


def _column(rows: Sequence[Finding], name: str) -> NDArray[np.float64]:
    return np.fromiter(map(attrgetter(name), rows), np.float64, len(rows))
