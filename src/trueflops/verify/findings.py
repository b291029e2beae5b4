"""What a reader of measured results returns: each row beside its prediction, or why it has none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Quantity = Literal[
    "op_seconds", "step_seconds", "tokens_per_second", "peak_bytes", "ttft_seconds", "tpot_seconds"
]


class Finding(NamedTuple):
    """One measured quantity and its prediction with the 90 % interval, in SI units.

    `group` names what is averaged first: a source of runs, or a chip, format and kind of kernel.
    Groups that are not `scored` are shown but left out of the overall figures.
    """

    file: str
    id: str
    group: str
    quantity: Quantity
    measured: float
    predicted: float
    low: float
    high: float
    scored: bool = True

    @property
    def error(self) -> float:
        """(predicted − measured) / measured."""
        return self.predicted / self.measured - 1.0

    @property
    def covered(self) -> bool:
        """Whether the interval holds the measured value."""
        return self.low <= self.measured <= self.high


class Refusal(NamedTuple):
    """A row that cannot be predicted because an input is really missing."""

    file: str
    id: str
    reason: str


@dataclass
class Findings:
    """Everything that one or more files gave."""

    rows: list[Finding] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)

    def extend(self, others: Iterable[Findings]) -> Findings:
        """Take in what other files gave."""
        for other in others:
            self.rows += other.rows
            self.refused += other.refused
        return self
