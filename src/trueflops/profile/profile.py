"""A Profile: one Curve per class of op, with the relative error it was seen to have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trueflops.catalog import Origin
from trueflops.errors import MissingFact


@dataclass(frozen=True)
class Curve:
    """Parameters of one law of `clock/`. `error` is one standard deviation of log(time)."""

    values: Mapping[str, float]
    error: float
    origin: Origin
    source: str

    def __getitem__(self, name: str) -> float:
        return self.values[name]


@dataclass(frozen=True)
class Profile:
    """The behaviour of one chip."""

    name: str
    accelerator: str
    curves: Mapping[str, Curve]

    def curve(self, name: str) -> Curve:
        """The curve of an op class; `matmul.fp8` falls back to `matmul`."""
        found = self.curves.get(name) or self.curves.get(name.partition(".")[0])
        if found is None:
            raise MissingFact(f"profile {self.name} has no curve for {name}")
        return found
